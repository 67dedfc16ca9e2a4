"""What `vramcast env` found on a machine."""

from dataclasses import dataclass, field

from vramcast.records.base import Bytes, Count, Record


@dataclass(frozen=True)
class GpuState:
    name: str
    uuid: str
    total_bytes: Bytes
    used_bytes: Bytes
    driver_version: str
    cuda_version: str  # the newest version that the driver supports
    driver_model: str  # WDDM or TCC on Windows, "Linux" elsewhere
    ecc: bool | None
    capability: tuple[int, int] | None = None


@dataclass(frozen=True)
class GpuProcess:
    gpu: Count
    pid: Count
    name: str  # "" where not known
    used_bytes: Bytes | None


class Machine(Record, kind="machine"):
    """The facts about a machine; None means unknown."""

    gpus: list[GpuState] = field(default_factory=list)
    processes: list[GpuProcess] = field(default_factory=list)
    capability: tuple[int, int] | None = None  # that of the first GPU
    torch_version: str | None = None
    torch_cuda: str | None = None  # None: a build without CUDA
    cudnn: Count | None = None
    # the GPU architectures that torch was built for
    architectures: list[str] = field(default_factory=list)
    cuda_available: bool | None = None  # torch's own answer
    torch_error: str | None = None
    triton: str | None = None
    triton_error: str | None = None
    compiler: str | None = None  # for C
    cxx_compiler: str | None = None
    nvcc: str | None = None
    nvcc_error: str | None = None
    packages: dict[str, str] = field(default_factory=dict)
    allocator: dict[str, str] = field(default_factory=dict)
    is_wsl: bool = False
    system: str = ""
    python: str = ""
    cores: Count | None = None
