"""The GPU that is simulated, as the patches and the kernels see it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from vramcast.hardware.calibration.table import KnownConvolutions
from vramcast.hardware.gpus import Gpu
from vramcast.programs.nvidia_smi import Facts, facts
from vramcast.simulate.device import Device
from vramcast.simulate.elapsed import Elapsed
from vramcast.simulate.host_reads import HostReads
from vramcast.simulate.kept_by_nccl import KeptByNccl
from vramcast.simulate.live_memory import LiveMemory
from vramcast.tracing.trace import Compilations


@dataclass
class AttentionKernels:
    """In which order scaled_dot_product_attention tries its kernels, and which it took."""

    asked_for: tuple[str, ...] = ()  # set by the user, instead of torch's own order
    order: tuple[str, ...] = ()  # empty until it was called
    used: set[str] = field(default_factory=set)


@dataclass
class CudaGraphs:
    """How many graphs a program has made and not captured yet, and how often it captured one."""

    num_waiting: int = 0
    num_captures: int = 0


@dataclass
class SimulatedGpu:
    model: Gpu
    device: Device
    convolutions: KnownConvolutions = field(default_factory=lambda: KnownConvolutions({}))
    # whether the program has asked which GPU this is, or how much memory it has
    was_asked: bool = False
    compiles: bool = True  # whether torch.compile compiles; the user can switch it off
    has_compiled: bool = False  # in this process
    is_of_function: bool = True  # not a whole program, which may build several models
    num_devices: int = 1  # as many as the program sees in its machine
    num_processes: int = 1  # started by the launch line or --world-size
    world_size: int = 1  # with which the program has started torch.distributed
    num_communicators: int = 0  # as many as NCCL would have
    has_nccl: bool = False  # the program has asked for it
    nccl_from: int = 0  # the first allocation after it has started
    # the ranks that have the pipeline's stages
    pipeline_ranks: set[int] = field(default_factory=set)
    attention: AttentionKernels = field(default_factory=AttentionKernels)
    # what torch.cuda says about memory, and where it ends
    memory: LiveMemory = field(init=False)
    # of the current recording
    graphs: CudaGraphs = field(default_factory=CudaGraphs)
    computes: bool = False  # whether the host computes everything that the GPU would
    was_timed: bool = False  # whether the last compilation timed a kernel
    timed: list[float] | None = None  # seconds of Triton kernels, while these are only tried
    num_timed: int = 0  # kernels that Inductor has timed while it compiled
    num_not_kept: int = 0  # graphs that Inductor's cache does not keep
    compilations: Compilations | None = None
    # a block in which Python's functions are not counted, because it is no part of a usual step
    not_counting: Callable[[], AbstractContextManager[None]] = nullcontext
    reads: HostReads = field(init=False)
    elapsed: Elapsed = field(init=False)
    kept_by_nccl: KeptByNccl = field(init=False)
    has_tried_kernels: bool = False  # cuDNN has tried kernels, because of cudnn.benchmark
    # chooses the fastest kernel's workspace from those of all kernels; None: cuDNN's first choice
    fastest: Callable[[Sequence[int]], int] | None = None
    notes: set[str] = field(default_factory=set)
    has_guessed_sizes: bool = False
    uncalibrated_kernels: set[str] = field(default_factory=set)
    # the convolutions for which cuDNN has chosen a kernel, by thread
    convolution_plans: set[tuple[Any, ...]] = field(default_factory=set)
    # of FlexAttention's masks, by the address of their counts: the blocks of scores of one matrix
    blocks_left: dict[int, float] = field(default_factory=dict)
    # tensors that a library keeps for as long as the process lives, by purpose
    library_memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reads = HostReads(self.device)
        self.elapsed = Elapsed(self.model, self.device)
        self.kept_by_nccl = KeptByNccl(self.elapsed)
        self.device.watch_progress(self.elapsed.num_finished_launches)
        self.memory = LiveMemory(self.device, self.model.total_bytes)

    def start_nccl(self) -> None:
        if self.has_nccl and not self.nccl_from:
            self.nccl_from = self.device.num("allocations") + 1

    def facts(self) -> Facts:
        gpu = self.model
        capability = ".".join(map(str, gpu.capability))
        return facts(
            gpu.full_name, gpu.total_bytes, gpu.context_bytes, self.num_devices, capability
        )

    def note(self, text: str) -> None:
        """Say in the prediction's limits what was not modelled."""
        self.notes.add(text)

    @contextmanager
    def computing(self, computes: bool) -> Iterator[None]:
        """While in this block, the host really computes what the GPU would (if `computes`)."""
        self.begin_values(computes)
        try:
            yield
        finally:
            self.begin_values(False)

    def begin_values(self, computes: bool) -> None:
        self.computes = computes
        self.device.library.vramcast_begin_values(computes)

    def has_guessed(self) -> bool:
        """Whether a value that was not computed has decided what the program did."""
        return bool(self.reads.notes()) or self.device.library.vramcast_has_guessed()

    @contextmanager
    def compiling(self, *, is_kept: bool = True) -> Iterator[None]:
        """Marks allocations in this block as made only by a compilation: where Inductor's caches
        already have the result, they do not happen, unless it is one that they do not keep. They
        are no work of a step."""
        done = self.compilations = self.compilations or Compilations()
        begin, first_work = self.device.num("allocations"), self.device.library.vramcast_num_work()
        self.device.library.vramcast_count_compilations(1)
        try:
            with self.not_counting():
                yield
        finally:
            self.device.library.vramcast_count_compilations(-1)
            self.device.library.vramcast_captured_since(first_work)
            end = self.device.num("allocations") if is_kept else begin
            done.spans.append((begin + 1, end + 1))

    def all_notes(self) -> set[str]:
        notes = {*self.notes, *self.reads.notes()}
        if self.num_processes > 1 and self.world_size != self.num_processes:
            did = f"starts torch.distributed with {self.world_size} processes"
            if self.world_size == 1:
                did = "never calls init_process_group, so each of them runs as a single GPU"
            notes.add(f"{self.num_processes} processes were asked for; the program {did}")
        return notes

    def clear(self) -> None:
        self.reads.clear()
        self.kept_by_nccl.clear()
        self.memory.clear()
        self.notes.clear()
        self.has_guessed_sizes = False
        self.uncalibrated_kernels.clear()
        self.convolution_plans.clear()
        self.pipeline_ranks.clear()
        self.library_memory.clear()
        self.blocks_left.clear()
        self.world_size, self.num_communicators = 1, 0
        self.has_nccl, self.nccl_from = False, 0
        self.has_tried_kernels = False
        self.was_timed = False
        self.graphs = CudaGraphs()
        self.compilations = None
        self.attention = AttentionKernels(self.attention.asked_for)
