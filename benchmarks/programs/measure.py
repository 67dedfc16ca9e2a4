"""Measures the programs of the list on this machine's GPU and appends what came of each.

PYTHONPATH=src python benchmarks/programs/measure.py CHECKOUTS DATA [NAME...]

Each is started by its own line under `vramcast probe`. Several run at once: only their memory is
kept, and that of one does not change another's. With VRAMCAST_TRACES=FOLDER, programs that took
other memory than predicted run once more, and their allocations are kept there.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any

from run import HERE, start
from run import RECORDS as PREDICTED

from programs import PROGRAMS, Listed

RECORDS = HERE / "measured.jsonl"
NUM_AT_ONCE, MOST_SECONDS = 6, 150
KEPT = ("peak_reserved_bytes", "peak_allocated_bytes", "peak_phase", "phases", "outcome", "error")


def measure(program: Listed, checkouts: Path, data: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = ["probe", "--json", "--out", f"{folder}/run"]
        done = start(command, program, checkouts, data, MOST_SECONDS)
    if done is None:
        return {"error": f"not done after {MOST_SECONDS} s"}
    if kept := os.environ.get("VRAMCAST_TRACES"):
        Path(kept, f"{program.name}.out.json").write_text(done.stdout)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return {"error": " / ".join(done.stderr.strip().splitlines()[-3:])}
    if found.get("outcome") != "ok":  # its peak is not that of training
        return {"outcome": found.get("outcome"), "error": found.get("error")}
    return {name: found.get(name) for name in KEPT} | {"gpu": found.get("gpu")}


def trace(program: Listed, checkouts: Path, data: Path, kept: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = ["probe", "--trace", "--json", "--out", f"{folder}/run"]
        start(command, program, checkouts, data, MOST_SECONDS)
        for path in Path(folder).rglob("trace.json"):
            (kept / f"{program.name}.json.gz").write_bytes(gzip.compress(path.read_bytes()))


def is_off(record: dict[str, Any]) -> bool:
    lines = map(json.loads, PREDICTED.read_text().splitlines())
    newest = {each["name"]: each.get("peak_reserved_bytes") for each in lines}
    found = record.get("peak_reserved_bytes")
    return found is not None and found != newest.get(record["name"])


def main() -> None:
    checkouts, data, names = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3:]
    chosen = [program for program in PROGRAMS if not names or program.name in names]
    kept = os.environ.get("VRAMCAST_TRACES")
    with ThreadPoolExecutor(NUM_AT_ONCE) as pool:
        running = {pool.submit(measure, each, checkouts, data): each for each in chosen}
        # each is written when it is done: what a time limit cuts off is only the rest
        for done in as_completed(running):
            record = {
                "name": running[done].name,
                "source": "measured",
                "torch": version("torch"),
                **done.result(),
            }
            with RECORDS.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(
                record["name"], record.get("peak_reserved_bytes"), record.get("error"), flush=True
            )
            if kept and is_off(record):
                pool.submit(trace, running[done], checkouts, data, Path(kept))


if __name__ == "__main__":
    main()
