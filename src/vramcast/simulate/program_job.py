"""A workload that is a whole program: each simulation runs it from its beginning, in a fork."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from vramcast.errors import UsageError, WorkloadError
from vramcast.forecast.budget import Budget
from vramcast.processes.ask import TaskFailed
from vramcast.processes.forked import in_fork
from vramcast.records.prediction import PhaseName
from vramcast.simulate.job import Answer, Job
from vramcast.simulate.session import FIRST_ALLOCATION_BYTES, OUT_OF_MEMORY_NOTE, Session
from vramcast.tracing.trace import SimulatedRun
from vramcast.workload import Text, together, user_traceback
from vramcast.workload.knobs import convert_text
from vramcast.workload.launch_line import LaunchLine, Program
from vramcast.workload.launchers import read_line

if TYPE_CHECKING:  # they import torch, which the simulated device must precede
    from vramcast.programs.watching import Watcher
    from vramcast.simulate.recording import Recording

# What a program may still do after enough was seen, such as removing its temporary files.
EXIT_SECONDS = 10.0
SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
FAILED_AFTER_ENOUGH = (
    "the program failed after its training was ended early ({error}): what came after that was "
    "not seen; --whole runs it to its own end"
)
NOT_SEEN = "{what} was not seen: if the program does that, --whole runs it to its own end"


class ProgramJob(Job):
    def __init__(self, request: dict[str, Any], session: Session, budget: Budget) -> None:
        self.request, self.session, self.budget = request, session, budget
        self.workload = request["workload"]
        self.line = LaunchLine(tuple(request["line"]))
        self._given = together(request)
        self.knobs = {
            # typed where it looks like a number: tokens a second are computed from sizes
            name: convert_text(value, Any) if isinstance(value, Text) else value
            for name, value in self._given.items()
        }
        self.function = _cannot_be_called
        self._limits = set(budget.limits())

    def run(self, use: Callable[[SimulatedRun], Answer], **options: Any) -> Answer:
        return self._in_fork(self._given, use, **options)

    def vary(self, knob: str, by: str) -> None:
        self.line.check_has(knob)
        if knob in self._given:
            raise WorkloadError(f"{knob} was given, but it is what {by} moves.", "Leave it out.")

    def _simulated(
        self,
        knobs: dict[str, Any],
        function: Callable[..., Any] | None,
        steps: int,
        locate: bool,
    ) -> SimulatedRun:
        run = self._in_fork(knobs, SimulatedRun.portable, locate=locate)
        self._limits.update(run.remarks)
        return run

    def _in_fork(
        self, knobs: dict[str, Any], use: Callable[[SimulatedRun], Answer], **options: Any
    ) -> Answer:
        program = read_line(self.line.filled({**knobs, **self._given}))
        scratch = Path(tempfile.mkdtemp(prefix="vramcast-program-"))

        def run(deliver: Callable[[Any], NoReturn]) -> Answer:
            return _ProgramRun(self, program, scratch, use, deliver, **options).go()

        try:
            return in_fork(run)
        except TaskFailed as failure:
            raise WorkloadError(
                failure.message,
                "It gave no answer before that. Look at what it printed, and at the host's memory.",
            ) from None
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


class _ProgramRun:
    """One run of the program, in a process of its own."""

    def __init__(
        self,
        job: ProgramJob,
        program: Program,
        scratch: Path,
        use: Callable[[SimulatedRun], Any],
        deliver: Callable[[Any], NoReturn],
        *,
        limited: bool = False,
        locate: bool = True,
        locate_all: bool = False,
    ) -> None:
        self._job, self._program, self._scratch = job, program, scratch
        self._use, self._deliver = use, deliver
        self._limited, self._locate = limited, {"locate": locate, "locate_all": locate_all}
        self._own_pid = os.getpid()
        self._answer: Any = None
        self._has_answer = False
        self._failure = ""

    def go(self) -> Any:
        from vramcast.programs.loaders import ending_early
        from vramcast.programs.running import run_as_main, use_stdin
        from vramcast.programs.saving import not_writing_weights
        from vramcast.programs.trainers import stopping_trainers
        from vramcast.programs.watching import Enough, StopRule, Watcher, watching

        session = self._job.session
        use_stdin(self._job.request.get("stdin"))
        os.environ.update(self._program.environment)
        os.environ.setdefault("WANDB_MODE", "disabled")
        with ExitStack() as stack:
            recording = stack.enter_context(session.recording(**self._locate))
            if self._limited:
                stack.enter_context(session.gpu.memory.limited())
            rule = StopRule(self._job.request.get("steps"), self._job.request.get("whole", False))
            watcher = Watcher(session.device, rule, lambda phase: recording.begin(phase))
            watcher.on_enough = lambda: self._stop(recording, watcher)
            stack.enter_context(watching(watcher))
            stack.enter_context(ending_early(watcher))
            stack.enter_context(stopping_trainers(watcher))
            saved = stack.enter_context(not_writing_weights(watcher, self._scratch))
            self._saved = saved
            self._catch_os_exit(recording, watcher)
            try:
                run_as_main(self._program)
            except Enough:
                pass
            except SystemExit as end:
                self._check_exit(end.code, watcher)
            except WorkloadError:
                raise
            except BaseException as error:
                self._check_failure(error, watcher)
            self._seen(recording, watcher)
            saved.remove_stand_ins()
            _run_exit_functions()
            self._deliver(self._answer)

    def _seen(self, recording: Recording, watcher: Watcher) -> None:
        """Makes the answer of what was seen until now, before anything of it is undone."""
        if self._has_answer:
            return
        self._check_has_trained(watcher)
        gpu = self._job.session.gpu
        if gpu.memory.num_out_of_memory:
            gpu.note(OUT_OF_MEMORY_NOTE)
        remarks = [*_unseen(watcher), self._failure, self._saved.note(), *sorted(watcher.notes)]
        settings = next((os.environ[name] for name in SETTINGS if os.environ.get(name)), None)
        if self._job.request.get("allocator_given"):
            settings = None
        run = replace(
            recording.describe(),
            allocator_settings=_readable(settings),
            remarks=[*filter(None, remarks)],
            phase_counts={
                PhaseName.TRAIN: watcher.num_steps,
                PhaseName.EVALUATE: watcher.num_evaluation_forwards,
                PhaseName.SAVE: watcher.num_saves,
            },
        )
        self._answer = self._use(run)
        self._has_answer = True
        # A program that catches everything, or whose threads do not end, is ended.
        ending = threading.Timer(EXIT_SECONDS, self._deliver_at_once)
        ending.daemon = True
        ending.start()

    def _stop(self, recording: Recording, watcher: Watcher) -> None:
        if self._has_answer:
            # It has caught what was to end it.
            self._deliver_at_once()
        self._seen(recording, watcher)

    def _deliver_at_once(self) -> None:
        with contextlib.suppress(Exception):
            self._saved.remove_stand_ins()
        self._deliver(self._answer)

    def _catch_os_exit(self, recording: Recording, watcher: Watcher) -> None:
        leave = os._exit

        def exit_at_once(code: int) -> NoReturn:
            if (
                os.getpid() == self._own_pid
                and threading.current_thread() is threading.main_thread()
            ):
                os._exit = leave
                self._check_exit(code, watcher)
                self._seen(recording, watcher)
                self._deliver_at_once()
            leave(code)

        os._exit = exit_at_once  # type: ignore[assignment]

    def _check_exit(self, code: Any, watcher: Watcher) -> None:
        """A program that ends itself after it has trained has done what it does."""
        if code in (None, 0) or self._has_answer:
            return
        shown = f"exit code {code}" if isinstance(code, int) else f"the message: {code}"
        if watcher.is_enough:
            self._failure = FAILED_AFTER_ENOUGH.format(error=shown)
            return
        raise WorkloadError(
            f"The program ended itself with {shown}, {_how_far(watcher)}.",
            "What it printed says why; vramcast runs the line as it is.",
        )

    def _check_failure(self, error: BaseException, watcher: Watcher) -> None:
        if self._has_answer:
            return
        if watcher.is_enough and watcher.is_winding_down:
            text = f"{type(error).__name__}: {error}"[:200]
            self._failure = FAILED_AFTER_ENOUGH.format(error=text)
            return
        shown = user_traceback(error)
        if isinstance(error, KeyboardInterrupt):
            raise error
        raise WorkloadError(
            f"The program failed {_how_far(watcher)}.\n{shown}".rstrip(), _advice_for(error)
        )

    def _check_has_trained(self, watcher: Watcher) -> None:
        how = f"python {self._program.target}"
        if self._job.session.device.peak_allocated_bytes() <= FIRST_ALLOCATION_BYTES:
            raise WorkloadError(
                f"The program never used the GPU ({how}).",
                "Does it take an option for the device, such as --device cuda? "
                "torch.cuda.is_available() is true in it.",
            )
        if watcher.num_steps == 0:
            seen = f"{watcher.num_backwards} backward passes and no optimizer step"
            raise WorkloadError(
                f"The program ended and no training step was seen in it: {seen}.",
                "Does it train with these arguments? A program that starts others, for example "
                "with subprocess, is named by the line that it starts.",
            )


def _cannot_be_called(**_: Any) -> NoReturn:
    raise UsageError(
        "Gradient accumulation of a launch line is not simulated.",
        "Leave out --tokens-per-step, or give the line with the accumulation steps it is to use.",
    )


def _readable(settings: str | None) -> str | None:
    from vramcast.allocator.settings import AllocatorSettings

    try:
        AllocatorSettings.parse(settings or "")
    except UsageError:
        return None
    return settings


def _how_far(watcher: Watcher) -> str:
    if watcher.num_steps:
        return f"after {watcher.num_steps} training steps"
    if watcher.num_backwards:
        return f"after {watcher.num_backwards} backward passes, before its first optimizer step"
    return "before it trained"


def _unseen(watcher: Watcher) -> list[str]:
    if watcher.rule.whole:
        return []
    return [
        NOT_SEEN.format(what=what)
        for what, count in (
            ("evaluation", watcher.num_evaluation_forwards),
            ("saving", watcher.num_saves),
        )
        if not count
    ]


def _advice_for(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return (
            f"Install what provides {error.name.partition('.')[0]!r} "
            f"in the environment of {sys.executable}."
        )
    if isinstance(error, EOFError):
        return "It asks for input: give it by a pipe, or with an option of the program."
    return (
        "Innermost last. If the program does run on a real GPU, it is a fault of the simulated "
        "one: docs/limits.md has what is known."
    )


def _run_exit_functions() -> None:
    """What the program wanted to do at its end, such as removing temporary folders."""
    with contextlib.suppress(BaseException):
        gc.collect()
        atexit._run_exitfuncs()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
