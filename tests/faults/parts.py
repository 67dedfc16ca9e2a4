"""The five attacks, each on the sandbox and with a seed."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable

import attempts
import disks
import invocations
import kills
import many
import mutations
import server_kills
import workloads
from figures import Part
from sandbox import Sandbox

Attack = Callable[[Sandbox, Part, int, bool], None]
# One in so many goes through a fresh Python, as a user's does.
REAL_EVERY = 25


def wrong_invocations(place: Sandbox, part: Part, seed: int, sample: bool) -> None:
    cases = list(invocations.wrong_invocations(seed, 34 if sample else 1100))
    hostile = list(invocations.hostile_invocations(hostile_builds()))
    if sample:
        hostile = random.Random(seed).sample(hostile, 4)
    for number, arguments in part.left(list(enumerate([*cases, *hostile]))):
        is_real = not sample and number % REAL_EVERY == 0 and can_be_typed(arguments)
        before = place.state()
        ending = place.run(arguments, real=is_real)
        if ending.exit_code == 2:
            _changed(place, before, ending)
        if left := [name for name in place.temporary() if name.split("/")[0] not in arguments]:
            ending.faults["files left"] = ", ".join(left)
        if broken := place.half_written():
            ending.faults["half-written or lost records"] = ", ".join(broken)
        case = " ".join(word if len(word) < 200 else f"{word[:50]}..." for word in arguments)
        part.note(arguments[0], case, ending.faults, ending.exit_code)
        if place.state() != before:
            place.renew()


def edited_records(place: Sandbox, part: Part, seed: int, sample: bool) -> None:
    cases = list(mutations.mutations(place.template, seed, 1 if sample else 2))
    # in any order: a run that is stopped has tried some of everything
    random.Random(seed).shuffle(cases)
    if sample:
        cases = cases[:40]
    endings = many.read_mutations(place, cases[part.num_done :])
    for case in part.left(cases):
        ending = next(endings)
        text = f"{case.file}: {case.what}: {case.reader}"
        part.note(case.reader.split()[0], text, ending.faults, ending.exit_code)


def can_be_typed(arguments: list[str]) -> bool:
    """Linux takes at most 128 KiB an argument."""
    return all(len(word) < 1 << 16 for word in arguments)


def _changed(
    place: Sandbox, before: dict[str, tuple[int, int, bytes]], ending: attempts.Ending
) -> None:
    """Wrong usage leaves everything as it was."""
    after = place.state()
    if gone := [name for name in before if after.get(name) != before[name]]:
        ending.faults["half-written or lost records"] = f"changed: {', '.join(gone)}"
    if new := [name for name in after if name not in before]:
        ending.faults["files left"] = ", ".join(new)


def hostile_builds() -> list[str]:
    """The names in the hostile file, without running it."""
    tree = ast.parse(workloads.HOSTILE)
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    tools = names.index("at_once") + 1
    first_build = names.index("waits")
    actions = names[tools:first_build]
    return [
        *[f"{when}_{name}" for name in actions for when in ("build", "step")],
        *names[first_build:],
        "awaits",
        "no_function",
        "loads",
    ]


def writers(sample: bool) -> dict[str, list[str]]:
    names = ("probe over another", "predict", "plan") if sample else disks.WRITERS
    return {name: disks.WRITERS[name] for name in names}


def killed(place: Sandbox, part: Part, seed: int, sample: bool) -> None:
    if sample:
        kills.run_kills(place, part, seed, ["bench"], count=2, kills_each=1)
    else:
        kills.run_kills(place, part, seed, list(kills.COMMANDS), count=360, kills_each=5)


def killed_servers(place: Sandbox, part: Part, seed: int, sample: bool) -> None:
    if not sample:
        server_kills.run_server_kills(place, part, seed, count=40)


def failing_writes(place: Sandbox, part: Part, seed: int, sample: bool) -> None:
    disks.fail_writes(place, part, seed, writers(sample), 1 if sample else None)


def special_files(place: Sandbox, part: Part, seed: int, sample: bool) -> None:
    disks.special_files(place, part, seed, writers(sample), 16 if sample else None)


PARTS: dict[str, Attack] = {
    "invocations": wrong_invocations,
    "records": edited_records,
    "kills": killed,
    "server": killed_servers,
    "writes": failing_writes,
    "files": special_files,
}
