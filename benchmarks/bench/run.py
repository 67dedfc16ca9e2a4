"""Trains the six models of document 002 under standard-1 on one GPU, in a limited time.

    PYTHONPATH=src python benchmarks/bench/run.py --out benchmarks/bench/h200-torch-2.11 \\
        --seconds 570 recurrence=auto

A few steps of every model tell how fast it is. Then they are trained, the fastest first; each may
take an equal part of the time that is left. One that cannot do the protocol's steps in its part
does fewer: another protocol, and its record says so. With --steps it does that many whatever it
takes. What is not finished when the time is over goes on from its checkpoint in --work the next
time. What --out holds is not trained again: `vramcast compare` reads it. Knobs go to the models
that have them. This process imports no torch.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

from rows import BY_MODEL, ROWS, UNFINISHED

from vramcast.benching.data import Corpus, default_corpus
from vramcast.benching.protocol import find_protocol, with_steps
from vramcast.records.bench import BenchTrial, Protocol, TrainedRun
from vramcast.records.store import append_line, write_atomically
from vramcast.workload import split_assignments

SLOWER_THAN_TIMED = 1.04  # what is planned for each step: a few steps tell no more than that
START_SECONDS = (
    5.0  # building the model, writing the result; the kernels are compiled when it is timed
)
OVER_SHARE = (
    1.3  # a model that takes so much more than was planned hangs; the others want their time
)
SAY_EVERY_SECONDS = 10.0


def steps_within(step_seconds: float, share_seconds: float, protocol: Protocol) -> int | None:
    """The protocol's steps, or as many tens as the time is enough for; None where it is not enough
    for the metric.
    """
    assert protocol.steps is not None
    possible = int((share_seconds - START_SECONDS) / (step_seconds * SLOWER_THAN_TIMED))
    if possible >= protocol.steps:
        return protocol.steps
    steps = possible // 10 * 10
    return steps if steps >= protocol.last_steps else None


class Worker:
    """row.py for one model."""

    def __init__(self, model: str, log: Path) -> None:
        self.model = model
        self._log = log.open("w")
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("row.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    def ask(self, request: dict[str, Any], seconds: float) -> Iterator[dict[str, Any]]:
        """Its answers up to the last one, {"timed"} or {"trained"}; the last is {"failed"} where it
        dies or takes longer.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        timed_out: list[bool] = []
        timer = Timer(max(0.0, seconds), lambda: (timed_out.append(True), self._process.kill()))
        timer.start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            for line in self._process.stdout:
                answer = json.loads(line)
                yield answer
                if "progress" not in answer:
                    return
        except BrokenPipeError:
            pass
        finally:
            timer.cancel()
        yield {"failed": "out of time" if timed_out else self._last_words()}

    def _last_words(self) -> str:
        code = self._process.wait()
        self._log.flush()
        lines = Path(self._log.name).read_text(errors="replace").strip().splitlines()
        return f"exit code {code}: {lines[-1][:500] if lines else 'it said nothing'}"

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()


class Session:
    """Everything of one call; what happens is appended to session.jsonl in the folder of the
    results.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._began = time.monotonic()
        self._begun: set[str] = set()
        self._options = options
        self._protocol = find_protocol(options.protocol)
        self._data = Path(options.data) if options.data else default_corpus()
        self._identity = Corpus(self._data).identity()
        self._knobs = split_assignments(options.knobs)
        options.out.mkdir(parents=True, exist_ok=True)
        options.work.mkdir(parents=True, exist_ok=True)

    def run(self) -> int:
        models = [
            model
            for model in self._options.models or [row.model for row in ROWS]
            if not self._is_done(model)
        ]
        self._note(
            "session",
            models=models,
            seconds=self._options.seconds,
            knobs=self._knobs,
            data=vars(self._identity),
        )
        workers = {model: Worker(model, self._options.work / f"{model}.log") for model in models}
        try:
            speeds = self._time_all(workers)
            waiting = sorted(speeds, key=lambda model: speeds[model])
            trained = self._train_all(waiting, workers, speeds)
            # those whose part was too small then may have enough now that the others are done
            trained += self._train_all(
                [model for model in waiting if model not in self._begun], workers, speeds
            )
        finally:
            for worker in workers.values():
                worker.stop()
        return 0 if set(trained) == set(models) else 1

    def _train_all(
        self, waiting: Sequence[str], workers: dict[str, Worker], speeds: dict[str, float]
    ) -> list[str]:
        """Those that were trained to their end."""
        return [
            model
            for i, model in enumerate(waiting)
            if self._train(workers[model], speeds[model], len(waiting) - i)
        ]

    @property
    def _left_seconds(self) -> float:
        return float(self._options.seconds - (time.monotonic() - self._began))

    def _is_done(self, model: str) -> bool:
        return (self._options.out / model / "result.json").exists()

    def _time_all(self, workers: dict[str, Worker]) -> dict[str, float]:
        speeds = {}
        for model, worker in workers.items():
            request = {
                "do": "time",
                "trial": self._trial(model, None).to_dict(),
                "data_path": str(self._data.absolute()),
            }
            answer = list(worker.ask(request, min(self._options.time_seconds, self._left_seconds)))[
                -1
            ]
            self._note("timed", model=model, **answer)
            if "timed" in answer:
                speeds[model] = answer["timed"]["step_seconds"]
        return speeds

    def _train(self, worker: Worker, step_seconds: float, rows_left: int) -> bool:
        share = min(self._options.row_seconds, self._left_seconds / rows_left)
        fixed = self._options.steps or self._begun_steps(worker.model)
        steps = fixed or steps_within(step_seconds, share, self._protocol)
        self._note("given", model=worker.model, share_seconds=share, steps=steps)
        if steps is None or self._left_seconds <= 0:
            return False
        self._begun.add(worker.model)
        folder = self._options.work / worker.model
        request = {
            "do": "train",
            "trial": self._trial(worker.model, steps).to_dict(),
            "data_path": str(self._data.absolute()),
            "folder": str(folder.absolute()),
        }
        said = 0.0
        limit = self._left_seconds if fixed else min(self._left_seconds, OVER_SHARE * share)
        for answer in worker.ask(request, limit):
            if "progress" not in answer:
                self._note("ended", model=worker.model, **answer)
                worker.stop()  # its memory is for the next one
            elif time.monotonic() - said > SAY_EVERY_SECONDS:
                said = time.monotonic()
                print(
                    f"{said - self._began:5.0f} s  {worker.model} "
                    f" {json.dumps(answer['progress'])}",
                    flush=True,
                )
        if "trained" in answer:
            keep(folder, self._options.out / worker.model)
            shutil.rmtree(self._options.out / UNFINISHED / worker.model, ignore_errors=True)
        else:
            keep_unfinished(folder, self._options.out / UNFINISHED / worker.model)
        return "trained" in answer

    def _begun_steps(self, model: str) -> int | None:
        """Of an earlier call that the end of its time interrupted."""
        path = self._options.work / model / "trial.json"
        return BenchTrial.from_json(path.read_text()).protocol.steps if path.exists() else None

    def _trial(self, model: str, steps: int | None) -> BenchTrial:
        protocol = (
            self._protocol
            if steps in (None, self._protocol.steps)
            else with_steps(self._protocol, steps or 0)
        )
        return BenchTrial(
            model=model,
            knobs=self._knobs,
            model_hash=None,
            protocol=protocol,
            protocol_hash=protocol.hash,
            seed=protocol.seed,
            data=self._identity,
            device=self._options.device,
            batch_size=protocol.batch_size or 1,
        )

    def _note(self, what: str, **facts: Any) -> None:
        line = {"what": what, "at_seconds": round(time.monotonic() - self._began, 1), **facts}
        append_line(self._options.out / "session.jsonl", line)
        print(json.dumps(line), flush=True)


def keep(folder: Path, out: Path) -> None:
    """A trial's folder as vramcast reads it, without what is only needed to go on."""
    run = TrainedRun.from_json((folder / "result.json").read_text())
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "trial.json", out / "trial.json")
    shorter = replace(run, step_seconds=[round(seconds, 6) for seconds in run.step_seconds])
    write_atomically(out / "result.json", shorter.to_json() + "\n")


def keep_unfinished(folder: Path, out: Path) -> None:
    """What was measured is not lost, but is no result either."""
    for name in ("trial.json", "steps.jsonl"):
        if (folder / name).exists():
            out.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / name, out / name)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("knobs", nargs="*", metavar="knob=value")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=570.0, help="for everything")
    parser.add_argument("--row-seconds", type=float, default=1e9, help="for one model at most")
    parser.add_argument(
        "--time-seconds",
        type=float,
        default=60.0,
        help="for finding out how fast one model is at most",
    )
    parser.add_argument("--models", nargs="*", choices=sorted(BY_MODEL), metavar="MODEL")
    parser.add_argument("--steps", type=int, help="this many, whatever they take")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "vramcast-bench")
    parser.add_argument("--data")
    parser.add_argument("--protocol", default="standard-1")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    return Session(parser.parse_args(arguments)).run()


if __name__ == "__main__":
    sys.exit(main())
