"""Tables measured on one GPU: what libraries allocate, and how fast kernels run."""

from dataclasses import field
from typing import Annotated

from msgspec import Meta

from vramcast.records.base import AboveZero, Bytes, Count, Number, Part, Record

TorchVersion = Annotated[str, Meta(pattern=r"^\d+\.\d+")]
ConvolutionKey = Annotated[
    str, Meta(pattern=r"^\w+ (nchw|nhwc) x\d[\d,]* w\d[\d,]* s\d[\d,]* p\d[\d,]* d\d[\d,]* g\d+$")
]
# Of the forward pass, the data gradient and the weight gradient.
Workspaces = Annotated[list[Bytes], Meta(min_length=3, max_length=3)]


class Calibration(Record, kind="calibration table"):
    gpu: str  # as the driver names it
    architecture: str  # sm_90
    torch_version: TorchVersion
    cuda_version: str
    cudnn_version: Count
    driver_version: str
    # CUDA's context and the kernels a training process loads, as NVML counts them.
    process_bytes: Bytes
    device_bytes: Bytes  # what the GPU has less for it
    libraries_bytes: Bytes  # more, once flash attention or cuDNN is used
    solver_bytes: Bytes = 0  # more, once cuSOLVER is used, as by orthogonal initialisation
    gemm_workspace_bytes: Bytes  # of cuBLAS, for each thread
    gemm_lt_workspace_bytes: Bytes
    convolutions: dict[ConvolutionKey, Workspaces] = field(default_factory=dict)
    source: str = "calibrated"


class HostSpeed(Record, kind="speed of a host"):
    machine: str
    python_version: str
    torch_version: TorchVersion
    step_seconds: AboveZero  # of the small step in hardware/calibration/host.py
    source: str = "calibrated"


class Power(Part):
    idle_watts: AboveZero  # at the highest clock
    joules_per_flop: dict[str, Number]  # by precision, at the highest clock
    joules_per_byte: Number
    teraflops_of_multiprocessor: AboveZero  # in bf16 by its data sheet: the highest clock


class Rates(Record, kind="table of rates"):
    """What the numbers of a list mean is in forecast/timing/rates.py."""

    gpu: str
    torch_version: TorchVersion
    # "aten::add plain bf16", "aten::add plain" or "plain"
    kernels: dict[str, list[Number]]
    # "tensor" (16-bit and tf32), "tensor even" and "tensor unaligned" (rows begin at multiples
    # of 4 or of 2 bytes), and "fp32"
    products: dict[str, list[Number]]
    # attention, convolutions and recurrent layers, by operator and precision
    compute: dict[str, list[Number]]
    # of one step of one matrix, in 16 or 32 bits, with a width of 256 and a batch of 32: seconds,
    # the powers of width and batch that they grow with, and how the first grows with the width
    recurrent_step_seconds: dict[str, list[Number]]
    # "to pinned", "from pageable": seconds of a copy over PCIe, and bytes a second
    copies: dict[str, list[Number]]
    power: Power | None = None
    # "forward dense": least and greatest value of a polynomial, then its coefficients
    convolutions: dict[str, list[Number]] = field(default_factory=dict)
    host: dict[str, Number]  # seconds on the host by kind of operator
    # Standard deviation of the logarithm of a kernel's time, by how well its kind is known; "host":
    # of the host's seconds.
    spread: dict[str, Number] = field(default_factory=dict)
    host_name: str = ""  # the machine that these seconds hold for
    # What HostSpeed.step_seconds is on that machine.
    host_step_seconds: AboveZero | None = None
    # Rows of the suites whose kernels and times it was made from.
    calibrated_on: list[str] = field(default_factory=list)
    num_kernels: Count = 0
    source: str = "calibrated"
