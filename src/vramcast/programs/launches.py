"""Programs that start another one, as launchers do: the other program is run here, in their place.

So `axolotl train` leads to the training program, with the arguments and the environment that it
would have got.
"""

import contextlib
import multiprocessing.process
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

import torch.multiprocessing  # noqa: F401  what is patched

from vramcast.errors import VramcastError
from vramcast.processes.lifetime import is_task
from vramcast.programs.after_import import after_import
from vramcast.programs.running import run_as_main
from vramcast.programs.saving import replace_everywhere
from vramcast.programs.watching import Watcher, Wrap, replaced
from vramcast.workload.launch_line import Program
from vramcast.workload.launchers import read_line

LAUNCHER = re.compile(r"python[\d.]*t?|torchrun|accelerate(-launch)?|deepspeed|.*\.py")
SHELL_OPERATORS = frozenset("|&;<>$`")
# Modules for `python -m` that are tools and do not train.
TOOLS = ("pip", "venv", "ensurepip")
SPAWN = "torch.multiprocessing.spawn"
# A process that talks to its parent must run beside it.
TALKING = tuple(f"multiprocessing.{name}" for name in ("queues", "connection", "synchronize"))
# Returns the program as it is to be run when this one starts it.
Check = Callable[[Program], Program]


class _Launches:
    def __init__(self, watcher: Watcher, check: Check) -> None:
        self._watcher, self._check = watcher, check
        self._has_child_trained = False

    def understood(self, words: Sequence[str], environment: Mapping[str, str]) -> Program | None:
        """The program that this line starts, if it may be the training. None otherwise."""
        if (
            not self._may_train()
            or not words
            or not LAUNCHER.fullmatch(os.path.basename(words[0]))
            # another process of the same training
            or environment.get("LOCAL_RANK", "0") != os.environ.get("LOCAL_RANK", "0")
        ):
            return None
        try:
            program = read_line(words)
        except VramcastError:
            return None
        is_tool = program.is_module and program.target in TOOLS
        return None if is_tool or program.interpreter is not None else program

    def run(
        self,
        program: Program,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
    ) -> int:
        program = self._check(program)
        before = dict(os.environ), os.getcwd(), sys.argv[:], sys.path[:], sys.modules["__main__"]
        wanted = {**(before[0] if environment is None else environment), **program.environment}
        os.environ.clear()
        os.environ.update(wanted)
        os.chdir(folder or ".")
        try:
            run_as_main(program)
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            os.environ.clear()
            os.environ.update(before[0])
            os.chdir(before[1])
            sys.argv[:], sys.path[:] = before[2], before[3]
            sys.modules["__main__"] = before[4]
        return 0

    def _may_train(self) -> bool:
        """Whether a process started now, in this thread, may be the training."""
        is_main = threading.current_thread() is threading.main_thread()
        return is_task() and is_main and not self._watcher.num_steps

    def child(self, process: Any) -> bool:
        """Runs a multiprocessing process's function here. False where it must be started as a
        process."""
        method = process._start_method or multiprocessing.get_start_method()
        given = [*process._args, *process._kwargs.values()]
        if process.daemon or method == "fork" or not (self._may_train() or self._has_child_trained):
            return False
        if any(base.__module__ in TALKING for one in given for base in type(one).__mro__):
            return False
        if not self._has_child_trained:  # otherwise it is another process of the same training
            with contextlib.suppress(SystemExit):
                process.run()
        self._has_child_trained = self._watcher.num_backwards > 0
        return True

    def spawned(self, function: Callable[..., Any], arguments: Any, num_processes: int) -> None:
        """Calls the function for one process after the other, until one has trained."""
        num_backwards = self._watcher.num_backwards
        self._check(Program("", world_size=num_processes))
        first = int(os.environ.get("LOCAL_RANK", "0"))
        for index in range(first, num_processes):
            function(index, *arguments)
            if self._watcher.num_backwards > num_backwards:
                return


@contextmanager
def following_launches(watcher: Watcher, check: Check) -> Iterator[None]:
    launches = _Launches(watcher, check)
    with ExitStack() as stack:
        stack.enter_context(replaced(subprocess.Popen, "__init__", _popen(launches)))
        for name in ("execv", "execve"):
            stack.enter_context(replaced(os, name, _exec(launches)))
        spawning = sys.modules[SPAWN]
        starting = _start_processes(launches)
        one = multiprocessing.process.BaseProcess
        stack.enter_context(replaced(one, "start", _start(launches, watcher)))
        stack.enter_context(_everywhere(spawning.start_processes, starting))
        stack.enter_context(
            after_import(["torch.distributed.run"], lambda _: _patch_torchrun(launches))
        )
        yield


@contextmanager
def _everywhere(original: Any, replacement: Any) -> Iterator[None]:
    replace_everywhere(original, replacement)
    try:
        yield
    finally:
        replace_everywhere(replacement, original)


def _popen(launches: _Launches) -> Wrap:
    def wrap(init: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, args: Any, *more: Any, **options: Any) -> None:
            environment = options.get("env") or os.environ
            # a program that is started as a tool has its output read, or has other pipes
            is_tool = more or any(
                options.get(name) for name in ("stdin", "stdout", "pass_fds", "executable")
            )
            words = [] if is_tool else _words(args)
            program = launches.understood(words, environment)
            if program is None:
                init(self, args, *more, **options)
                return
            self.args, self.pid, self.encoding, self.errors = args, os.getpid(), None, None
            self.stdin = self.stdout = self.stderr = None
            self.text_mode, self._child_created = False, False
            self._communication_started, self._input = False, None
            self._waitpid_lock, self._sigint_wait_secs = threading.Lock(), 0
            self.returncode = launches.run(program, options.get("env"), options.get("cwd"))

        return __init__

    return wrap


def _words(args: Any) -> list[str]:
    if isinstance(args, str):
        if SHELL_OPERATORS.intersection(args):
            return []
        with contextlib.suppress(ValueError):
            return shlex.split(args)
        return []
    if not isinstance(args, list | tuple):
        return []
    return [os.fsdecode(word) for word in args if isinstance(word, str | bytes | os.PathLike)]


def _exec(launches: _Launches) -> Wrap:
    def wrap(replace_process: Callable[..., Any]) -> Callable[..., Any]:
        def exec_here(path: Any, args: Any, env: Any = None) -> NoReturn:
            words = [os.fsdecode(path), *_words(args)[1:]]
            program = launches.understood(words, os.environ if env is None else env)
            if program is not None:
                raise SystemExit(launches.run(program, env))
            replace_process(path, args, *([] if env is None else [env]))
            raise AssertionError  # it does not return

        return exec_here

    return wrap


def _start_processes(launches: _Launches) -> Callable[..., Any]:
    def start_processes(
        fn: Callable[..., Any], args: Any = (), nprocs: int = 1, *_: Any, **__: Any
    ) -> Any:
        launches.spawned(fn, args, nprocs)
        return _Joined()

    return start_processes


def _start(launches: _Launches, watcher: Watcher) -> Wrap:
    def wrap(start: Callable[..., Any]) -> Callable[..., Any]:
        def start_here(self: Any) -> None:
            if launches.child(self):
                self._popen = _Joined()
                return
            watcher.has_started_others = watcher.has_started_others or not self.daemon
            start(self)

        return start_here

    return wrap


class _Joined:
    processes: tuple[Any, ...] = ()
    returncode = 0
    pid = sentinel = -1

    def poll(self, *_: Any, **__: Any) -> int:
        return 0

    wait = poll

    def close(self) -> None:
        pass

    def join(self, *_: Any, **__: Any) -> bool:
        return True


def _patch_torchrun(launches: _Launches) -> None:
    module: Any = sys.modules["torch.distributed.run"]

    def run(args: Any) -> None:
        counts = [f"--nproc-per-node={args.nproc_per_node}", f"--nnodes={args.nnodes}"]
        script = ["-m"] * bool(args.module) + [args.training_script]
        code = launches.run(read_line(["torchrun", *counts, *script, *args.training_script_args]))
        if code:
            raise SystemExit(code)

    replace_everywhere(module.run, run)
