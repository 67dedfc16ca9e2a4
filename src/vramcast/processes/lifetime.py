"""Linux functions that leave no process behind, and the environment of a child process."""

import contextlib
import os
import resource
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
LIMITS = {
    name: getattr(resource, name)
    for name in ("RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE")
    + ("RLIMIT_MEMLOCK", "RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_STACK")
}

_task_pid: int | None = None
_is_command = _adopts = False
_staying: set[int] = set()


def child_environment(**more: str) -> dict[str, str]:
    """The environment of a child, in which it finds the same vramcast, installed or not."""
    path = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    ours = {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "TOKENIZERS_PARALLELISM": "false",
        # torch.cuda.is_available() then asks NVML and does not start CUDA
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
    return {**os.environ, **ours, **more}


def restrictions() -> dict[str, Any]:
    """The umask and limits of this process, for a process that another one forks on its behalf."""
    status = Path("/proc/self/status").read_text()
    umask = next((line for line in status.splitlines() if line.startswith("Umask:")), "Umask: 22")
    limits = {name: resource.getrlimit(number)[0] for name, number in LIMITS.items()}
    return {"umask": int(umask.split()[1], 8), "limits": limits}


def take_on(umask: int, limits: dict[str, int]) -> None:
    os.umask(umask)
    for name, soft in limits.items():
        hard = resource.getrlimit(LIMITS[name])[1]
        # a limit that cannot be raised so far is left as it is
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(LIMITS[name], (soft, hard))


def end_with_the_parent(parent: int) -> None:
    """Lets the kernel kill this process when the thread that started it ends."""
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    # the parent may have died before the kernel was told
    if os.getppid() != parent:
        os._exit(1)


def outlive_the_parent() -> None:
    _prctl(_SET_PARENT_DEATH_SIGNAL, 0)


def begin_task() -> None:
    """Notes that this process runs a task, and no fork of it does."""
    global _task_pid
    _task_pid = os.getpid()


def is_task() -> bool:
    """Whether this process runs the task: user code did not fork it from there."""
    return _task_pid in (None, os.getpid())


def end_if_forked() -> None:
    """Ends this process if user code forked it from the task. Called after user code, before
    anything is written."""
    if not is_task():
        os._exit(1)


def adopt_orphans() -> None:
    """Descendants whose parents die become children of this process, in whatever session they
    are."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def begin_command() -> None:
    """Notes that this process is a command of vramcast: all its children are vramcast's."""
    global _is_command
    _is_command = True


def adopt_orphans_of_this_command() -> None:
    """Adopts orphans only in a command of vramcast: in a user's program they may be the user's
    own."""
    global _adopts
    if _is_command and not _adopts:
        _adopts = True
        adopt_orphans()


def end_orphans_of_this_command() -> None:
    """Ends processes that are left because user code has killed those that watched it."""
    if _adopts:
        end_children(keep=_staying)


def let_stay(pid: int) -> None:
    """Notes a process that was started to outlive this command."""
    _staying.add(pid)


def end_children(keep: Iterable[int] = ()) -> None:
    """Kills and reaps children until none is left: those of a killed child are adopted next."""
    while ending := _children_of_all_threads().difference(keep):
        for pid in ending:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children_of_all_threads() -> set[int]:
    found = ""
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # that thread has ended
            found += file.read_text()
    return set(map(int, found.split()))


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time signal: only the first and the last have names


def ended_by(number: int) -> str:
    how = f"was ended by {signal_name(number)}"
    if number == signal.SIGKILL:
        how += "; the kernel does that when the machine's own memory runs out (see dmesg)"
    return how


def _prctl(option: int, value: int) -> None:
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value)
