"""A workload that is a whole program: each simulation runs it from its beginning, in a fork."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from vramcast.allocator.settings import VARIABLES
from vramcast.errors import UsageError, WorkloadError
from vramcast.forecast.budget import Budget
from vramcast.processes.ask import TaskFailed
from vramcast.processes.forked import in_fork
from vramcast.processes.spare import Spare, can_be_forked, fork_spare, sockets
from vramcast.programs.nvidia_smi import put_command
from vramcast.programs.program_run import ProgramRun, counts
from vramcast.programs.scratch import scratch_folder
from vramcast.records.phases import PhaseName
from vramcast.simulate.job import Answer, Job
from vramcast.simulate.session import (
    OUT_OF_MEMORY_NOTE,
    PROGRAM_SEED,
    Session,
)
from vramcast.tracing.trace import SimulatedRun
from vramcast.workload import together
from vramcast.workload.launch_line import LaunchLine, Program, typed_knobs
from vramcast.workload.launchers import read_line
from vramcast.workload.world import with_rank

if TYPE_CHECKING:  # it imports torch, which the simulated device must precede
    from vramcast.programs.settling import Memory

USED_ANOTHER_GPU = (
    "the program uses other GPUs than cuda:0: one is simulated, and the answer is what it puts on "
    "all of them together"
)
# in processor seconds: a longer program is not run a second time to replace guesses
MOST_SECONDS_TO_REPEAT = 20
# Twice what may be held (computing.h): all but scratch is, so that with more the run is in vain,
# and its imports alone take seconds.
MOST_COMPUTED_BYTES = 1 << 30


@dataclass
class _Seen:
    answer: Any
    # a value that was not computed decided what the program did, and it may run again with all
    # values computed
    was_guessed: bool


class ProgramJob(Job):
    def __init__(self, request: dict[str, Any], session: Session, budget: Budget) -> None:
        self.request, self.session, self.budget = request, session, budget
        self.workload = request["workload"]
        self.line = LaunchLine(tuple(request["line"]))
        self._given = together(request)
        self.knobs = typed_knobs(self._given)
        self.function = _cannot_be_called
        self._limits, self._allocator_settings = set(budget.limits()), budget.settings_text
        self._has_printed = set[str]()

    def run(self, use: Callable[[SimulatedRun], Answer], **options: Any) -> Answer:
        return self._in_fork(self._given, use, may_compute=True, **options)

    def vary(self, knob: str, by: str) -> None:
        self.line.check_has(knob)
        if knob in self._given:
            raise WorkloadError(f"{knob} was given, but {by} changes it.", "Leave it out.")

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
        self,
        knobs: dict[str, Any],
        use: Callable[[SimulatedRun], Answer],
        may_compute: bool = False,
        **options: Any,
    ) -> Answer:
        """Runs the program in a fork. Where a guess decided what it did, it is run again with all
        values computed: from where it first used the GPU, or else here from its beginning. At sizes
        that the user did not choose, that happens only where it failed."""
        program = read_line(self.line.filled({**knobs, **self._given}))
        variables = with_rank(program.environment, self.rank_variables)
        program = replace(program, environment=variables)
        seen = self._seen(program, use, has_spare=may_compute, **options)
        failure = seen.answer if isinstance(seen.answer, WorkloadError) else None
        if seen.was_guessed and (failure or may_compute):
            with suppress(WorkloadError):
                return self._seen(program, use, computes=True, **options).answer
        if failure:
            raise failure
        return seen.answer

    def _seen(
        self, program: Program, use: Callable[[SimulatedRun], Answer], **options: Any
    ) -> _Seen:
        is_repeated = repr(program) in self._has_printed
        self._has_printed.add(repr(program))
        with scratch_folder() as scratch:

            def run(deliver: Callable[[Any], NoReturn]) -> _Seen:
                if is_repeated:
                    _print_nothing()
                return _SimulatedProgram(self, program, scratch, use, deliver, **options).go()

            try:
                return in_fork(run)
            except TaskFailed as failure:
                raise WorkloadError(
                    failure.message,
                    "Look at what it printed, for os._exit in a thread, and at the host's memory.",
                ) from None


def _show_visible_gpus(given: str | None, program: Program) -> None:
    """The program finds the variable as its user has set it, or not. CUDA itself, if a library
    starts it, sees no GPU, because it asks the process and not Python."""
    name, variables = "CUDA_VISIBLE_DEVICES", cast(Any, os.environ)
    if name in program.environment:
        return
    variables._data.pop(variables.encodekey(name), None)
    if given is not None:
        variables._data[variables.encodekey(name)] = variables.encodevalue(given)


def _print_nothing() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


class _SimulatedProgram(ProgramRun):
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
        computes: bool = False,
        has_spare: bool = False,
    ) -> None:
        request = job.request
        super().__init__(
            program,
            scratch,
            steps=request.get("steps"),
            whole=request.get("whole", False),
            stdin=request.get("stdin"),
        )
        self._job, self._use, self._deliver = job, use, deliver
        self._limited, self._locate = limited, {"locate": locate, "locate_all": locate_all}
        self._computes, self._answer = computes, _Seen(None, False)
        # waits where the program first uses the GPU, for the run with all values computed
        self._spare: Spare | None = None
        self._had_spare = self._is_answered = False
        self._has_spare = has_spare and not limited and job.can_be_computed()
        self._sockets_before = sockets()
        self._folders_before: frozenset[str] = frozenset()
        # the allocator's, as the environment has them when CUDA starts
        self._settings: str | None = None

    @contextmanager
    def around(self) -> Iterator[Memory]:
        session = self._job.session
        from vramcast.simulate.same_passes import SamePasses

        _show_visible_gpus(self._job.request["visible_gpus"], self.program)
        with ExitStack() as stack:
            recording = session.recording(**self._locate, seed=PROGRAM_SEED)
            self._recording = stack.enter_context(recording)
            self._passes = SamePasses(
                session.device, lambda note: self.watcher.notes.add(note), session.gpu.reads
            )
            stack.enter_context(self._passes.repeating())
            if self._limited:
                stack.enter_context(session.gpu.memory.limited())
            if self._has_spare:
                stack.enter_context(session.device.before_first_allocation(self._keep_spare))
            stack.enter_context(session.gpu.computing(self._computes))
            put_command(self._scratch / "bin", session.gpu.facts())
            yield session.device

    def _keep_spare(self) -> None:
        if not can_be_forked(self._sockets_before):
            return
        self._folders_before = self._saved.made_folders()
        self._spare = fork_spare()
        self._had_spare = self._spare is not None
        if not self._had_spare:
            _print_nothing()
            self._computes = True
            self._job.session.gpu.begin_values(True)

    def _computed(self) -> _Seen | None:
        """What the spare sees. None where there is none, or it fails."""
        if self._spare is None:
            return None
        spare, self._spare = self._spare, None
        self._saved.remove_stand_ins(but=self._folders_before)
        with suppress(WorkloadError, TaskFailed):
            seen: _Seen = spare.result()
            return seen
        return None

    def evaluate(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self._whole:
            return call(*arguments, **options)
        return self._passes.run(call, *arguments, **options)

    def begin(self, phase: PhaseName) -> None:
        if self._settings is None:
            found = (os.environ[name] for name in VARIABLES if os.environ.get(name))
            self._settings = next(found, "")
        self._recording.begin(phase)
        if self.watcher.num_steps and self._spare and not self._saved.names:
            self._leave_to_spare()

    def _leave_to_spare(self) -> None:
        """Ends this run where it is already known that its answer will be that of the run with all
        values computed. Where that one fails, this one goes on."""
        if not (self._job.session.gpu.has_guessed_sizes and self._is_short()):
            return
        if self._was_guessed() and (seen := self._computed()):
            self._answer, self._is_answered = seen, True
            self.watcher.stop()

    def has_used_gpu(self) -> bool:
        return self._job.session.device.num("allocations") > 1  # the session makes the first

    def launched(self, program: Program) -> Program:
        count = program.world_size
        if count > 1 and "world" not in self._job.request:
            self.watcher.notes.add(
                f"the program started {count} processes, of which the first was simulated: "
                f"--world-size {count} simulates the last one too"
            )
        variables = with_rank(program.environment, self._job.rank_variables)
        return replace(program, environment=variables)

    def describe(self, remarks: list[str]) -> None:
        gpu = self._job.session.gpu
        self._job.session.check_all_was_computed()
        if self._is_answered:
            return
        if gpu.memory.num_out_of_memory:
            gpu.note(OUT_OF_MEMORY_NOTE)
        # a process of several may call its GPU by its rank
        own = int(self._job.rank_variables.get("RANK", 0)) % max(gpu.num_devices, 1)
        if gpu.device.library.vramcast_used_gpus() & ~(1 << min(own, 30)):
            gpu.note(USED_ANOTHER_GPU)
        limits = self.watcher.limits()
        for limit in limits:
            gpu.note(limit)
        # most programs only print or compare the values that they read
        has_sizes = bool(limits) or gpu.has_guessed_sizes
        was_guessed = self._is_short() and has_sizes and self._was_guessed()
        if was_guessed and (seen := self._computed()):
            self._answer = seen
            return
        settings = None if self._job.request.get("allocator_given") else self._settings
        run = replace(
            self._recording.describe(),
            allocator_settings=_readable(settings or None),
            remarks=remarks,
            phase_counts=counts(self.watcher),
        )
        self._answer = _Seen(self._use(run), was_guessed and not self._had_spare)

    def failed(self, what: str, advice: str, error: BaseException | None = None) -> NoReturn:
        try:
            super().failed(what, advice, error)
        except WorkloadError as told:
            if self._was_guessed():
                self._deliver(self._computed() or _Seen(told, not self._had_spare))
            raise

    def _was_guessed(self) -> bool:
        """Whether a guess decided what the program did, and the program is small enough to be
        computed."""
        session = self._job.session
        is_small = session.device.peak_allocated_bytes() <= MOST_COMPUTED_BYTES
        may_compute = is_small and not self._computes and self._job.can_be_computed()
        return may_compute and session.gpu.has_guessed()

    @staticmethod
    def _is_short() -> bool:
        return time.process_time() <= MOST_SECONDS_TO_REPEAT

    def deliver(self) -> NoReturn:
        if self._spare:
            self._spare.end()
        self._deliver(self._answer)


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
