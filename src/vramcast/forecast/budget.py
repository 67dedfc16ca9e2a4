"""How much memory the allocator may take, and how much a process takes beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib.metadata import version

from vramcast.allocator.settings import AllocatorSettings
from vramcast.errors import UsageError
from vramcast.hardware.calibration.table import DEFAULT_KERNELS_BYTES, find
from vramcast.hardware.gpus import Gpu, find_gpu
from vramcast.hardware.links import Fabric, fabric_for
from vramcast.records.calibration import Calibration
from vramcast.tracing.trace import SimulatedRun

DEFAULT_GPU = "h200"
NO_GPU = "no GPU was named: kernels and workspaces are those of an H200"

# NCCL 2.27, for a communicator with rings: a channel has a buffer to receive into (src/init.cc) and
# one to send from, each rounded up to the driver's 2 MiB (NVIDIA/nccl issue 1685). There are 16
# channels with NVLink (issues 892, 1453), else 2 (nccl-tests issue 228).
NCCL_CHANNEL_BYTES = 10_485_760 + 2_097_152
NVLINK_CHANNELS, PCIE_CHANNELS = 16, 2
# Measured on an H200 with NCCL 2.28.9: its kernels, which stay when a group is destroyed, and a
# group of one GPU, which has 32 channels and 4 MiB.
NCCL_KERNELS_BYTES = 170 << 20
NCCL_ALONE_BYTES = 32 * NCCL_CHANNEL_BYTES + (4 << 20)


@dataclass(frozen=True, kw_only=True)
class Budget:
    gpu: Gpu | None
    memory_bytes: int | None
    settings: AllocatorSettings
    settings_text: str = ""
    calibration: Calibration | None = None
    calibration_limits: list[str] = field(default_factory=list)
    fabric: Fabric | None = None  # what connects several GPUs; None without a GPU

    @property
    def capacity_bytes(self) -> int | None:
        """The bytes that the allocator may take. None means without limit."""
        if self.memory_bytes is not None or self.gpu is None:
            return self.memory_bytes
        table = self._table_of_this_gpu
        loaded = table.device_bytes + table.libraries_bytes if table else _default_bytes(self.gpu)
        return self.gpu.total_bytes - loaded

    def within(self, safety: float) -> Budget:
        """The same budget with this fraction of the memory left free."""
        limit_bytes = int((1 - safety) * (self.capacity_bytes or 0))
        if limit_bytes < 1:
            raise UsageError(
                f"--safety {safety} leaves no memory at all.", "For example --safety 0.05."
            )
        return replace(self, memory_bytes=limit_bytes)

    def with_settings(self, text: str) -> Budget:
        """The same budget with these settings of the allocator, written as in
        PYTORCH_ALLOC_CONF."""
        return replace(self, settings=AllocatorSettings.parse(text), settings_text=text)

    def of(self, run: SimulatedRun) -> Budget:
        """The budget of this run: with the allocator settings that the program chose itself, and
        without the memory that NCCL takes."""
        settings, taken_bytes = run.allocator_settings, self.communicators_bytes(run)
        budget = self if settings is None else self.with_settings(settings)
        if self.memory_bytes is not None or self.capacity_bytes is None or not taken_bytes:
            return budget
        return replace(budget, memory_bytes=self.capacity_bytes - taken_bytes)

    def process_bytes(self, reserved_bytes: int, trace: SimulatedRun) -> int | None:
        """The memory of the whole process, as nvidia-smi shows it."""
        if self.gpu is None:
            return None
        reserved_bytes += self.communicators_bytes(trace)
        table = self._table_of_this_gpu
        if table is None:
            return reserved_bytes + _default_bytes(self.gpu)
        libraries = table.libraries_bytes * trace.uses_libraries
        solver = table.solver_bytes * trace.uses_solver
        return reserved_bytes + table.process_bytes + libraries + solver

    def communicators_bytes(self, trace: SimulatedRun) -> int:
        """The memory that NCCL takes. It is an estimate where NCCL talks to other GPUs."""
        if self.gpu is None or not (trace.num_communicators or trace.starts.collective):
            return 0
        channels = NVLINK_CHANNELS if self.gpu.nvlink_bytes_per_second else PCIE_CHANNELS
        groups_bytes = trace.num_communicators * channels * NCCL_CHANNEL_BYTES
        return NCCL_KERNELS_BYTES + (groups_bytes or NCCL_ALONE_BYTES)

    def limits(self) -> list[str]:
        if self.gpu is None:
            return [NO_GPU]
        limits = list(self.calibration_limits)
        if self.calibration and not self._table_of_this_gpu:
            limits.append(f"the memory of the CUDA context on {self.gpu.name} is an estimate")
        return limits

    @property
    def _table_of_this_gpu(self) -> Calibration | None:
        """The calibration, if it was measured on this GPU: on another GPU of the same architecture
        the CUDA context may have another size."""
        table = self.calibration
        return table if table and self.gpu and table.gpu == self.gpu.full_name else None


def _default_bytes(gpu: Gpu) -> int:
    """The memory of CUDA's context and kernels, where it was not measured."""
    return gpu.context_bytes + DEFAULT_KERNELS_BYTES


def budget_for(
    gpu: str | None,
    memory_bytes: int | None = None,
    settings: str = "",
    link: str | None = None,
    network: str | None = None,
) -> Budget:
    """The budget of this GPU, with what was measured of it. Where no GPU is named, the H200's
    calibration is used."""
    known = find_gpu(gpu or DEFAULT_GPU)
    calibration, limits = find(known, version("torch"))
    return Budget(
        gpu=known if gpu else None,
        memory_bytes=memory_bytes,
        settings=AllocatorSettings.parse(settings),
        settings_text=settings,
        calibration=calibration,
        calibration_limits=limits,
        fabric=fabric_for(known, link, network) if gpu else None,
    )
