"""A file with a workload's knobs, torch's process-wide switches, and allocator settings.

`vramcast tune` writes one, `vramcast probe --config` runs it, and a training script can load it:

    config = vramcast.load_configuration("final.json")
    config.apply()                   # switches and allocator, before the first CUDA tensor
    step = build(**config.knobs_of(build))

Reading it runs no code from it.
"""

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, field, fields, replace
from pathlib import Path
from typing import Any, Self

from vramcast.errors import UsageError
from vramcast.records.base import Record, convert
from vramcast.records.store import write_json
from vramcast.text import printable
from vramcast.workload import bind_knobs, parse_reference, separated, together
from vramcast.workload.launch_line import LaunchLine
from vramcast.workload.reference import is_module_name
from vramcast.workload.switches import SDPA_KERNELS, Switches, apply_allocator, apply_switches

SWITCHES = [switch.name for switch in fields(Switches)]
FIRST_SWITCHES = ("cudnn_benchmark", "detect_anomaly", "sdpa", "tf32")
# The Python code of each switch.
LINES = {
    "tf32": "torch.backends.cuda.matmul.allow_tf32 = {}",
    "cudnn_benchmark": "torch.backends.cudnn.benchmark = {}",
    "detect_anomaly": "torch.autograd.set_detect_anomaly({})",
    # These are no settings of torch, but changes of the step's code.
    "autocast": "# run the forward pass and the loss under torch.autocast('cuda'): {}",
    "checkpoint_every": "# checkpoint every n-th block (torch.utils.checkpoint), n = {}",
    "foreach": "# make the optimizer with foreach={}",
    "fused": "# make the optimizer with fused={}",
    "set_to_none": "# call zero_grad(set_to_none={})",
}


class Configuration(Record, kind="vramcast configuration"):
    """Knobs, torch's process-wide switches and allocator settings."""

    # A value that JSON cannot hold, such as a dtype, is a `Text`, as on the command line.
    knobs: dict[str, Any] = field(default_factory=dict)
    switches: Switches = field(default_factory=Switches)
    allocator: str | None = None  # as in PYTORCH_ALLOC_CONF; None leaves the environment's settings

    def with_change(self, change: Self) -> Self:
        return replace(
            self,
            knobs={**self.knobs, **change.knobs},
            switches=replace(self.switches, **change.switches.given()),
            allocator=change.allocator or self.allocator,
        )

    def settings(self) -> dict[tuple[str, str], Any]:
        kinds = {"knob": self.knobs, "switch": self.switches.given()}
        if self.allocator:
            kinds["allocator"] = {"allocator": self.allocator}
        return {(kind, name): given[name] for kind, given in kinds.items() for name in given}

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for (_, name), value in self.settings().items())

    @property
    def key(self) -> str:
        """A text that is the same for the same configuration, whatever the order of its knobs.

        Records are found by it, so a switch that was added later is part of it only if it is set.
        """
        switches = {**dict.fromkeys(FIRST_SWITCHES), **self.switches.given()}
        whole = {**asdict(self), **separated(self.knobs), "switches": switches}
        return json.dumps(whole, sort_keys=True)

    def knobs_of(self, function: Callable[..., Any]) -> dict[str, Any]:
        return bind_knobs(function, self.knobs)

    def to_dict(self) -> dict[str, Any]:
        switches = self.switches.given()
        return {**super().to_dict(), "switches": switches, **separated(self.knobs)}

    @classmethod
    def upgraded(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Refuses a switch that this version does not have: it would silently not be set."""
        switches = convert(data.get("switches", {}), dict[str, Any], "Its switches")
        for name in switches.keys() - SWITCHES:
            known = ", ".join(SWITCHES)
            raise UsageError(f"There is no switch {name!r}.", f"Switches are {known}.")
        text = convert(data.get("knobs_text", {}), dict[str, str], "Its knobs_text")
        knobs = convert(data.get("knobs", {}), dict[str, Any], "Its knobs")
        return {**data, "knobs": together({"knobs": knobs, "knobs_text": text})}

    def save(self, path: Path, **more: Any) -> None:
        write_json(path, {**self.to_dict(), **more})

    def apply(self) -> None:
        """Sets switches and allocator. To be called in the process that trains, before its first
        CUDA tensor."""
        apply_switches(self.switches)
        if self.allocator is not None:
            apply_allocator(self.allocator)

    def launch_lines(self, words: Sequence[str]) -> list[str]:
        """The line to start the program with, and the code to put at its beginning."""
        setting = f"PYTORCH_ALLOC_CONF={self.allocator} " if self.allocator else ""
        lines = [f"# {setting}{shlex.join(LaunchLine(tuple(words)).filled(self.knobs))}"]
        switches = _switch_lines(self.switches)
        return [*lines, *(["import torch"] if switches else []), *switches]

    def python_lines(self, workload: str) -> list[str]:
        """Lines to paste into a script."""
        reference = parse_reference(workload)
        function, switches = reference.function, _switch_lines(self.switches)
        module = str(reference.path.stem if reference.path else reference.module)
        lines = []
        if self.allocator:
            setting = f'os.environ["PYTORCH_ALLOC_CONF"] = {self.allocator!r}'
            lines += ["import os", f"{setting}  # before torch is imported"]
        if switches:
            lines.append("import torch")
        if reference.is_known_model:
            lines.append("from vramcast_zoo.known.workloads import workload")
            function = f"workload({workload!r})"
        elif is_module_name(module):
            lines.append(f"from {module} import {function}")
        else:
            lines.append(f"# {function} is that of {printable(workload)}")
        lines += switches
        if text := ", ".join(separated(self.knobs)["knobs_text"]):
            lines.append(f"# {text}: as text, like on the command line; write its value")
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.knobs.items())
        return [*lines, f"step = {function}({arguments})"]


def _switch_lines(switches: Switches) -> list[str]:
    given = switches.given()
    only = given.pop("sdpa", None)
    lines = [LINES[name].format(value) for name, value in given.items()]
    for kernel, name in SDPA_KERNELS.items() if only else ():
        lines.append(f"torch.backends.cuda.enable_{name}_sdp({kernel == only})")
    return lines


def load_configuration(path: str | Path) -> Configuration:
    """The configuration in a file that `vramcast tune` wrote. Reading it runs no code from it."""
    if not str(path):
        advice = "Give a file that vramcast tune wrote."
        raise UsageError("The configuration '' names no file.", advice)
    return Configuration.from_file(Path(path))
