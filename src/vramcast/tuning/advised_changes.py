"""Which changes of the catalogue apply to a workload, and how each is made there."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vramcast.hardware.gpus import Gpu
from vramcast.records.tune import Reason
from vramcast.tuning.candidates import Candidate
from vramcast.tuning.inspection import inspect_bound
from vramcast.tuning.line_options import LineOptions, shown_option, with_options
from vramcast.tuning.optimisations import MACHINE_NEEDS, Losses, Optimisation, catalogue
from vramcast.workload.configuration import Configuration
from vramcast.workload.launch_line import launch_line

FAMILIES = ("accumulate-", "fsdp-", "checkpointing-")
IS_ON = "it is on already"
PASSES_KNOBS = ("accumulation", "accumulation_steps", "gradient_accumulation_steps")
TRAINING = {
    Losses.SAME: "the same arithmetic",
    Losses.ROUNDED: "rounding only",
    Losses.COARSE: "rounds more coarsely",
}


@dataclass(frozen=True)
class Change:
    """One optimisation, or several, in the form that this workload takes."""

    optimisations: tuple[Optimisation, ...]
    configuration: Configuration = Configuration()
    flags: tuple[tuple[str, str], ...] = ()  # options of a launch line
    passes: int = 1  # made by the worker; a workload with a knob for it does them itself
    world_size: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.optimisations)

    @property
    def start_seconds(self) -> float:
        return max(one.start_seconds for one in self.optimisations)

    @property
    def families(self) -> frozenset[str]:
        """The families of its optimisations. More or less of the same thing is one family, listed
        from less to more."""
        return frozenset(
            next((family for family in FAMILIES if name.startswith(family)), name)
            for name in self.names
        )

    @property
    def level(self) -> int:
        """How much it asks of the user: 0 nothing, 1 a caution, 2 another training, 3 more GPUs."""
        if self.world_size > 1:
            return 3
        if any(one.changes_training for one in self.optimisations):
            return 2
        return int(any(one.caution for one in self.optimisations))

    @property
    def num_steps(self) -> int:
        """How many steps it takes for as many samples as one step had before."""
        return 2 if any(one.is_half for one in self.optimisations) else 1

    def settings(self) -> set[object]:
        """The things that it sets. Two changes that set the same thing exclude each other."""
        found: set[object] = set(self.configuration.settings())
        found |= {("flag", name) for name, _ in self.flags}
        found |= {"passes" for one in self.optimisations if one.passes > 1 or one.is_half}
        # Some changes set the same thing under different names.
        found |= {name.partition("-")[0] for name in self.names if "checkpointing" in name}
        found |= {"optimizer" for name in self.names if name.startswith("optimizer-")}
        found |= {"weights" for name in self.names if name in ("lora", "qlora", "quantize-nf4")}
        found |= {"precision" for name in self.names if name in ("amp-bf16", "bf16")}
        return found | ({"world"} if self.world_size > 1 else set())

    def with_(self, other: Change) -> Change | None:
        """Both changes together. None where they exclude each other."""
        if self.settings() & other.settings():
            return None
        return Change(
            (*self.optimisations, *other.optimisations),
            self.configuration.with_change(other.configuration),
            (*self.flags, *other.flags),
            max(self.passes, other.passes),
            max(self.world_size, other.world_size),
        )

    def line(self, words: Sequence[str]) -> list[str]:
        return with_options(words, dict(self.flags)) if self.flags else list(words)

    def how(self) -> list[str]:
        """How to make the change: knobs and options that the workload has, or code where it has
        none."""
        knobs = self.configuration.knobs
        given = " ".join(f"{name}={value}" for name, value in knobs.items())
        options = " ".join(shown_option(*flag) for flag in self.flags)
        start = f"torchrun --nproc-per-node {self.world_size}" if self.world_size > 1 else ""
        by_hand = [
            one.code
            for one in self.optimisations
            if one.code and not _is_given(one, self.configuration, self.flags)
        ]
        setting = self.configuration.allocator
        if setting and not any(setting in line for line in by_hand):
            by_hand.append(f"PYTORCH_ALLOC_CONF={setting}")
        return [*filter(None, (given, options, start)), *by_hand]

    def training(self) -> list[str]:
        return [
            "; ".join(filter(None, (TRAINING.get(one.losses, ""), one.caution)))
            for one in self.optimisations
        ]


def _is_given(
    one: Optimisation, configuration: Configuration, flags: Sequence[tuple[str, str]]
) -> bool:
    """Whether a knob or an option makes this change."""
    by_knob = any(
        change.knobs and change.knobs.items() <= configuration.knobs.items()
        for change in one.changes
    )
    if one.passes > 1 or one.is_half:
        return bool(flags) or any(name in configuration.knobs for name in PASSES_KNOBS)
    set_ = dict(flags)
    return by_knob or any(made and made.keys() <= set_.keys() for made in (one.flags, *one.options))


@dataclass(frozen=True)
class Applicable:
    """The changes that can be predicted, those that can only be estimated, and why the rest do not
    apply."""

    changes: list[Change]
    estimated: list[Optimisation]
    refused: dict[str, str]


def applicable(
    in_force: Mapping[str, Any],
    bind: Callable[[list[dict[str, Any]]], Sequence[Mapping[str, Any] | str]],
    line: Sequence[str],
    gpu: Gpu | None,
    allocator_settings: str,
) -> Applicable:
    """`bind` says for each change of knobs what the knobs would be, or why it is refused."""
    advised = [one for one in catalogue() if one.advised]
    candidates = inspect_bound(advised, in_force, bind)
    found = Applicable([], [], {})
    options = LineOptions(line)
    for candidate in candidates:
        one = candidate.optimisation
        reason = _lacks(one, gpu) or _already(one, in_force, allocator_settings)
        change = None if reason else _change(candidate, options, in_force)
        if change is not None:
            found.changes.append(change)
        elif (one.saves or one.saves_loss) and reason != IS_ON and not _is_on(candidate):
            found.estimated.append(one)
        else:
            refusal = candidate.refusal
            found.refused[one.name] = (
                reason
                or _no_batch(one, options, in_force)
                or (refusal.sentence if refusal else "it does not apply")
            )
    return found


def _lacks(one: Optimisation, gpu: Gpu | None) -> str:
    if one.capability and gpu is not None and gpu.capability < one.capability:
        return "it needs compute capability {}.{}".format(*one.capability)
    packages = [name for name in one.needs if name not in MACHINE_NEEDS]
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return f"the package {missing[0]} is not installed, so it is not predicted" if missing else ""


def _already(one: Optimisation, in_force: Mapping[str, Any], allocator_settings: str) -> str:
    """Why a change is not needed: it is already on, also under another name or in part."""
    settings = [change.allocator for change in one.changes if change.allocator]
    is_on = any(each in allocator_settings for each in settings)
    if one.name.startswith("checkpointing"):
        is_on = any(in_force.get(name) for name in ("checkpointing", "gradient_checkpointing"))
    if one.name in ("lora", "qlora"):
        is_on = bool(in_force.get("lora"))
    if one.name == "quantize-nf4" and not in_force.get("lora"):
        return "only frozen weights are quantized: it needs lora"
    return IS_ON if is_on else ""


def _is_on(candidate: Candidate) -> bool:
    codes = (Reason.ALREADY_SET, Reason.OTHER_METHOD)
    return candidate.refusal is not None and candidate.refusal.code in codes


def _no_batch(one: Optimisation, options: LineOptions, in_force: Mapping[str, Any]) -> str:
    """How to try a smaller batch where no known option of the line sets it."""
    if not options.words or not one.is_half or options.batch() or "batch_size" in in_force:
        return ""
    how = launch_line(options.words).how_to_place("batch_size")
    return f"no option for the size of a batch is known. {how}"


def _change(
    candidate: Candidate, options: LineOptions, in_force: Mapping[str, Any]
) -> Change | None:
    one = candidate.optimisation
    if one.passes > 1:
        return _smaller_batch(one, options, in_force)
    if one.is_half:
        return _half_batch(one, options, in_force)
    if candidate.refusal is None:
        return Change((one,), candidate.change, world_size=one.world_size)
    if _is_on(candidate):
        return None
    made = options.made(one.options, one.flags)
    if made is not None:
        return Change((one,), flags=tuple(made.items())) if made else None
    is_known = candidate.refusal.code is Reason.KNOBS_REFUSED and one.name == "amp-bf16"
    return Change((one,), one.forced) if one.forced and not is_known else None


def _smaller_batch(
    one: Optimisation, options: LineOptions, in_force: Mapping[str, Any]
) -> Change | None:
    """A smaller batch with several passes: by a knob for the passes, by options of the line, or in
    the simulation."""
    size = in_force.get("batch_size")
    if options.words:
        return _fewer_by_options(one, options, size)
    if type(size) is not int or size < one.passes or size % one.passes:
        return None
    knobs: dict[str, Any] = {"batch_size": size // one.passes}
    for name in PASSES_KNOBS:
        if type(in_force.get(name)) is int:
            knobs[name] = max(1, in_force[name]) * one.passes
            return Change((one,), Configuration(knobs=knobs))
    return Change((one,), Configuration(knobs=knobs), passes=one.passes)


def _fewer_by_options(one: Optimisation, options: LineOptions, size: object) -> Change | None:
    """Sets the batch by a placeholder or an option, and the passes by an option.

    With an option for a micro-batch the program accumulates by itself.
    """
    batch, passes = options.batch(), options.passes()
    is_micro = batch is not None and "micro" in batch[0]
    if passes is None and not is_micro:
        return None
    now = size if type(size) is int else batch[1] if batch else 0
    if not now or now % one.passes:
        return None
    flags = {passes[0]: str(passes[1] * one.passes)} if passes else {}
    if type(size) is int:
        knobs = Configuration(knobs={"batch_size": size // one.passes})
        return Change((one,), knobs, tuple(flags.items()))
    assert batch is not None
    return Change((one,), flags=((batch[0], str(now // one.passes)), *flags.items()))


def _half_batch(
    one: Optimisation, options: LineOptions, in_force: Mapping[str, Any]
) -> Change | None:
    """Half the batch, for a program that is not known to accumulate gradients."""
    batch, size = options.batch(), in_force.get("batch_size")
    if not options.words or options.passes() or (batch and "micro" in batch[0]):
        return None
    if type(size) is int and size > 1:
        return Change((one,), Configuration(knobs={"batch_size": size // 2}))
    if batch is None or batch[1] < 2:
        return None
    return Change((one,), flags=((batch[0], str(batch[1] // 2)),))
