"""Predicts published runs from a checkout of torchtitan, and appends what came of each.

PYTHONPATH=src python benchmarks/published/data.py CHECKOUT
PYTHONPATH=src python benchmarks/published/run.py CHECKOUT [NAME...]

CHECKOUT is of the commit in rows.py. Its requirements (torchdata, datasets, tiktoken, blobfile, and
torchao 0.7.0 for float8) must be found. Without names, all rows are predicted.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rows import COMMIT, ROWS, Published

RECORDS = Path(__file__).with_name("predicted.jsonl")
# The torch of December 2024 tried flash attention first.
OPTIONS = ("--gpu", "h100-96gb", "--memory", "94GiB", "--attention-order", "flash,efficient")
MOST_SECONDS = 900
KEPT = ("peak_reserved_bytes", "peak_allocated_bytes", "step_seconds", "seconds", "limits")


def predict(row: Published, checkout: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "vramcast", "predict", *OPTIONS, "--ranks", "0", "--json"]
    command += ["--timeout", str(MOST_SECONDS), "--", *shlex.split(row.line)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 3):
        told = done.stderr.rpartition("vramcast: ")[2].strip().splitlines()
        return {"error": " / ".join(dict.fromkeys([*told[:1], *told[-2:]]))}
    found = json.loads(done.stdout)
    between = (found["step"] or {}).get("communication") or {}
    kept = {name: between[name] for name in ("seconds", "exposed_seconds") if between}
    return {**{name: found[name] for name in KEPT}, "communication": kept}


def main() -> None:
    checkout, names = Path(sys.argv[1]).resolve(), sys.argv[2:]
    for row in ROWS:
        if names and row.name not in names:
            continue
        record = {
            "name": row.name,
            "commit": COMMIT,
            "line": row.line,
            "options": " ".join(OPTIONS),
            "torch": version("torch"),
            "source": "predicted",
            **predict(row, checkout),
        }
        with RECORDS.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(row.name, record.get("peak_reserved_bytes", record.get("error")), flush=True)


if __name__ == "__main__":
    main()
