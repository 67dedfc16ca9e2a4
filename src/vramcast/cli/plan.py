"""`vramcast plan`."""

from __future__ import annotations

import sys
from typing import Any

from vramcast.cli.progress import sign_of_life, total_display
from vramcast.predicting.plan import plan
from vramcast.records.plan import Plan
from vramcast.simulate import build
from vramcast.workload import split_assignments

DOES_NOT_FIT = 3


def run(
    workload: str, assignments: list[str], options: dict[str, Any], out: str | None, as_json: bool
) -> int:
    knobs = split_assignments(assignments)
    if build.needs_building():
        print(
            "Compiling the simulated GPU for this version of torch, once (about 30 s).",
            file=sys.stderr,
        )
        with sign_of_life("Compiling"):
            build.build()
    with total_display("Planning") as tell:
        found = plan(workload, knobs=knobs, out=out, tell=tell, **options)
    if out is not None:
        written = [
            "plan.json",
            *(f"curriculum-{gpu.gpu or 'memory'}.yaml" for gpu in found.gpus if gpu.complete),
        ]
        print(f"Wrote {', '.join(written)} into {out}.", file=sys.stderr)
    _show(found, as_json)
    return 0 if found.fits else DOES_NOT_FIT


def _show(found: Plan, as_json: bool) -> None:
    if as_json:
        print(found.to_json())
        return
    from rich.console import Console

    from vramcast.reporting.plans import show_plan

    show_plan(found, Console())
