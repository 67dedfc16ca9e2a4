"""`vramcast probe`."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vramcast.cli.progress import step_display
from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.hardware import environment, nvml
from vramcast.probing.probe import NotSaved, make_trial, run_trial
from vramcast.probing.run_folder import RunFolder
from vramcast.records.measurement import Measurement
from vramcast.workload import split_assignments

EXIT_CODES = {"ok": 0, "out_of_memory": 3, "paging": 3}  # anything else failed: 1
NOT_STABLE = 3


def run(
    workload: str,
    assignments: list[str],
    device: str,
    memory: str | None,
    warmup: int,
    steps: int,
    allocator: str | None,
    timeout: float,
    out: str | None,
    force: bool,
    trace: bool,
    config: str | None,
    as_json: bool,
) -> int:
    if out == "":
        raise UsageError(
            "--out is '', which names no folder.",
            "Give a folder, or leave --out out for a new one under runs/.",
        )
    path = Path(out) if out else default_folder("probe", workload)
    trial = make_trial(
        workload,
        device=device,
        memory=memory,
        allocator=allocator,
        warmup=warmup,
        steps=steps,
        timeout=timeout,
        knobs=split_assignments(assignments),
        trace_folder=str(path.absolute()) if trace else None,
        config=config,
    )
    if device == "cuda" and not nvml.gpu_states():
        raise EnvironmentProblem(
            "There is no NVIDIA GPU here to probe.",
            "Add --device cpu to run the same step on the CPU, or use vramcast predict, which needs no GPU.",
        )
    folder = RunFolder(path, force=force)
    with step_display(trial.warmup_steps, trial.measure_steps) as display:
        try:
            measurement = run_trial(
                trial, folder, command=environment.command_line(), progress=display
            )
        except NotSaved as problem:
            _show(problem.measurement, None, as_json)
            raise
    _show(measurement, path, as_json)
    code = EXIT_CODES.get(measurement.outcome, 1)
    return code if code or measurement.verdict.stable else NOT_STABLE


def default_folder(kind: str, workload: str) -> Path:
    name = re.sub(r"[^A-Za-z0-9]+", "-", Path(workload.replace(":", "-")).name).strip("-")[:40]
    return Path("runs") / f"{kind}-{name}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"


def _show(measurement: Measurement, folder: Path | None, as_json: bool) -> None:
    if as_json:
        extra: dict[str, Any] = {} if folder is None else {"folder": str(folder)}
        print(json.dumps({**measurement.to_dict(), **extra}))
        return
    from rich.console import Console

    from vramcast.reporting.measured import show_measurement

    show_measurement(measurement, Console())
    if folder is not None:
        print(f"Written to {folder}", file=sys.stderr)
