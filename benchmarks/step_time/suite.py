"""Compares predicted step times with all rows of a suite that were timed on an H200.

    python benchmarks/step_time/suite.py wide --simulate [ROW ...]
    python benchmarks/step_time/suite.py wide

With --simulate every row, or the named ones, runs on the simulated GPU in a process of its own, and
the operators of its step go to SUITE.jsonl.gz beside this file. Without, they are timed with the
rates as they are, which takes seconds, and SUITE.md says how far that is from the measured medians
in benchmarks/accuracy/SUITE-h200-torch-2.11. Nothing is fitted to these rows but those that fit.py
names, which are left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from check import Compared, compare, every, line, table
from steps import HERE, RECORDED, SETS, Step, works_of

from vramcast.forecast.timing.rates import shipped
from vramcast.suites.catalogue import SUITES

LONGEST_SECONDS = 600
TEXT = """# Step times of the suite {suite}: predicted against measured

Made by `python benchmarks/step_time/suite.py {suite}` from all {num} rows that were timed on an
H200 (torch 2.11) and whose kernels the rates were not made from. `{suite}.jsonl.gz` has the
operators of their steps, simulated under {versions}.

{summary}

## Every step

{rows}
"""


def measured_seconds(suite: str) -> dict[str, float]:
    """What is further down in the records counts."""
    records = HERE.parent / "accuracy" / f"{suite}-h200-torch-2.11/rows.jsonl"
    found = {}
    for entry in map(json.loads, records.read_text().splitlines()):
        if entry["kind"] == "measurement":
            times = entry["record"].get("times") or {}
            found[entry["row"]] = times.get("median_seconds")
    return {row: seconds for row, seconds in found.items() if seconds}


def read(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    with gzip.open(path, "rt") as file:
        return {entry["row"]: entry for entry in map(json.loads, file)}


def simulate(suite: str, names: list[str]) -> None:
    path = RECORDED / f"{suite}.jsonl.gz"
    entries, timed = read(path), measured_seconds(suite)
    for name in names or [row.name for row in SUITES[suite] if row.name in timed and not row.line]:
        if entry := _simulated(name):
            entries[name] = entry
            with gzip.open(path, "wt") as file:
                file.writelines(json.dumps(each) + "\n" for each in entries.values())


def _simulated(name: str) -> dict[str, Any] | None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "step.jsonl"
        command = [sys.executable, str(HERE / "simulated.py"), str(out), name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"{name}: longer than {LONGEST_SECONDS} seconds", flush=True)
            return None
        said = (done.stdout + done.stderr).strip().splitlines() or [""]
        print(name, done.returncode, said[-1][:150], flush=True)
        return json.loads(out.read_text()) if out.exists() else None


def compared_rows(suite: str) -> list[Compared]:
    timed, used = measured_seconds(suite), set(shipped().calibrated_on)
    steps = [
        Step(name, {suite: timed[name]}, works_of(entry), entry["num_python_calls"])
        for name, entry in read(RECORDED / f"{suite}.jsonl.gz").items()
        if name in timed and name not in used
    ]
    return [compare(step) for step in steps]


def summary(compared: list[Compared]) -> str:
    groups = {
        "the GPU is busy": [c for c in compared if c.is_busy],
        "the host may be slower": [c for c in compared if not c.is_busy],
        "all": compared,
    }
    columns = ("steps", "number", "inside", "width, median", "widest", "|error|, median")
    rows = [line(name, group) for name, group in groups.items() if group]
    return table((*columns, "95 % within"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("rows", nargs="*", help="to simulate; else all that were timed")
    options = parser.parse_intermixed_args()
    if options.simulate:
        simulate(options.suite, options.rows)
    compared = compared_rows(options.suite)
    entries = read(RECORDED / f"{options.suite}.jsonl.gz").values()
    text = TEXT.format(
        suite=options.suite,
        num=len(compared),
        versions=" and ".join(sorted({f"torch {entry['torch']}" for entry in entries})),
        summary=summary(compared),
        rows=every(compared),
    )
    (SETS / f"{options.suite}.md").write_text(text)
    print(summary(compared))


if __name__ == "__main__":
    main()
