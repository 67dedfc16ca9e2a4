"""A workload as the line that starts its program: `python train.py --batch_size={batch_size}`.

`{name}` is a knob: its value is given before the `--`, or changed by a search. `{{name}}` is the
text {name}.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vramcast.errors import UsageError, WorkloadError
from vramcast.text import did_you_mean
from vramcast.workload.knobs import Text, convert_text

PLACEHOLDER = re.compile(r"\{\{(?P<literal>\w*)\}\}|\{(?P<knob>[A-Za-z_]\w*)\}")
# Options of well-known programs for the knobs that a search changes.
USUAL_OPTIONS = {
    "batch_size": (
        "batch_size",
        "batch-size",
        "per_device_train_batch_size",
        "train_batch_size",
        "micro_batch_size",
        "bs",
        "b",
    ),
    "seq_len": ("seq_len", "block_size", "max_seq_length", "max_length", "seq_length", "seq-len"),
}


@dataclass(frozen=True)
class Program:
    target: str  # a file or a module
    is_module: bool = False
    arguments: tuple[str, ...] = ()
    interpreter: str | None = None  # None is vramcast's own
    flags: tuple[str, ...] = ()  # the interpreter's
    environment: Mapping[str, str] = field(default_factory=dict)
    world_size: int = 1
    gpus_per_node: int = 1

    @property
    def argv(self) -> list[str]:
        return [self.target, *self.arguments]


@dataclass(frozen=True)
class LaunchLine:
    words: tuple[str, ...]

    def __str__(self) -> str:
        return _shown(self.words)

    @property
    def knobs(self) -> list[str]:
        found = (match["knob"] for word in self.words for match in PLACEHOLDER.finditer(word))
        return list(dict.fromkeys(filter(None, found)))

    def filled(self, values: Mapping[str, Any]) -> list[str]:
        """The words with these values, which must include all knobs."""

        def put(match: re.Match[str]) -> str:
            return str(values[match["knob"]]) if match["knob"] else f"{{{match['literal']}}}"

        return [PLACEHOLDER.sub(put, word) for word in self.words]

    def check_knobs(self, given: Mapping[str, Any], moved: Sequence[str] = ()) -> None:
        """Checks that every knob of the line has a value, and that every value belongs to a knob of
        the line."""
        for name in given:
            if name not in self.knobs:
                raise WorkloadError(
                    f"The line has no {{{name}}}, so {name}={given[name]} has no place in it.",
                    did_you_mean(name, self.knobs) + self.how_to_place(name),
                )
        for name in moved:
            self.check_has(name)
        for name in self.knobs:
            if name not in given and name not in moved:
                raise WorkloadError(
                    f"The line has {{{name}}}, and no value for it was given.",
                    f"Give {name}=VALUE before the `--`, "
                    f"or write {{{{{name}}}}} if the program is to see {{{name}}}.",
                )

    def check_has(self, name: str) -> None:
        if name not in self.knobs:
            raise WorkloadError(
                f"This command changes {name}, and the line has no {{{name}}}.",
                self.how_to_place(name),
            )

    def how_to_place(self, name: str) -> str:
        """The line with the placeholder, if one of its options is known to mean this knob."""
        placed = list(self.words)
        usual = USUAL_OPTIONS.get(name, (name, name.replace("_", "-")))
        for index, word in enumerate(self.words):
            option, equals, _ = word.partition("=")
            if option.lstrip("-") not in usual:
                continue
            if equals:
                placed[index] = f"{option}={{{name}}}"
            elif word.startswith("-") and index + 1 < len(self.words):
                placed[index + 1] = f"{{{name}}}"
            else:
                continue
            return f"Write -- {_shown(placed)}"
        return f"Put {{{name}}} where the program takes it, for example --{name}={{{name}}}."


def typed_knobs(values: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs, with numbers where text looks like one: tokens a second are computed from
    sizes."""
    return {
        name: convert_text(value, Any) if isinstance(value, Text) else value
        for name, value in values.items()
    }


def launch_line(words: Sequence[str]) -> LaunchLine:
    if not words or not all(isinstance(word, str) for word in words):
        raise UsageError(
            f"A launch line is a list of words, not {list(words)!r}.",
            'For example ["python", "train.py", "--batch_size=12"], or on the command line '
            "vramcast predict -- python train.py --batch_size=12.",
        )
    return LaunchLine(tuple(words))


def _shown(words: Sequence[str]) -> str:
    """The line with braces as people type them: a shell leaves {name} alone."""
    return " ".join(
        word if PLACEHOLDER.search(word) and " " not in word else shlex.quote(word)
        for word in words
    )
