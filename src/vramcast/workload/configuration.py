"""How a workload is run, as a file: knobs, torch's process-wide switches, and allocator settings.

`vramcast tune` writes one, `vramcast probe --config` runs it, and a training script can load it:

    config = vramcast.load_configuration("final.json")
    config.apply()                       # the switches and the allocator, before the first CUDA tensor
    step = build(**config.knobs_of(build))

Plain data; reading a file runs no code from it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.records.store import write_json
from vramcast.text import printable
from vramcast.workload import bind_knobs, parse_reference, separated, together
from vramcast.workload.switches import SDPA_KERNELS, Switches, apply_allocator, apply_switches

VERSION = 1
KIND = "vramcast configuration"
# what each switch is in Python
LINES = {
    "tf32": "torch.backends.cuda.matmul.allow_tf32 = {}",
    "cudnn_benchmark": "torch.backends.cudnn.benchmark = {}",
    "detect_anomaly": "torch.autograd.set_detect_anomaly({})",
}
SDPA_LINE = "torch.backends.cuda.enable_{}_sdp({})"


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Knobs of a workload, torch's process-wide switches and allocator settings: what `vramcast tune` found."""

    # A value that JSON does not have, such as a dtype, is a `Text`, as on the command line.
    knobs: dict[str, Any] = field(default_factory=dict)
    switches: Switches = field(default_factory=Switches)
    allocator: str | None = None  # as in PYTORCH_ALLOC_CONF; None leaves the environment's

    def with_(
        self, knobs: Mapping[str, Any], switches: Switches, allocator: str | None
    ) -> Configuration:
        """This one with something changed; what is not given stays."""
        return replace(
            self,
            knobs={**self.knobs, **knobs},
            switches=Switches(**{**self.switches.given(), **switches.given()}),
            allocator=allocator if allocator is not None else self.allocator,
        )

    @property
    def key(self) -> str:
        """The same for the same configuration, whatever the order of its knobs."""
        return json.dumps({**asdict(self), **separated(self.knobs)}, sort_keys=True)

    def knobs_of(self, function: Callable[..., Any]) -> dict[str, Any]:
        """The keyword arguments for this workload's function."""
        return bind_knobs(function, self.knobs)

    def to_dict(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "kind": KIND,
            **separated(self.knobs),
            "switches": self.switches.given(),
            "allocator": self.allocator,
        }

    def save(self, path: Path, **more: Any) -> None:
        write_json(path, {**self.to_dict(), **more})

    def apply(self) -> None:
        """In the process that trains, before its first CUDA tensor."""
        apply_switches(self.switches)
        if self.allocator is not None:
            apply_allocator(self.allocator)

    def python_lines(self, workload: str) -> list[str]:
        """To paste into a script."""
        reference = parse_reference(workload)
        module = reference.path.stem if reference.path is not None else reference.module
        knobs = ", ".join(f"{key}={value!r}" for key, value in self.knobs.items())
        first = (
            [
                "import os",
                f'os.environ["PYTORCH_ALLOC_CONF"] = {self.allocator!r}  # before torch is imported',
            ]
            if self.allocator
            else []
        )
        switches = _switch_lines(self.switches)
        torch = ["import torch"] if switches else []
        text = ", ".join(separated(self.knobs)["knobs_text"])
        as_text = [f"# {text}: as text, like on the command line; write its value"] if text else []
        call = f"step = {reference.function}({knobs})"
        is_name = all(part.isidentifier() for part in str(module).split("."))
        found = (
            f"from {module} import {reference.function}"
            if is_name
            else f"# {reference.function} is that of {printable(workload)}"
        )
        return [*first, *torch, found, *switches, *as_text, call]


def _switch_lines(switches: Switches) -> list[str]:
    lines = [LINES[name].format(value) for name, value in switches.given().items() if name in LINES]
    if switches.sdpa is not None:
        lines += [
            SDPA_LINE.format(name, kernel == switches.sdpa) for kernel, name in SDPA_KERNELS.items()
        ]
    return lines


def load_configuration(path: str | Path) -> Configuration:
    """The configuration in a file that `vramcast tune` wrote. Reading it runs no code from it."""
    if not str(path):
        raise UsageError(
            "The configuration '' names no file.", "Give a file that vramcast tune wrote."
        )
    try:
        data = json.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(
            f"The configuration {path} cannot be read: {problem}.",
            "Give a file that vramcast tune wrote.",
        ) from None
    except (ValueError, RecursionError) as problem:
        raise UsageError(
            f"The configuration {path} is no JSON: {problem}.",
            "Give a file that vramcast tune wrote.",
        ) from None
    if (
        not isinstance(data, dict)
        or data.get("kind") != KIND
        or data.get("version") != VERSION
        or data["version"] is True
    ):
        raise UsageError(
            f"{path} is no configuration of version {VERSION}.",
            "Give a file that vramcast tune wrote.",
        )
    return _read(path, data)


def _read(path: str | Path, data: dict[str, Any]) -> Configuration:
    knobs, switches, allocator = (
        data.get("knobs", {}),
        data.get("switches", {}),
        data.get("allocator"),
    )
    text = data.get("knobs_text", {})
    tables = all(isinstance(table, dict) for table in (knobs, switches, text)) and all(
        isinstance(value, str) for value in text.values()
    )
    if not tables or not isinstance(allocator, str | None):
        raise UsageError(
            f"{path}: knobs and switches are tables, and allocator is text or null.",
            "It was edited: make it again.",
        )
    unknown = sorted(switches.keys() - asdict(Switches()).keys())
    if unknown:
        raise UsageError(
            f"{path}: there is no switch {unknown[0]!r}.",
            f"Switches are {', '.join(asdict(Switches()))}.",
        )
    return Configuration(knobs=together(data), switches=Switches(**switches), allocator=allocator)
