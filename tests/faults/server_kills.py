"""The server that is kept, and the commands that start, ask and stop it, killed at random moments.

Whatever was killed: the next prediction is right, and after `server stop` nothing is left.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import attempts
import kills
import sandbox
from figures import Part
from sandbox import Sandbox

START, STOP = ["server", "start", "--minutes", "5"], ["server", "stop"]
ASKED = sandbox.words("predict work.py:good --json")
VICTIMS = ("start", "server", "predict", "stop")


class KillsServer(kills.Killer):
    def __call__(self, pid: int) -> None:
        self._server = next(iter(_servers()), 0)
        super().__call__(pid)

    def _target(self, command: int, processes: set[int]) -> int:
        return self._server


def run_server_kills(place: Sandbox, part: Part, seed: int, count: int) -> None:
    place.renew()
    before = attempts.descendants(os.getpid())
    most_ticks = {}
    for name, arguments in {"start": START, "predict": ASKED, "stop": STOP}.items():
        watch = kills.Watch()
        ending = _run(place, arguments, disturb=watch)
        assert ending.exit_code == 0, ending.stderr
        most_ticks[name] = watch.most_ticks
        if name == "predict":
            expected = _answer(ending)
    assert not attempts.end_left_processes(before)
    most_ticks["server"] = most_ticks["predict"]
    for number in part.left(range(count)):
        draw = random.Random(f"{seed} server {number}")
        victim = VICTIMS[number % len(VICTIMS)]
        place.renew()
        _chain(place, part, victim, draw, most_ticks[victim], expected)


def _chain(
    place: Sandbox,
    part: Part,
    victim: str,
    draw: random.Random,
    most_ticks: float,
    expected: object,
) -> None:
    before = attempts.descendants(os.getpid())
    killer = (KillsServer if victim == "server" else kills.Killer)(draw, most_ticks)
    killer.is_worker = False
    faults: dict[str, str] = {}

    def run(name: str, arguments: list[str]) -> attempts.Ending:
        is_hit = name == victim or (name == "predict" and victim == "server")
        ending = _run(place, arguments, disturb=killer if is_hit else None)
        if name == victim:
            kills.forgive(killer, ending)
        faults.update(ending.faults)
        return ending

    run("start", START)
    first = run("predict", ASKED)
    second = run("next predict", ASKED)
    for ending in (second,) if victim == "predict" else (first, second):
        if ending.exit_code != 0 or _answer(ending) != expected:
            faults["half-written or lost records"] = f"{ending.exit_code}: {ending.stderr[-800:]}"
    run("stop", STOP)
    last = run("next stop", STOP)
    if last.exit_code != 0:
        faults["undocumented exit codes"] = f"server stop: {last.exit_code} {last.stderr[-500:]}"
    if left := attempts.end_left_processes(before):
        faults["orphans"] = ", ".join(left)
    if files := place.temporary():
        faults["files left"] = ", ".join(files)
    case = f"server: {killer.signal.name} to {victim} after {killer.ticks / 100:.2f} s of work"
    part.note("server", case, faults, last.exit_code)


def _run(place: Sandbox, arguments: list[str], disturb: object = None) -> attempts.Ending:
    return place.run(arguments, own_workers=True, leaves_server=True, disturb=disturb)


def _answer(ending: attempts.Ending) -> object:
    try:
        found = json.loads(ending.stdout)
    except ValueError:
        return None
    return found["peak_reserved_bytes"], found["peak_allocated_bytes"]


def _servers() -> list[int]:
    found = []
    for pid in sorted(attempts.descendants(os.getpid())):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"kept_server" in line:
            found.append(pid)
    return found
