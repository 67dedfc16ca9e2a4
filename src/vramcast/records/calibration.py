"""Tables measured on one GPU: what libraries allocate, and how fast kernels run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from vramcast.records.base import Bytes, Count, Number, Record


@dataclass(frozen=True, kw_only=True)
class Calibration(Record):
    KIND: ClassVar[str] = "calibration table"

    gpu: str  # as the driver names it
    architecture: str  # sm_90
    torch_version: str
    cuda_version: str
    cudnn_version: int
    driver_version: str
    process_bytes: Bytes  # of a process that trains, without the allocator's: CUDA's context and the kernels it loaded, as NVML counts it
    device_bytes: Bytes  # what the GPU has less for it
    libraries_bytes: Bytes  # more, once flash attention or cuDNN is used
    solver_bytes: Bytes = (
        0  # more, once a matrix is factorised (cuSOLVER): orthogonal initialisation does
    )
    gemm_workspace_bytes: Bytes  # cuBLAS's, for each thread that multiplies matrices
    gemm_lt_workspace_bytes: Bytes
    convolutions: dict[str, list[int]] = field(
        default_factory=dict
    )  # workspace by key: forward, data gradient, weight gradient
    source: str = "calibrated"


@dataclass(frozen=True, kw_only=True)
class Rates(Record):
    KIND: ClassVar[str] = "table of rates"

    gpu: str
    torch_version: str
    kernels: dict[
        str, list[float]
    ]  # "aten::add plain bf16", or "aten::add plain", or "plain": FIELDS_OF_KERNEL
    products: dict[
        str, list[float]
    ]  # "tensor" (16-bit and tf32), "tensor unaligned" and "fp32": FIELDS_OF_PRODUCT
    compute: dict[
        str, list[float]
    ]  # attention, convolutions and recurrent layers, by operator and precision: FIELDS_OF_COMPUTE
    recurrent_step_seconds: dict[str, Number]  # of a recurrent layer's kernel, whatever its size
    host: dict[str, Number]  # seconds on the host by kind of operator
    calibrated_on: list[str] = field(
        default_factory=list
    )  # rows of the suites whose kernels and times it was made from
    num_kernels: Count = 0  # how many measured kernels are behind it
    source: str = "calibrated"
