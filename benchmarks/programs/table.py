"""Writes README.md from the predictions. Needs no GPU.

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

Made by `table.py` from `predicted.jsonl`, which `run.py` appends to: do not edit by hand.
**Everything here is predicted** for one H200; what the programs really take is not measured yet.
Programs are run unmodified from checkouts of the commits in `programs.py` and are not part of this
repository. Those of `frameworks` are: each uses one library as people do. The data is small and
generated (`data.py`), so evaluations are shorter than with the real data.

    python benchmarks/programs/data.py DATA
    PYTHONPATH=src python benchmarks/programs/run.py CHECKOUTS DATA
    PYTHONPATH=src python benchmarks/programs/table.py

*steps* are the training steps after which enough was seen. Seconds are of the whole prediction on
a machine with two cores that others use too.
"""


def row(record: dict[str, Any]) -> str:
    where = record["repository"] + (f" {record['commit'][:7]}" if record["commit"] else "")
    cells = [record["name"], where, f"`{record['line']}`"]
    if "error" in record:
        return _line([*cells, f"no answer: {record['error']}", "", "", "", ""])
    phases = [phase["name"] for phase in record["phases"]]
    steps = next((p["num_steps"] for p in record["phases"] if p["name"] == "train"), 0)
    peak = format_bytes(record["peak_reserved_bytes"])
    return _line([*cells, peak, record["peak_phase"], ", ".join(phases), steps, record["seconds"]])


def _line(cells: list[Any]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    newest = {record["name"]: record for record in read_lines(HERE / "predicted.jsonl")}
    records = [newest[program.name] for program in PROGRAMS if program.name in newest]
    answered = [record for record in records if "error" not in record]
    others = sum(record["repository"] != OWN for record in answered)
    heads = ["program", "of", "line", "reserved", "peak in", "phases seen", "steps", "seconds"]
    lines = [
        INTRODUCTION,
        f"{len(answered)} of {len(records)} answered, {others} of them programs of other people.\n",
        _line(heads),
        _line(["---"] * len(heads)),
        *map(row, records),
    ]
    write_atomically(HERE / "README.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
