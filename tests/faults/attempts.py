"""Runs `vramcast ARGUMENTS` in a fork of a process that has imported it, and judges how it ended.

A fork costs milliseconds where a start costs half a second. Workers fork from servers that stay,
unless `own_workers` asks for the command's own. This process adopts every process that a command
leaves behind, in whatever session: none can hide.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import os
import pkgutil
import resource
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import vramcast.__main__
import vramcast.cli.main
from vramcast.benching.workers import IMPORTED_ONCE
from vramcast.probing.manager import WORKERS_IMPORT
from vramcast.processes import lifetime
from vramcast.processes.ask import ForkServer
from vramcast.simulate.runner import ENVIRONMENT, SHARED

# docs/index.md has the list
DOCUMENTED_EXITS = (0, 1, 2, 3, 130, 143)
HANG_SECONDS = 20
WORKERS_ONLY = ("vramcast.integrations", "vramcast.programs", "vramcast.simulate.patches")
HANDLED = (signal.SIGINT, signal.SIGTERM)
# a command that has torch in its workers only needs little
MAX_ADDRESS_BYTES, MAX_WORKER_ADDRESS_BYTES = 4 << 30, 32 << 30
# a killed process is gone when the kernel has cleaned up; the machine may be busy
END_SECONDS = 120.0
MAX_MESSAGE_CHARACTERS = 30_000
TRACEBACK = "Traceback (most recent call last)"
_servers: list[ForkServer] = []


@dataclass
class Ending:
    """How a command ended, and what can be said against it."""

    command: str
    exit_code: int | None  # None: a signal
    stdout: str
    stderr: str
    faults: dict[str, str] = field(default_factory=dict)  # kind: details
    processor_seconds: float = 0.0


@contextmanager
def warm_servers() -> Iterator[None]:
    """Processes that have imported torch, for all commands to come."""
    lifetime.adopt_orphans()
    _import_everything()
    simulating = ForkServer(SHARED, ENVIRONMENT)
    running = ForkServer(["torch", *WORKERS_IMPORT, *IMPORTED_ONCE])
    with simulating, running:
        _servers[:] = [simulating, running]
        for server in _servers:
            server.start()
        yield


def _import_everything() -> None:
    """All that commands import in their own process, which has no torch."""
    sys.modules["torch"] = None  # type: ignore[assignment]
    for module in pkgutil.walk_packages(vramcast.__path__, "vramcast."):
        # what runs only in workers may import slow libraries
        if not module.name.startswith(WORKERS_ONLY):
            with suppress(ImportError):
                importlib.import_module(module.name)
    for name in ("rich.console", "rich.progress", "rich.table", "scipy.optimize", "scipy.special"):
        importlib.import_module(name)
    del sys.modules["torch"]
    # and what typer and rich import when they are used
    for arguments in (["gpus"], ["zoo", "e5", "--params", "5M", "--dim", "x"], ["env", "--x"]):
        sys.argv = ["vramcast", *arguments]
        nowhere = io.StringIO()
        with redirect_stdout(nowhere), redirect_stderr(nowhere), suppress(SystemExit):
            vramcast.cli.main.main()
    gc.collect()
    gc.freeze()


def run(
    arguments: list[str],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    own_workers: bool = False,
    real: bool = False,
    leaves_server: bool = False,
    disturb: Any = None,
) -> Ending:
    """`disturb(pid)` is called when it has started. `real` starts Python anew. `leaves_server`: who
    asks looks for processes that are left."""
    before = descendants(os.getpid())
    outputs = [os.memfd_create(name) for name in ("stdout", "stderr")]
    started = resource.getrusage(resource.RUSAGE_CHILDREN)
    # until the fork is where a command begins: what comes before is not vramcast's
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    pid = os.fork()
    if pid == 0:
        _in_the_fork(
            arguments, folder, {**os.environ, **(environment or {})}, outputs, real, own_workers
        )
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    if disturb is not None:
        disturb(pid)
    status, hang = _wait(pid, before)
    printed = [_read(output) for output in outputs]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = os.waitstatus_to_exitcode(status)
    ending = Ending(
        command=" ".join(arguments),
        exit_code=code if code >= 0 else None,
        stdout=printed[0],
        stderr=printed[1],
        processor_seconds=used.ru_utime + used.ru_stime - started.ru_utime - started.ru_stime,
    )
    judge(ending, code, hang)
    if not leaves_server and (left := end_left_processes(before)):
        ending.faults["orphans"] = ", ".join(left)
    return ending


def _in_the_fork(
    arguments: list[str],
    folder: Path,
    environment: Mapping[str, str],
    outputs: list[int],
    real: bool,
    own_workers: bool,
) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, output in enumerate(outputs, 1):
            os.dup2(output, number)
        has_workers = real or own_workers
        most_bytes = MAX_WORKER_ADDRESS_BYTES if has_workers else MAX_ADDRESS_BYTES
        resource.setrlimit(resource.RLIMIT_CPU, (HANG_SECONDS, HANG_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if real:
            command = [sys.executable, "-m", "vramcast", *arguments]
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
            os.execve(sys.executable, command, environment)
        os.environ.clear()
        os.environ.update(environment)
        code = _call_main(arguments, own_workers)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(code & 0xFF)


def _call_main(arguments: list[str], own_workers: bool) -> int:
    """What Python does when a program ends is done here: the fork must not return."""
    import tempfile

    tempfile.tempdir = None
    if not own_workers:
        use_warm_servers()
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
    sys.argv = ["vramcast", *arguments]
    vramcast.__main__.end_at_signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    code: Any = 0
    try:
        vramcast.__main__.main()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return code


def use_warm_servers() -> None:
    """In a fork: instead of servers of its own."""
    ForkServer.start = _take_a_warm_one  # type: ignore[method-assign]
    ForkServer.close = _leave_it  # type: ignore[method-assign]


def _take_a_warm_one(self: Any) -> None:
    simulates = "CUDA_VISIBLE_DEVICES" in self._environment
    self._link = _servers[0 if simulates else 1]._link


def _leave_it(self: Any) -> None:
    self._link = None


def _wait(pid: int, before: set[int]) -> tuple[int, str]:
    """The exit status, and how it hung: all its processes together did nothing for a while."""
    handle = os.pidfd_open(pid)
    progress, last, hang = -1.0, time.monotonic(), ""
    while not select.select([handle], [], [], 1.0)[0]:
        now = sum(map(processor_ticks, descendants(os.getpid()) - before))
        if now != progress:
            progress, last = now, time.monotonic()
        elif time.monotonic() - last > HANG_SECONDS:
            hang = f"nothing happened for {HANG_SECONDS} s"
            os.kill(pid, signal.SIGKILL)
    os.close(handle)
    return os.waitpid(pid, 0)[1], hang


def judge(ending: Ending, code: int, hang: str = "") -> None:
    printed = ending.stderr + ending.stdout
    if hang or code == -signal.SIGXCPU:
        ending.faults["hangs"] = hang or f"more than {HANG_SECONDS} s of processor time"
    elif code not in DOCUMENTED_EXITS:
        ending.faults["undocumented exit codes"] = f"{code}: {ending.stderr[-500:]}"
    if TRACEBACK in printed:
        ending.faults["tracebacks"] = printed[printed.index(TRACEBACK) :][-1500:]
    strange = {char for char in printed if ord(char) < 32 and char not in "\n\t\r"}
    if strange:
        ending.faults["control characters printed"] = repr(sorted(strange))
    # a value that was given may be repeated
    if len(ending.stderr) > MAX_MESSAGE_CHARACTERS + 2 * len(ending.command):
        ending.faults["messages without an end"] = f"{len(ending.stderr):,} characters"
    if code in (1, 2) and not ending.stderr.strip():
        ending.faults["failures without a message"] = f"exit code {code}"


def _read(descriptor: int) -> str:
    with open(descriptor, "rb") as file:
        file.seek(0)
        return file.read(2_000_000).decode(errors="replace")


def end_left_processes(before: set[int]) -> list[str]:
    """What still runs a while after the command; it is ended."""
    deadline = time.monotonic() + END_SECONDS
    while left := _alive(descendants(os.getpid()) - before):
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    names = [f"{pid} {_command_line(pid)}" for pid in left]
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
    return names


def _alive(pids: set[int]) -> list[int]:
    """Those that have not ended; the ended ones that are ours are reaped."""
    alive = []
    for pid in pids:
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0]:
                continue
        if _stat(pid)[:1] not in ([], ["Z"]):
            alive.append(pid)
    return alive


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    unseen = [pid]
    while unseen:
        folder = Path(f"/proc/{unseen.pop()}/task")
        try:
            tasks = [folder / name for name in os.listdir(folder)]
        except OSError:  # it has ended since it was listed
            continue
        for task in tasks:
            with suppress(OSError):
                children = {int(child) for child in (task / "children").read_text().split()}
                unseen += children - found
                found |= children
    return found


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def processor_ticks(pid: int) -> float:
    """Its own and those of its children that have ended."""
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) if fields else 0


def _command_line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    return "?"
