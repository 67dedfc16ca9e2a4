"""One optimisation as a value: what it changes, what it asks of the machine, what it may do to the losses. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vramcast.records.machine import Machine
from vramcast.workload.configuration import Configuration
from vramcast.workload.switches import Switches

# how far losses may be from the baseline's, relative, at any step
SAME = 1e-3  # the same arithmetic in another order
ROUNDED = 2e-2  # some of it in fewer bits
COARSE = 5e-2  # in 8 bits


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is different from a configuration without it."""

    knobs: Mapping[str, Any] = field(default_factory=dict)
    switches: Switches = field(default_factory=Switches)
    allocator: str | None = None

    def on(self, configuration: Configuration) -> Configuration:
        return configuration.with_(self.knobs, self.switches, self.allocator)

    @property
    def moves(self) -> set[str]:
        """Names of what it sets: two changes that set the same cannot both be had."""
        allocator = {"allocator"} if self.allocator else set()
        return {*self.knobs, *(f"switch {name}" for name in self.switches.given()), *allocator}

    def is_in_force(self, configuration: Configuration) -> bool:
        """Whether anything that it sets is as it sets it."""
        knobs = any(configuration.knobs.get(name) == value for name, value in self.knobs.items())
        switches = any(
            getattr(configuration.switches, name) == value
            for name, value in self.switches.given().items()
        )
        return (
            knobs
            or switches
            or (self.allocator is not None and self.allocator == configuration.allocator)
        )

    def __str__(self) -> str:
        allocator = {"allocator": self.allocator} if self.allocator else {}
        return ", ".join(
            f"{name}={value}"
            for name, value in {**self.knobs, **self.switches.given(), **allocator}.items()
        )


@dataclass(frozen=True, kw_only=True)
class Entry:
    name: str
    what: str
    changes: tuple[
        Change, ...
    ] = ()  # one thing under several names: the first that the workload takes counts
    only_from: Mapping[str, tuple[Any, ...]] = field(
        default_factory=dict
    )  # knob -> baseline values from which it is the same thing, faster
    likely: bool = (
        False  # helps so often that it is tried before a larger batch makes every run longer
    )
    size: str | None = (
        None  # the knob whose values are chosen when it is tried: batch_size or seq_len
    )
    loss_tolerance: float | None = (
        SAME  # None: its losses are of other data, and cannot be compared
    )
    changes_training: bool = (
        False  # another model or other inputs: applied only where it was asked for by name
    )
    caution: str = ""  # what a few steps cannot show
    more_memory: bool = False  # may take more: predicted before it is tried
    start_seconds: float = 0.0  # that its first step takes longer, compiling
    warmup_steps: int = 0  # more than the others need
    needs: tuple[str, ...] = ()  # cuda, triton, compiler, or packages
    capability: tuple[int, int] | None = None  # the least


def knobs(**values: Any) -> Change:
    return Change(knobs=values)


def switch(**values: Any) -> Change:
    return Change(switches=Switches(**values))


def unmet(entry: Entry, machine: Machine, device: str) -> str | None:
    """Why it cannot be had on this machine; None where nothing is in the way."""
    on_gpu = device == "cuda"
    if ("cuda" in entry.needs or entry.capability is not None) and not on_gpu:
        return "it is for GPUs, and this run is on the CPU"
    if (
        entry.capability is not None
        and machine.capability is not None
        and machine.capability < entry.capability
    ):
        return f"it needs compute capability {_dotted(entry.capability)}, and the GPU has {_dotted(machine.capability)}"
    if "triton" in entry.needs and on_gpu and machine.triton is None:
        return f"Triton is not there: {machine.triton_error or 'it cannot be imported'}"
    if "compiler" in entry.needs and machine.compiler is None:
        return "there is no C compiler (cc, gcc or clang)"
    missing = [
        name
        for name in entry.needs
        if name not in ("cuda", "triton", "compiler") and name not in machine.packages
    ]
    return (
        f"the package {missing[0]} is not installed: pip install {missing[0]}" if missing else None
    )


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
