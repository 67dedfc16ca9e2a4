"""Options of a launch line that make a change: those that the line has, or that its program takes.

vramcast knows the options of Hugging Face's Trainer, of torchtune and litgpt, and those that a
script declares itself with argparse.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from vramcast.workload.launch_line import USUAL_OPTIONS

# A line with one of these takes the options of Hugging Face's Trainer.
TRAINER_OPTIONS = ("per_device_train_batch_size", "gradient_accumulation_steps", "output_dir")
TRAINER_BATCH = 8
PASSES_OPTIONS = (
    "gradient_accumulation_steps",
    "gradient-accumulation-steps",
    "grad_accum_steps",
    "grad-accum-steps",
    "accumulation_steps",
)
# Installed programs, and the options that they take. torchtune's are written without dashes.
TORCHTUNE = "tune"
PROGRAMS = {
    TORCHTUNE: (
        "batch_size",
        "gradient_accumulation_steps",
        "enable_activation_checkpointing",
        "compile",
        "optimizer",
        "optimizer_in_bwd",
    ),
    "litgpt": ("train.micro_batch_size", "quantize"),
}
BATCH_OPTIONS = (*USUAL_OPTIONS["batch_size"], "train.micro_batch_size")


@dataclass(frozen=True)
class Declared:
    is_switch: bool = False  # takes no value
    default: Any = None


class LineOptions:
    """What is known about the options of a line."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self.given = options_of(words)
        self._declared = _declared_by(words)
        is_own = any(name in self._declared for name in TRAINER_OPTIONS)
        self.is_trainer = not is_own and any(name in self.given for name in TRAINER_OPTIONS)

    def takes(self, name: str) -> bool:
        return name in self._declared or name in self.given

    def made(
        self, alternatives: Sequence[Mapping[str, str]], trainer: Mapping[str, str]
    ) -> dict[str, str] | None:
        """The options that make a change. Empty where they are set already; None where no such
        option is known."""
        offered = [trainer] if self.is_trainer and trainer else []
        offered += [one for one in alternatives if all(map(self.takes, one))]
        for options in offered:
            wanted = {name: self._written(name, value) for name, value in options.items()}
            is_on = all(
                self.given.get(name, "").lower() == (value or "true").lower()
                for name, value in wanted.items()
            )
            return {} if is_on else wanted
        return None

    def _written(self, name: str, value: str) -> str:
        declared = self._declared.get(name)
        if declared is None:
            return value or "true"
        return "" if declared.is_switch else value or "True"

    def batch(self) -> tuple[str, int] | None:
        """The option for the size of a batch, and its value."""
        for name in BATCH_OPTIONS:
            text = self.given.get(name, "")
            if text.isdecimal():
                return name, int(text)
        if self.is_trainer:
            return TRAINER_OPTIONS[0], TRAINER_BATCH
        for name in BATCH_OPTIONS:
            default = self._declared[name].default if name in self._declared else None
            if type(default) is int and name not in self.given:
                return name, default
        return None

    def passes(self) -> tuple[str, int] | None:
        """The option for gradient accumulation, and how many passes there are."""
        known = PASSES_OPTIONS[:1] if self.is_trainer else PASSES_OPTIONS
        for name in known:
            if self.is_trainer or self.takes(name):
                text = self.given.get(name, "1")
                return (name, int(text)) if text.isdecimal() else None
        return None


def options_of(words: Sequence[str]) -> dict[str, str]:
    """The options of a line: --name=value, --name value, and --name, which means true; for
    torchtune name=value."""
    found = {}
    for word, after in zip(words, [*words[1:], "--"], strict=False):
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name:
            is_alone = after.startswith("-")
            found[name] = value if equals else "true" if is_alone else after
        elif equals and _program(words) == TORCHTUNE:
            found[name] = value
    return found


def with_options(words: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """The line with these options; those that it has are replaced. An option without a value is a
    switch."""
    kept, skip = [], False
    for word in words:
        name = word.lstrip("-").partition("=")[0] if word.startswith("-") or "=" in word else ""
        if name in options:
            skip = "=" not in word
            continue
        if skip and not word.startswith("-"):
            skip = False
            continue
        skip = False
        kept.append(word)
    dashes = "" if _program(words) == TORCHTUNE else "--"
    return [*kept, *(shown_option(name, value, dashes) for name, value in options.items())]


def shown_option(name: str, value: str, dashes: str = "--") -> str:
    return f"{dashes}{name}={value}" if value else f"{dashes}{name}"


def _program(words: Sequence[str]) -> str:
    return Path(words[0]).name if words else ""


def _declared_by(words: Sequence[str]) -> dict[str, Declared]:
    known = PROGRAMS.get(_program(words))
    if known is not None:
        return dict.fromkeys(known, Declared())
    scripts = [word for word in words if word.endswith(".py") and Path(word).is_file()]
    return _declared_in(scripts[0]) if scripts else {}


@cache
def _declared_in(script: str) -> dict[str, Declared]:
    """The options that a script declares by add_argument. Empty for a script that cannot be
    read."""
    try:
        tree = ast.parse(Path(script).read_text())
    except (OSError, SyntaxError, ValueError):
        return {}
    found = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "add_argument":
            continue
        keywords = {one.arg: getattr(one.value, "value", None) for one in node.keywords}
        action = keywords.get("action")
        declared = Declared(action == "store_true", keywords.get("default"))
        for argument in node.args:
            name = getattr(argument, "value", None)
            if isinstance(name, str) and name.startswith("-") and action != "store_false":
                found[name.lstrip("-")] = declared
    return found
