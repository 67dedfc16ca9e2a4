"""Times predictions of the programs, and their own imports and set-up, and appends both.

PYTHONPATH=src python benchmarks/programs/seconds.py CHECKOUTS DATA [NAME...]

The set-up is all that a program does before it first calls a model, on this machine's CPU. Give the
machine nothing else to do.
"""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from run import GPU, HERE, prepared

from programs import PROGRAMS, Listed

RECORDS = HERE / "seconds.jsonl"
MOST_SECONDS = 120


def set_up(program: Listed, checkouts: Path, data: Path) -> dict[str, float]:
    """Programs that need a GPU have the CPU in its place. Empty where no call was seen."""
    for more in ({}, {"VRAMCAST_CUDA_ON_CPU": "1"}):
        words, folder, environment = prepared(program, checkouts, data)
        if words[0] == "python":
            words = [sys.executable, *words[1:]]
        with tempfile.TemporaryDirectory() as place:
            ended = Path(place, "ended")
            paths = f"{HERE / 'only_set_up'}:{environment['PYTHONPATH']}"
            environment |= {"PYTHONPATH": paths, "VRAMCAST_SET_UP_ENDED": str(ended), **more}
            began = time.time()
            _run_until(ended, words, folder, environment)
            if ended.exists():
                at, cpu_seconds = map(float, ended.read_text().split())
                return {"set_up_seconds": at - began, "set_up_cpu_seconds": cpu_seconds}
    return {}


def _run_until(ended: Path, words: list[str], folder: Path, environment: dict[str, str]) -> None:
    with ended.with_name("printed").open("w") as printed:
        started = subprocess.Popen(
            words,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
        last = time.monotonic() + MOST_SECONDS
        while started.poll() is None and not ended.exists() and time.monotonic() < last:
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def prediction(program: Listed, checkouts: Path, data: Path) -> dict[str, float]:
    """Empty where there is no answer."""
    words, folder, environment = prepared(program, checkouts, data)
    command = [sys.executable, "-m", "vramcast", "predict", "--gpu", GPU, "--json", "--", *words]
    began, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    seconds, after = time.time() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        return {}
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "cpu_seconds": cpu_seconds}


def main() -> None:
    checkouts, data, names = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3:]
    # as pip leaves it; an environment may keep Python from doing so
    compileall.compile_dir(HERE.parents[1] / "src" / "vramcast", quiet=1)
    for program in PROGRAMS:
        if names and program.name not in names:
            continue
        found = prediction(program, checkouts, data) | set_up(program, checkouts, data)
        rounded = {name: round(value, 1) for name, value in found.items()}
        record = {"name": program.name, "torch": version("torch"), **rounded}
        with RECORDS.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(program.name, rounded, flush=True)


if __name__ == "__main__":
    main()
