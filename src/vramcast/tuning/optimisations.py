"""The optimisations of `vramcast tune` and `vramcast advise`, read from optimisations.toml."""

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
# Not packages, but parts that the machine must have.
MACHINE_NEEDS = ("cuda", "triton", "compiler")


class Losses(StrEnum):
    """How far losses may be from the baseline's."""

    SAME = "same"
    ROUNDED = "rounded"
    COARSE = "coarse"
    NOT_COMPARED = "not compared"


# The largest difference at any step, relative to the baseline's loss.
TOLERANCES = {Losses.SAME: 1e-3, Losses.ROUNDED: 2e-2, Losses.COARSE: 5e-2}


class Refusal(NamedTuple):
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
    predicted: bool = False
    start_seconds: float = 0.0
    warmup_steps: int = 0
    needs: tuple[str, ...] = ()
    capability: tuple[int, int] | None = None
    advised: bool = False
    only_advised: bool = False
    forced: Configuration | None = None
    flags: dict[str, str] = field(default_factory=dict)
    options: tuple[dict[str, str], ...] = ()
    passes: int = 1
    is_half: bool = False
    world_size: int = 1
    saves: dict[str, float] = field(default_factory=dict)
    saves_loss: float = 0.0
    code: str = ""

    @property
    def loss_tolerance(self) -> float | None:
        return TOLERANCES.get(self.losses)


def knobs(**values: Any) -> Configuration:
    return Configuration(knobs=values)


def catalogue() -> list[Optimisation]:
    blocks = tomllib.loads(FILE.read_text())["optimisation"]
    return convert(blocks, list[Optimisation], str(FILE))


def chosen(only: str | None) -> Sequence[Optimisation]:
    """The optimisations to try; all of them for None. One that is asked for by name may change the
    training."""
    every = [one for one in catalogue() if not one.only_advised]
    if only is None:
        return every
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = [one.name for one in every]
    unknown = [f"There is no optimisation {name!r}." for name in names if name not in known]
    if unknown or not names:
        problem = unknown[0] if unknown else "--only names no optimisation."
        raise UsageError(problem, f"They are: {', '.join(known)}.")
    return [replace(one, changes_training=False) for one in every if one.name in names]


def missing_on(optimisation: Optimisation, machine: Machine, device: Device) -> Refusal | None:
    needs, least, has = optimisation.needs, optimisation.capability, machine.capability
    on_gpu = device == Device.CUDA
    packages = [name for name in needs if name not in (*MACHINE_NEEDS, *machine.packages)]
    if ("cuda" in needs or least) and not on_gpu:
        lacks = "it is for GPUs, and this run is on the CPU"
    elif least and has and has < least:
        lacks = "it needs compute capability {}.{}, and the GPU has {}.{}".format(*least, *has)
    elif "triton" in needs and on_gpu and machine.triton is None:
        lacks = f"Triton is not there: {machine.triton_error or 'it cannot be imported'}"
    elif "compiler" in needs and machine.compiler is None:
        lacks = "there is no C compiler (cc, gcc or clang)"
    elif packages:
        lacks = f"the package {packages[0]} is not installed: pip install {packages[0]}"
    else:
        return None
    return Refusal(Reason.MACHINE_LACKS_IT, lacks)
