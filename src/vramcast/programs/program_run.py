"""One run of a program in a process of its own, until enough of it was seen.

The simulation and the probe each define the device, what to do with the observations, and how the
process ends.
"""

from __future__ import annotations

import atexit
import contextlib
import dis
import gc
import itertools
import os
import re
import socket
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from vramcast.errors import WorkloadError
from vramcast.processes.lifetime import end_if_forked, is_task
from vramcast.records.phases import PhaseName
from vramcast.workload import user_traceback
from vramcast.workload.launch_line import Program
from vramcast.workload.loading import missing_module_advice
from vramcast.workload.tracebacks import MAYBE_A_FAULT, exception_line

if TYPE_CHECKING:  # they import torch, which the simulated device must precede
    from vramcast.programs.settling import Memory
    from vramcast.programs.watching import Watcher

# How long a program may go on after enough was seen.
EXIT_SECONDS = 10.0
FAILED_AFTER_ENOUGH = (
    "the program failed after its training was ended early ({error}): what came after that was "
    "not seen; --whole runs it to its own end"
)
# Errors that torch's functions do not raise.
OWN_ERRORS = (OSError, KeyError, ImportError, UnicodeError)
OWN_FOLDER = str(Path(__file__).resolve().parents[1])
# Set while a program runs under vramcast, so that vramcast's own callbacks do nothing.
INSIDE = "VRAMCAST_INSIDE"
# Packages whose errors come from the network.
DOWNLOADING = ("aiohttp", "httpx", "huggingface_hub", "requests", "urllib", "urllib3")
ADDRESS = re.compile(r"https?://[^\s'\")>]+")
# torch's words
IN_A_WORKER = re.compile(r"Caught \w+ in DataLoader worker process")
FORKED = (
    "It has forked itself, or started others with multiprocessing, and only the process that the "
    "line starts is watched: let that one train."
)
NOT_SEEN = "{what} was not seen: if the program does it later, --whole runs the program to its end"


class ProgramRun(ABC):
    watcher: Watcher

    def __init__(
        self,
        program: Program,
        scratch: Path,
        *,
        steps: int | None = None,
        whole: bool = False,
        stdin: str | None = None,
    ) -> None:
        self.program, self._scratch, self._stdin = program, scratch, stdin
        self._steps, self._whole = steps, whole
        self._is_seen = self._has_forked = False
        self._failure = self._how_ended = ""

    @abstractmethod
    def around(self) -> AbstractContextManager[Memory]:
        """The whole program runs in this block, on a device with the memory that it yields."""

    @abstractmethod
    def begin(self, phase: PhaseName) -> None:
        """Called when a phase begins. Every training step begins one."""

    def evaluate(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Runs a forward pass of an evaluation."""
        return call(*arguments, **options)

    def end_step(self) -> None:  # noqa: B027  a simulation does nothing then
        """Called when a training step has ended."""

    @abstractmethod
    def has_used_gpu(self) -> bool: ...

    @abstractmethod
    def describe(self, remarks: list[str]) -> None:
        """Keeps what was seen so far, before any of it is undone."""

    @abstractmethod
    def deliver(self) -> NoReturn:
        """Delivers what was kept, and ends the process."""

    @abstractmethod
    def launched(self, program: Program) -> Program:
        """The other program that this one starts, changed as it is to be run."""

    def failed(self, what: str, advice: str, error: BaseException | None = None) -> NoReturn:
        """Raises a WorkloadError: the program ended before enough was seen."""
        shown = f"\n{user_traceback(error)}" if error is not None else ""
        raise WorkloadError(f"{what}{shown}".rstrip(), advice)

    def go(self) -> NoReturn:
        from vramcast.programs.graphs import hearing_replays
        from vramcast.programs.launches import following_launches
        from vramcast.programs.loaders import end_workers, ending_early
        from vramcast.programs.running import use_stdin
        from vramcast.programs.saving import not_writing_weights
        from vramcast.programs.trainers import stopping_trainers
        from vramcast.programs.watching import StopRule, Watcher, watching

        use_stdin(self._stdin)
        os.environ.update(self.program.environment)
        os.environ.setdefault("WANDB_MODE", "disabled")
        os.environ[INSIDE] = "1"
        os.register_at_fork(after_in_parent=self._forked)
        with ExitStack() as stack:
            memory = stack.enter_context(self.around())
            rule = StopRule(self._steps, self._whole)
            self.watcher = Watcher(
                memory, rule, self.begin, self._stop, self.end_step, evaluate=self.evaluate
            )
            stack.enter_context(hearing_replays(self.watcher))
            stack.enter_context(watching(self.watcher))
            stack.enter_context(ending_early(self.watcher))
            stack.enter_context(stopping_trainers(self.watcher))
            self._saved = stack.enter_context(not_writing_weights(self.watcher, self._scratch))
            stack.enter_context(following_launches(self.watcher, self.launched))
            stack.enter_context(self._catching_os_exit())
            self._run()
            self._see()
            self._saved.remove_stand_ins()
            with contextlib.suppress(Exception):
                end_workers(self.watcher)
            _run_exit_functions()
            self.deliver()

    def _forked(self) -> None:
        file = sys._getframe(1).f_code.co_filename
        is_programs = "multiprocessing" not in file and not file.startswith(OWN_FOLDER)
        self._has_forked = self._has_forked or is_programs

    def _run(self) -> None:
        from vramcast.programs.running import run_as_main
        from vramcast.programs.watching import Enough

        try:
            run_as_main(self.program)
        except Enough:
            pass
        except SystemExit as end:
            self._check_exit(end.code)
        except WorkloadError:
            raise
        except BaseException as error:
            self._check_failure(error)

    def _see(self) -> None:
        end_if_forked()
        if self._is_seen:
            return
        self._check_has_trained()
        notes = sorted(self.watcher.notes)
        remarks = [*unseen(self.watcher), self._failure, self._saved.note(), *notes]
        self.describe([*filter(None, remarks)])
        self._is_seen = True
        # Ends a program whose threads do not end.
        ending = threading.Timer(EXIT_SECONDS, self._deliver_at_once)
        ending.daemon = True
        ending.start()

    def _stop(self) -> None:
        if self._is_seen:
            # The program has caught `Enough`, which should have ended it.
            self._deliver_at_once()
        self._see()

    def _deliver_at_once(self) -> NoReturn:
        with contextlib.suppress(Exception):
            self._saved.remove_stand_ins()
        self.deliver()

    @contextlib.contextmanager
    def _catching_os_exit(self) -> Iterator[None]:
        leave = os._exit

        def exit_at_once(code: int) -> NoReturn:
            if is_task() and threading.current_thread() is threading.main_thread():
                os._exit, self._how_ended = leave, " by os._exit"
                self._check_exit(code)
                self._see()
                self._deliver_at_once()
            leave(code)

        os._exit = exit_at_once  # type: ignore[assignment]
        try:
            yield
        finally:
            os._exit = leave

    def _check_exit(self, code: Any) -> None:
        """Handles the exit code. It is no failure if the program ends itself after it has
        trained."""
        if code in (None, 0) or self._is_seen:
            return
        shown = f"exit code {code}" if isinstance(code, int) else f"the message: {code}"
        if self.watcher.is_enough:
            self._failure = FAILED_AFTER_ENOUGH.format(error=shown)
            return
        self.failed(
            f"The program ended itself{self._how_ended} with {shown}, {how_far(self.watcher)}.",
            "What it printed says why; vramcast runs the line as it is.",
        )

    def _check_failure(self, error: BaseException) -> None:
        if self._is_seen:
            return
        is_short = type(error).__name__ == "OutOfMemoryError"
        if self.watcher.is_enough and self.watcher.is_winding_down and not is_short:
            if self.watcher.num_empty_loaders or isinstance(error, StopIteration):
                # it fails only because it got no batches; the answer lists what was not seen
                return
            self._failure = FAILED_AFTER_ENOUGH.format(error=exception_line(error)[:200])
            return
        self.failed(f"The program failed {how_far(self.watcher)}.", advice_for(error), error)

    def _check_has_trained(self) -> None:
        if self.has_used_gpu() and self.watcher.num_steps:
            return
        has_others = self._has_forked or self.watcher.has_started_others
        what = f"The program never used the GPU (python {self.program.target})."
        advice = (
            "If it printed an error, that is why. Else: does it take an option for the device, "
            "such as --device cuda? torch.cuda.is_available() is true in it."
        )
        if has_others or self.has_used_gpu():
            seen = f"{self.watcher.num_backwards} backward passes and no optimizer step"
            what = (
                f"The program ended{self._how_ended} and no training step was seen in it: {seen}."
            )
            advice = (
                "If it printed an error, that is why. Else: does it train with these arguments? "
                "Of a program that starts others, give the line that it starts."
            )
        raise WorkloadError(what, FORKED if has_others else advice)


def how_far(watcher: Watcher) -> str:
    if watcher.num_steps:
        return f"after {watcher.num_steps} training step{'s' * (watcher.num_steps > 1)}"
    if watcher.num_backwards:
        passes = f"backward pass{'es' * (watcher.num_backwards > 1)}"
        return f"after {watcher.num_backwards} {passes}, before its first optimizer step"
    return "before it trained"


def unseen(watcher: Watcher) -> list[str]:
    if watcher.rule.whole:
        return []
    return [
        NOT_SEEN.format(what=what)
        for what, phase in (("evaluation", PhaseName.EVALUATE), ("saving", PhaseName.SAVE))
        if not counts(watcher)[phase]
    ]


def counts(watcher: Watcher) -> dict[PhaseName, int]:
    """How many steps, forward passes or saves there were in each phase."""
    return {
        PhaseName.TRAIN: watcher.num_steps,
        PhaseName.EVALUATE: watcher.num_evaluation_forwards,
        PhaseName.SAVE: watcher.num_saves,
    }


def advice_for(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return missing_module_advice(error.name)
    if isinstance(error, EOFError) and "reading a line" in str(error):
        return "It asks for input: give it by a pipe, or with an option of the program."
    if address := _wanted_address(error):
        return (
            f"It wanted to download from {address}, which cannot be reached. Let it download once "
            "where it can, or give it a local copy with an option of the program."
        )
    if IN_A_WORKER.search(exception_line(error)):
        return "It was raised in a process that loads data, where no GPU is simulated."
    if place := _own_place(error):
        return f"Innermost last. The program itself raised it, at {place}."
    return MAYBE_A_FAULT


def _own_place(error: BaseException) -> str:
    """Where the program or a library of it raised the error. Empty where torch or the simulated GPU
    may have raised it."""
    last = error.__traceback__
    if last is None or isinstance(error, OSError) and "nvidia" in str(error):
        return ""
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    torch = os.path.dirname(os.path.realpath(getattr(sys.modules.get("torch"), "__file__", "")))
    places = [
        (os.path.realpath(frame.f_code.co_filename), line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    own = [one for one in places if not one[0].startswith((torch + os.sep, OWN_FOLDER + os.sep))]
    is_raised = code.co_code[last.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    is_outside = own[-1:] == places[-1:] and (is_raised or isinstance(error, OWN_ERRORS))
    if not own or not is_outside and not _would_fail_on_a_gpu(error):
        return ""
    return f"{os.path.basename(own[-1][0])}:{own[-1][1]}"


def _would_fail_on_a_gpu(error: BaseException) -> bool:
    """Whether the error would also happen on a GPU: a file is missing, or what is not torch's lacks
    a name."""
    thing = getattr(error, "obj", None)
    of = thing.__name__ if isinstance(thing, ModuleType) else type(thing).__module__
    lacks_name = of.partition(".")[0] not in ("torch", "builtins", "vramcast")
    return lacks_name or getattr(error, "filename", None) is not None


def _wanted_address(error: BaseException) -> str:
    """The address that the program wanted to download from, if that is why it failed."""
    chain = [error]
    while following := chain[-1].__cause__ or chain[-1].__context__:
        # by identity: some errors cannot be compared with others
        if any(following is one for one in chain):
            break
        chain.append(following)
    packages = {type(one).__module__.partition(".")[0] for one in chain}
    is_of_network = any(isinstance(one, ConnectionError | socket.gaierror) for one in chain)
    if not is_of_network and packages.isdisjoint(DOWNLOADING):
        return ""
    innermost = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][::-1]
    values = (value for frame in innermost for value in frame.f_locals.values())
    urls = (getattr(value, "full_url", value) for value in values)
    texts = itertools.chain(map(str, chain), (url for url in urls if isinstance(url, str)))
    return next((found[0] for found in map(ADDRESS.search, texts) if found), "the network")


def _run_exit_functions() -> None:
    """Runs what the program registered for its end, such as removing temporary folders."""
    with contextlib.suppress(BaseException):
        gc.collect()
        atexit._run_exitfuncs()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
