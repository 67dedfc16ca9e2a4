"""Measures every way to compute the zoo's recurrences on one GPU.

    PYTHONPATH=src python benchmarks/recurrence/run.py --out records.jsonl --seconds 150 \\
        [--models] [--only NAME ...]

Each case runs in a process of its own with a time limit: one that hangs or does not compile stops
no other. The next processes import torch meanwhile, but use the GPU only when it is their turn.
Every record is written at once. This process imports no torch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from threading import Timer
from typing import Any

from cases import ALL, PLAIN_MODELS, RECURRENCES, WHOLE_MODELS, Case

TIMEOUT_SECONDS = 60.0
PREPARED = 3  # processes that import torch while another measures


class Worker:
    def __init__(self, case: Case) -> None:
        self.case = case
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("measure.py")), case.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    def measure(self, seconds: float) -> dict[str, Any]:
        """The record of this case, or why there is none."""
        timed_out: list[bool] = []
        timer = Timer(seconds, lambda: (timed_out.append(True), self._process.kill()))
        timer.start()
        try:
            output, errors = self._process.communicate("go\n")
        finally:
            timer.cancel()
        lines = [line for line in output.splitlines() if line.startswith("{")]
        if lines:
            return {"outcome": "ok", **json.loads(lines[-1])}
        if timed_out:
            return {"outcome": "timeout", "seconds": seconds, "error": errors[-2000:]}
        return {"outcome": "error", "exit_code": self._process.returncode, "error": errors[-2000:]}

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


def run(cases: Sequence[Case], out: Path, seconds: float) -> None:
    end = time.monotonic() + seconds
    waiting = list(cases)
    prepared: list[Worker] = []
    while waiting or prepared:
        while waiting and len(prepared) < PREPARED:
            prepared.append(Worker(waiting.pop(0)))
        left = end - time.monotonic()
        worker = prepared.pop(0)
        if left < 5:
            worker.stop()
            continue
        record = {
            "date": date.today().isoformat(),
            "case": worker.case.name,
            **worker.measure(min(TIMEOUT_SECONDS, left)),
        }
        with out.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(summary(record), flush=True)


def summary(record: dict[str, Any]) -> str:
    name = f"{record['case']:24}"
    if record["outcome"] != "ok":
        last = record.get("error", "").strip().splitlines()[-1:] or [""]
        return f"{name} {record['outcome']}: {last[0][:160]}"
    if "tokens_per_second" in record:
        peak = f"peak {record['peak_allocated_bytes']:,} B"
        return (
            f"{name} {record['tokens_per_second']:>10,.0f} tokens/s  {record['step_ms']:8.1f} ms "
            f" {peak}"
        )
    errors = " ".join(
        f"{key}={value:.1e}" for key, value in record.get("relative_errors", {}).items()
    )
    forward, both = (
        f"{record[key]:8.3f}" if record.get(key) is not None else "       -"
        for key in ("forward_ms", "forward_backward_ms")
    )
    return (
        f"{name} forward {forward} ms  both {both} ms  repeatable {record.get('repeatable', '-')} "
        f" {errors}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument(
        "--models", action="store_true", help="whole training steps too, tokens a second"
    )
    parser.add_argument("--plain-models", action="store_true", help="and those with the plain loop")
    parser.add_argument("--only", nargs="*", choices=sorted(ALL), metavar="CASE", default=None)
    options = parser.parse_args()
    cases = [
        *RECURRENCES,
        *(WHOLE_MODELS if options.models else ()),
        *(PLAIN_MODELS if options.plain_models else ()),
    ]
    run(
        [ALL[name] for name in options.only] if options.only else cases,
        options.out,
        options.seconds,
    )


if __name__ == "__main__":
    main()
