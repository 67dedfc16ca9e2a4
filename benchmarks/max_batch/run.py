"""Finds the largest batch under a memory cap with vramcast, with other tools, and by trying.

    PYTHONPATH=src python benchmarks/max_batch/run.py --seconds 450 \\
        --out benchmarks/max_batch/h200-torch-2.11.jsonl

Needs a GPU. Every record is written at once, and what is there is not done again. This process
never imports torch.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

from pairs import PAIRS, Pair

from vramcast.forecast.search import settle
from vramcast.probing.manager import Prober
from vramcast.probing.trial import Trial
from vramcast.processes.lifetime import child_environment
from vramcast.records.store import append_line, read_lines
from vramcast.simulate import build

PEERS = ("lightning-power", "lightning-binsearch", "accelerate")
PACKAGES = ("torch", "transformers", "lightning", "accelerate")
TIMEOUT_SECONDS = 60.0
# truth and the last peers: each is capped, and an H200 has more than the four largest caps together
AT_ONCE = 4
TRUTH_STEPS = (
    2,
    8,
)  # warm-up, measured: more than a search takes, so that it is no repetition of it
DONE = ("ok", "timeout")  # what failed is tried again when the run is resumed
LOOK_BEYOND = 2  # sizes past the first that fails
HUGGING_FACE = ("transformers.modeling_utils", "transformers.generation")
Records = dict[tuple[str, str], dict[str, Any]]  # (pair, method) -> record


class OutOfTime(Exception):
    """The time of the whole run is over. What was cut off is no result: it is done again."""


class Deadline:
    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def seconds(self, most: float = TIMEOUT_SECONDS) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise OutOfTime
        return min(most, left)

    def check(self) -> None:
        self.seconds()


@dataclass(frozen=True)
class Phase:
    jobs: list[tuple[Pair, str]]
    at_once: int = 1


def phases(pairs: Sequence[Pair], at_once: int) -> list[Phase]:
    """What is timed against each other runs alone; where only answers matter, several at once."""
    first, others = pairs[0], pairs[1:]
    return [
        Phase([(pair, "ours") for pair in pairs]),
        Phase([(pair, "truth") for pair in pairs], at_once),
        Phase([(first, method) for method in ("ours-again", *PEERS)]),
        Phase(
            [(pair, method) for method in PEERS[::-1] for pair in others], at_once
        ),  # accelerate first: the fastest of them
        Phase([(pair, "ours-again") for pair in others]),
    ]


def run(
    plan: Sequence[Phase],
    out: Path,
    do: Callable[[Pair, str, Records], dict[str, Any]],
    deadline: Deadline,
) -> bool:
    """Do what `out` does not hold yet. False where time was over first."""
    known = read(out)

    def one(job: tuple[Pair, str], at_once: int) -> bool:
        pair, method = job
        if known.get((pair.name, method), {}).get("outcome") in DONE:
            return True
        try:
            deadline.check()
            record = {**do(pair, method, known), "at_once": at_once}
            deadline.check()
        except OutOfTime:
            return False
        except Exception as problem:  # one that breaks costs one record
            record = {
                "outcome": "failed",
                "error": f"{type(problem).__name__}: {problem}"[-500:],
                "at_once": at_once,
            }
        append_line(out, {"pair": pair.to_dict(), "method": method, "record": record})
        known[pair.name, method] = record
        print(f"{pair.name} {method}: {_short(record)}", file=sys.stderr, flush=True)
        return True

    for phase in plan:
        with ThreadPoolExecutor(phase.at_once) as pool:
            if not all(pool.map(lambda job: one(job, phase.at_once), phase.jobs)):  # noqa: B023  the pool ends with the phase
                return False
    return True


def read(out: Path) -> Records:
    return {(line["pair"]["name"], line["method"]): line["record"] for line in read_lines(out)}


def _short(record: dict[str, Any]) -> str:
    shown = {
        key: record.get(key)
        for key in ("outcome", "answer", "num_trials", "num_out_of_memory", "wall_seconds")
    }
    return " ".join(f"{key}={value}" for key, value in shown.items() if value is not None)


def child(command: list[str], request: str, timeout_seconds: float) -> tuple[str, str, float, bool]:
    """(stdout, stderr, seconds, was it stopped). It ends with everything it has started."""
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
        start_new_session=True,
    )
    stopped = False
    try:
        out, err = process.communicate(request, timeout=timeout_seconds)
        seconds = time.monotonic() - started
    except subprocess.TimeoutExpired:
        stopped, seconds = True, time.monotonic() - started
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
    return out, err, seconds, stopped


def ask_peer(pair: Pair, method: str, deadline: Deadline) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).with_name("peers.py")), method]
    limit = deadline.seconds()
    out, err, seconds, stopped = child(command, json.dumps(pair.to_dict()), limit)
    if stopped and limit < TIMEOUT_SECONDS:
        raise OutOfTime
    return from_peer(out, err, seconds, stopped)


def from_peer(out: str, err: str, seconds: float, stopped: bool) -> dict[str, Any]:
    news = [
        json.loads(line) for line in out.splitlines() if line.startswith("{") and line.endswith("}")
    ]
    trials = [[n["trial"], n["outcome"]] for n in news if "trial" in n]
    answer = next((n["answer"] for n in news if "answer" in n), None)
    outcome = "ok" if answer is not None else "timeout" if stopped else "failed"
    return {
        "outcome": outcome,
        "answer": answer,
        "trials": trials,
        "num_trials": len(trials),
        "num_out_of_memory": sum(outcome == "out_of_memory" for _, outcome in trials),
        "wall_seconds": round(seconds, 2),
        "error": err[-500:] if outcome == "failed" else None,
    }


def ask_vramcast(pair: Pair, deadline: Deadline) -> dict[str, Any]:
    """The whole command, as a user types it, confirmed on the GPU."""
    knobs = [
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in pair.knobs.items()
    ]
    options = ["--memory", f"{pair.memory_gib}GiB", "--gpu", "h200", "--json"]
    limit = deadline.seconds(2 * TIMEOUT_SECONDS)
    out, err, seconds, stopped = child(
        [sys.executable, "-m", "vramcast", "max-batch", pair.workload, *knobs, *options], "", limit
    )
    if stopped and limit < 2 * TIMEOUT_SECONDS:
        raise OutOfTime
    try:
        answer = json.loads(out)
    except ValueError:
        return {
            "outcome": "timeout" if stopped else "failed",
            "error": err[-500:],
            "wall_seconds": round(seconds, 2),
        }
    return from_vramcast(answer, seconds)


def from_vramcast(answer: dict[str, Any], seconds: float) -> dict[str, Any]:
    measured = [a for a in answer["attempts"] if a["source"] == "measured"]
    predicted = [a for a in answer["attempts"] if a["source"] == "predicted"]
    edge = min((a["batch_size"] for a in predicted if a["outcome"] != "ok"), default=math.inf)
    return {
        "outcome": "ok",
        "answer": answer["largest_batch"],
        "confirmed": answer["confirmed"],
        "predicted": max(
            (a["batch_size"] for a in predicted if a["batch_size"] < edge), default=None
        ),
        "trials": [[a["batch_size"], a["outcome"]] for a in measured],
        "num_trials": len(measured),
        "num_out_of_memory": sum(a["outcome"] == "out_of_memory" for a in measured),
        "wall_seconds": round(seconds, 2),
        "predict_seconds": round(answer["seconds"], 2),
        "attempts": answer["attempts"],
        "notes": answer["notes"],
    }


def find_truth(
    pair: Pair, start: int | None, deadline: Deadline, prober: Prober | None = None
) -> dict[str, Any]:
    """The largest size that runs and the next that does not, each in a fresh process, and what is
    past it.
    """
    if start is None:
        return {"outcome": "failed", "error": "vramcast gave no answer to start from"}
    trials: list[list[Any]] = []
    with prober or Prober(preload=HUGGING_FACE if "huggingface" in pair.workload else ()) as runner:

        def runs(size: int) -> bool:
            trial = Trial(
                workload=pair.workload,
                knobs={**pair.knobs, "batch_size": size},
                memory_cap_bytes=pair.memory_bytes,
                warmup_steps=TRUTH_STEPS[0],
                measure_steps=TRUTH_STEPS[1],
                timeout_seconds=deadline.seconds(),
            )
            seen = runner.run(trial)
            deadline.check()
            step_seconds = seen.times.median_seconds if seen.times else None
            trials.append(
                [size, seen.outcome, seen.peak_reserved_bytes, seen.num_alloc_retries, step_seconds]
            )
            if seen.outcome not in ("ok", "out_of_memory"):
                raise RuntimeError(f"batch_size={size} ended with {seen.outcome}: {seen.error}")
            return seen.outcome == "ok"

        largest, failing = settle(runs, start, start + 1, step=1, limit=None)
        beyond = (
            [failing + i for i in range(1, LOOK_BEYOND + 1) if runs(failing + i)]
            if failing is not None
            else []
        )
    return {
        "outcome": "ok",
        "answer": largest,
        "first_failing": failing,
        "fit_again_beyond": beyond,
        "trials": trials,
    }


def set_up() -> dict[str, Any]:
    """Compile the simulated GPU and read everything from disk once: whoever is timed first must not
    pay for the others.
    """
    started = time.monotonic()
    build.build()
    compiled = time.monotonic() - started
    started = time.monotonic()
    names = ", ".join(PACKAGES)
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"import {names}, transformers.modeling_utils, torch._dynamo, lightning.pytorch",
        ],
        timeout=180,
    )
    return {
        "outcome": "ok",
        "compile_seconds": round(compiled, 1),
        "first_import_seconds": round(time.monotonic() - started, 1),
        "date": date.today().isoformat(),
        "gpu": _gpu(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _gpu() -> str | None:
    from vramcast.hardware import nvml

    states = nvml.gpu_states()
    return states[0].name if states else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="the file of records; what it holds is not done again",
    )
    parser.add_argument("--seconds", type=float, default=450.0, help="stop after so many")
    parser.add_argument("--pair", action="append", help="only this pair; may be given again")
    parser.add_argument(
        "--at-once",
        type=int,
        default=AT_ONCE,
        help="how many run at a time where only answers matter",
    )
    given = parser.parse_args()
    if _gpu() is None:
        parser.error("there is no NVIDIA GPU here to run on")
    deadline = Deadline(given.seconds)
    pairs = [pair for pair in PAIRS if given.pair is None or pair.name in given.pair]
    given.out.parent.mkdir(parents=True, exist_ok=True)

    def do(pair: Pair, method: str, known: Records) -> dict[str, Any]:
        if method == "setup":
            return set_up()
        if method == "truth":
            return find_truth(pair, known.get((pair.name, "ours"), {}).get("answer"), deadline)
        return ask_peer(pair, method, deadline) if method in PEERS else ask_vramcast(pair, deadline)

    plan = [Phase([(Pair("", "", 0), "setup")]), *phases(pairs, given.at_once)]
    return 0 if run(plan, given.out, do, deadline) else 3


if __name__ == "__main__":
    sys.exit(main())
