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
from vramcast.tuning.optimisations import MACHINE_NEEDS, Losses, Optimisation, catalogue
from vramcast.workload.configuration import Configuration

# A launch line with one of these takes the options of Hugging Face's Trainer.
TRAINER_OPTIONS = ("per_device_train_batch_size", "gradient_accumulation_steps", "output_dir")
BATCH_OPTION, PASSES_OPTION = TRAINER_OPTIONS[:2]
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
    """One optimisation as this workload takes it, or several."""

    optimisations: tuple[Optimisation, ...]
    configuration: Configuration = Configuration()
    flags: tuple[tuple[str, str], ...] = ()  # of a launch line
    passes: int = 1  # of the worker; a workload with a knob for it does them itself
    world_size: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.optimisations)

    @property
    def start_seconds(self) -> float:
        return max(one.start_seconds for one in self.optimisations)

    @property
    def families(self) -> frozenset[str]:
        """More or less of the same is one family, and listed from less to more."""
        return frozenset(
            next((family for family in FAMILIES if name.startswith(family)), name)
            for name in self.names
        )

    @property
    def level(self) -> int:
        """How much it asks for: nothing, a caution, another training, more GPUs."""
        if self.world_size > 1:
            return 3
        if any(one.changes_training for one in self.optimisations):
            return 2
        return int(any(one.caution for one in self.optimisations))

    def settings(self) -> set[object]:
        """What it sets: two changes of the same thing exclude each other."""
        found: set[object] = set(self.configuration.settings())
        found |= {("flag", name) for name, _ in self.flags}
        found |= {"passes" for one in self.optimisations if one.passes > 1}
        # Different names of one thing.
        found |= {name.partition("-")[0] for name in self.names if "checkpointing" in name}
        found |= {"optimizer" for name in self.names if name.startswith("optimizer-")}
        found |= {"weights" for name in self.names if name in ("lora", "qlora", "quantize-nf4")}
        found |= {"precision" for name in self.names if name in ("amp-bf16", "bf16")}
        return found | ({"world"} if self.world_size > 1 else set())

    def with_(self, other: Change) -> Change | None:
        """Both; None where they exclude each other."""
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
        """Knobs and options that the workload has, and code where it has none."""
        knobs = self.configuration.knobs
        given = " ".join(f"{name}={value}" for name, value in knobs.items())
        options = " ".join(f"--{name}={value}" for name, value in self.flags)
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
    """Whether a knob or an option does it."""
    by_knob = any(
        change.knobs and change.knobs.items() <= configuration.knobs.items()
        for change in one.changes
    )
    by_passes = one.passes > 1 and any(name in configuration.knobs for name in PASSES_KNOBS)
    return by_knob or by_passes or bool(one.flags and one.flags.items() <= dict(flags).items())


@dataclass(frozen=True)
class Applicable:
    """What can be predicted, what can only be estimated, and why the rest does not apply."""

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
    """`bind` says of changes of knobs what the knobs would be, or why one is refused."""
    advised = [one for one in catalogue() if one.advised]
    candidates = inspect_bound(advised, in_force, bind)
    found = Applicable([], [], {})
    for candidate in candidates:
        one = candidate.optimisation
        reason = _lacks(one, gpu) or _already(one, in_force, allocator_settings)
        change = None if reason else _change(candidate, line, in_force)
        if change is not None:
            found.changes.append(change)
        elif (one.saves or one.saves_loss) and reason != IS_ON and not _is_on(candidate):
            found.estimated.append(one)
        else:
            refusal = candidate.refusal
            found.refused[one.name] = reason or (
                refusal.sentence if refusal else "it does not apply"
            )
    return found


def _lacks(one: Optimisation, gpu: Gpu | None) -> str:
    if one.capability and gpu is not None and gpu.capability < one.capability:
        return "it needs compute capability {}.{}".format(*one.capability)
    packages = [name for name in one.needs if name not in MACHINE_NEEDS]
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return f"the package {missing[0]} is not installed, so it is not predicted" if missing else ""


def _already(one: Optimisation, in_force: Mapping[str, Any], allocator_settings: str) -> str:
    """Also under another name, or in part."""
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


def _change(
    candidate: Candidate, line: Sequence[str], in_force: Mapping[str, Any]
) -> Change | None:
    one = candidate.optimisation
    if one.passes > 1:
        return _smaller_batch(one, line, in_force)
    if candidate.refusal is None:
        return Change((one,), candidate.change, world_size=one.world_size)
    if _is_on(candidate):
        return None
    if one.flags and _takes_trainer_options(line):
        given = options_of(line)
        is_on = all(given.get(name, "").lower() == value for name, value in one.flags.items())
        return None if is_on else Change((one,), flags=tuple(one.flags.items()))
    is_known = candidate.refusal.code is Reason.KNOBS_REFUSED and one.name == "amp-bf16"
    return Change((one,), one.forced) if one.forced and not is_known else None


def _smaller_batch(
    one: Optimisation, line: Sequence[str], in_force: Mapping[str, Any]
) -> Change | None:
    """Through a knob for the number of passes, the Trainer's options, or by the simulation."""
    size = in_force.get("batch_size")
    if line and _takes_trainer_options(line) and size is None:
        given = options_of(line)
        text = given.get(BATCH_OPTION, "8")
        batch = int(text) if text.isdecimal() else 0
        if not batch or batch % one.passes:
            return None
        passes = int(given.get(PASSES_OPTION, "1") or 1) * one.passes
        flags = ((BATCH_OPTION, str(batch // one.passes)), (PASSES_OPTION, str(passes)))
        return Change((one,), flags=flags)
    if type(size) is not int or size < one.passes or size % one.passes:
        return None
    knobs: dict[str, Any] = {"batch_size": size // one.passes}
    for name in PASSES_KNOBS:
        if type(in_force.get(name)) is int:
            knobs[name] = max(1, in_force[name]) * one.passes
            return Change((one,), Configuration(knobs=knobs))
    # The steps of a program are its own.
    return None if line else Change((one,), Configuration(knobs=knobs), passes=one.passes)


def _takes_trainer_options(words: Sequence[str]) -> bool:
    return any(name in TRAINER_OPTIONS for name in options_of(words))


def options_of(words: Sequence[str]) -> dict[str, str]:
    """Of a line: --name=value, --name value, and --name, which is true."""
    found = {}
    for word, after in zip(words, [*words[1:], "--"], strict=False):
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            is_alone = after.startswith("--")
            found[name] = value if equals else "true" if is_alone else after
    return found


def with_options(words: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """Those that are there are replaced."""
    kept, skip = [], False
    for word in words:
        name = word[2:].partition("=")[0] if word.startswith("--") else ""
        if name in options:
            skip = "=" not in word
            continue
        if skip and not word.startswith("--"):
            skip = False
            continue
        skip = False
        kept.append(word)
    return [*kept, *(f"--{name}={value}" for name, value in options.items())]
