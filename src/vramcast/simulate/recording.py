"""A recording on the simulated GPU: marks where steps begin, and describes what was recorded."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vramcast.allocator.addresses import Starts
from vramcast.allocator.replay import NEVER, replay
from vramcast.records.answers import keep_all
from vramcast.records.prediction import PhaseName
from vramcast.simulate import repeating
from vramcast.simulate.device import STEP, Allocation, Device
from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.locations import Locations
from vramcast.simulate.ownership import Ownership
from vramcast.simulate.python_calls import PythonCalls
from vramcast.simulate.workspaces import configured
from vramcast.tracing import trace
from vramcast.tracing.work import BACKWARD, CAPTURED, FORWARD, NO_KERNEL, PHASES, UPDATE, Works

# A step with fewer operators than this share of a usual step's is not whole.
WHOLE_STEP = 0.9
ALIKE = 0.999  # steps are alike if the smaller asks for at least this share of the larger's bytes
LARGE = 1 << 20  # larger blocks leave gaps that matter
MOST_UNTIL_STEADY = 6  # steps
FEW_OPERATORS = 10_000
# Without a leading underscore. The first use of cuSOLVER makes the driver load its kernels.
SOLVER_OPERATORS = frozenset(
    (
        *("linalg_qr", "geqrf", "linalg_householder_product", "linalg_lstsq", "linalg_eig"),
        *("linalg_cholesky_ex", "linalg_eigh", "linalg_svd", "linalg_ldl_factor_ex"),
        *("linalg_lu_factor_ex", "linalg_lu_solve", "linalg_solve_ex", "linalg_inv_ex"),
        *("linalg_det", "linalg_slogdet"),
    )
)
WORKSPACE = "cublas_workspace"
# Copies, and products by cuBLAS, do not make the driver load torch's kernels.
CONVOLUTIONS = frozenset(("aten::convolution", "aten::cudnn_convolution"))
COPIES = frozenset(("aten::_to_copy", "aten::copy_"))
PRODUCTS = frozenset((*(f"aten::{op}" for op in ("addmm", "mm", "bmm", "baddbmm")), WORKSPACE))
# c10::ScalarType; a rare type that is not listed is shown by its number
FIRST_DTYPES = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool"
)
DTYPES = {
    **dict(enumerate(FIRST_DTYPES.split())),
    -1: "bytes",
    15: "bfloat16",
    23: "float8_e5m2",
    24: "float8_e4m3fn",
}


@dataclass
class Recording:
    gpu: SimulatedGpu
    locations: Locations
    ownership: Ownership
    python_calls: PythonCalls
    # for each mark in the events, the phase that it begins; and how many functions were called
    # until the next mark
    segments: list[PhaseName] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    # how many more steps the last one stands for
    num_repetitions: int = 0
    # allocations that only the first step made and the second does not repeat: an optimizer's state
    made_once: NDArray[np.int64] = field(default_factory=lambda: repeating.NOTHING)

    @property
    def device(self) -> Device:
        return self.gpu.device

    def mark_step(self) -> None:
        self.gpu.reads.begin_round()
        self.begin(PhaseName.TRAIN)

    def begin(self, phase: PhaseName) -> None:
        self.ownership.look()
        self.device.library.vramcast_mark(STEP)
        if self.segments:
            self.calls.append(self.python_calls.of_step)
        self.segments.append(phase)
        self.python_calls.begin_step()
        if phase is PhaseName.EVALUATE:
            self.python_calls.stop()

    def can_repeat(self, num_steps: int) -> bool:
        """Whether the last step is long, and the next `num_steps` steps would do the same: then
        they need not run."""
        bounds = self._bounds()
        if not self._are_steps(2) or bounds[-1] - bounds[-2] < repeating.LONG_STEP:
            return False
        self.device.library.vramcast_keep_freed_memory()
        arrays = self._last_two(bounds)
        if not repeating.does_the_same(*arrays):
            made_once = repeating.made_by_first_alone(*arrays)
            if made_once is None:
                return False
            self.made_once = made_once
        self.num_repetitions = num_steps
        return True

    def _are_steps(self, num_last: int) -> bool:
        return self.segments[-num_last:] == [PhaseName.TRAIN] * num_last

    def _last_two(
        self, bounds: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any], list[int]]:
        """The last two steps, in the form in which `repeating` compares them."""
        work = self.device.done_array(bounds[-3], bounds[-1])
        within = [bound - bounds[-3] for bound in bounds]
        return self.device.events_array(), self.device.allocations_array(), work, within

    def _num_until_steady(self, run: trace.SimulatedRun) -> int:
        """How many more steps it takes until memory no longer grows. Steps that do the same may
        still take more, because each finds the free memory fragmented in another way."""
        if self.num_repetitions or run.held_until or not self._are_steps(3):
            return 0
        if not repeating.does_the_same(*self._last_two(self._bounds())):
            return 0
        original = repeating.originals(run.events, len(run.sizes), MOST_UNTIL_STEADY)
        circumstances = run.circumstances()
        circumstances["keys"] = original.each(np.asarray(run.streams)) if len(run.streams) else ()
        peaks = replay(
            repeating.with_repetitions(run.events, MOST_UNTIL_STEADY),
            original.each(run.sizes),
            **circumstances,
        ).peaks_after_step
        reserved = [reserved for _, reserved in peaks]
        return max(reserved.index(reserved[-1]) - len(self.segments), 0)

    def is_short(self) -> bool:
        return self._bounds()[-1] < FEW_OPERATORS

    def steps_are_alike(self) -> bool:
        """Whether all steps take the same memory. They may not, where layers are left out or
        batches have several lengths."""
        *lengths, last = np.diff(self._bounds()).tolist()
        events = self.device.events_array()
        taken, step = events > 0, np.cumsum(events == 0)
        made = self.device.allocations_array()[events[taken] - 1]
        # torch 2.15 takes a large workspace for each product, beside which everything else would
        # look small
        is_workspace = self._is_of({WORKSPACE}, made["operator_name"])
        sizes = np.where(is_workspace, 0, made["num_bytes"])
        # without the build and the first step, which makes the optimizer's state
        sums = np.bincount(step[taken], sizes)[2:]
        large = np.bincount(step[taken], np.where(sizes > LARGE, sizes, 0))[2:]
        if len(sums) and (sums.min() < ALIKE * sums.max() or large.min() < large.max()):
            return False
        # the mark of the next step ends each but the last
        return all(length == last + 1 for length in lengths[1:])

    def describe(self) -> trace.SimulatedRun:
        """Describes the recording, with the last step repeated until memory no longer grows."""
        self.python_calls.stop()
        keep_all()
        found = self._recorded()
        if not (more := self._num_until_steady(found)):
            return found
        self.num_repetitions = more
        return self._recorded()

    def _recorded(self) -> trace.SimulatedRun:
        num_parameters, num_trainable = self.ownership.look()
        # in this order: other threads may allocate meanwhile
        events, held_until, at_most = trace.split_holds(self.device.events_array())
        allocations = self.device.allocations_array()
        allocations["phase"][_kept_for_backward(events, allocations["phase"])] = FORWARD
        names = np.ascontiguousarray(allocations["operator_name"])
        categories = self._categories(allocations, names)
        events = trace.in_canonical_order(events)
        original = repeating.originals(events, len(allocations), self.num_repetitions)
        streams = allocations["stream"]
        bounds = self._bounds()
        whole = self._whole_steps(bounds)
        step, calls = whole[-1], [*self.calls, self.python_calls.of_step]
        is_second = len(self.made_once) > 0
        operators = set(map(self.device.name, _used(names)))
        return trace.SimulatedRun(
            events=repeating.with_repetitions(events, self.num_repetitions, self.made_once),
            sizes=original.each(allocations["num_bytes"]),
            categories=trace.Labels(original.each(categories.codes), categories.words),
            num_parameters=num_parameters,
            num_trainable_parameters=num_trainable,
            notes=tuple(sorted(self.gpu.all_notes())),
            torch_version=torch.__version__,
            allocation=self._details(allocations, categories, original),
            uses_libraries=any(map(_is_of_library, operators)),
            uses_solver=any(map(_is_of_solver, operators)),
            works=self._described(self.device.done_array(bounds[step], bounds[step + 1])),
            # a trainer that is asked to stop makes further calls in its last step
            num_python_calls=min(calls[number] for number in whole[-1 if is_second else -2 :]),
            segments=(*self.segments, *self.segments[-1:] * self.num_repetitions),
            uncalibrated_kernels=tuple(sorted(self.gpu.uncalibrated_kernels)),
            attention_order=self.gpu.attention.order,
            attention_kernels=tuple(sorted(self.gpu.attention.used)),
            num_communicators=self.gpu.num_communicators,
            keeps_by_time=self.gpu.kept_by_nccl.was_last,
            tries_kernels=self.gpu.has_tried_kernels,
            asks_overlaps=self.device.library.vramcast_overlaps_were_asked(),
            pipeline_ranks=tuple(sorted(self.gpu.pipeline_ranks)),
            streams=original.each(streams) if streams.any() else (),
            parts=original.each(allocations["phase"]),
            starts=self._starts(events, allocations, names, categories),
            held_until=held_until,
            held_at_most_until=at_most,
            compilations=self._compilations(categories),
        )

    def _compilations(self, categories: trace.Labels) -> trace.Compilations | None:
        if done := self.gpu.compilations:
            is_workspace = categories.codes == categories.words.index("workspaces")
            numbers = (np.flatnonzero(is_workspace) + 1).tolist()
            used_after = {n: self.device.library.vramcast_used_after(n) for n in numbers}
            done.used_after = {n: last for n, last in used_after.items() if last >= 0}
        return done

    def _starts(
        self,
        events: NDArray[np.int64],
        allocations: NDArray[Any],
        names: NDArray[np.int32],
        categories: trace.Labels,
    ) -> Starts:
        is_workspace = categories.codes == categories.words.index("workspaces")
        is_backward = allocations["phase"] == BACKWARD
        numbers = (
            self._first_kernel(allocations, names),
            _first(self._is_of(CONVOLUTIONS, names)),
            _first(is_workspace & ~is_backward),
            _first(is_workspace & is_backward),
            self.gpu.nccl_from,
        )
        return Starts(*(_place_of(n, events) for n in numbers))._replace(
            cublas_bytes=configured(NEVER.cublas_bytes)
        )

    def _first_kernel(self, allocations: NDArray[Any], names: NDArray[np.int32]) -> int:
        """The first allocation that was made by neither a copy nor a product by cuBLAS."""
        is_kernel = ~self._is_of(COPIES | PRODUCTS, names)
        # the first allocation, of one element, only starts CUDA
        is_kernel[:1] &= allocations["num_bytes"][:1] > 8
        return _first(is_kernel)

    def _is_of(self, operators: Set[str], names: NDArray[np.int32]) -> NDArray[np.bool_]:
        ours = np.zeros(names.max(initial=-1) + 2, bool)  # the last entry is for -1: no name
        for name in range(len(ours) - 1):
            ours[name] = self.device.name(name).partition(".")[0] in operators
        return ours[names]

    def _categories(self, allocations: NDArray[Any], names: NDArray[np.int32]) -> trace.Labels:
        words = ["activations", "temporaries", "workspaces"]
        numbers = {word: number for number, word in enumerate(words)}
        codes = np.where(allocations["phase"] == FORWARD, 0, 1).astype(np.int32)
        for number, category in self.ownership.category_of.items():
            codes[number - 1] = numbers.setdefault(category, len(numbers))
        codes[self._is_of({WORKSPACE}, names)] = numbers["workspaces"]
        return trace.Labels(codes, list(numbers))

    def _details(
        self, allocations: NDArray[Any], categories: trace.Labels, original: repeating.Originals
    ) -> Callable[[int], trace.Allocation]:
        """A function that describes the n-th allocation. It is called for few of them."""
        shapes = self.device.shapes()
        # Looked up now: when an allocation is described, the model may be gone.
        module_names = self.ownership.module_names()
        modules = [
            "" if module is None else module_names.get(id(module)) or type(module).__name__
            for module in (location.module() for location in self.locations.found)
        ]

        def detail_of(repeated: int) -> trace.Allocation:
            number = original.number(repeated)
            a = Allocation.from_buffer_copy(allocations[number - 1])
            is_located = a.location >= 0
            return trace.Allocation(
                num_bytes=a.num_bytes,
                category=categories.words[categories.codes[number - 1]],
                name=self.ownership.name_of.get(number, ""),
                shape=tuple(shapes[a.shape_offset : a.shape_offset + a.num_dims]),
                dtype=DTYPES.get(a.dtype, f"type {a.dtype}"),
                op=self.device.name(a.operator_name),
                node=self.device.name(a.node_name),
                module=modules[a.location] if is_located else "",
                source=self.locations.found[a.location].source if is_located else "",
                stream=a.stream,
                phase=PHASES.get(a.phase, ""),
            )

        return detail_of

    def _bounds(self) -> list[int]:
        """The index among all operators at which each segment begins, and the end of the last
        one."""
        return [*(self.device.work_begins() or [0]), self.device.num("work")]

    def _whole_steps(self, bounds: Sequence[int]) -> list[int]:
        """The indices of the steps that are complete: the last one may lack its update, and one
        that was captured as a graph runs only when it is replayed."""
        steps = [i for i, phase in enumerate(self.segments) if phase is PhaseName.TRAIN] or [0]
        lengths = self._num_kernels(bounds)
        # the first step also makes the optimizer's state
        usual = sorted(lengths[step] for step in steps[1:] or steps)[len(steps[1:]) // 2]
        return [step for step in steps if lengths[step] >= WHOLE_STEP * usual]

    def _num_kernels(self, bounds: Sequence[int]) -> list[int]:
        """How many kernels the GPU has run in each segment."""
        done = self.device.done_array(bounds[0], bounds[-1])
        is_used = np.bincount(done["kind"]) > 0
        has_kernel = np.zeros(len(is_used), bool)
        for kind in np.flatnonzero(is_used).tolist():
            has_kernel[kind] = self.device.kind_of_work(kind).access != NO_KERNEL
        ran = has_kernel[done["kind"]] & (done["phase"] != CAPTURED)
        ran_before = np.append(0, np.cumsum(ran))
        return np.diff(ran_before[np.asarray(bounds) - bounds[0]]).tolist()

    def _described(self, step: NDArray[Any]) -> Works:
        # nothing runs while a graph is captured
        items = np.ascontiguousarray(step[step["phase"] != CAPTURED])
        firsts, codes = self.device.distinct(items)
        kinds = map(self.device.kind_of_work, items["kind"][firsts].tolist())
        return Works(codes, tuple(map(self.device.operator_work, kinds)))


def _place_of(number: int, events: NDArray[np.int64]) -> int:
    """The index of this allocation in the events."""
    return int(np.argmax(events == number)) if number else 0


def _used(names: NDArray[np.int32]) -> list[int]:
    """Each name that occurs, once, in order."""
    return (np.flatnonzero(np.bincount(names + 1)) - 1).tolist()


def _first(is_one: NDArray[np.bool_]) -> int:
    """The number of the first allocation for which it is true; 0 if there is none."""
    return int(is_one.argmax()) + 1 if is_one.any() else 0


def _kept_for_backward(events: NDArray[np.int64], phases: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which allocations were made without gradients and are alive when the step's next backward
    pass begins: those of a torch.autograd.Function, such as compiled code."""
    kept, without = np.zeros(len(phases), bool), np.flatnonzero(phases == UPDATE)
    if not len(without):
        return kept
    made, freed_at = trace.made_and_freed(events, len(kept))
    backward = np.append(made[phases == BACKWARD], len(events))
    steps = np.append(np.flatnonzero(events == 0), len(events))
    next_backward, next_step = (
        each[np.searchsorted(each, made[without])] for each in (backward, steps)
    )
    kept[without] = next_backward < np.minimum(freed_at[without], next_step)
    return kept


def _is_of_library(operator: str) -> bool:
    """Whether an operator uses flash attention or cuDNN, whose kernels are loaded when they are
    first used."""
    names = ("flash_attention", "cudnn", "aten::convolution_backward")
    return any(name in operator for name in names)


def _is_of_solver(operator: str) -> bool:
    return operator.removeprefix("aten::").removeprefix("_") in SOLVER_OPERATORS
