"""Blocks of Triton kernels that people wrote run on the host, which tells their times.

test_by_hand.py runs this in a process of its own.
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jit_kernels
import numpy as np
import pytest
import torch
import triton

from vramcast.hardware.gpus import find_gpu
from vramcast.simulate.fused import by_hand
from vramcast.simulate.fused.by_hand import NO_BLOCK, ByHand, padded
from vramcast.simulate.fused.costs import sample_of
from vramcast.simulate.fused.launch import Launch, Tables
from vramcast.simulate.fused.rules import BY_HAND
from vramcast.simulate.fused.values import Tensor
from vramcast.simulate.fused.works import seconds_of, work_of_cost

GPU = find_gpu("h200")
STEP_TIME = Path(__file__).parents[2] / "benchmarks" / "step_time"
MANY = 1 << 26


def launch(function: Any, grid: int, *given: Any, num_warps: int = 4, **constants: int) -> Launch:
    """Lists are tensors: their elements, and the bytes of one."""
    values = [
        Tensor(*each, number) if isinstance(each, list) else each
        for number, each in enumerate(given)
    ]
    named = dict(zip(function.arg_names, values, strict=False)) | constants
    return Launch(ByHand(function), named, padded(grid), num_warps)


def added(n: int = MANY, function: Any = jit_kernels.added) -> Launch:
    return launch(function, -(-n // 1024), [n, 2], [n, 2], [n, 2], n, BLOCK=1024)


def seconds(of: Launch) -> float:
    return seconds_of(work_of_cost(sample_of(of, GPU).cost(GPU)), GPU)


def test_a_kernel_that_only_adds_takes_as_long_as_its_bytes() -> None:
    assert sample_of(added(), GPU).num_bytes == pytest.approx(3 * 2 * MANY, rel=1e-6)
    assert seconds(added()) == pytest.approx(6 * MANY / GPU.bandwidth_bytes_per_second, rel=0.15)


def test_functions_that_it_calls_and_constants_of_its_module_are_run_too() -> None:
    (run,) = [added().run([0, 0, 0])]
    assert run.operations["cast"] == 1024
    assert run.operations["plain"] == 2 * 1024


def test_a_length_that_is_no_multiple_of_16_lets_threads_ask_for_one_element_at_a_time() -> None:
    odd, even = sample_of(added(MANY - 1), GPU), sample_of(added(), GPU)
    assert odd.loads > 7 * even.loads
    assert odd.passes > 7 * even.passes
    assert seconds(added(MANY - 1)) > 1.5 * seconds(added())


def test_block_pointers_read_what_addresses_read() -> None:
    one, other = (
        sample_of(added(), GPU),
        sample_of(added(function=jit_kernels.added_in_blocks), GPU),
    )
    assert (one.num_bytes, one.asked_bytes) == (other.num_bytes, other.asked_bytes)


def test_rounds_of_a_loop_wait_for_each_other_and_those_that_are_written_out_do_not() -> None:
    given = [1 << 20, 4], [1 << 20, 4]
    loop = sample_of(launch(jit_kernels.running, 8, *given, 512, BLOCK=128), GPU)
    plain = sample_of(launch(jit_kernels.written_out, 8, *given, LENGTH=16, BLOCK=128), GPU)
    assert (loop.rounds, plain.rounds) == (512, 0)
    assert loop.cost(GPU).waiting_seconds == pytest.approx(512 * BY_HAND.round_seconds)


def test_loops_with_products_read_ahead() -> None:
    tensors = [64 * 256 * 4096, 2], [64 * 4096, 2], [64 * 64 * 256, 4]
    found = sample_of(launch(jit_kernels.product, 256, *tensors, 4096, SIDE=64), GPU)
    assert found.rounds == found.pipelined == 64
    assert found.operations["dot"] == pytest.approx(256 * 64**2 * 4096)


def test_reads_of_named_rows_wait_for_the_names() -> None:
    tensors = [1 << 24, 2], [1 << 16, 8], [1 << 24, 2]
    found = sample_of(launch(jit_kernels.named, 1 << 16, *tensors, 256, BLOCK=256), GPU)
    assert found.depth == 2


@pytest.mark.parametrize(
    "function",
    [
        jit_kernels.sorted_rows,
        jit_kernels.waiting,
        jit_kernels.settling,
        jit_kernels.opening,
        jit_kernels.counting_up,
        jit_kernels.unrolled,
        jit_kernels.too_large,
    ],
)
def test_what_is_not_stood_in_for_or_takes_too_long_is_left_to_its_bytes(function: Any) -> None:
    x = torch.zeros(1024)
    assert ByHand(function).work((1,), (x, x), {"BLOCK": 1024}, GPU) is None


def test_arguments_may_be_named_and_functions_may_be_methods() -> None:
    run = launch(jit_kernels.by_name, 1, [1024, 4], [1024, 4], BLOCK=1024).run([0, 0, 0])
    assert [access.places.size for access in run.accesses] == [1024, 1024]
    assert (run.accesses[1].places == np.arange(1024)).all()


def test_tensors_may_be_in_a_tuple_and_nothing_else_that_has_tensors() -> None:
    x, out = torch.zeros(1024), torch.zeros(1024)
    kernel = ByHand(jit_kernels.of_several)
    work = kernel.work((1,), ((x, x), out), {"BLOCK": 1024}, GPU)
    assert work is not None and work[2] == 2 * 4 * 1024  # one is read twice
    with pytest.raises(TypeError, match="type list is not stood in for"):
        kernel.work((1,), ([x, x], out), {"BLOCK": 1024}, GPU)


def test_no_block_is_no_work() -> None:
    x = torch.zeros(1024)
    assert ByHand(jit_kernels.wide).work((0,), (x, x), {"BLOCK": 16}, GPU) is NO_BLOCK


def test_contents_are_looked_at_once_for_launches_that_are_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = []
    monkeypatch.setattr(by_hand, "tables_of", lambda *given: looked.append(given) or Tables())
    kernel, x = ByHand(jit_kernels.wide), torch.zeros(1024)
    works = [kernel.work((1,), (x, x), {"BLOCK": side}, GPU) for side in (16, 16, 32, 16)]
    assert len(looked) == 2
    assert works[0] is works[1] is works[3] is not works[2]


@pytest.mark.parametrize(
    ("function", "written"),
    [
        (jit_kernels.put_by_function, ["out"]),
        (jit_kernels.put_at_address, ["out"]),
        (jit_kernels.put_at_end, ["out"]),
        (jit_kernels.by_name, ["out"]),
        (jit_kernels.sorted_rows, ["x", "out"]),  # it cannot be run: it may write to both
    ],
)
def test_what_a_kernel_writes_to_is_forgotten_each_time(
    function: Any, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"x": torch.zeros(1024), "out": torch.zeros(1024)}
    forgotten: list[torch.Tensor] = []
    monkeypatch.setattr(by_hand, "may_be_known", lambda _: True)
    monkeypatch.setattr(by_hand, "tables_of", lambda *_: Tables())
    monkeypatch.setattr(by_hand, "note", lambda tensor, _: forgotten.append(tensor))
    for _ in range(2):
        ByHand(function).work((4,), (*given.values(),), {"BLOCK": 64}, GPU)
        assert [name for name, x in given.items() if any(x is one for one in forgotten)] == written
        forgotten.clear()


def test_what_it_would_print_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    launch(jit_kernels.printing, 1, [1024, 4], BLOCK=1024).run([0, 0, 0])
    assert capsys.readouterr().out == ""


def test_another_text_is_another_kernel() -> None:
    before = ByHand(jit_kernels.added).digest
    assert before == ByHand(jit_kernels.added).digest
    assert before != ByHand(jit_kernels.added_in_blocks).digest


def test_another_value_of_a_global_is_another_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = []
    for width in (2, 3, 2):
        monkeypatch.setattr(jit_kernels, "WIDTH", width)
        digests.append(ByHand(triton.jit(jit_kernels.wide.fn)).digest)
    assert digests[0] == digests[2] != digests[1]


def test_python_warns_of_a_kernels_text_no_second_time() -> None:
    function, x = triton.jit(jit_kernels.wide.fn), torch.zeros(1024)
    function._unsafe_update_src(f'{function.src}\n    "\\d"\n')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SyntaxError, match="invalid escape"):
            compile(function.src, "kernel", "exec")
        assert ByHand(function).work((1,), (x, x), {"BLOCK": 64}, GPU)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(STEP_TIME / "families"))
    import own_triton

    yield own_triton
    sys.modules.pop("own_triton", None)


@pytest.mark.parametrize(("name", "most"), [("jit_kernels", 0.16), ("jit_fresh", 0.20)])
def test_recorded_launches_of_own_kernels_take_what_is_told(
    name: str, most: float, own: Any
) -> None:
    """Launches of jit_fresh were measured after the rules had been fitted."""
    errors, by_bytes = [], []
    with gzip.open(STEP_TIME / "recorded" / f"{name}.jsonl.gz", "rt") as file:
        for _, _, kernel, grid, num_warps, given, measured in map(json.loads, file):
            if not hasattr(own, kernel) or measured < 1e-5:
                continue
            values = {n: Tensor(*v) if isinstance(v, list) else v for n, v in given.items()}
            one = Launch(ByHand(getattr(own, kernel)), values, padded(grid), num_warps)
            tensors = {each for each in values.values() if isinstance(each, Tensor)}
            least = sum(each.num_bytes for each in tensors) / GPU.bandwidth_bytes_per_second
            errors.append(abs(seconds(one) / measured - 1))
            by_bytes.append(abs(least / measured - 1))
    assert len(errors) > 25
    assert statistics.median(errors) < most < statistics.median(by_bytes)
