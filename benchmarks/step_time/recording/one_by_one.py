"""Profiles steps one after the other, all in one process that imports every library once: nothing
else runs while one is measured.

    python benchmarks/step_time/recording/one_by_one.py OUT SECONDS LIST

A line of LIST is `step FILE.py:FUNCTION knob=value ...`, or `kernels ...` for a family of
operators, as record.py has them. OUT gets a file of each, named by its last knob's value or its
function. Between two, memory is given back and torch's switches are set as they were. Where the
process dies or a step takes too long, the others go on in a new one. What would begin when the
seconds are over is left out, and told.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import torch
from profiled import kernels_of, profiled

from vramcast.workload.knobs import split_assignments

MOST_SECONDS = 75
BEGUN = "begun"  # a file with the names of what was begun
LIBRARIES = (
    *("torchvision", "transformers.modeling_utils", "timm", "diffusers.models.modeling_utils"),
    "peft",
)


def name_of(line: str) -> str:
    _, reference, *knobs = line.split()
    own = reference.rpartition(":")[2]
    if own == "step":
        return knobs[-1].rpartition("=")[2]
    return "_".join((own, *(knob.replace("=", "") for knob in knobs)))


def record(line: str, out: Path) -> None:
    kind, reference, *knobs = line.split()
    given = split_assignments(knobs)
    found = {"kernels": kernels_of, "step": profiled}[kind](reference, None, given)
    out.write_text(json.dumps(found) + "\n")


def as_before() -> None:
    """Gives back memory, and sets the switches that steps set."""
    gc.collect()
    torch.backends.cudnn.benchmark = False
    torch.set_float32_matmul_precision("highest")
    torch.set_default_dtype(torch.float32)
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # raises where a kernel has failed, after which all would
        torch.cuda.empty_cache()


def work(out: Path, until: float, lines: list[str]) -> None:
    for library in LIBRARIES:
        with suppress(Exception):
            import_module(library)
    print(f"imported {until - time.time():.0f} s before the end", flush=True)
    for line in lines:
        name, left = name_of(line), until - time.time()
        if left < 0:
            print(f"{name}: no time", flush=True)
            continue
        with open(out / BEGUN, "a") as file:
            print(name, file=file)
        signal.alarm(MOST_SECONDS)
        failed = ""
        try:
            record(line, out / f"{name}.jsonl")
        except Exception as error:  # the next are worth measuring
            failed = f" failed: {error!r}"[:300]
        signal.alarm(0)
        took = left - (until - time.time())
        print(f"{name}:{failed} {took:.1f} s, {left:.0f} s before the end", flush=True)
        as_before()


def main() -> None:
    out, seconds, path = Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
    lines = list(filter(None, path.read_text().splitlines()))
    until = float(os.environ.get("UNTIL") or time.time() + seconds)
    if "UNTIL" in os.environ:
        work(out, until, lines)
        return
    (out / BEGUN).write_text("")
    while lines and time.time() < until:
        rest = out / "rest"
        rest.write_text("\n".join(lines))
        called = [sys.executable, __file__, str(out), str(seconds), str(rest)]
        status = subprocess.run(called, env={**os.environ, "UNTIL": str(until)}).returncode
        begun = (out / BEGUN).read_text().split()
        left = [line for line in lines if name_of(line) not in begun]
        print(f"status {status}, {len(left)} left", flush=True)
        if len(left) == len(lines):
            return
        lines = left


if __name__ == "__main__":
    main()
