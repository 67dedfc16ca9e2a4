"""Disks that fail at every write in turn, and special files in the place of every file."""

from __future__ import annotations

import errno
import os
import random
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import attempts
import mutations
import sandbox
from failing_writes import FailingWrites
from figures import Part
from sandbox import Sandbox

# Commands that write files, each with the words that make it begin again in the same place.
WRITERS: dict[str, list[str]] = {
    "probe": [*sandbox.PROBE[:-1], "new", "--force"],
    "probe over another": [*sandbox.PROBE, "--force"],
    "probe of a configuration": [*sandbox.PROBE[:-1], "new", "--force", "--config", "config.json"],
    "bench": [*sandbox.BENCH[:-1], "new", "--checkpoint-seconds", "0.01"],
    "bench over another": [*sandbox.BENCH, "--force"],
    "tune": [*sandbox.TUNE[:-1], "new"],
    "plan": [*sandbox.PLAN[:-1], "new", "--force"],
    "plan over another": [*sandbox.PLAN, "--force"],
    "predict": sandbox.words("predict work.py:good --gpu h200 --trace new --force"),
    "max-batch": sandbox.words("max-batch work.py:good --memory 1GiB --max 2"),
    "report": sandbox.words("report prediction.json bench -o page.html --figures figures"),
    "report to Markdown": sandbox.words("report tune --format md -o page.md"),
    "calibrate": sandbox.words("calibrate --host"),
    "accuracy": [*sandbox.ACCURACY, "--out", "new", "--force"],
}
# Whether the disk fails once or stays as it is.
# Where there are more, as in checkpoints, each write fails with one of the errors.
MAX_WRITES_FOR_ALL_ERRORS = 40
ERRORS = ((errno.ENOSPC, True), (errno.EIO, False), (errno.EROFS, True))


Writers = dict[str, list[str]]


def fail_writes(
    place: Sandbox, part: Part, seed: int, writers: Writers, most_each: int | None
) -> None:
    """Every write of every command fails once with each error; or some, as the seed says."""
    shim = FailingWrites()
    cases = [
        case
        for name, arguments in writers.items()
        for case in _failures(
            place, shim, name, arguments, random.Random(f"{seed} {name}"), most_each
        )
    ]
    # in any order: a run that is stopped has tried some of everything
    random.Random(seed).shuffle(cases)
    for name, files, number, error, stays in part.left(cases):
        place.renew()
        shim.arm(place.folder, number, error, stays)
        ending = place.run(writers[name])
        shim.disarm()
        _judge_writes(place, ending, files, is_whole=bool(shim.failed))
        case = f"{name}: {errno.errorcode[error]} at write {number}, {shim.failed}"
        _again(place, writers[name], ending)
        part.note(writers[name][0], case, ending.faults, ending.exit_code)


def _failures(
    place: Sandbox,
    shim: FailingWrites,
    name: str,
    arguments: list[str],
    draw: random.Random,
    most: int | None,
) -> Iterator[tuple[str, set[str], int, int, bool]]:
    """The writes of a command, each with the files that it makes and an error."""
    place.renew()
    shim.arm(place.folder)
    ending = place.run(arguments)
    num_writes = shim.disarm()
    assert ending.exit_code in (0, 3), ending.stderr
    files = set(place.state())
    numbers = range(1, num_writes + 1)
    cases = [(number, *error) for number in numbers for error in ERRORS]
    if num_writes > MAX_WRITES_FOR_ALL_ERRORS:
        cases = [(number, *draw.choice(ERRORS)) for number in numbers]
    if most is not None:
        cases = draw.sample(cases, min(most, len(cases)))
    yield from ((name, files, *case) for case in cases)


def _judge_writes(place: Sandbox, ending: attempts.Ending, files: set[str], is_whole: bool) -> None:
    if broken := place.half_written():
        ending.faults["half-written or lost records"] = ", ".join(broken)
    if is_whole and ending.exit_code in (0, 3) and (lost := files - set(place.state())):
        ending.faults["half-written or lost records"] = f"done, without {', '.join(lost)}"


def _again(place: Sandbox, arguments: list[str], ending: attempts.Ending) -> None:
    """When the disk has room again, the same command works and leaves nothing but its files."""
    again = place.run(arguments)
    if again.exit_code not in (0, 3) or again.faults:
        what = f"cannot begin again: {again.exit_code} {again.stderr[-500:]} {again.faults}"
        ending.faults["half-written or lost records"] = what
    elif left := place.temporary():
        ending.faults["files left"] = f"after the next command: {', '.join(left)}"


def special_files(
    place: Sandbox, part: Part, seed: int, writers: Writers, count: int | None
) -> None:
    cases = list(_special_cases(place, writers))
    if count is not None:
        cases = random.Random(seed).sample(cases, count)
    random.Random(seed).shuffle(cases)
    for arguments, name, kind in part.left(cases):
        place.renew()
        path = place.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(path)
        KINDS[kind](path)
        ending = place.run(arguments)
        if broken := [one for one in place.half_written() if one != name]:
            ending.faults["half-written or lost records"] = ", ".join(broken)
        if left := [one for one in place.temporary() if one != name]:
            ending.faults["files left"] = ", ".join(left)
        part.note(
            arguments[0],
            f"{name} is {kind}: {' '.join(arguments)}",
            ending.faults,
            ending.exit_code,
        )


def _special_cases(place: Sandbox, writers: Writers) -> Iterator[tuple[list[str], str, str]]:
    """Every file that a command reads, and every one that it writes."""
    readers = {
        (mutation.file, mutation.reader) for mutation in mutations.mutations(place.template, 0, 1)
    }
    pairs = [(reader.split(), file) for file, reader in sorted(readers)]
    for arguments in writers.values():
        place.renew()
        before = place.state()
        place.run(arguments)
        after = place.state()
        written = [name for name in after if after[name] != before.get(name)]
        pairs += [(arguments, name) for name in written]
        inputs = [word.partition(":")[0] for word in arguments[1:]]
        pairs += [(arguments, name) for name in inputs if name in before]
        folders = {str(Path(name).parent) for name in written} - {"."}
        pairs += [(arguments, name) for name in sorted(folders)]
    for arguments, name in pairs:
        for kind in KINDS:
            yield arguments, name, kind


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket may be 107 bytes long
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


def _full_folder(path: Path) -> None:
    (path / "something").mkdir(parents=True)


KINDS = {
    "a pipe": lambda path: os.mkfifo(path),
    "a folder": _full_folder,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to /dev/full": lambda path: path.symlink_to("/dev/full"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a socket": _socket,
}
