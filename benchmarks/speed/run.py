"""Measures how fast vramcast is, keeps the records and writes docs/speed.md.

    python benchmarks/speed/run.py                    every group
    python benchmarks/speed/run.py start many         only these
    python benchmarks/speed/run.py --table            only the page, from the records

A group is a file in groups/ with TITLE and `rows(repeats)`, which yields Rows. Ratios are within
one run. A later run of a group replaces the earlier one in the page; records.jsonl keeps all.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from timing import ROOT, Row, Timing

sys.path.insert(0, str(ROOT / "src"))

from vramcast.records.store import append_line, read_lines, write_atomically  # noqa: E402

FOLDER = Path(__file__).parent
RECORDS = FOLDER / "records.jsonl"
PAGE = ROOT / "docs" / "speed.md"
GROUPS = sorted(path.stem for path in (FOLDER / "groups").glob("*.py"))
INTRODUCTION = """# Speed

Made by `benchmarks/speed/run.py` from `benchmarks/speed/records.jsonl`: do not edit by hand.
Every time is the shortest of several runs of the whole command, from its start to its end. The
load is how many processes wanted a core in the minute before. The ratio is to what stands beside
it, measured in turns in the same run. ✓ and ✗ say whether what was aimed at is kept.

<!-- not run: it takes minutes -->
```bash
python benchmarks/speed/run.py
```
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("groups", nargs="*", help=f"among {', '.join(GROUPS)}; all if left out")
    parser.add_argument("--repeats", type=int, default=5, help="the shortest of so many runs")
    parser.add_argument("--table", action="store_true", help="only write the page")
    options = parser.parse_args()
    if unknown := set(options.groups) - set(GROUPS):
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    if not options.table:
        for group in options.groups or GROUPS:
            measure(group, options.repeats)
    write_atomically(PAGE, page(read_lines(RECORDS)))


def measure(group: str, repeats: int) -> None:
    sys.path.insert(0, str(FOLDER / "groups"))
    module = importlib.import_module(group)
    rows = []
    load = round(os.getloadavg()[0], 1)
    try:
        for row in module.rows(repeats):
            print(cells(row), file=sys.stderr, flush=True)
            rows.append(asdict(row))
    except KeyboardInterrupt:
        print("Interrupted: the rows that were measured are kept.", file=sys.stderr)
    record = {
        "group": group,
        "title": module.TITLE,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": machine(),
        "torch_version": importlib.metadata.version("torch"),
        "python": platform.python_version(),
        "repeats": repeats,
        "command": f"python benchmarks/speed/run.py {group} --repeats {repeats}",
        "load": load,
        "rows": rows,
    }
    append_line(RECORDS, record)


def machine() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    # an Arm machine does not say its name there
    return f"{os.cpu_count()} cores, {names[0] if names else platform.machine()}"


def page(records: Iterable[dict[str, Any]]) -> str:
    latest = {record["group"]: record for record in records}
    parts = [INTRODUCTION]
    for record in latest.values():
        rows = [Row(**{**row, "timing": Timing(**row["timing"])}) for row in record["rows"]]
        parts.append(
            f"\n## {record['title']}\n\n"
            f"{record['date']}, {record['machine']}, torch {record['torch_version']}, "
            f"Python {record['python']}, shortest of {record['repeats']}"
            f"{how_measured(record)}.\n\n"
            "| what | command | seconds | processor seconds | GB | ratio to | ratio | aim | |\n"
            "|---|---|---:|---:|---:|---|---:|---|---|\n" + "\n".join(map(cells, rows)) + "\n"
        )
    return "".join(parts)


def how_measured(record: dict[str, Any]) -> str:
    """Nothing for older records, which do not say it."""
    if "command" not in record:
        return ""
    return f": `{record['command']}`, load {record['load']} before it"


def cells(row: Row) -> str:
    timing = row.timing
    aims = [
        f"ratio {row.at_most:g}" if row.at_most is not None else "",
        f"{row.at_most_seconds:g} s" if row.at_most_seconds is not None else "",
        f"{row.at_most_bytes / 1e9:g} GB" if row.at_most_bytes is not None else "",
    ]
    aim = ", ".join(filter(None, aims))
    kept = ("✓" if row.is_kept else "✗") if aim else ""
    return (
        f"| {row.name} | `{row.command}` | {timing.wall_seconds:.2f} "
        f"| {timing.processor_seconds:.2f} | {timing.peak_bytes / 1e9:.2f} | {row.against} "
        f"| {row.ratio:.2f} | {aim and f'at most {aim}'} | {kept} |"
    )


if __name__ == "__main__":
    main()
