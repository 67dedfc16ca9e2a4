"""Writes `before.jsonl`: what was predicted of each program before it was measured.

A program's prediction counts if it was committed before the commit that has its first measurement.
Causes of errors were mended after that, so `predicted.jsonl` is better. This reads the history of
the repository: run it in a clone that has all of it.

    python benchmarks/programs/before.py
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def main() -> None:
    rows: dict[str, dict[str, Any]] = {}
    for commit in _git("log", "--reverse", "--format=%H", "--", "measured.jsonl").split():
        measured = _records(commit, "measured.jsonl")
        predicted = _records(f"{commit}^", "predicted.jsonl")
        for name in measured.keys() - rows.keys():
            if measured[name]["outcome"] == "ok":
                rows[name] = {
                    "name": name,
                    "measured_in_commit": commit,
                    "predicted_reserved_bytes": _reserved_bytes(predicted.get(name)),
                    "measured_reserved_bytes": _reserved_bytes(measured[name]),
                }
    kept = _records("HEAD", "measured.jsonl").keys() & rows.keys()
    lines = [json.dumps(rows[name]) for name in sorted(kept)]
    (HERE / "before.jsonl").write_text("\n".join([*lines, ""]))
    print(f"{len(kept)} programs written to before.jsonl")


def _records(commit: str, file: str) -> dict[str, dict[str, Any]]:
    lines = _git("show", f"{commit}:./{file}").splitlines()
    return {record["name"]: record for record in map(json.loads, lines)}


def _reserved_bytes(record: dict[str, Any] | None) -> int | None:
    return record.get("peak_reserved_bytes", 0) if record else None  # 0: it failed


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=HERE, check=True, capture_output=True, text=True)
    return done.stdout


if __name__ == "__main__":
    main()
