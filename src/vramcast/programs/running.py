"""Runs a program as Python would: its arguments, its folder, its name `__main__`."""

import builtins
import contextlib
import io
import os
import runpy
import sys
import termios
from types import CodeType, ModuleType

from vramcast.errors import WorkloadError
from vramcast.workload.launch_line import Program


def run_as_main(program: Program) -> None:
    sys.argv[:] = program.argv
    if program.is_module:
        _search_first(os.getcwd())
        _check_module(program.target)
        runpy.run_module(program.target, run_name="__main__", alter_sys=True)
        return
    path = os.path.realpath(program.target)
    _search_first(os.path.dirname(path))
    code = _compiled(program.target)
    main = ModuleType("__main__")
    main.__dict__.update(__file__=program.target, __builtins__=builtins, __cached__=None)
    # pickle, dataclasses and multiprocessing look up this module
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _search_first(folder: str) -> None:
    """Puts the program's folder before all others, and then those of PYTHONPATH, which the launch
    line may have set after this interpreter has read it."""
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    others = dict.fromkeys(map(os.path.abspath, given))
    sys.path[:0] = [folder, *(other for other in others if other not in sys.path)]


def _compiled(path: str) -> CodeType:
    try:
        with io.open_code(os.path.abspath(path)) as file:
            source = file.read()
        return compile(source, path, "exec")
    except (SyntaxError, ValueError) as problem:
        line = getattr(problem, "lineno", None)
        where, advice = f"{path}:{line}", "Correct that line."
        if line is None:
            where, advice = path, "Name the program's file in Python."
        what = problem.msg if isinstance(problem, SyntaxError) else str(problem)
        raise WorkloadError(f"{where} is not valid Python: {what}", advice) from None
    except OSError as problem:
        raise WorkloadError(
            f"{path} cannot be read: {problem.strerror}.", "Make it readable."
        ) from None


def _check_module(name: str) -> None:
    import importlib.util

    spec = None
    with contextlib.suppress(ModuleNotFoundError, ValueError):
        spec = importlib.util.find_spec(name)
    if spec is None:
        raise WorkloadError(
            f"There is no module {name!r}, which `python -m {name}` would run.",
            f"Start from the folder that has it (now {os.getcwd()}), "
            "or install the package that has it.",
        )


def use_stdin(path: str | None) -> None:
    """Gives the program the command's own stdin. A terminal is not read: the program gets another
    one, which it may ask for its size, and which is at its end."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY) if path else _empty_terminal()
        os.dup2(descriptor, 0)
        os.close(descriptor)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115


def _empty_terminal() -> int:
    try:
        _, descriptor = os.openpty()  # the other end stays open as long as the process lives
    except OSError:
        return os.open(os.devnull, os.O_RDONLY)
    modes = termios.tcgetattr(descriptor)
    modes[3] &= ~termios.ICANON
    modes[6][termios.VMIN] = modes[6][termios.VTIME] = 0  # nothing typed is the end
    termios.tcsetattr(descriptor, termios.TCSANOW, modes)
    termios.tcsetwinsize(descriptor, (24, 80))
    ask = os.get_terminal_size
    os.get_terminal_size = lambda *_: ask(0)  # what it prints goes to vramcast
    return descriptor
