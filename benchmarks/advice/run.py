"""Advice against what a GPU says: what every change of six workloads saves.

    PYTHONPATH=src python benchmarks/advice/run.py predict     no GPU; writes predicted.jsonl
    PYTHONPATH=src python benchmarks/advice/run.py measure     on an H200; writes measured.jsonl
    PYTHONPATH=src python benchmarks/advice/run.py table       writes README.md from both

What `vramcast advise` says of each change alone, and of some together, is recorded with the knobs,
switches and allocator settings that make it; `measure` runs the same with `vramcast.probe`. Changes
that only the simulation can make (more passes without a knob for it, several GPUs) are left out.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PREDICTED, MEASURED, PAGE = (
    HERE / name for name in ("predicted.jsonl", "measured.jsonl", "README.md")
)
GPU = "h200"
# cuBLASLt has a workspace of its own in torch 2.11, which measured; 2.13 is told to do the same
os.environ["TORCH_CUBLASLT_UNIFIED_WORKSPACE"] = "0"
WORKLOADS: list[tuple[str, dict[str, Any]]] = [
    ("examples/gpt.py:build", {"batch_size": 16, "precision": "fp32"}),
    ("examples/huggingface.py:build", {"precision": "fp32", "attention": "eager"}),
    ("gpt2-124m", {"batch_size": 16}),
    ("llama-300m", {"batch_size": 8}),
    ("benchmarks/advice/plain.py:vision", {"batch_size": 128}),
    ("benchmarks/advice/plain.py:encoder", {}),
]
GOAL_PERCENT = 2.0


def predict() -> None:
    """Fast changes only: compiled steps have a suite of their own."""
    from vramcast.predicting.predict import make_request
    from vramcast.processes.progress import ignore
    from vramcast.records.prediction import Prediction
    from vramcast.simulate.runner import shared_server, simulate
    from vramcast.tuning.advise import Adviser, offers_for

    PREDICTED.unlink(missing_ok=True)
    for workload, knobs in WORKLOADS:
        request = make_request(workload, knobs, GPU)
        with shared_server():
            base = Prediction.from_dict(simulate(request, 600))
            offers = offers_for(request, base, 600)
            offers.changes[:] = [
                change
                for change in offers.changes
                if change.start_seconds < 30 and change.passes == change.world_size == 1
            ]
            advice = Adviser(request, knobs, base, 600, ignore).advice(offers, is_brief=False)
        rows = [{"names": [], "peak_reserved_bytes": base.peak_reserved_bytes, "saved_bytes": 0}]
        # A change may be in both lists.
        listed = {tuple(one.names): one for one in (*advice.alone, *advice.suggestions)}
        for one in listed.values():
            if not one.is_estimate:
                rows.append(
                    {
                        "names": one.names,
                        "knobs": one.knobs,
                        "switches": one.switches,
                        "allocator": one.allocator,
                        "peak_reserved_bytes": one.peak_reserved_bytes,
                        "saved_bytes": one.saved_bytes,
                    }
                )
        for row in rows:
            facts = {"workload": workload, "base": knobs, "gpu": GPU, "torch": version("torch")}
            _append(PREDICTED, {**facts, **row})
        print(workload, len(rows), flush=True)


def measure() -> None:
    import vramcast
    from vramcast.workload.configuration import Configuration
    from vramcast.workload.switches import Switches

    done = {_key(row) for row in _rows(MEASURED)}
    for row in _rows(PREDICTED):
        if _key(row) in done:
            continue
        config = Configuration(
            knobs={**row["base"], **row.get("knobs", {})},
            switches=Switches(**row.get("switches", {})),
            allocator=row.get("allocator") or None,
        )
        found = vramcast.probe(row["workload"], config=config, steps=5, timeout=240)
        record = {
            "workload": row["workload"],
            "base": row["base"],
            "names": row["names"],
            "gpu": found.gpu,
            "torch": version("torch"),
            "outcome": found.outcome,
            "error": (found.error or "")[:300],
            "peak_reserved_bytes": found.peak_reserved_bytes,
        }
        _append(MEASURED, record)
        print(row["workload"], row["names"], found.outcome, found.peak_reserved_bytes, flush=True)


def table() -> None:
    measured = {_key(row): row for row in _rows(MEASURED)}
    lines, num_good, num_rows = [], 0, 0
    for row in _rows(PREDICTED):
        base = measured.get((row["workload"], ()), {}).get("peak_reserved_bytes")
        peak = measured.get(_key(row), {}).get("peak_reserved_bytes")
        if not row["names"]:
            continue
        saved = base - peak if base is not None and peak is not None else None
        off = None
        if saved:
            off = 100 * (row["saved_bytes"] - saved) / saved
            num_rows += 1
            num_good += abs(off) <= GOAL_PERCENT
        lines.append(
            f"| {row['workload']} | {' + '.join(row['names'])} | {_gib(row['saved_bytes'])} | "
            f"{'' if saved is None else _gib(saved)} | {'' if off is None else f'{off:+.2f} %'} |"
        )
    head = (HERE / "head.md").read_text()
    said = (
        f"{num_good} of {num_rows} measured savings are within {GOAL_PERCENT:g} % of the predicted."
        if num_rows
        else "Nothing is measured yet: all numbers are predicted."
    )
    num_left = len(lines) - num_rows
    if num_rows and num_left:
        said += f" {num_left} more were predicted and not measured: their cells are empty."
    columns = (
        "| workload | change | predicted to save | measured | off by |\n|---|---|---:|---:|---:|"
    )
    PAGE.write_text("\n".join([head, said, "", columns, *lines, ""]))


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.3f} GiB"


def _key(row: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    return row["workload"], tuple(row["names"])


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _append(path: Path, record: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    {"predict": predict, "measure": measure, "table": table}[sys.argv[1]]()
