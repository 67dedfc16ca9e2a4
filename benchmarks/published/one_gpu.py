"""Predicts what torchtune and litgpt have published for one GPU, and appends what came of each run.

PYTHONPATH=src python benchmarks/published/one_gpu.py TABLE FOLDER CHECKOUT [NAME...]

TABLE is one of one_gpu_rows.py, FOLDER was filled by one_gpu_data.py, CHECKOUT is of the table's
commit. What the program needs must be found: put CHECKOUT and its packages on PYTHONPATH, and for
torchtune its `tune` on PATH. bitsandbytes 0.41 wants BNB_CUDA_VERSION=121. Without names, all runs
of the table are predicted.
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

from one_gpu_rows import TABLES, Run

RECORDS = Path(__file__).with_name("one_gpu.jsonl")
MOST_SECONDS = 1800
KEPT = ("peak_allocated_bytes", "peak_reserved_bytes", "fits", "seconds", "limits")


def predict(run: Run, folder: Path, checkout: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "vramcast", "predict", "--gpu", run.gpu, "--json"]
    line = run.line.replace("CHECKOUT", str(checkout))
    command += ["--timeout", str(MOST_SECONDS), "--", *shlex.split(line)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 3):
        told = done.stderr.rpartition("vramcast: ")[2].strip().splitlines()
        return {"error": " / ".join(dict.fromkeys([*told[:1], *told[-2:]]))}
    return kept(json.loads(done.stdout), checkout)


def kept(found: dict[str, Any], checkout: Path) -> dict[str, Any]:
    limits = [limit.replace(str(checkout), "CHECKOUT") for limit in found["limits"]]
    return {**{name: found[name] for name in KEPT}, "limits": limits}


def append(table: str, run: Run, came: dict[str, Any]) -> None:
    record = {
        "table": table,
        "name": run.name,
        "gpu": run.gpu,
        "commit": TABLES[table].commit,
        "line": run.line,
        "torch": version("torch"),
        "source": "predicted",
        **came,
    }
    with RECORDS.open("a") as file:
        file.write(json.dumps(record) + "\n")
    print(run.name, came.get("peak_allocated_bytes", came.get("error")), flush=True)


def main() -> None:
    table, folder, checkout, *names = sys.argv[1:]
    for run in TABLES[table].runs:
        if not names or run.name in names:
            append(table, run, predict(run, Path(folder), Path(checkout).resolve()))


if __name__ == "__main__":
    main()
