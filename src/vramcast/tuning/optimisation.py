"""One optimisation as a value: what it changes, what it needs, how far losses may move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vramcast.records.machine import Machine
from vramcast.records.measurement import Device
from vramcast.records.tune import Reason
from vramcast.workload.configuration import Configuration
from vramcast.workload.switches import Switches

# How far losses may be from the baseline's at any step, relative to them.
SAME = 1e-3  # the same arithmetic in another order
ROUNDED = 2e-2  # some of it in fewer bits
COARSE = 5e-2  # in 8 bits

# Not packages, but what the machine must have.
MACHINE_NEEDS = ("cuda", "triton", "compiler")


class Refusal(NamedTuple):
    """Why an optimisation is not tried or not applied."""

    code: Reason
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    name: str
    what: str
    # The same change under the names that workloads have for it: the first one taken is tried.
    changes: tuple[Configuration, ...] = ()
    # A knob, and the baseline's values for which this does the same faster.
    only_from: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    # It helps so often that it is tried before a larger batch makes every run longer.
    likely: bool = False
    # The knob whose values are chosen when it is tried: batch_size or seq_len.
    size: str | None = None
    # None: its losses are of other data and cannot be compared.
    loss_tolerance: float | None = SAME
    # It makes another model or other inputs: applied only if --only names it.
    changes_training: bool = False
    caution: str = ""  # what a few steps cannot show
    more_memory: bool = False  # it may need more, so its memory is predicted before it is tried
    start_seconds: float = 0.0  # how much longer its first step takes, for compiling
    warmup_steps: int = 0  # more than others need
    needs: tuple[str, ...] = ()  # cuda, triton, compiler, or names of packages
    capability: tuple[int, int] | None = None  # the least compute capability


def knobs(**values: Any) -> Configuration:
    return Configuration(knobs=values)


def switch(**values: Any) -> Configuration:
    return Configuration(switches=Switches(**values))


def missing_on(optimisation: Optimisation, machine: Machine, device: Device) -> Refusal | None:
    """What the machine lacks for it."""
    lacks = _lacks(optimisation, machine, on_gpu=device == Device.CUDA)
    return Refusal(Reason.MACHINE_LACKS_IT, lacks) if lacks else None


def _lacks(optimisation: Optimisation, machine: Machine, *, on_gpu: bool) -> str:
    needs, least = optimisation.needs, optimisation.capability
    if ("cuda" in needs or least is not None) and not on_gpu:
        return "it is for GPUs, and this run is on the CPU"
    has = machine.capability
    if least is not None and has is not None and has < least:
        return (
            f"it needs compute capability {least[0]}.{least[1]}, and the GPU has {has[0]}.{has[1]}"
        )
    if "triton" in needs and on_gpu and machine.triton is None:
        return f"Triton is not there: {machine.triton_error or 'it cannot be imported'}"
    if "compiler" in needs and machine.compiler is None:
        return "there is no C compiler (cc, gcc or clang)"
    for name in needs:
        if name not in MACHINE_NEEDS and name not in machine.packages:
            return f"the package {name} is not installed: pip install {name}"
    return ""
