"""Tables measured on one GPU: the memory of libraries, and the speed of kernels."""

from dataclasses import field
from typing import Annotated

from msgspec import Meta

from vramcast.records.base import AboveZero, Bytes, Count, Number, Part, Record

TorchVersion = Annotated[str, Meta(pattern=r"^\d+\.\d+")]
ConvolutionKey = Annotated[
    str, Meta(pattern=r"^\w+ (nchw|nhwc) x\d[\d,]* w\d[\d,]* s\d[\d,]* p\d[\d,]* d\d[\d,]* g\d+$")
]
# workspaces of the forward pass, the data gradient and the weight gradient
Workspaces = Annotated[list[Bytes], Meta(min_length=3, max_length=3)]


class Calibration(Record, kind="calibration table"):
    gpu: str  # the driver's name for it
    architecture: str  # sm_90
    torch_version: TorchVersion
    cuda_version: str
    cudnn_version: Count
    driver_version: str
    # CUDA's context and the kernels a training process loads, as NVML counts them.
    process_bytes: Bytes
    device_bytes: Bytes  # by how much the GPU's free memory falls
    libraries_bytes: Bytes  # added when flash attention or cuDNN is first used
    # added when cuSOLVER is first used, for example by orthogonal initialisation
    solver_bytes: Bytes = 0
    gemm_workspace_bytes: Bytes  # cuBLAS's workspace of each thread
    gemm_lt_workspace_bytes: Bytes
    convolutions: dict[ConvolutionKey, Workspaces] = field(default_factory=dict)
    source: str = "calibrated"


class HostSpeed(Record, kind="speed of a host"):
    machine: str
    python_version: str
    torch_version: TorchVersion
    step_seconds: AboveZero  # the time of the small step in hardware/calibration/host.py
    source: str = "calibrated"


class Power(Part):
    idle_watts: AboveZero  # at the highest clock
    joules_per_flop: dict[str, Number]  # by precision, at the highest clock
    joules_per_byte: Number
    teraflops_of_multiprocessor: AboveZero  # in bf16 at the highest clock, by the data sheet


class Rates(Record, kind="table of rates"):
    """Measured speeds. forecast/timing/rates.py says what the numbers of a list mean."""

    gpu: str
    torch_version: TorchVersion
    # "aten::add plain bf16", "aten::add plain" or "plain"
    kernels: dict[str, list[Number]]
    # "tensor", "tensor even" and "tensor unaligned" (rows begin at multiples of 4 or of 2 bytes),
    # "tensor turned tf32" and others (forecast/timing/products.py), and "fp32"
    products: dict[str, list[Number]]
    # attention, convolutions and recurrent layers, by operator and precision
    compute: dict[str, list[Number]]
    # With 16 or 32 bits: the seconds of one step of one matrix with a width of 256 and a batch of
    # 32, the powers of width and batch with which they grow, how the first power grows with the
    # width, the logarithm of how much longer odd widths take, the power of layers, and the parts of
    # the peak and of the bandwidth that are reached.
    recurrent: dict[str, list[Number]]
    # "to pinned", "from pageable": seconds of a copy over PCIe, and bytes a second
    copies: dict[str, list[Number]]
    power: Power | None = None
    # by names such as "forward dense": the least and the greatest value of a polynomial, then its
    # coefficients
    convolutions: dict[str, list[Number]] = field(default_factory=dict)
    host: dict[str, Number]  # seconds on the host by kind of operator
    # The standard deviation of the logarithm of a kernel's time, by kind of kernel; "host" is that
    # of the host's seconds.
    spread: dict[str, Number] = field(default_factory=dict)
    host_name: str = ""  # the machine on which these seconds were measured
    # HostSpeed.step_seconds of that machine
    host_step_seconds: AboveZero | None = None
    # The rows of the suites whose kernels and times the rates were fitted to.
    calibrated_on: list[str] = field(default_factory=list)
    num_kernels: Count = 0
    source: str = "calibrated"
