"""`vramcast env`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import vramcast
from vramcast.cli import options
from vramcast.cli.command import ExitCode, command
from vramcast.cli.progress import progress_display
from vramcast.processes.progress import Progress

if TYPE_CHECKING:
    from vramcast.hardware.machine_checks import Check

MARKS = {
    "good": ("✓", "green"),
    "optional": ("-", "bright_black"),
    "notice": ("!", "yellow"),
    "problem": ("✗", "red"),
}


@command(
    "env",
    question="Is this machine ready to train fast?",
    examples="vramcast env",
    then="do what it advises, then vramcast tune; where there is no GPU, vramcast predict.",
    needs_arguments=False,
)
def env(as_json: options.Json = False) -> int:
    """Is this machine ready to train fast? GPU, driver, CUDA, Triton, compilers, allocator settings, and what to do about each.

    Exit codes: 0 nothing is in the way, 3 something is.
    """
    with progress_display() as progress:
        progress(Progress("Looking at this machine"))
        found = vramcast.env()
    if as_json:
        print(found.to_json())
    else:
        _show(found.checks)
    return ExitCode.DONE if found.ready else ExitCode.NO


def _show(checks: list[Check]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for check in checks:
        mark, style = MARKS[check.status]
        console.print(Text.assemble((f"{mark} {check.name}: ", f"bold {style}"), check.value))
        console.print(Text(f"  {check.meaning}", style="bright_black"))
        if check.advice:
            console.print(Text(f"  → {check.advice}"))
