"""`vramcast env`."""

from __future__ import annotations

import json

from vramcast.cli.progress import sign_of_life
from vramcast.hardware.machine import look
from vramcast.hardware.machine_checks import Check, Status, checks

SOMETHING_IN_THE_WAY = 3
MARKS = {
    Status.GOOD: ("✓", "green"),
    Status.OPTIONAL: ("-", "bright_black"),
    Status.NOTICE: ("!", "yellow"),
    Status.PROBLEM: ("✗", "red"),
}


def run(as_json: bool) -> int:
    with sign_of_life("Looking at this machine"):
        machine = look()
    found = checks(machine)
    if as_json:
        print(
            json.dumps({"facts": machine.to_dict(), "checks": [check.to_dict() for check in found]})
        )
    else:
        _show(found)
    return SOMETHING_IN_THE_WAY if any(check.status is Status.PROBLEM for check in found) else 0


def _show(found: list[Check]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for check in found:
        mark, style = MARKS[check.status]
        console.print(Text.assemble((f"{mark} {check.name}: ", f"bold {style}"), check.value))
        console.print(Text(f"  {check.meaning}", style="bright_black"))
        if check.advice:
            console.print(Text(f"  → {check.advice}"))
