"""The simulated GPU of this process: records a program, or builds and steps a workload."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from vramcast.errors import WorkloadError
from vramcast.hardware.calibration.table import KnownConvolutions, has_other_cudnn
from vramcast.hardware.gpus import Gpu
from vramcast.records.calibration import Calibration
from vramcast.simulate.device import Device
from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.workspaces import gemm_workspaces
from vramcast.text import printable
from vramcast.tracing.trace import SimulatedRun
from vramcast.workload import bind_knobs, check_step, refusals, user_traceback
from vramcast.workload.tracebacks import MAYBE_A_FAULT

if TYPE_CHECKING:  # it imports torch, which the simulated device must precede
    from vramcast.simulate.recording import Recording

# The first has no optimizer state, the second allocates it, the others show whether memory grows.
STEPS = 4
# Programs warm up before they capture a graph: torch advises 3 steps, and 11 with DDP.
MOST_MORE_STEPS = 18
# Where steps differ; as many as there may be if they are short.
MORE_WHERE_STEPS_DIFFER = 6
# Computed values may still change after steps have been alike, so as many steps as `probe` does are
# run, if they take no longer than this. It is less than native/computing.h allows, after which
# nothing is known.
MOST_COMPUTING_SECONDS = 36
# Memory that another stream uses adds up until the host is as far ahead of the GPU as it can be.
MOST_STEPS_AHEAD = 100
LOCATED_BYTES = 64 << 10  # the source lines of smaller tensors are not worth finding
WORKLOAD_SEED = 0  # as `probe` sets it
PROGRAM_SEED = 67280421310721  # torch's own, where a program sets none
MOST_REMARKS, MOST_CHARACTERS = 10, 500
OUT_OF_MEMORY_NOTE = (
    "the program ran out of memory, caught torch.OutOfMemoryError and went on: "
    "this is the memory of what it did then"
)


class Session:
    """The simulated device with everything that has to be in place around it."""

    def __init__(
        self,
        device: Device,
        gpu: Gpu,
        calibration: Calibration | None = None,
    ) -> None:
        from vramcast.simulate import kernels

        torch_version = version("torch")
        known = KnownConvolutions({})
        if calibration:
            known = KnownConvolutions(
                calibration.convolutions,
                of_other_cudnn=has_other_cudnn(calibration, torch_version),
            )
        self.device, self.gpu = device, SimulatedGpu(gpu, device, known)
        self._has_recorded = False
        device.library.vramcast_set_gpu(
            gpu.num_multiprocessors,
            gpu.max_threads_per_multiprocessor,
            *gemm_workspaces(gpu.capability, calibration, torch_version),
        )
        kernels.install(self.gpu)
        _fuse_as_on_a_gpu()
        # Later garbage collections need not look at the objects of these imports.
        gc.freeze()

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Modules imported in this block find the simulated GPU. Memory that they allocate there is
        part of every recording."""
        from vramcast.simulate import patches

        with patches.installed(self.gpu), self.device.on():
            yield
        self.device.library.vramcast_keep_all()
        self.device.library.vramcast_reset()

    @contextmanager
    def recording(
        self, *, locate: bool = True, locate_all: bool = False, seed: int = WORKLOAD_SEED
    ) -> Iterator[Recording]:
        """Records what runs in this block. `locate` finds modules, optimizers and the source lines
        of large tensors, `locate_all` of all tensors."""
        import torch

        from vramcast.simulate import patches
        from vramcast.simulate.locations import Locations, is_of_user
        from vramcast.simulate.ownership import Ownership
        from vramcast.simulate.patches import torch_compile
        from vramcast.simulate.python_calls import PythonCalls
        from vramcast.simulate.recording import Recording

        self.gpu.clear()
        if self.gpu.has_compiled:
            torch_compile.forget()
        locations = Locations(self.device.tell_running)
        python_calls = PythonCalls(self.device.library)
        ownership = Ownership(self.device.block_ids, locate, python_calls.pause)
        self.gpu.not_counting = python_calls.paused
        with ExitStack() as stack:
            stack.enter_context(patches.installed(self.gpu))
            torch.manual_seed(seed)
            stack.enter_context(self.device.on())
            if self._has_recorded:
                # frees what the last recording left; done here, because often no other recording
                # follows
                gc.collect()
                self.device.library.vramcast_reset()
            # The first allocation of a process makes the CUDA context and a small segment.
            torch.empty(1, device="cuda")
            stack.enter_context(ownership.watching())
            if locate:
                if not self.gpu.has_compiled:
                    stack.enter_context(locations.watching_modules())
                least = 0 if locate_all else LOCATED_BYTES
                stack.enter_context(self.device.locating(locations.add, is_of_user, least))
            try:
                yield Recording(self.gpu, locations, ownership, python_calls)
            finally:
                python_calls.stop()
                if torch.distributed.is_available() and torch.distributed.is_initialized():
                    # the next recording may begin another
                    torch.distributed.destroy_process_group()
                self.gpu.library_memory.clear()
                self.device.library.vramcast_reset()
                self._has_recorded = True

    def run(
        self,
        function: Callable[..., Any],
        knobs: dict[str, Any],
        steps: int = STEPS,
        *,
        locate: bool = True,
        locate_all: bool = False,
        limited: bool = False,
        computes: bool = False,
    ) -> SimulatedRun:
        """Builds a workload with these knobs, does some steps, and describes them.

        Only with `limited` does it run out of memory where the GPU would. With `computes` it fails
        where computing all values takes too long or too much memory.
        """
        values = bind_knobs(function, knobs)
        with ExitStack() as stack:
            recording = stack.enter_context(self.recording(locate=locate, locate_all=locate_all))
            if limited:
                stack.enter_context(self.gpu.memory.limited())
            stack.enter_context(self.gpu.computing(computes))
            step = check_step(_user_code(lambda: function(**values), "build"))
            self._do_steps(recording, step, steps, may_repeat=not limited)
            if self.device.num("allocations") <= 1:
                raise WorkloadError(
                    "The step never allocates anything on the GPU.",
                    'Build the model and its inputs on the device "cuda": model.cuda(), '
                    'torch.randn(..., device="cuda").',
                )
            if self.gpu.memory.num_out_of_memory:
                self.gpu.note(OUT_OF_MEMORY_NOTE)
            return replace(
                recording.describe(),
                remarks=_remarks(step),
                guessed_with_bytes=self.device.peak_allocated_bytes() * self.gpu.has_guessed(),
            )

    def check_all_was_computed(self) -> None:
        if self.device.library.vramcast_computing_ended():
            raise WorkloadError("It takes too much to compute what the GPU would.")

    def _do_steps(
        self, recording: Recording, step: Callable[[], Any], steps: int, *, may_repeat: bool
    ) -> None:
        """Does these steps, and more until CUDA graphs are replayed, the memory that waits for
        other streams no longer grows, and steps of several kinds were seen."""
        graphs, is_steady = self.gpu.graphs, True
        for left in reversed(range(-MOST_STEPS_AHEAD, steps)):
            is_ahead = self.device.library.vramcast_num_held() and self.gpu.elapsed.has_got_ahead()
            self.check_all_was_computed()  # also after the last step
            if left < 0 and not is_ahead and (is_steady or left < -MOST_MORE_STEPS):
                return
            recording.mark_step()
            num_captures = graphs.num_captures
            _user_code(step, "step")
            is_steady = not graphs.num_waiting and graphs.num_captures == num_captures
            if self.gpu.computes:
                seconds_each = self.device.library.vramcast_computing_seconds() / (steps - left)
                is_steady = seconds_each * (steps - left + 1) > MOST_COMPUTING_SECONDS
                continue
            if may_repeat and left > 0 and is_steady and recording.can_repeat(left):
                return
            if left <= 0 and (left > -MORE_WHERE_STEPS_DIFFER or recording.is_short()):
                is_steady = is_steady and recording.steps_are_alike()


def _remarks(step: Any) -> list[str]:
    """The workload's remarks about itself, for its answer."""
    told = getattr(step, "remarks", ())
    if not isinstance(told, list | tuple):
        return []
    return [printable(str(remark), MOST_CHARACTERS) for remark in told[:MOST_REMARKS]]


def _user_code(call: Callable[[], Any], what: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with refusals():
                return call()
        except (WorkloadError, SystemExit):
            raise
        except BaseException as error:  # whatever user code raises
            raise WorkloadError(
                f"The workload's {what} failed.\n{user_traceback(error)}".rstrip(),
                MAYBE_A_FAULT,
            ) from None


def _fuse_as_on_a_gpu() -> None:
    """A build of torch without CUDA has it switched off."""
    import torch

    torch._C._jit_override_can_fuse_on_gpu(True)
