"""What a kernel takes: by its operations, its bytes and how it walks through memory."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_works import BF16, FP32, H200, addition, product, seconds

from vramcast.forecast.timing.kernels import (
    ATTENTION_RATES,
    FUSED_RATES,
    REDUCTION_INNER,
    kernel_time,
)
from vramcast.forecast.timing.many_products import MANY, THIN
from vramcast.forecast.timing.products import BOTH_TURNED, GROUPED, TileRates
from vramcast.forecast.timing.rates import peak_flops, shipped
from vramcast.forecast.timing.walks import WALK
from vramcast.hardware.gpus import GPUS
from vramcast.tracing.work import (
    ACCESS_NAMES,
    BACKWARD,
    CONVERTING,
    FORWARD,
    MASKED,
    MASKED_AND_DROPPED,
    NO_KERNEL,
    PLAIN,
    STRIDED,
    TF32,
    OperatorWork,
)


def test_a_large_product_runs_at_most_of_the_peak_and_never_above_it() -> None:
    work = product(16384, 16384, 16384)
    rate = work.flops / seconds(work)
    assert 0.6 * peak_flops(H200, "bf16") < rate < peak_flops(H200, "bf16")


def test_without_tensor_cores_a_product_takes_many_times_as_long() -> None:
    assert seconds(product(8192, 8192, 8192, dtype=FP32)) > 8 * seconds(product(8192, 8192, 8192))
    assert (
        seconds(product(8192, 8192, 8192, dtype=TF32))
        < seconds(product(8192, 8192, 8192, dtype=FP32)) / 4
    )


def test_rows_that_are_not_aligned_cost_a_slower_kernel() -> None:
    assert seconds(product(8192, 768, 30522, access=STRIDED)) > 2 * seconds(
        product(8192, 768, 30528)
    )


RECORDED = Path(__file__).parents[2] / "benchmarks" / "step_time" / "recorded" / "unaligned.jsonl"


@pytest.mark.parametrize("words", [30522, 50257, 50260])
def test_an_output_layer_of_unaligned_width_takes_what_an_h200_took(words: int) -> None:
    """Inductor pads these where that is faster; odd widths are slowest."""
    for row in map(json.loads, RECORDED.read_text().splitlines()):
        if (row["words"], row["tokens"], row["kind"]) == (words, 8192, "of_hidden"):
            found = kernel_time(
                product(8192, row["width"], words, access=STRIDED), H200, shipped()
            ).seconds
            assert found == pytest.approx(row["product_seconds"], rel=0.25)


def test_an_addition_is_as_fast_as_memory_allows_and_converting_is_slower() -> None:
    num_bytes = 1e9
    assert 0.7 < num_bytes / seconds(addition(num_bytes)) / H200.bandwidth_bytes_per_second < 1.0
    assert seconds(addition(num_bytes, CONVERTING)) > 1.2 * seconds(addition(num_bytes))


def test_a_view_takes_no_time_on_the_gpu() -> None:
    assert (
        seconds(OperatorWork("aten::view", -1, 0.0, 0.0, (0, 0, 0, 0), FORWARD, NO_KERNEL)) == 0.0
    )


def test_an_operator_nobody_measured_is_as_fast_as_others_that_go_through_memory_alike() -> None:
    strange = addition(1e9)._replace(operator="aten::strange")
    assert seconds(strange) == pytest.approx(seconds(addition(1e9)), rel=0.6)
    by_hand = addition(1e9)._replace(operator="mine::strange")
    assert seconds(by_hand) > seconds(strange), "a kernel of one's own does more than copy"


@given(st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 4096))
def test_more_work_never_takes_less_time(rows: int, columns: int, inner: int) -> None:
    assert seconds(product(2 * rows, columns, inner)) >= seconds(product(rows, columns, inner))


@pytest.mark.parametrize("gpu", [gpu.name for gpu in GPUS])
def test_every_gpu_has_a_time_for_every_precision(gpu: str) -> None:
    for dtype in (5, FP32, BF16, TF32, 24, -1):
        assert 0 < seconds(product(1024, 1024, 1024, dtype=dtype), gpu) < 1


def rows_of_table(count: int, row_bytes: int, operator: str = "aten::index_select") -> OperatorWork:
    moved = 2.0 * count * row_bytes
    return OperatorWork(operator, 6, 0.0, moved, (0, 0, 0, count), 0, STRIDED)


def test_many_short_rows_take_longer_than_few_long_ones_with_the_same_bytes() -> None:
    assert seconds(rows_of_table(500_000, 64)) > 5 * seconds(rows_of_table(10_000, 3200))


def test_few_channels_leave_most_of_the_gpu_idle() -> None:
    few, many, odd = (
        OperatorWork("aten::native_batch_norm", 15, 0.0, 1e8, (0, *sizes), 0, PLAIN)
        for sizes in ((64, 24_414, 16), (64, 763, 512), (24_038, 65, 16))
    )
    assert seconds(few) > 3 * seconds(many)
    # 65 positions have rows of 128 threads
    assert seconds(odd) > 1.5 * seconds(few)


def test_a_product_with_a_vector_is_not_cut_into_tiles() -> None:
    batch = OperatorWork("aten::bmm", 6, 8.4e6, 3.4e7, (32_768, 1, 1, 128), 0, PLAIN)
    assert seconds(batch) < 1e-4


def test_gradients_that_are_added_to_one_pixel_wait_for_each_other() -> None:
    """As deeplabv3 on an H200: 26.3 ms for 48 x 21 pictures of 24 x 24 that become 384 x 384."""
    large, small = 48 * 21 * 384**2, 48 * 21 * 24**2
    name, moved = "aten::upsample_bilinear2d_backward", 4.0 * (large + small)
    work = OperatorWork(name, FP32, 0.0, moved, (0, 0, 0, large * large // small), 0, PLAIN)
    assert 20e-3 < seconds(work) < 32e-3
    assert seconds(work._replace(sizes=(0, 0, 0, 4 * large))) < 2e-3


@pytest.mark.parametrize(
    ("rows", "places", "width", "milliseconds"),
    [(524_288, 500_000, 64, 0.825), (24_576, 49_152, 1024, 0.476), (40_960, 32_000, 768, 0.528)],
)
def test_gradients_of_a_table_take_what_an_h200_took(
    rows: int, places: int, width: int, milliseconds: float
) -> None:
    """Of bags of names, and of two language models: the rates were not made from them."""
    sizes, moved = (0, rows, places, width), 4.0 * width * (rows + places)
    work = OperatorWork("aten::embedding_dense_backward", 6, 0.0, moved, sizes, 1, PLAIN)
    assert seconds(work) == pytest.approx(1e-3 * milliseconds, rel=0.15)


def test_many_small_products_start_while_others_run() -> None:
    """Of windows of 49 pixels, as swin_b has them: 55.7 us on an H200."""
    moved = 2.0 * 6144 * (49 * 49 + 2 * 49 * 32)
    sizes = (6144, 49, 32, 49)
    work = OperatorWork("aten::bmm", BF16, 2.0 * math.prod(sizes), moved, sizes, 0, STRIDED)
    assert 45e-6 < seconds(work) < 67e-6


@pytest.mark.parametrize(
    ("sizes", "dtype", "access", "microseconds"),
    [
        ((4096, 26, 16, 384), BF16, PLAIN, 44.1),
        ((1024, 196, 577, 96), BF16, STRIDED, 365.1),
        ((64, 768, 768, 768), TF32, CONVERTING, 183.4),
        ((2, 50, 768, 65_536), TF32, STRIDED, 667.8),
    ],
)
def test_many_products_take_what_an_h200_took(
    sizes: tuple[int, ...], dtype: int, access: int, microseconds: float
) -> None:
    """The last has few tiles: each waits for its 65,536 steps."""
    many, rows, columns, inner = sizes
    moved = (2.0 if dtype == BF16 else 4.0) * many
    moved *= rows * columns + (rows + columns) * inner
    work = OperatorWork("aten::bmm", dtype, 2.0 * math.prod(sizes), moved, sizes, 0, access)
    assert seconds(work) == pytest.approx(1e-6 * microseconds, rel=0.2)


def test_a_score_of_attention_costs_more_than_its_products() -> None:
    """Wide heads use the tensor cores better: on an H200, 469 and 615 TFLOP/s backward."""
    name = "aten::_scaled_dot_product_cudnn_attention_backward"
    narrow, wide = (
        OperatorWork(name, BF16, 10.0 * math.prod(sizes), 1e8, sizes, BACKWARD, PLAIN)
        for sizes in ((16, 8192, 8192, 64), (16, 8192, 8192, 128))
    )
    assert 1.3 < seconds(wide) / seconds(narrow) < 1.8


@pytest.mark.parametrize(
    ("sizes", "access", "forward_us", "backward_us"),
    [
        ((3072, 197, 197, 64), PLAIN, 168, 585),
        ((448, 1024, 1024, 64), MASKED, 544, 1332),
        ((96, 2048, 2048, 128), MASKED, 689, 2059),
        ((5376, 192, 192, 64), MASKED_AND_DROPPED, 823, 1291),
        ((512, 1024, 1024, 64), MASKED_AND_DROPPED, 1262, 1881),
        ((240, 1024, 1024, 128), MASKED_AND_DROPPED, 833, 2003),
    ],
)
def test_masks_and_dropout_take_what_an_h200_took(
    sizes: tuple[int, ...], access: int, forward_us: float, backward_us: float
) -> None:
    """Of steps in sets/compiled_eighth.md."""
    many, rows, columns, width = sizes
    moved = 2.0 * many * width * (2 * rows + 2 * columns)
    for way, products, measured in (("", 4, forward_us), ("_backward", 10, backward_us)):
        name, flops = f"aten::_scaled_dot_product_cudnn_attention{way}", products * math.prod(sizes)
        work = OperatorWork(name, BF16, flops, (1 + bool(way)) * moved, sizes, 0, access)
        assert seconds(work) == pytest.approx(1e-6 * measured, rel=0.2)


def test_a_ctc_loss_goes_from_step_to_step() -> None:
    """On an H200 225 us for 16 samples of 400 steps, however few letters there are."""
    sizes = (0, 400, 16, 29)
    loss = OperatorWork("aten::_ctc_loss", FP32, 0.0, 2.1e6, sizes, FORWARD, PLAIN)
    assert seconds(loss) == pytest.approx(225e-6, rel=0.25)


def test_elements_that_are_added_along_the_last_dimension_take_what_an_h200_took() -> None:
    """Of XLNet's relative positions, 735 us each; additions to random places would take four times
    as long."""
    sizes = (0, 99_090_432, 197_922_816, 99_090_432)
    added = OperatorWork("aten::index_add_", BF16, 0.0, 594_545_664.0, sizes, BACKWARD, STRIDED)
    assert seconds(added) == pytest.approx(735e-6, rel=0.4)


def test_the_table_is_complete() -> None:
    rates = shipped()
    assert set(ACCESS_NAMES[1:]) <= set(rates.kernels)
    assert all(min(values) > 0 for values in rates.kernels.values())
    others = [v for n, v in rates.kernels.items() if n not in (WALK, REDUCTION_INNER)]
    # 5: of joined tensors and group norms, 6: of reductions of neighbours
    lengths = {2, 3, 4, 5, 6}
    assert {len(values) for values in others} == lengths and len(rates.kernels[WALK]) == 7
    single = {kind: len(v) for kind, v in rates.products.items() if not kind.startswith(MANY)}
    kinds = {"tensor", "tensor unaligned", "tensor even", "tensor turned", "fp32"}
    own = (f"{BOTH_TURNED} tf32", GROUPED)
    assert single.pop("vector") == 3
    assert {single.pop(kind) for kind in own} == {len(TileRates._fields)}
    assert {kind.removesuffix(" tf32") for kind in single} == kinds
    assert set(single.values()) == {len(TileRates._fields)}
    many = {kind: v for kind, v in rates.products.items() if kind.startswith(MANY)}
    of_these = {kind.removeprefix(f"{MANY} ").removeprefix(f"{THIN} ") for kind in many}
    assert {kind.removesuffix(" tf32") for kind in of_these} == kinds
    assert {len(v) for v in many.values()} == {7}
    lengths = (3, ATTENTION_RATES, FUSED_RATES)
    assert all(len(values) in lengths and min(values) > 0 for values in rates.compute.values())
    assert set(rates.host) == {
        "forward",
        "backward",
        "update",
        "view",
        "tensor_of_list",
        "python_call",
        "wait",
        "recurrent_step",
        "gap",
        "byte",
        "latency",
    }


RECORDS = Path(__file__).parents[2] / "benchmarks" / "accuracy"


def test_rows_that_the_table_was_made_from_are_named_and_exist() -> None:
    files = [RECORDS / f"{kind}h200-torch-2.11/rows.jsonl" for kind in ("", "compiled-")]
    lines = [line for file in files for line in file.read_text().splitlines()]
    rows = {json.loads(line)["row"] for line in lines}
    assert shipped().calibrated_on and set(shipped().calibrated_on) <= rows
    assert len(set(shipped().calibrated_on)) < len(rows)
