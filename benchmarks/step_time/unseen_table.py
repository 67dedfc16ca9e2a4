"""Predictions of the steps in unseen.py, and what came of them.

    python benchmarks/step_time/unseen_table.py predict SIMULATED.jsonl   # adds to unseen.jsonl
    python benchmarks/step_time/unseen_table.py measured FOLDER           # record.py --step of each
    python benchmarks/step_time/unseen_table.py                           # writes unseen.md

A prediction is made once, and committed before its step is measured.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from check import table
from steps import HERE

from vramcast.forecast.timing.pipeline import forecast_step
from vramcast.forecast.timing.rates import shipped
from vramcast.hardware.gpus import find_gpu
from vramcast.records.prediction import BoundBy
from vramcast.tracing.work import OperatorWork
from vramcast.units import format_seconds

FILE = HERE / "unseen.jsonl"
OWN = ("seconds", "seconds_low", "seconds_high", "device_seconds", "host_seconds")
TEXT = """# Steps that nobody had measured

Made by `benchmarks/step_time/unseen_table.py` from `unseen.jsonl`. The steps are those of
`unseen.py`. Each was simulated under torch 2.11 without a GPU and its prediction committed before
it was measured, on one H200 with a host whose small step takes {host} ms (`vramcast calibrate
--host`); the predicted seconds of the host are for one that takes {usual} ms. "kernels" are the
sums of all kernels of a step, larger than the step where cuDNN runs some side by side (wav2vec,
language_lstm); "calls" the Python functions that it calls. README.md has the same steps with
today's rates: tokens_in_the_middle was off because a softmax across rows reads from memory what a
smaller one finds in the cache, which was found in recorded kernels before this measurement came.

{rows}

{summary}
"""


def read() -> dict[str, dict[str, Any]]:
    if not FILE.exists():
        return {}
    return {line["step"]: line for line in map(json.loads, FILE.read_text().splitlines())}


def write(steps: dict[str, dict[str, Any]]) -> None:
    FILE.write_text("".join(json.dumps(step) + "\n" for step in steps.values()))


def predict(simulated: Path) -> None:
    steps = read()
    for line in map(json.loads, simulated.read_text().splitlines()):
        name = line["row"].rpartition(":")[2]
        works = [OperatorWork(*w[:4], tuple(w[4]), *w[5:]) for w in line["works"]]
        order = [works[index] for index in line["order"]]
        found = forecast_step(order, find_gpu("h200"), line["num_python_calls"], shipped())
        steps[name] = {
            "step": name,
            "is_busy": found.bound_by is not BoundBy.LAUNCH,
            "num_python_calls": line["num_python_calls"],
            "predicted": {key: float(f"{getattr(found, key):.5g}") for key in OWN},
        }
    write(steps)


def add_measured(folder: Path) -> None:
    steps = read()
    for path in sorted(folder.glob("*.jsonl")):
        record = json.loads(path.read_text())
        name = record["row"].rpartition(":")[2]
        if name not in steps or "seconds" not in record:
            continue
        sums = [sum(ns for call in step for _, ns in call[2:]) for step in record["steps"]]
        steps[name]["measured"] = {
            "seconds": float(f"{statistics.median(record['seconds']):.5g}"),
            "wall_seconds": float(f"{record['wall_seconds']:.5g}"),
            "device_seconds": float(f"{statistics.median(sums) * 1e-9:.5g}"),
            "python_calls": sum(record["python_calls"].values()),
            "host_step_seconds": record.get("host_step_seconds"),
        }
    write(steps)


def row(step: dict[str, Any]) -> list[str]:
    predicted, measured = step["predicted"], step["measured"]
    low, high = predicted["seconds_low"], predicted["seconds_high"]
    is_inside = low <= measured["seconds"] <= high
    kernels = predicted["device_seconds"] / measured["device_seconds"] - 1
    return [
        step["step"],
        format_seconds(measured["seconds"]),
        format_seconds(predicted["seconds"]),
        f"{100 * error_of(step):+.1f} %",
        f"{format_seconds(low)} to {format_seconds(high)}",
        "yes" if is_inside else "**no**",
        f"{format_seconds(measured['device_seconds'])}, {100 * kernels:+.1f} %",
        f"{measured['python_calls']}, {step['num_python_calls']}",
        "busy" if step["is_busy"] else "may wait",
    ]


def error_of(step: dict[str, Any]) -> float:
    return float(step["predicted"]["seconds"] / step["measured"]["seconds"] - 1)


def summary(steps: list[dict[str, Any]]) -> str:
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
                f"{100 * max(errors):.0f} %",
            ]
        )
    columns = ("steps", "number", "inside", "width: median, most", "|error|: median", "most")
    return table(columns, lines)


def main() -> None:
    if len(sys.argv) > 1:
        {"predict": predict, "measured": add_measured}[sys.argv[1]](Path(sys.argv[2]))
        return
    steps = [step for step in read().values() if "measured" in step]
    columns = ("step", "measured", "predicted", "error", "range", "inside", "kernels, error")
    rows = table((*columns, "calls: real, simulated", "GPU"), [row(step) for step in steps])
    hosts = [
        s["measured"]["host_step_seconds"] for s in steps if s["measured"]["host_step_seconds"]
    ]
    usual = shipped().host_step_seconds or 0.0
    text = TEXT.format(
        rows=rows,
        summary=summary(steps),
        host=f"{1e3 * statistics.median(hosts):.2f}" if hosts else "unknown",
        usual=f"{1e3 * usual:.2f}",
    )
    (HERE / "unseen.md").write_text(text)
    print(summary(steps))


if __name__ == "__main__":
    main()
