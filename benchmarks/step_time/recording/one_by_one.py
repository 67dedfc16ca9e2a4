"""Measures steps one after the other: nothing else runs while one is measured.

    python benchmarks/step_time/recording/one_by_one.py OUT SECONDS LIST [PREDICTED.jsonl ...]

A line of LIST is `step FILE.py:FUNCTION knob=value ...`, `compiled ...` for a step with
torch.compile, or `kernels ...` for a family of operators, as record.py has them. OUT gets a file of
each, named by its last knob's value or its function. Each has a process of its own, forked from one
that has imported every library, so that peaks are its own and no profiler was on before its steps
were timed. What compiles does so before, several at once, and finds its kernels in Inductor's
cache later. A step is profiled too where it was predicted badly, or where time is plenty. What
would begin when the seconds are over is left out, and told.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

# Asking the driver's library instead of CUDA leaves CUDA to the forked processes.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

import torch
from profiled import compiled, kernels_of, measured

from vramcast.hardware.calibration.host import measure as measure_host
from vramcast.workload.knobs import split_assignments

MOST_SECONDS, MOST_COMPILING_SECONDS = 75, 160
COMPILING_AT_ONCE = 8
BADLY = 0.06  # an error from which on a step is profiled
PROFILE_SECONDS = 9  # for each of those that are left, beside what it takes to measure it
HOST = "host"  # the file of the speed of the machine's host, before and after
LIBRARIES = ("torchvision", "transformers.modeling_utils", "timm", "diffusers.models.unets")


def name_of(line: str) -> str:
    _, reference, *knobs = line.split()
    own = reference.rpartition(":")[2]
    if own == "step":
        return knobs[-1].rpartition("=")[2]
    return "_".join((own, *(knob.replace("=", "") for knob in knobs)))


def record(line: str, out: Path, predicted: float | None, has_time: bool) -> None:
    kind, reference, *knobs = line.split()
    given = split_assignments(knobs)

    def is_profiled(seconds: float) -> bool:
        return has_time or predicted is None or abs(predicted / seconds - 1) > BADLY

    if kind == "kernels":
        found = kernels_of(reference, None, given)
    else:
        found = measured(reference, given, is_profiled)
    _write(out, found)


def record_host(out: Path) -> None:
    _write(out, {"host_step_seconds": measure_host(None, lambda _: None)["step_seconds"]})


def _write(out: Path, found: dict[str, Any]) -> None:
    out.write_text(json.dumps(found) + "\n")


def use_gpu() -> None:
    if torch.cuda.is_available():
        torch.ones(1, device="cuda").sum().item()


def begun(call: Callable[..., None], *given: Any) -> Any:
    process = multiprocessing.get_context("fork").Process(target=call, args=given)
    process.start()
    return process


def ended(process: Any, seconds: float) -> str:
    """How it ended, when those seconds are over at the latest."""
    process.join(max(0.0, seconds))
    if process.is_alive():
        process.kill()
        process.join()
        return " took too long"
    return f" exit code {process.exitcode}" if process.exitcode else ""


def compile_all(lines: list[str]) -> None:
    """Fills Inductor's cache."""
    waiting, running = list(lines), []
    while waiting or running:
        while waiting and len(running) < COMPILING_AT_ONCE:
            line = waiting.pop(0)
            _, reference, *knobs = line.split()
            process = begun(compiled, reference, split_assignments(knobs))
            running.append((line, process, time.time() + MOST_COMPILING_SECONDS))
        for one in list(running):
            line, process, until = one
            if not process.is_alive() or time.time() > until:
                print(f"{name_of(line)} compiled:{ended(process, 0)}", flush=True)
                running.remove(one)
        time.sleep(0.1)


def main() -> None:
    out, until, path = Path(sys.argv[1]), time.time() + float(sys.argv[2]), Path(sys.argv[3])
    lines = list(filter(None, path.read_text().splitlines()))
    rows = [json.loads(row) for name in sys.argv[4:] for row in Path(name).read_text().splitlines()]
    predicted = {row["step"]: row["predicted"]["seconds"] for row in rows}
    for library in LIBRARIES:
        with suppress(Exception):
            import_module(library)
    if how := ended(begun(use_gpu), MOST_SECONDS):
        sys.exit(
            f"A forked process cannot use the GPU ({how.strip()}): a library began with CUDA when "
            "it was imported (torchao does). Leave it off PYTHONPATH; new processes that import "
            "everything would take half a minute each."
        )
    print(f"imported {until - time.time():.0f} s before the end", flush=True)
    ended(begun(record_host, out / f"{HOST}_before.json"), MOST_SECONDS)
    compile_all([line for line in lines if line.startswith("compiled")])
    for number, line in enumerate(lines):
        name, left = name_of(line), until - time.time()
        if left < 0:
            print(f"{name}: no time", flush=True)
            continue
        has_time = left > PROFILE_SECONDS * (len(lines) - number)
        process = begun(record, line, out / f"{name}.jsonl", predicted.get(name), has_time)
        how = ended(process, MOST_SECONDS)
        took = left - (until - time.time())
        print(f"{name}:{how} {took:.1f} s, {left:.0f} s before the end", flush=True)
    ended(begun(record_host, out / f"{HOST}_after.json"), MOST_SECONDS)


if __name__ == "__main__":
    main()
