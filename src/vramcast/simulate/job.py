"""A workload to be simulated, often at several sizes, and the facts that all its answers share."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeVar

from vramcast.errors import WorkloadError
from vramcast.forecast.budget import Budget
from vramcast.simulate.session import STEPS, Session
from vramcast.tracing.trace import SimulatedRun
from vramcast.workload import bind_knobs, load_function, parse_reference, together
from vramcast.workload.world import rank_variables

Answer = TypeVar("Answer")
# native/computing.h computes up to 512 MiB; a peak found by guessing may be four times the real
# one.
MOST_COMPUTED_BYTES = 2 << 30


class Job:
    rank_variables: Mapping[str, str] = MappingProxyType({})
    _computes = False
    _most_computed_bytes = MOST_COMPUTED_BYTES

    def __init__(self, request: dict[str, Any], session: Session, budget: Budget) -> None:
        self.request, self.session, self.budget = request, session, budget
        self.workload: str = request["workload"]
        with session.importing():
            self.function = load_function(parse_reference(request["target"]))
        self._given = together(request)
        self.knobs = bind_knobs(self.function, self._given)
        self._limits, self._allocator_settings = set(budget.limits()), budget.settings_text

    def use_rank(self, rank: int) -> None:
        """Makes this process simulate the given rank from now on."""
        world = self.request["world"]
        self.rank_variables = rank_variables(rank, world["size"], world["gpus_per_node"])
        os.environ.update(self.rank_variables)
        self.session.gpu.num_devices = world["gpus_per_node"]
        self.session.gpu.num_processes = world["size"]
        if rank != world["ranks"][0]:
            # only one rank writes a trace
            self.request = {**self.request, "trace": None}

    def build_once(self) -> None:
        """Builds the workload once, so that its imports are done. An error here is ignored: it
        comes again later."""
        with suppress(Exception), self.session.recording(locate=False):
            self.function(**self.knobs)

    def run(self, use: Callable[[SimulatedRun], Answer], **options: Any) -> Answer:
        """What `use` makes of a run with the user's knobs. The options are those of Session.run."""
        return use(self._run(**options))

    def can_be_computed(self) -> bool:
        """Not after compiling or with several GPUs: the results of Inductor's kernels and of other
        GPUs are not known."""
        return not self.session.gpu.has_compiled and "world" not in self.request

    def _run(self, **options: Any) -> SimulatedRun:
        """Runs the workload. If a guessed value decided what the program did and the run is small,
        it is run again with all values computed, and so are all later runs, so that they can be
        compared."""
        if self._computes:
            return self.session.run(self.function, self.knobs, computes=True, **options)
        run = self.session.run(self.function, self.knobs, **options)
        if self.can_be_computed() and 0 < run.guessed_with_bytes <= self._most_computed_bytes:
            self._most_computed_bytes = 0  # tried once
            with suppress(WorkloadError):
                run = self.session.run(self.function, self.knobs, computes=True, **options)
                self._computes = True
        return run

    def vary(self, knob: str, by: str) -> None:
        """Says that an option or command sets this knob. The workload must have it, and the user
        must not give it too."""
        if knob not in self.knobs:
            raise WorkloadError(
                f"{self.workload} has no knob {knob}.",
                f"Give the function a keyword argument {knob}.",
            )
        if knob in self._given:
            raise WorkloadError(f"{knob} was given, but {by} changes it.", "Leave it out.")
        del self.knobs[knob]

    def shown_knobs(self) -> dict[str, Any]:
        """The knobs that do not vary, in types that a record can hold."""
        return {
            key: value if isinstance(value, int | float | str | bool | None) else str(value)
            for key, value in self.knobs.items()
        }

    def simulate(
        self,
        sizes: dict[str, int],
        *,
        function: Callable[..., Any] | None = None,
        steps: int = STEPS - 1,
        locate: bool = False,
        advice: str = "",
    ) -> SimulatedRun:
        """Simulates at sizes that the user did not choose. An error names these sizes, followed by
        `advice` on how to avoid them."""
        try:
            trace = self._simulated({**self.knobs, **sizes}, function, steps, locate)
        except WorkloadError as error:
            named = " with ".join(f"{knob}={size}" for knob, size in sizes.items())
            raise WorkloadError(
                error.message, f"{error.advice} This was {named}. {advice}".strip()
            ) from None
        self._limits.update(trace.notes)
        self._allocator_settings = self.budget.of(trace).settings_text
        return trace

    def _simulated(
        self,
        knobs: dict[str, Any],
        function: Callable[..., Any] | None,
        steps: int,
        locate: bool,
    ) -> SimulatedRun:
        return self.session.run(function or self.function, knobs, steps, locate=locate)

    def facts(self) -> dict[str, Any]:
        import torch

        return {
            "capacity_bytes": self.budget.capacity_bytes,
            "limits": sorted(self._limits),
            "torch_version": torch.__version__,
            "allocator_settings": self._allocator_settings,
        }
