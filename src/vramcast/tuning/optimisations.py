"""The optimisations that `vramcast tune` tries, read from optimisations.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from vramcast.errors import UsageError
from vramcast.records.base import convert
from vramcast.records.machine import Machine
from vramcast.records.measurement import Device
from vramcast.records.tune import Reason
from vramcast.workload.configuration import Configuration

FILE = Path(__file__).with_name("optimisations.toml")
# Not packages, but what the machine must have.
MACHINE_NEEDS = ("cuda", "triton", "compiler")


class Losses(StrEnum):
    """How far losses may be from the baseline's."""

    SAME = "same"
    ROUNDED = "rounded"
    COARSE = "coarse"
    NOT_COMPARED = "not compared"


# At any step, relative to the baseline's loss.
TOLERANCES = {Losses.SAME: 1e-3, Losses.ROUNDED: 2e-2, Losses.COARSE: 5e-2}


class Refusal(NamedTuple):
    """Why an optimisation is not tried or not applied."""

    code: Reason
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """A block of optimisations.toml, which says what the fields mean."""

    name: str
    what: str
    changes: tuple[Configuration, ...] = ()
    size: str | None = None
    only_from: dict[str, str] = field(default_factory=dict)
    losses: Losses = Losses.SAME
    likely: bool = False
    changes_training: bool = False
    caution: str = ""
    more_memory: bool = False
    start_seconds: float = 0.0
    warmup_steps: int = 0
    needs: tuple[str, ...] = ()
    capability: tuple[int, int] | None = None

    @property
    def loss_tolerance(self) -> float | None:
        return TOLERANCES.get(self.losses)


def knobs(**values: Any) -> Configuration:
    return Configuration(knobs=values)


def catalogue() -> list[Optimisation]:
    blocks = tomllib.loads(FILE.read_text())["optimisation"]
    return convert(blocks, list[Optimisation], str(FILE))


def chosen(only: str | None) -> Sequence[Optimisation]:
    """Those named in `only`, in the catalogue's order; all of them for None.

    What is asked for by name may change the training.
    """
    if only is None:
        return catalogue()
    names = [name.strip() for name in only.split(",") if name.strip()]
    every = {one.name: one for one in catalogue()}
    unknown = [name for name in names if name not in every]
    if unknown or not names:
        raise UsageError(
            f"There is no optimisation {unknown[0]!r}."
            if unknown
            else "--only names no optimisation.",
            f"They are: {', '.join(every)}.",
        )
    return [replace(every[name], changes_training=False) for name in every if name in names]


def missing_on(optimisation: Optimisation, machine: Machine, device: Device) -> Refusal | None:
    """What the machine lacks for it."""
    lacks = _lacks(optimisation, machine, on_gpu=device == Device.CUDA)
    return Refusal(Reason.MACHINE_LACKS_IT, lacks) if lacks else None


def _lacks(optimisation: Optimisation, machine: Machine, *, on_gpu: bool) -> str:
    needs, least, has = optimisation.needs, optimisation.capability, machine.capability
    if ("cuda" in needs or least is not None) and not on_gpu:
        return "it is for GPUs, and this run is on the CPU"
    if least is not None and has is not None and has < least:
        return "it needs compute capability {}.{}, and the GPU has {}.{}".format(*least, *has)
    if "triton" in needs and on_gpu and machine.triton is None:
        return f"Triton is not there: {machine.triton_error or 'it cannot be imported'}"
    if "compiler" in needs and machine.compiler is None:
        return "there is no C compiler (cc, gcc or clang)"
    for name in needs:
        if name not in MACHINE_NEEDS and name not in machine.packages:
            return f"the package {name} is not installed: pip install {name}"
    return ""
