"""Profiles steps one after the other, each in a process of its own, forked when all libraries are
imported: nothing else runs while one is measured.

    python benchmarks/step_time/recording/one_by_one.py OUT SECONDS LIST

A line of LIST is `step FILE.py:FUNCTION knob=value ...`, or `kernels ...` for a family of
operators, as record.py has them. OUT gets a file of each, named by its last knob's value or its
function. What would begin when the seconds are over is left out, and told.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path

# so that asking for a GPU does not keep the forked from using it
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

import torch
from profiled import kernels_of, profiled

from vramcast.workload.knobs import split_assignments

MOST_SECONDS = 75
LIBRARIES = (
    *("torchvision", "transformers.modeling_utils", "timm", "diffusers.models.modeling_utils"),
    *("peft", "torch._dynamo", "torch._inductor.compile_fx"),
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


def in_a_process(call, *arguments) -> int:
    """Forked; its exit status."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(MOST_SECONDS)
        status = 1
        try:
            call(*arguments)
            status = 0
        except BaseException as error:  # the parent goes on with the next
            print(repr(error)[:300], file=sys.stderr)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_a_new_one(line: str, out: Path) -> int:
    kind, *rest = line.split()
    script = Path(__file__).parent / "record.py"
    called = [sys.executable, str(script), "--out", str(out), f"--{kind}", *rest]
    with suppress(subprocess.TimeoutExpired):
        return subprocess.run(called, timeout=MOST_SECONDS, check=False).returncode
    return 124


def main() -> None:
    out, most, lines = Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
    started = time.monotonic()
    for library in LIBRARIES:
        with suppress(Exception):
            import_module(library)
    can_fork = in_a_process(lambda: torch.zeros(1, device="cuda")) == 0
    print(f"imported after {time.monotonic() - started:.0f} s, forks: {can_fork}", flush=True)
    for line in filter(None, lines.read_text().splitlines()):
        name, begun = name_of(line), time.monotonic() - started
        if begun > most:
            print(f"{name}: no time", flush=True)
            continue
        path = out / f"{name}.jsonl"
        status = in_a_process(record, line, path) if can_fork else in_a_new_one(line, path)
        print(f"{name}: {status}, {begun:.0f} to {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
