"""On the CPU the memory is that of the tensors, counted to the byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from vramcast.probing.facts import Facts, Reporter
from vramcast.probing.on_cpu import CpuRun, TensorMemory
from vramcast.probing.trial import Trial
from vramcast.records.measurement import Device

KIB = 1024


def run(workload: Callable[..., Any], *, warmup: int = 2, steps: int = 3) -> Facts:
    """A workload's facts, from a run in this process."""
    reporter = Reporter(lambda _: None)
    one = CpuRun(
        Trial(workload="here", device=Device.CPU, warmup_steps=warmup, measure_steps=steps),
        reporter,
    )
    with one.around():
        one.go(workload, {})
    return reporter.facts


def plain() -> Callable[[], Any]:
    x = torch.ones(256, device="cuda")  # 1 KiB

    def step() -> torch.Tensor:
        y = x * 2  # 1 KiB
        z = y + 1  # 1 KiB: 3 with x and y
        del y
        w = z.double()  # 2 KiB: 4 with x and z
        view = w.view(2, 128)[0]  # nothing
        return view.sum()  # 8 bytes

    return step


def test_a_small_case_is_what_it_counts_by_hand() -> None:
    facts = run(plain)
    sizes = {
        phase: getattr(facts, phase).allocated_bytes
        for phase in ("build", "first_step", "cold", "warm")
    }
    assert sizes == {
        "build": KIB,
        "first_step": 4 * KIB + 8,
        "cold": 4 * KIB + 8,
        "warm": 4 * KIB + 8,
    }


def learning() -> Callable[[], Any]:
    weight = torch.nn.Parameter(torch.ones(256, device="cuda"))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    x = torch.ones(256, device="cuda")

    def step() -> torch.Tensor:
        loss = (weight * x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def test_what_measured_steps_leave_behind_counts_though_they_were_not_watched() -> None:
    warm = [run(learning, warmup=warmup).warm.allocated_bytes for warmup in (0, 1, 2)]
    assert len(set(warm)) == 1
    lasting = 5 * KIB + 4  # weight, x, gradient, two averages; and how many steps there were
    assert warm[0] >= lasting


def test_a_run_that_breaks_off_tells_how_far_it_came() -> None:
    def breaks() -> Callable[[], Any]:
        keep = [torch.ones(256, device="cuda")]

        def step() -> None:
            keep.append(torch.ones(512, device="cuda"))
            raise KeyError

        return step

    reporter = Reporter(lambda _: None)
    one = CpuRun(Trial(workload="here", device=Device.CPU), reporter)
    with pytest.raises(KeyError), one.around():
        one.go(breaks, {})
    assert reporter.facts.last is not None
    assert reporter.facts.last.allocated_bytes == 3 * KIB


def test_a_storage_that_is_resized_counts_as_what_it_is() -> None:
    with TensorMemory() as memory:
        x = torch.ones(256)
        x.untyped_storage().resize_(0)
        x.detach()
        assert memory.now_bytes == 0
        x.untyped_storage().resize_(2 * KIB)
        x.detach()
        assert (memory.now_bytes, memory.peak_bytes) == (2 * KIB, 2 * KIB)
        del x
        assert memory.now_bytes == 0
