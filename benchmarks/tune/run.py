"""Tune models of the zoo on the GPU here, from their naive form.

That is attention and recurrences written out, float32, and a small batch.

    PYTHONPATH=src python benchmarks/tune/run.py --out benchmarks/tune/h200-torch-2.11 --seconds 170

One folder a model: records.jsonl (every run, on disk the moment it exists), result.json, log.md,
final.json. A tune that breaks off goes on where it was when it is called again with the same --out.
`--seconds` is for each model.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from vramcast.errors import VramcastError
from vramcast.processes.progress import Progress
from vramcast.tuning.tune import tune

NAIVE: dict[str, dict[str, Any]] = {
    "gpt2-124m": {"attention": "plain", "precision": "fp32", "batch_size": 4},
    "e10-50m": {"recurrence": "plain", "precision": "fp32", "batch_size": 8},
    "elleci-1.36b": {
        "attention": "plain",
        "recurrence": "plain",
        "precision": "fp32",
        "batch_size": 2,
    },
}


def show(progress: Progress) -> None:
    if progress.line:
        print(f"  {time.strftime('%H:%M:%S')} {progress.line}", flush=True)


def tune_one(name: str, options: argparse.Namespace) -> bool:
    print(f"{name} {NAIVE[name]}", flush=True)
    try:
        result = tune(
            name,
            out=options.out / name,
            only=options.only,
            budget=options.seconds,
            device=options.device,
            force=options.force,
            progress=show,
            outlook=options.outlook,
            **{**NAIVE[name], **dict(options.knob)},
        )
    except VramcastError as problem:
        print(f"  {problem}", flush=True)
        return False
    before, after = result.before, result.after
    print(
        f"  {result.total} by {result.total.by}; "
        f"{before.step_seconds:.4f} -> {after.step_seconds:.4f} s a step, "
        f"{before.per_second:,.0f} -> {after.per_second:,.0f} {after.unit}/s; "
        f"{result.seconds:.0f} s; "
        f"applied: {', '.join(row.name for row in result.rows_with('applied')) or 'nothing'}",
        flush=True,
    )
    return True


def number_or_text(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name, int(value) if value.isdigit() else value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=170.0, help="for each model")
    parser.add_argument("--models", nargs="*", choices=sorted(NAIVE), default=list(NAIVE))
    parser.add_argument("--only", default=None, help="optimisations, with commas")
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--knob",
        nargs="*",
        type=number_or_text,
        default=[],
        help="key=value, beside or in place of the naive form's",
    )
    parser.add_argument(
        "--no-outlook", dest="outlook", action="store_false", help="do not predict other GPUs"
    )
    parser.add_argument("--force", action="store_true", help="begin again")
    options = parser.parse_args()
    ended_well = [tune_one(name, options) for name in options.models]
    sys.exit(0 if all(ended_well) else 1)


if __name__ == "__main__":
    main()
