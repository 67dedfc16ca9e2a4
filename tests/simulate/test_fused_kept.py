"""What blocks of a fused kernel have told is kept on disk, for what it depends on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vramcast.hardware.gpus import Gpu, find_gpu
from vramcast.records import answers
from vramcast.simulate.fused import kept, works
from vramcast.simulate.fused.launch import Launch, Tables
from vramcast.simulate.fused.works import FusedKernel

H200, H100 = find_gpu("h200"), find_gpu("h100")
ELEMENTS = 1 << 12
NAMES = ("in_ptr0", "out_ptr0", "xnumel", "XBLOCK")
DOUBLED = """
def kernel(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + (xindex), xmask)
    tl.store(out_ptr0 + (xindex), tmp0 * 2, xmask)
"""
COUNTED = """
def kernel(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + (xindex), xmask)
    tl.atomic_add(out_ptr0 + (tmp0), 1.0, xmask, sem='relaxed')
"""


class Launches:
    """Of kernels, each in a process of its own. `num_blocks` were run in the last one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.num_blocks = 0
        self.tables, self.noted = Tables(), list[Any]()
        run = Launch.run

        def counted(launch: Launch, block: Sequence[int]) -> Any:
            self.num_blocks += 1
            return run(launch, block)

        monkeypatch.setattr(Launch, "run", counted)
        monkeypatch.setattr(works, "may_be_known", lambda _: True)
        monkeypatch.setattr(works, "tables_of", lambda *_: self.tables)
        monkeypatch.setattr(works, "note", lambda _, numbers: self.noted.append(numbers))

    def again(
        self,
        source: str = DOUBLED,
        elements: int = ELEMENTS,
        longest: int = ELEMENTS,
        side: int = 128,
        num_warps: int = 4,
        gpu: Gpu = H200,
        changed: Sequence[str] = (),
    ) -> list[float]:
        self.num_blocks, self.noted = 0, []
        kept.answers_of.cache_clear()
        kernel = SimpleNamespace(
            fn=SimpleNamespace(src=source, arg_names=NAMES, __name__="kernel"),
            mutated_arg_names=changed,
            configs=[SimpleNamespace(kwargs={"XBLOCK": side}, num_warps=num_warps)],
            _interpret_args_grid=lambda *_: ((), (elements // side, 1, 1)),
        )
        tensors = [torch.empty(longest, dtype=torch.int64) for _ in range(2)]
        *work, sizes = FusedKernel(kernel, gpu).work((*tensors, elements))
        answers.keep_all()
        return [*work, *sizes]


@pytest.fixture
def launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launches:
    monkeypatch.setenv("VRAMCAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(answers, "_opened", [])
    return Launches(monkeypatch)


@pytest.mark.parametrize("source", [DOUBLED, COUNTED])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_later_process_runs_no_block_and_finds_the_same(
    launches: Launches, source: str, *, is_known: bool
) -> None:
    if is_known:
        launches.tables = Tables({0: np.zeros(ELEMENTS, np.int64)})
    first = launches.again(source)
    assert launches.num_blocks > 0
    assert launches.again(source) == first
    assert launches.num_blocks == (is_known and source == DOUBLED)  # its numbers


def test_what_a_kernel_is_sure_to_write_is_computed_each_time(launches: Launches) -> None:
    for first in (0, 0, 5):
        launches.tables = Tables({0: np.arange(first, first + ELEMENTS)})
        launches.again()
        (found,) = launches.noted
        assert (found == 2 * launches.tables[0]).all()


@pytest.mark.parametrize(
    "other",
    [
        {"source": DOUBLED.replace("* 2", "* 3")},
        {"elements": ELEMENTS - 1},
        {"longest": 2 * ELEMENTS},
        {"side": 256},
        {"num_warps": 8},
        {"gpu": H100},
        {"changed": ["out_ptr0"]},
    ],
)
def test_another_kernel_size_configuration_or_gpu_is_run(
    launches: Launches, other: dict[str, Any]
) -> None:
    launches.again()
    launches.again(**other)
    assert launches.num_blocks > 0


def test_additions_to_other_places_are_run(launches: Launches) -> None:
    shares = []
    for to in (np.zeros(ELEMENTS, np.int64), np.arange(ELEMENTS)):
        launches.tables = Tables({0: to})
        shares.append(launches.again(COUNTED)[3])
        assert launches.num_blocks > 0
    assert shares[0] > 0 == shares[1]


def test_a_kernel_that_cannot_be_run_is_not_kept(launches: Launches) -> None:
    first = launches.again("def kernel(*given):\n    tl.load(nothing)[0, 0]")
    assert launches.again("def kernel(*given):\n    tl.load(nothing)[0, 0]") == first
    assert launches.num_blocks > 0
