"""Writes README.md from the predictions and the measurements. Needs no GPU.

PYTHONPATH=src python benchmarks/programs/table.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from programs import OWN, PROGRAMS
from vramcast.records.store import read_lines, write_atomically
from vramcast.units import format_bytes

HERE = Path(__file__).parent
INTRODUCTION = """# Training programs of other people, started by their line

Made by `table.py` from `predicted.jsonl` and `measured.jsonl`: do not edit by hand. Predicted with
no GPU, measured on one H200 (torch 2.11) by the same line under `vramcast probe` (`measure.py`). A
program without a measured size was not run there, or its packages were not on that machine.
Programs are run unmodified from checkouts of the commits in `lists` and are not part of this
repository. Those of `frameworks` are: each uses one library as people do. The data is small and
generated (`data.py`), so evaluations are shorter than with the real data.

    python benchmarks/programs/data.py DATA
    PYTHONPATH=src python benchmarks/programs/run.py CHECKOUTS DATA
    PYTHONPATH=src python benchmarks/programs/measure.py CHECKOUTS DATA
    PYTHONPATH=src python benchmarks/programs/table.py

To measure on a machine without a network, carry what the programs need to it:

    python benchmarks/programs/carry.py pack CHECKOUTS WHEELS FOLDER
    PYTHONPATH=src python benchmarks/programs/carry.py measure FOLDER [new|NAME...]

*steps* are the training steps after which enough was seen. Seconds are of the whole prediction on
a machine with two cores that others use too.
"""
SECONDS = """
## Seconds

A prediction is to take no more than 1.3 times the program's own imports and set-up, on the same
machine, and 5 s. The set-up ends where the program first calls a model: what it does before its
first training step, such as an evaluation, is not in it. Made from `seconds.jsonl`:

    PYTHONPATH=src python benchmarks/programs/seconds.py CHECKOUTS DATA

The machine had two cores and other work. *CPU* are seconds in which a core worked for it, which
other work changes less. Records of torch 2.11 were made on an Arm machine, and the set-up's CPU in
them is of its first process; those of 2.13 were made on x86-64, and it is of all its processes, as
that of the prediction always was.
"""
SET_UP_FACTOR, MORE_SECONDS = 1.3, 5


def row(record: dict[str, Any], measured_bytes: int | None) -> str:
    where = record["repository"] + (f" {record['commit'][:7]}" if record["commit"] else "")
    cells = [record["name"], where, f"`{record['line']}`"]
    if "error" in record:
        return _line([*cells, f"no answer: {record['error']}", *[""] * 6])
    phases = [phase["name"] for phase in record["phases"]]
    steps = next((p["num_steps"] for p in record["phases"] if p["name"] == "train"), 0)
    peak_bytes = record["peak_reserved_bytes"]
    measured, error = "", ""
    if measured_bytes is not None:
        measured, error = (
            format_bytes(measured_bytes),
            f"{error_of(peak_bytes, measured_bytes):+.2f} %",
        )
        if peak_bytes == measured_bytes:
            error = "exact"
    sizes = [format_bytes(peak_bytes), measured, error]
    others = [record["peak_phase"], ", ".join(phases), steps, record["seconds"]]
    return _line([*cells, *sizes, *others])


def limit_of(set_up_seconds: float) -> float:
    return SET_UP_FACTOR * set_up_seconds + MORE_SECONDS


def seconds_lines() -> list[str]:
    """Of those of which both were seen."""
    newest = {record["name"]: record for record in read_lines(HERE / "seconds.jsonl")}
    records = [newest[program.name] for program in PROGRAMS if program.name in newest]
    records = [one for one in records if "seconds" in one and "set_up_seconds" in one]
    rows, num_within, num_within_of_core = [], 0, 0
    for one in records:
        limit, of_core = limit_of(one["set_up_seconds"]), limit_of(one["set_up_cpu_seconds"])
        num_within += one["seconds"] <= limit
        num_within_of_core += one["cpu_seconds"] <= of_core
        cells = [one["name"], one["set_up_seconds"], f"{limit:.1f}", one["seconds"]]
        cells += [one["set_up_cpu_seconds"], f"{of_core:.1f}", one["cpu_seconds"]]
        rows.append(_line(cells))
    heads = ["program", "set-up", "limit", "prediction", "set-up, CPU", "limit, CPU"]
    heads.append("prediction, CPU")
    within = (
        f"Timed: {len(records)} of {len(PROGRAMS)}. Within it: {num_within} by the clock, "
        f"{num_within_of_core} by seconds of a core.\n"
    )
    return [SECONDS, within, _line(heads), _line(["---"] * len(heads)), *rows]


def before_line() -> str:
    """How many were right when they were measured for the first time."""
    errors = [
        error_of(one["predicted_reserved_bytes"], one["measured_reserved_bytes"])
        for one in read_lines(HERE / "before.jsonl")
        if one["predicted_reserved_bytes"] is not None
    ]
    return (
        f"As committed before the first measurement (`before.py`): exact on {errors.count(0.0)} of "
        f"{len(errors)}, within 1 % on {sum(abs(error) <= 1 for error in errors)}.\n"
    )


def error_of(predicted_bytes: int, measured_bytes: int) -> float:
    return 100 * (predicted_bytes / measured_bytes - 1)


def _line(cells: list[Any]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    newest = {record["name"]: record for record in read_lines(HERE / "predicted.jsonl")}
    records = [newest[program.name] for program in PROGRAMS if program.name in newest]
    answered = [record for record in records if "error" not in record]
    others = sum(record["repository"] != OWN for record in answered)
    measured = {
        record["name"]: record["peak_reserved_bytes"]
        for record in read_lines(HERE / "measured.jsonl")
        if record.get("peak_reserved_bytes")
    }
    errors = [
        error_of(record["peak_reserved_bytes"], measured[record["name"]])
        for record in answered
        if record["name"] in measured
    ]
    heads = ["program", "of", "line", "predicted", "measured", "error"]
    heads += ["peak in", "phases seen", "steps", "seconds"]
    lines = [
        INTRODUCTION,
        f"{len(answered)} of {len(records)} answered, {others} of them programs of other people.\n",
        f"Measured: {len(errors)}. Reserved memory is exact to the byte on {errors.count(0.0)} and "
        f"within 1 % on {sum(abs(error) <= 1 for error in errors)}.\n",
        before_line(),
        _line(heads),
        _line(["---"] * len(heads)),
        *(row(record, measured.get(record["name"])) for record in records),
        *seconds_lines(),
    ]
    write_atomically(HERE / "README.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
