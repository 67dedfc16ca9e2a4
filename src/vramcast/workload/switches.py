"""torch's process-wide switches: what they are, how they are set as a trial asks, and what is in force.

A plain value anywhere; torch is imported only where they are set or read: in the process that runs the workload.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from vramcast.errors import UsageError

SDPA_KERNELS = {
    "flash": "flash",
    "efficient": "mem_efficient",
    "cudnn": "cudnn",
    "math": "math",
}  # with torch's names


@dataclass(frozen=True, kw_only=True)
class Switches:
    """Settings of torch that hold for a whole process; None leaves what the workload has."""

    tf32: bool | None = None  # matrix products of float32 rounded to 10 bits of fraction
    cudnn_benchmark: bool | None = None
    detect_anomaly: bool | None = None
    sdpa: str | None = None  # the only kernel that scaled_dot_product_attention may take

    def __post_init__(self) -> None:
        for name in ("tf32", "cudnn_benchmark", "detect_anomaly"):
            if not isinstance(getattr(self, name), bool | None):
                raise UsageError(
                    f"The switch {name} is {getattr(self, name)!r}.",
                    "It is true, false, or left out.",
                )
        if self.sdpa is not None and self.sdpa not in list(
            SDPA_KERNELS
        ):  # whatever an edited file has: a table has no hash
            raise UsageError(
                f"The switch sdpa is {self.sdpa!r}.",
                f"It is one of {', '.join(SDPA_KERNELS)}, or left out.",
            )

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def apply_switches(switches: Switches) -> None:
    """Before the workload is built, and again after: a workload that sets one itself must not make a trial of something else."""
    import torch

    if switches.tf32 is not None:
        torch.backends.cuda.matmul.allow_tf32 = (
            switches.tf32
        )  # this way the older and the newer switches agree
    if switches.cudnn_benchmark is not None:
        torch.backends.cudnn.benchmark = switches.cudnn_benchmark
    if switches.detect_anomaly is not None:
        torch.autograd.set_detect_anomaly(switches.detect_anomaly)
    if switches.sdpa is not None:
        for kernel, name in SDPA_KERNELS.items():
            getattr(torch.backends.cuda, f"enable_{name}_sdp")(kernel == switches.sdpa)


def switches_in_force() -> dict[str, Any]:
    """What the process has, in the words of Switches. `sdpa` is a kernel's name only where torch may take no other."""
    import torch

    enabled = [
        kernel
        for kernel, name in SDPA_KERNELS.items()
        if getattr(torch.backends.cuda, f"{name}_sdp_enabled")()
    ]
    return {
        "tf32": torch._C._get_fp32_precision_getter("cuda", "matmul")
        == "tf32",  # this way never raises: see simulate/kernels/work.py
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "detect_anomaly": torch.is_anomaly_enabled(),
        "sdpa": enabled[0] if len(enabled) == 1 else None,
    }


def apply_allocator(settings: str) -> None:
    import torch

    torch.cuda.memory._set_allocator_settings(settings)
