"""Measures the programs of the list on this machine's GPU and appends what came of each.

PYTHONPATH=src python benchmarks/programs/measure.py CHECKOUTS DATA [NAME...]

Each is started by its own line under `vramcast probe`. Several run at once: only their memory is
kept, and that of one does not change another's.
"""

from __future__ import annotations

import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from run import HERE, start

from programs import PROGRAMS, Listed

RECORDS = HERE / "measured.jsonl"
NUM_AT_ONCE, MOST_SECONDS = 6, 240
KEPT = ("peak_reserved_bytes", "peak_allocated_bytes", "peak_phase", "phases", "outcome", "error")


def measure(program: Listed, checkouts: Path, data: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = ["probe", "--json", "--out", f"{folder}/run"]
        done = start(command, program, checkouts, data, MOST_SECONDS)
    if done is None:
        return {"error": f"not done after {MOST_SECONDS} s"}
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return {"error": " / ".join(done.stderr.strip().splitlines()[-3:])}
    return {name: found.get(name) for name in KEPT} | {"gpu": found.get("gpu")}


def main() -> None:
    checkouts, data, names = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3:]
    chosen = [program for program in PROGRAMS if not names or program.name in names]
    with ThreadPoolExecutor(NUM_AT_ONCE) as pool:
        for program, found in zip(
            chosen, pool.map(lambda each: measure(each, checkouts, data), chosen), strict=True
        ):
            record = {
                "name": program.name,
                "source": "measured",
                "torch": version("torch"),
                **found,
            }
            with RECORDS.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(program.name, record.get("peak_reserved_bytes"), record.get("error"), flush=True)


if __name__ == "__main__":
    main()
