"""What runs on GPU and CPU have in common: building the workload, reading a loss."""

from __future__ import annotations

import time
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch

from vramcast.probing.facts import Phase, Reporter
from vramcast.probing.trial import Trial
from vramcast.simulate.ownership import Ownership
from vramcast.workload import check_step
from vramcast.workload.switches import apply_switches, switches_in_force

Step = Callable[[], Any]


def build_step(
    trial: Trial,
    report: Reporter,
    function: Callable[..., Any],
    knobs: dict[str, Any],
    synchronize: Callable[[], None] = lambda: None,
) -> Step:
    """The workload's step; what is known once it is built is told."""
    report.phase(Phase.BUILD)
    torch.manual_seed(0)
    apply_switches(trial.switches)
    started = time.perf_counter()
    ownership = Ownership(lambda _: 0)
    with ownership.watching():
        step = check_step(function(**knobs))
    apply_switches(trial.switches)  # the workload may have set some itself
    synchronize()
    report.facts.build_seconds = time.perf_counter() - started
    report.facts.switches = switches_in_force()
    report.facts.num_parameters = ownership.num_parameters()
    return step


def is_one_number(loss: Any) -> bool:
    return isinstance(loss, torch.Tensor) and loss.numel() == 1 and not loss.is_complex()


def plain_loss(loss: Any) -> float | None:
    """Of a loss that is no tensor; numpy's numbers are real numbers too."""
    return float(loss) if isinstance(loss, Real) else None
