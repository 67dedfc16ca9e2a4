"""Where cudaMalloc puts the segments of a program, on this machine's GPU.

PYTHONPATH=src python benchmarks/programs/addresses.py CHECKOUTS DATA [NAME...]

The allocator breaks ties between free blocks of one size by address, so that the order of the
addresses can decide how much is reserved (src/vramcast/allocator/addresses.py). Every program runs
by itself, six times at once, and under `vramcast probe --trace`. A line per run: the segments in
the order in which they were made, each as size and address in units of 2 MiB from the first.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import runpy
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from run import _link, start

from programs import PROGRAMS, Listed

UNIT_BYTES, NUM_AT_ONCE, NUM_STEPS, MOST_SECONDS = 2 << 20, 6, 6, 240
DEFAULT = ("mnist", "word_language_model_optimizer")


def segments_of(trace: list[dict[str, Any]]) -> list[tuple[float, int]]:
    made = [event for event in trace if event["action"] == "segment_alloc"]
    first = made[0]["addr"]
    return [(e["size"] / UNIT_BYTES, (e["addr"] - first) // UNIT_BYTES) for e in made]


def alone(words: list[str]) -> None:
    """Runs the program in this process until it has trained for some steps."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    count = 0

    def stepped(*_: Any) -> None:
        nonlocal count
        count += 1
        if count == NUM_STEPS:
            raise SystemExit

    register_optimizer_step_post_hook(stepped)
    torch.cuda.memory._record_memory_history(max_entries=1_000_000)
    sys.argv[:] = words
    sys.path.insert(0, os.getcwd())
    with contextlib.suppress(SystemExit):
        runpy.run_path(words[0], run_name="__main__")
    found = segments_of(torch.cuda.memory._snapshot()["device_traces"][0])
    print("SEGMENTS " + json.dumps([torch.cuda.max_memory_reserved() >> 20, found]), flush=True)
    os._exit(0)


def started(program: Listed, folder: Path, words: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).resolve()), "--alone", *words[1:]]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> str:
    output = process.communicate(timeout=MOST_SECONDS)[0]
    return next((x for x in output.splitlines() if x.startswith("SEGMENTS")), "nothing")


def main() -> None:
    checkouts, data = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    for program in (p for p in PROGRAMS if p.name in (sys.argv[3:] or DEFAULT)):
        top = checkouts / program.repository.split("/")[1]
        _link(program, top, data)
        words = [w.replace("DATA", str(data)) for w in shlex.split(program.line)]
        folder = top / program.folder
        for _ in range(2):
            print(program.name, "alone", told(started(program, folder, words)), flush=True)
        for process in [started(program, folder, words) for _ in range(NUM_AT_ONCE)]:
            print(program.name, "six at once", told(process), flush=True)
        with tempfile.TemporaryDirectory() as out:
            command = ["probe", "--trace", "--json", "--out", f"{out}/run"]
            start(command, program, checkouts, data, MOST_SECONDS)
            for path in Path(out).rglob("snapshot.pickle"):
                trace = pickle.loads(path.read_bytes())["device_traces"][0]
                print(program.name, "probe", json.dumps(segments_of(trace)), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--alone":
        alone(sys.argv[2:])
    else:
        main()
