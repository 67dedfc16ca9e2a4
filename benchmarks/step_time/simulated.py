"""Writes the simulated operators of a step, to be paired with those that a GPU ran (joined.py).

    python benchmarks/step_time/simulated.py OUT.jsonl ROW_OR_FILE.py:FUNCTION [knob=value ...]

The line that it adds is like those of steps.jsonl.gz, without the measured seconds.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

# the device must come before torch
from vramcast.simulate.worker import load_device, preload

preload()

from vramcast.forecast.budget import budget_for  # noqa: E402
from vramcast.hardware.gpus import find_gpu  # noqa: E402
from vramcast.simulate.live_memory import LiveMemory  # noqa: E402
from vramcast.simulate.session import Session  # noqa: E402
from vramcast.suites.catalogue import SUITES  # noqa: E402
from vramcast.tracing.work import OperatorWork  # noqa: E402
from vramcast.workload import bind_knobs, load_function, parse_reference  # noqa: E402
from vramcast.workload.knobs import split_assignments  # noqa: E402


def simulated(name: str, given: dict[str, Any]) -> tuple[list[OperatorWork], int]:
    """Of the last step: what its operators did, and the Python functions that it called."""
    rows = {row.name: row for suite in SUITES.values() for row in suite}
    row = rows.get(name)
    gpu, budget = find_gpu("h200"), budget_for("h200", None, "")
    session = Session(load_device(), gpu, budget.calibration)
    session.gpu.memory = LiveMemory(
        session.device, gpu.total_bytes, budget.settings, budget.capacity_bytes
    )
    with session.importing():
        function = load_function(parse_reference(row.workload if row else name))
    knobs = bind_knobs(function, {**row.knobs, **given} if row else given)
    run = session.run(function, knobs, locate=False)
    return list(run.works), run.num_python_calls


def main() -> None:
    out, name, *knobs = sys.argv[1:]
    works, num_python_calls = simulated(name, split_assignments(knobs))
    numbers: dict[OperatorWork, int] = {}
    order = [numbers.setdefault(work, len(numbers)) for work in works]
    line = {
        "row": " ".join((name, *knobs)),
        "torch": metadata.version("torch"),
        "num_python_calls": num_python_calls,
        "works": [list(work) for work in numbers],
        "order": order,
    }
    with open(Path(out), "a") as file:
        print(json.dumps(line), file=file)
    print(f"{line['row']}: {len(order)} operators, {num_python_calls} Python calls")


if __name__ == "__main__":
    main()
