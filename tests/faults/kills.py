"""Commands that are killed at random moments, or whose workers are, and started again.

A chain is one run folder: the same command is killed there several times, each time at another
moment, and then left alone. It must end as if nothing had happened.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import attempts
import sandbox
from figures import Part
from sandbox import Sandbox

STEPS = "--steps 40 --checkpoint-seconds 0.01"
COMMANDS: dict[str, list[str]] = {
    "probe": [*sandbox.PROBE[:-1], "new", "--force"],
    "bench": [*sandbox.BENCH[:-1], "new", *STEPS.split()],
    "tune": [*sandbox.TUNE[:-1], "new"],
    "max-batch": sandbox.words("max-batch work.py:good --memory 1GiB --max 8"),
    "plan": [*sandbox.PLAN[:-1], "new", "--force"],
    "predict": sandbox.words("predict work.py:good --batch-sizes 1-8 --json"),
    "advise": sandbox.words("advise work.py:good --memory 1GiB --json"),
}
# Others have their workers from servers that stay: a start of torch takes most of the time.
OWN_WORKERS_EVERY = 6
PARENT_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


class Killer:
    """Sends a signal to the command, or to one of its processes, at some moment of its work.

    Moments are in processor time of all its processes: the machine may be busy.
    """

    def __init__(self, draw: random.Random, most_ticks: float) -> None:
        self.ticks = draw.uniform(0, most_ticks)
        self.is_worker = draw.random() < 0.4
        self.signal = signal.SIGKILL if self.is_worker else draw.choice(PARENT_SIGNALS)
        self._which = draw.random()
        self.has_hit = False
        self.most_ticks = 0.0

    def __call__(self, pid: int) -> None:
        others = attempts.descendants(os.getpid()) - {pid}
        threading.Thread(target=self._kill, args=(pid, others), daemon=True).start()

    def _kill(self, command: int, others: set[int]) -> None:
        processes = {command}
        while os.path.exists(f"/proc/{command}"):
            processes = attempts.descendants(os.getpid()) - others
            ticks = sum(map(attempts.processor_ticks, processes))
            self.most_ticks = max(self.most_ticks, ticks)
            if ticks >= self.ticks:
                break
            time.sleep(0.003)
        else:
            return  # it has ended: what runs now is the next one
        if target := self._target(command, processes):
            with suppress(ProcessLookupError):
                os.kill(target, self.signal)
                self.has_hit = True

    def _target(self, command: int, processes: set[int]) -> int:
        """0: nobody."""
        if not self.is_worker:
            return command
        workers = sorted(processes - {command})
        return workers[int(self._which * len(workers))] if workers else 0


class Watch(Killer):
    """Only sees how much processor time it takes."""

    def __init__(self) -> None:
        super().__init__(random.Random(0), 0.0)
        self.ticks = math.inf

    def _target(self, command: int, processes: set[int]) -> int:
        return 0


def run_kills(
    place: Sandbox, part: Part, seed: int, names: list[str], *, count: int, kills_each: int
) -> None:
    """Until so many were tried; what is left alone after its kills counts too."""
    known: dict[tuple[str, bool], tuple[float, Any]] = {}
    for number, name in part.left(
        (number, name) for number in itertools.count(1) for name in names
    ):
        if part.tried.total() >= count:
            return
        own_workers = number % OWN_WORKERS_EVERY == 0
        if (name, own_workers) not in known:
            known[name, own_workers] = _undisturbed(place, name, own_workers)
        most_ticks, expected = known[name, own_workers]
        draw = random.Random(f"{seed} {number} {name}")
        killers = [Killer(draw, most_ticks) for _ in range(kills_each)]
        _chain(place, part, name, killers, expected, own_workers)


def _undisturbed(place: Sandbox, name: str, own_workers: bool) -> tuple[float, Any]:
    """The processor time it takes, in ticks, and its answer."""
    place.renew()
    watch = Watch()
    ending = place.run(COMMANDS[name], own_workers=own_workers, disturb=watch)
    assert ending.exit_code in (0, 3), ending.stderr
    return watch.most_ticks, answer_of(place.folder / "new", ending)


def _chain(
    place: Sandbox,
    part: Part,
    name: str,
    killers: list[Killer],
    expected: Any,
    own_workers: bool,
) -> None:
    place.renew()
    for killer in killers:
        kept = finished(place.folder / "new")
        ending = place.run(COMMANDS[name], own_workers=own_workers, disturb=killer)
        was_quicker = not killer.is_worker and ending.exit_code in (0, 3)
        if was_quicker or not killer.has_hit:
            if ending.faults:
                part.note(name, f"{name}: ended before its kill", ending.faults, ending.exit_code)
            break
        _judge_kill(place, killer, ending, kept)
        who = "worker" if killer.is_worker else "command"
        case = f"{name}: {killer.signal.name} to the {who} after {killer.ticks / 100:.2f} s of work"
        part.note(name, case, ending.faults, ending.exit_code)
    ending = place.run(COMMANDS[name], own_workers=own_workers)
    faults = dict(ending.faults)
    if ending.exit_code not in (0, 3):
        faults["half-written or lost records"] = f"cannot go on: {ending.stderr[-800:]}"
    elif answer_of(place.folder / "new", ending) != expected:
        found = answer_of(place.folder / "new", ending)
        faults["half-written or lost records"] = f"{found} and not {expected}"[:1500]
    if left := place.temporary():
        faults["files left"] = ", ".join(left)
    part.note(name, f"{name}: left alone after {len(killers)} kills", faults, ending.exit_code)


def _judge_kill(
    place: Sandbox, killer: Killer, ending: attempts.Ending, kept: dict[str, bytes]
) -> None:
    forgive(killer, ending)
    if broken := place.half_written():
        ending.faults["half-written or lost records"] = ", ".join(broken)
    now = finished(place.folder / "new")
    if lost := [name for name, data in kept.items() if not now.get(name, b"").startswith(data)]:
        ending.faults["half-written or lost records"] = f"lost: {', '.join(lost)}"


def forgive(killer: Killer, ending: attempts.Ending) -> None:
    """Where the command itself was killed, the signal's own end is what was asked for."""
    if killer.has_hit and not killer.is_worker and ending.exit_code is None:
        ending.faults.pop("undocumented exit codes", None)
        if killer.signal != signal.SIGKILL:
            ending.faults["undocumented exit codes"] = f"died of {killer.signal.name}"


def finished(folder: Path) -> dict[str, bytes]:
    """Records that a later command may not lose: trials that ended, lines of a tune."""
    found = {}
    for path in (*folder.glob("*/result.json"), folder / "records.jsonl"):
        if path.exists():
            data = path.read_bytes()
            found[str(path.relative_to(folder))] = data[: data.rfind(b"\n") + 1]
    return {
        name: data
        for name, data in found.items()
        if not name.endswith("result.json") or _has_ended(data)
    }


def _has_ended(data: bytes) -> bool:
    try:
        return json.loads(data)["outcome"] in ("ok", "diverged")
    except (ValueError, KeyError):
        return False


def answer_of(folder: Path, ending: attempts.Ending) -> Any:
    """What must be the same however often it was killed: no times, no measured noise."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*/result.json")):
        found[path.parent.name] = json.loads(path.read_text())["losses"]
    for name, what in ANSWERS.items():
        if (folder / name).exists():
            found[name] = what(json.loads((folder / name).read_text()))
    if ending.stdout.startswith("{"):
        record = json.loads(ending.stdout)
        found["peak"] = record.get("peak_reserved_bytes")
        found["points"] = [point["peak_reserved_bytes"] for point in record.get("points", [])]
        found["alone"] = [change["names"] for change in record.get("alone", [])]
    return found


ANSWERS: dict[str, Callable[[Any], Any]] = {
    "metrics.json": lambda record: (record["outcome"], record["losses"]),
    "plan.json": lambda record: json.dumps(record["gpus"]) if "gpus" in record else None,
    "result.json": lambda record: [row["name"] for row in record.get("rows", [])],
}
