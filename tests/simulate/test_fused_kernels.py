"""What a kernel that torch.compile has written costs is told by a few of its blocks, which run on
the host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vramcast.forecast.timing.additions import PASS_SECONDS
from vramcast.forecast.timing.kernels import kernel_time
from vramcast.forecast.timing.rates import shipped
from vramcast.hardware.gpus import find_gpu
from vramcast.simulate.fused.contents import may_be_sure, written_by
from vramcast.simulate.fused.costs import Sample, sample_of
from vramcast.simulate.fused.crowds import crowd_of
from vramcast.simulate.fused.launch import Kernel, Launch, Tables
from vramcast.simulate.fused.rules import OPERATION_COSTS
from vramcast.simulate.fused.values import Tensor
from vramcast.simulate.fused.works import FusedKernel
from vramcast.simulate.kernels.work import DTYPE_NUMBERS
from vramcast.tracing.work import CROWD_PARTS, FORWARD, FUSED, PLAIN, OperatorWork

GPU = find_gpu("h200")
ELEMENTS = 1 << 26  # four bytes each are more than the cache has
POINTWISE = """
def kernel(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x2 = xindex
    x0 = (xindex % 64)
    tmp0 = tl.load(in_ptr0 + (x2), xmask)
    tmp1 = tl.load(in_ptr1 + (x0), xmask, eviction_policy='evict_last')
    tmp2 = libdevice.tanh(tmp0 + tmp1)
    tl.store(out_ptr0 + (x2), tmp2, xmask)
"""
NORM = """
def kernel(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    x0 = xindex
    _tmp2 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        tmp0 = tl.load(in_ptr0 + (r0_index + WIDTH*x0), r0_mask & xmask, other=0.0)
        _tmp2 = tl.where(r0_mask & xmask, _tmp2 + tmp0, _tmp2)
    tmp2 = tl.sum(_tmp2, 1)[:, None]
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        tmp3 = tl.load(in_ptr0 + (r0_index + WIDTH*x0), r0_mask & xmask, other=0.0)
        tl.store(out_ptr0 + (PLACE), tmp3 / tmp2, r0_mask & xmask)
"""
GATHERED = """
def kernel(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    x0 = (xindex % 128)
    x1 = xindex // 128
    tmp0 = tl.load(in_ptr0 + (x1), None)
    tmp1 = tl.load(in_ptr1 + (x0 + 128*tmp0), None)
    ENDS
"""
STORED = "tl.store(out_ptr0 + (xindex), tmp1, None)"
ADDED = "tl.atomic_add(out_ptr0 + (x0 + 128*tmp0), tmp1, None, sem='relaxed')"


def sample(
    source: str, tensors: list[tuple[int, int]], grid: int, num_warps: int = 4, **others: int
) -> Sample:
    names = [n.split(":")[0].strip() for n in source.split("(")[1].split(")")[0].split(",")]
    given: dict[str, Any] = {
        name: Tensor(*each, number)
        for number, (name, each) in enumerate(zip(names, tensors, strict=False))
    }
    launch = Launch(Kernel(source, "kernel", names), given | others, (grid, 1, 1), num_warps)
    return sample_of(launch, GPU)


def pointwise(xnumel: int = ELEMENTS) -> Sample:
    tensors = [(xnumel, 4), (64, 4), (xnumel, 4)]
    return sample(POINTWISE, tensors, -(-xnumel // 1024), xnumel=xnumel, XBLOCK=1024)


def norm(width: int, place: str = "r0_index + WIDTH*x0", rows: int = 1 << 14) -> Sample:
    source = NORM.replace("PLACE", place).replace("WIDTH", str(width))
    sizes = {"xnumel": rows, "r0_numel": width, "XBLOCK": 1, "R0_BLOCK": 1024}
    return sample(source, [(rows * width, 4), (rows * width, 4)], rows, **sizes)


def test_each_element_is_read_once_written_once_and_computed() -> None:
    found = pointwise()
    assert found.num_bytes == pytest.approx(2 * 4 * ELEMENTS, rel=1e-3)
    assert found.operations["tanh"] == pytest.approx(ELEMENTS)
    assert found.part_written_bytes == 0
    assert found.rounds == found.reductions == 0


def test_places_in_tensors_of_more_than_two_thousand_million_numbers_are_told_too() -> None:
    tensors = [(ELEMENTS, 4), (64, 4), (ELEMENTS, 4)]
    source = POINTWISE.replace("tl.program_id(0)", "tl.program_id(0).to(tl.int64)")
    found = sample(source, tensors, ELEMENTS // 1024, xnumel=ELEMENTS, XBLOCK=1024)
    assert found == pointwise()


def test_threads_ask_for_four_neighbours_at_once_unless_a_mask_or_a_row_is_odd() -> None:
    even, odd = pointwise(), pointwise(ELEMENTS + 1)
    assert even.loads == pytest.approx(2 * ELEMENTS / 4)
    assert odd.loads == pytest.approx(2 * ELEMENTS, rel=1e-3)
    assert norm(8191).loads == pytest.approx(4 * norm(8192).loads, rel=0.01)


def test_a_row_that_a_block_reads_twice_comes_from_memory_once_where_the_cache_keeps_it() -> None:
    width, rows = 1024, 1 << 14
    found = norm(width, rows=rows)
    assert found.num_bytes == pytest.approx(2 * 4 * rows * width, rel=1e-3)
    assert found.asked_bytes == pytest.approx(2 * 4 * rows * width, rel=1e-3)
    assert found.rounds == 2 * width / 1024 and found.reductions == 1
    assert found.operations["div"] == pytest.approx(rows * width)


def test_rows_of_all_blocks_that_are_more_than_the_cache_has_are_read_in_each_loop() -> None:
    width, rows = 1 << 18, 1 << 12
    assert norm(width, rows=rows).num_bytes == pytest.approx(3 * 4 * rows * width, rel=0.03)


def test_what_leads_to_nothing_that_is_written_is_left_out() -> None:
    unused = "tmp3 = libdevice.exp(tl.load(in_ptr1 + (x2 % 8), xmask))\n    tl.store(out_ptr0"
    tensors = [(ELEMENTS, 4), (64, 4), (ELEMENTS, 4)]
    source = POINTWISE.replace("tl.store(out_ptr0", unused)
    found = sample(source, tensors, ELEMENTS // 1024, xnumel=ELEMENTS, XBLOCK=1024)
    assert found == pointwise()
    used = source.replace("tmp2, xmask", "tmp2 + tmp3, xmask")
    found = sample(used, tensors, ELEMENTS // 1024, xnumel=ELEMENTS, XBLOCK=1024)
    assert found.operations["exp"] == pytest.approx(ELEMENTS)
    assert found.loads > pointwise().loads


def test_lines_of_128_bytes_are_asked_for_as_a_whole() -> None:
    source = POINTWISE.replace("in_ptr0 + (x2)", "in_ptr0 + (32*x2)")
    tensors = [(32 * ELEMENTS, 4), (64, 4), (ELEMENTS, 4)]
    found = sample(source, tensors, ELEMENTS // 1024, xnumel=ELEMENTS, XBLOCK=1024)
    assert found.asked_bytes == pytest.approx(128 * ELEMENTS, rel=0.01)
    assert found.num_bytes == pytest.approx((64 + 4) * ELEMENTS, rel=0.01)


def test_what_is_written_across_rows_fills_sectors_in_parts() -> None:
    width, rows = 8192, 1 << 14
    found = norm(width, place=f"x0 + {rows}*r0_index", rows=rows)
    assert found.part_written_bytes == pytest.approx((32 - 4) * rows * width, rel=1e-3)
    assert norm(width, rows=rows).part_written_bytes == 0


def gathered(rows: int, end: str = STORED) -> Sample:
    places = 1 << 18
    tensors = [(places, 8), (128 * rows, 4), (128 * (rows if end is ADDED else places), 4)]
    sizes = {"xnumel": 128 * places, "XBLOCK": 1024}
    return sample(GATHERED.replace("ENDS", end), tensors, places // 8, **sizes)


def test_rows_that_are_named_are_read_each_time_unless_the_cache_holds_them() -> None:
    written = 4 * 128 * (1 << 18)
    assert gathered(1 << 12).num_bytes == pytest.approx(written, rel=0.05)
    assert gathered(1 << 20).num_bytes > 1.8 * written


def test_additions_go_to_rows_of_neighbours() -> None:
    found = gathered(1 << 20, ADDED)
    assert found.num_additions == pytest.approx(128 * (1 << 18))
    assert found.num_additions / found.num_rows == pytest.approx(128, rel=0.05)


def autotuner(source: str, names: tuple[str, ...], grid: tuple[int, ...]) -> Any:
    return SimpleNamespace(
        fn=SimpleNamespace(src=source, arg_names=names, __name__="kernel"),
        mutated_arg_names=("out_ptr0",),
        configs=[SimpleNamespace(kwargs={"XBLOCK": 1024}, num_warps=4)],
        _interpret_args_grid=lambda *_: ((), grid),
    )


POINTWISE_NAMES = ("in_ptr0", "in_ptr1", "out_ptr0", "xnumel", "XBLOCK")


def test_the_work_of_a_launch_has_operations_bytes_waiting_and_what_is_asked() -> None:
    x, row, out = torch.empty(1 << 20), torch.empty(64), torch.empty(1 << 20)
    kernel = FusedKernel(autotuner(POINTWISE, POINTWISE_NAMES, (1024, 1, 1)), GPU)
    _, operations, num_bytes, sizes = kernel.work((x, row, out, 1 << 20))
    assert operations > OPERATION_COSTS["tanh"] * (1 << 20)
    assert num_bytes == pytest.approx(8 * (1 << 20), rel=1e-3)
    assert sizes[:3] == [1024, 0, 0] and sizes[3] >= 4 * (1 << 20)


def test_a_tensor_that_is_given_twice_is_moved_once() -> None:
    x, row = torch.empty(1 << 20), torch.empty(64)
    source = POINTWISE.replace("in_ptr1 + (x0)", "in_ptr1 + (x2)")
    kernel = FusedKernel(autotuner(source, POINTWISE_NAMES, (1024, 1, 1)), GPU)
    twice = kernel.work((x, x, x, 1 << 20))[2]
    assert twice == pytest.approx(8 * (1 << 20), rel=1e-3)
    assert kernel.work((x, row, x, 1 << 20))[2] < 1.1 * twice


def test_a_kernel_that_cannot_be_run_moves_its_tensors() -> None:
    source = "def kernel(in_ptr0, out_ptr0):\n    tl.load(in_ptr0 + nothing_known)[0, 0, 0]"
    kernel = FusedKernel(autotuner(source, ("in_ptr0", "out_ptr0"), (1, 1, 1)), GPU)
    work = kernel.work((torch.empty(100), torch.empty(200)))
    assert work[1] == 0 and work[2] == 4 * (100 + 2 * 200)


def test_where_inductor_has_several_configurations_the_fastest_counts() -> None:
    source = NORM.replace("PLACE", "r0_index + 64*x0").replace("WIDTH", "64")
    names = ("in_ptr0", "out_ptr0", "xnumel", "r0_numel", "XBLOCK", "R0_BLOCK")
    one = autotuner(source, names, (1 << 14, 1, 1))
    one.configs = [
        SimpleNamespace(kwargs={"XBLOCK": 1, "R0_BLOCK": side}, num_warps=2) for side in (64, 8)
    ]
    x, out = torch.empty(1 << 14, 64), torch.empty(1 << 14, 64)
    found = FusedKernel(one, GPU).work((x, out, 1 << 14, 64))
    one.configs.reverse()
    assert FusedKernel(one, GPU).work((x, out, 1 << 14, 64))[2:3] == found[2:3]


def test_what_a_kernel_computes_twice_of_the_same_counts_once() -> None:
    twice = POINTWISE.replace("tmp0 + tmp1)", "tmp0 + tmp1) + libdevice.tanh(tmp0 + tmp1)")
    tensors = [(ELEMENTS, 4), (64, 4), (ELEMENTS, 4)]
    found = sample(twice, tensors, ELEMENTS // 1024, xnumel=ELEMENTS, XBLOCK=1024)
    assert found.operations["tanh"] == pytest.approx(ELEMENTS)
    assert norm(8192).operations["div"] == pytest.approx(8192 << 14)  # in each round of a loop


COLUMNS = """
def kernel(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    tmp0 = tl.load(in_ptr0 + (PLACE), None)
    tl.store(out_ptr0 + (xindex), tl.sum(tmp0, 1)[:, None], None)
"""


def columns(place: str) -> float:
    """The bytes of the sums of 2 ** 18 columns of 256 numbers."""
    sizes = {"xnumel": 1 << 18, "r0_numel": 256, "XBLOCK": 1, "R0_BLOCK": 256}
    tensors = [(ELEMENTS, 4), (1 << 18, 4)]
    return sample(COLUMNS.replace("PLACE", place), tensors, 1 << 18, **sizes).num_bytes


def test_numbers_that_blocks_at_once_read_side_by_side_come_from_memory_once() -> None:
    near, far = columns(f"xindex + {1 << 18}*r0_index"), columns(f"xindex*64 + {1 << 18}*r0_index")
    assert near == pytest.approx(4 * ELEMENTS, rel=0.05)
    assert far == pytest.approx(64 * ELEMENTS, rel=0.1)  # each is read with its neighbours


SUMMED = """
def kernel(in_ptr0, in_ptr1, out_ptr0, ws_ptr, xnumel, r0_numel, XBLOCK, RSPLIT_SIZE):
    xindex = tl.program_id(0) * RSPLIT_SIZE + tl.arange(0, XBLOCK)[:, None]
    r0_index = tl.arange(0, 512)[None, :]
    sums = tl.full([512], 0, tl.float32)[None, :]
    for _ in tl.range(0, RSPLIT_SIZE, XBLOCK):
        x0 = xindex
        xindex += XBLOCK
        tmp0 = tl.load(in_ptr0 + (r0_index + 512*x0), None)
        tmp1 = tl.load(in_ptr1 + (r0_index + 512*x0), None).to(tl.int1)
        tl.store(out_ptr0 + (r0_index + 512*x0), tmp0 * tmp1, None)
        sums = sums + tl.sum(tmp0, 0)
    tl.store(ws_ptr + tl.program_id(0) * 512 + r0_index, sums, None)
"""


def shared_cycles(mask_bytes: int, rows_at_once: int = 4, num_warps: int = 2) -> float:
    """Of 64 rows."""
    rows, split = 1 << 16, 64
    tensors = [(512 * rows, 4), (512 * rows, mask_bytes), (512 * rows, 4), (512 * rows // split, 4)]
    sizes = {"xnumel": rows, "r0_numel": 512, "XBLOCK": rows_at_once, "RSPLIT_SIZE": split}
    found = sample(SUMMED, tensors, rows // split, num_warps=num_warps, **sizes)
    return found.shared_cycles * split / rows


def test_sums_across_rows_of_several_warps_go_through_shared_memory() -> None:
    """On an H200 each number of a row takes two cycles where a mask of bytes is read: 16 threads
    wait for each other."""
    of_columns = 2 * 512 * 64 / 4
    assert shared_cycles(1) == pytest.approx(2 * of_columns)
    assert shared_cycles(1, rows_at_once=2) == pytest.approx(4 * of_columns)
    assert shared_cycles(1, num_warps=1) == shared_cycles(1, rows_at_once=1) == 0
    assert shared_cycles(4) == 0  # both warps have a half of each row


def test_what_goes_through_shared_memory_takes_its_time() -> None:
    found = norm(8192)
    more = found._replace(shared_cycles=GPU.num_multiprocessors * 1.98e6)
    waited = more.cost(GPU).waiting_seconds - found.cost(GPU).waiting_seconds
    assert waited == pytest.approx(1e-3, rel=0.01)


POOLED = """
def kernel(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    x0 = (xindex % 64)
    x1 = xindex // 64
    tmp0 = tl.load(in_ptr0 + (x0 + 64*(LONG)), None)
    tmp1 = tl.load(in_ptr1 + (x0 + 64*(OTHER)), None)
    tl.store(out_ptr0 + (xindex), tmp0 + tmp1, None)
"""


def handed_on(long: str, other: str) -> float:
    """The cycles of each element."""
    source = POOLED.replace("LONG", long).replace("OTHER", other)
    found = sample(source, [(ELEMENTS, 4)] * 3, ELEMENTS // 1024, xnumel=ELEMENTS, XBLOCK=1024)
    return found.shared_cycles / ELEMENTS


def test_long_addresses_that_reads_share_are_handed_on_through_shared_memory() -> None:
    long = " + ".join(f"(x1 // {number})" for number in range(2, 40))
    assert handed_on(long, long) == pytest.approx(2 * 2 * 8 / 128)
    assert handed_on(long, "x1") == handed_on("x1 // 2", "x1 // 2") == 0
    assert handed_on(f"x0 * ({long})", f"x0 * ({long})") == 0  # no neighbours


BUCKETS = """
def kernel(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    tmp0 = tl.load(in_ptr0 + (xindex), None)
    tmp1 = tl.load(in_ptr1 + (xindex), None)
    tl.atomic_add(out_ptr0 + (tmp0), tmp1, None, sem='relaxed')
"""


def crowd(table: np.ndarray) -> float:
    names = ["in_ptr0", "in_ptr1", "out_ptr0", "xnumel", "XBLOCK"]
    number = table.size
    given = {"in_ptr0": Tensor(number, 8, 0), "in_ptr1": Tensor(number, 4, 1)}
    given |= {"out_ptr0": Tensor(32, 4, 2), "xnumel": number, "XBLOCK": 128}
    kernel = Kernel(BUCKETS, "kernel", names)
    grid = (number // 128, 1, 1)
    return crowd_of(Launch(kernel, given, grid, 4, (), Tables({0: table})), GPU)


def test_additions_that_are_known_to_go_to_one_place_are_counted() -> None:
    number = 1 << 20
    assert crowd(np.zeros(number, np.int64)) == 1.0
    half = np.where(np.arange(number) % 2, 0, np.arange(number) % 32)
    assert crowd(half) == pytest.approx(17 / 32, abs=0.1)
    assert crowd(np.arange(number) * 12_345 % 9973) < 0.05


def test_additions_to_one_place_wait_for_each_other() -> None:
    numbers = (DTYPE_NUMBERS[torch.float32], 0.0, 8.0 * (1 << 24))
    works = [
        OperatorWork(f"{FUSED}kernel", *numbers, (crowd, 1 << 24, 512, 1 << 24), FORWARD, PLAIN)
        for crowd in (0, CROWD_PARTS // 2)
    ]
    spread, half = (kernel_time(work, GPU, shipped()).seconds for work in works)
    assert half == pytest.approx((1 << 23) * PASS_SECONDS, rel=0.05) and spread < half / 2


DISTANCES = """
def kernel(out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl_math.abs((xindex % 100) + (-1)*(xindex // 100))
    tmp1 = triton_helpers.minimum(tmp0, tl.full([1], 7, tl.int64))
    tl.store(out_ptr0 + (xindex), tmp1, xmask)
"""


def written(source: str, **tables: np.ndarray) -> list[np.ndarray]:
    names = [n.split(":")[0].strip() for n in source.split("(")[1].split(")")[0].split(",")]
    given: dict[str, Any] = {n: Tensor(10_000, 8, i) for i, n in enumerate(names) if "ptr" in n}
    known = Tables({given[name].number: table for name, table in tables.items()})
    given |= {"xnumel": 10_000, "XBLOCK": 128}
    kernel = Kernel(source, "kernel", names)
    launch = Launch(kernel, given, (1, 1, 1), 4, (), known)
    found = list(written_by(launch).values())
    assert may_be_sure(launch) or not found
    return found


def test_whole_numbers_that_follow_from_their_places_are_known() -> None:
    x, y = np.arange(100), np.arange(100)[:, None]
    (found,) = written(DISTANCES)
    assert (found.reshape(100, 100) == np.minimum(abs(x - y), 7)).all()


def test_numbers_that_follow_from_some_that_are_not_known_are_not_known() -> None:
    read = DISTANCES.replace("kernel(", "kernel(in_ptr0, ")
    added = "tl.load(in_ptr0 + (xindex), xmask) + tl_math.abs("
    read = read.replace("tl_math.abs(", added)
    assert written(read) == []
    (found,) = written(read, in_ptr0=np.full(10_000, -100))
    assert (found <= -100 + 99).all() and found[5] == -95
    assert written(DISTANCES.replace("xmask)", "xindex < 9000)")) == []  # only a part of it
