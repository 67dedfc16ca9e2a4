"""Predictions of a set of steps, and what came of them.

    python benchmarks/step_time/set_table.py unseen predict SIMULATED.jsonl  # to unseen.jsonl
    python benchmarks/step_time/set_table.py unseen measured FOLDER   # record.py --step of each
    python benchmarks/step_time/set_table.py unseen again SIMULATED.jsonl
    python benchmarks/step_time/set_table.py unseen                   # writes unseen.md
    python benchmarks/step_time/set_table.py        # writes all of them, and sets/README.md

A prediction is made once, and committed before its step is measured. `again` puts beside it what
the rates say later, of what is then simulated: those are not predictions of something unseen.
"""

from __future__ import annotations

import json
import statistics
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from check import table
from steps import SETS

from vramcast.forecast.timing.pipeline import forecast_step
from vramcast.forecast.timing.rates import shipped
from vramcast.hardware.gpus import find_gpu
from vramcast.records.prediction import BoundBy
from vramcast.tracing.work import OperatorWork
from vramcast.units import format_seconds

OWN = ("seconds", "seconds_low", "seconds_high", "device_seconds", "host_seconds")
TEXT = """# Steps that nobody had measured

Made by `benchmarks/step_time/set_table.py` from `{name}.jsonl`. The steps are those of
`{file}`. Each was simulated without a GPU and its prediction committed before it was measured,
on one H200 with a host whose small step takes {host} ms (`vramcast calibrate --host`); the
predicted seconds of the host are for one that takes {usual} ms. "kernels" are the sums of all
kernels of a step, larger than the step where cuDNN runs some side by side; "calls" the Python
functions that it calls. {more}

{rows}

{summary}{again}
"""
AGAIN = """

## Predicted again

With the rates and models of {day}, which have met what was measured here: no test of them.

{rows}

{summary}"""
SUMMARY = (
    *("steps", "number", "inside", "width: median, most"),
    *("|error|: median", "within 15 %", "most"),
)
OVERVIEW = """# Sets of steps that were predicted, then measured

Made by `benchmarks/step_time/set_table.py`. Every prediction was committed before its step was
measured on an H200, and stands here as it was committed, with the rates of that day; the sets are
in that order. [../README.md](../README.md) has what today's rates say of steps that they were not
made from, [wide.md](wide.md) of the rows of the suite `wide`, and [ascribed.md](ascribed.md) which
operators made the errors of 20 steps.

{rows}
"""
DAYS = {"compiled_fifth": "2026-11-19", "compiled_eighth": "2026-11-19"}  # of others 2026-11-18


def read(file: Path) -> dict[str, dict[str, Any]]:
    if not file.exists():
        return {}
    return {line["step"]: line for line in map(json.loads, file.read_text().splitlines())}


def write(file: Path, steps: dict[str, dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(step) + "\n" for step in steps.values()))


def name_of(row: str) -> str:
    """Of unseen.py:NAME, or of popular.py:step name=NAME."""
    return row.rpartition(":")[2].rpartition("=")[2]


def forecasts(simulated: Path) -> Iterator[dict[str, Any]]:
    for line in map(json.loads, simulated.read_text().splitlines()):
        works = [OperatorWork(*w[:4], tuple(w[4]), *w[5:]) for w in line["works"]]
        order = [works[index] for index in line["order"]]
        found = forecast_step(order, find_gpu("h200"), line["num_python_calls"], shipped())
        yield {
            "step": name_of(line["row"]),
            "is_busy": found.bound_by is not BoundBy.LAUNCH,
            "num_python_calls": line["num_python_calls"],
            "predicted": {key: float(f"{getattr(found, key):.5g}") for key in OWN},
        }


def predict(file: Path, simulated: Path) -> None:
    write(file, {**read(file), **{found["step"]: found for found in forecasts(simulated)}})


def predict_again(file: Path, simulated: Path) -> None:
    steps = read(file)
    for found in forecasts(simulated):
        steps[found["step"]]["again"] = {"is_busy": found["is_busy"], **found["predicted"]}
    write(file, steps)


def add_measured(file: Path, folder: Path) -> None:
    steps = read(file)
    for path in sorted(folder.glob("*.jsonl")):
        record = json.loads(path.read_text())
        name = record.get("knobs", {}).get("name") or name_of(record["row"])
        if name not in steps or "seconds" not in record:
            continue
        steps[name]["measured"] = {
            "seconds": float(f"{statistics.median(record['seconds']):.5g}"),
            "wall_seconds": float(f"{record['wall_seconds']:.5g}"),
            **profile_of(record),
            "host_step_seconds": host_in(folder),
        }
    write(file, steps)


def profile_of(record: dict[str, Any]) -> dict[str, Any]:
    """Nothing of a step that was only timed."""
    if "steps" not in record:
        return {}
    sums = [sum(ns for call in step for _, ns in call[2:]) for step in record["steps"]]
    return {
        "device_seconds": float(f"{statistics.median(sums) * 1e-9:.5g}"),
        "python_calls": sum(record["python_calls"].values()),
    }


def host_in(folder: Path) -> float | None:
    """The seconds of a small step on that machine's host, of one_by_one.py."""
    found = [json.loads(path.read_text())["host_step_seconds"] for path in folder.glob("host_*")]
    return statistics.median(found) if found else None


def row(step: dict[str, Any]) -> list[str]:
    predicted, measured = step["predicted"], step["measured"]
    low, high = predicted["seconds_low"], predicted["seconds_high"]
    is_inside = low <= measured["seconds"] <= high
    kernels, calls = "not profiled", f"-, {step['num_python_calls']}"
    if "device_seconds" in measured:
        error = 100 * (predicted["device_seconds"] / measured["device_seconds"] - 1)
        kernels = f"{format_seconds(measured['device_seconds'])}, {error:+.1f} %"
        calls = f"{measured['python_calls']}, {step['num_python_calls']}"
    return [
        step["step"],
        format_seconds(measured["seconds"]),
        format_seconds(predicted["seconds"]),
        f"{100 * error_of(step):+.1f} %",
        f"{format_seconds(low)} to {format_seconds(high)}",
        "yes" if is_inside else "**no**",
        kernels,
        calls,
        "busy" if step["is_busy"] else "may wait",
    ]


def error_of(step: dict[str, Any]) -> float:
    return float(step["predicted"]["seconds"] / step["measured"]["seconds"] - 1)


def summary(steps: list[dict[str, Any]]) -> str:
    return table(SUMMARY, summary_lines(steps))


def summary_lines(steps: list[dict[str, Any]]) -> list[list[str]]:
    lines = []
    for name, is_busy in (("the GPU is busy", True), ("the host may be slower", False)):
        chosen = [step for step in steps if step["is_busy"] is is_busy]
        if not chosen:
            continue
        errors = [abs(error_of(step)) for step in chosen]
        inside = [
            s["predicted"]["seconds_low"]
            <= s["measured"]["seconds"]
            <= s["predicted"]["seconds_high"]
            for s in chosen
        ]
        widths = [s["predicted"]["seconds_high"] / s["predicted"]["seconds_low"] for s in chosen]
        lines.append(
            [
                name,
                str(len(chosen)),
                f"{sum(inside)}",
                f"{statistics.median(widths):.2f}, {max(widths):.2f}",
                f"{100 * statistics.median(errors):.1f} %",
                f"{sum(error <= 0.15 for error in errors)}",
                f"{100 * max(errors):.0f} %",
            ]
        )
    return lines


def again(name: str, steps: list[dict[str, Any]]) -> str:
    later = [
        {**step, "is_busy": step["again"]["is_busy"], "predicted": step["again"]}
        for step in steps
        if "again" in step
    ]
    if not later:
        return ""
    columns = ("step", "measured", "as committed", "again", "error", "range", "inside", "GPU")
    rows = []
    for before, step in zip((step for step in steps if "again" in step), later, strict=True):
        cells = row(step)
        committed = format_seconds(before["predicted"]["seconds"])
        rows.append([*cells[:2], committed, *cells[2:6], cells[-1]])
    return AGAIN.format(
        day=DAYS.get(name, "2026-11-18, night"), rows=table(columns, rows), summary=summary(later)
    )


def measured_of(name: str) -> list[dict[str, Any]]:
    return [step for step in read(SETS / f"{name}.jsonl").values() if "measured" in step]


def write_table(name: str, about: dict[str, str]) -> None:
    steps = measured_of(name)
    columns = ("step", "measured", "predicted", "error", "range", "inside", "kernels, error")
    rows = table((*columns, "calls: real, simulated", "GPU"), [row(step) for step in steps])
    hosts = [
        s["measured"]["host_step_seconds"] for s in steps if s["measured"]["host_step_seconds"]
    ]
    usual = shipped().host_step_seconds or 0.0
    text = TEXT.format(
        name=name,
        file=about["file"],
        more=about.get("note", "").strip(),
        rows=rows,
        summary=summary(steps),
        again=again(name, steps),
        host=f"{1e3 * statistics.median(hosts):.2f}" if hosts else "unknown",
        usual=f"{1e3 * usual:.2f}",
    )
    (SETS / f"{name}.md").write_text(text)


def write_overview(names: Iterable[str]) -> None:
    """One line for each set, newest last, and one for all of them."""
    by_set = {f"[{name}]({name}.md)": measured_of(name) for name in names}
    by_set["**all**"] = [step for steps in by_set.values() for step in steps]
    rows = [[name, *line] for name, steps in by_set.items() for line in summary_lines(steps)]
    text = OVERVIEW.format(rows=table(("set", *SUMMARY), rows))
    (SETS / "README.md").write_text(text)


def main() -> None:
    sets = tomllib.loads((SETS / "sets.toml").read_text())
    if len(sys.argv) > 2:
        name, action, path = sys.argv[1:]
        actions = {"predict": predict, "measured": add_measured, "again": predict_again}
        actions[action](SETS / f"{name}.jsonl", Path(path))
        return
    for name in sys.argv[1:] or sets:
        write_table(name, sets[name])
        print(name, summary(measured_of(name)), sep="\n")
    write_overview(sets)


if __name__ == "__main__":
    main()
