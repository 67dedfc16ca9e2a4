"""torch's process-wide switches: set as a trial asks, and read back. Only in the process that runs the workload."""

from __future__ import annotations

from typing import Any

import torch

from vramcast.probing.trial import SDPA_KERNELS, Switches


def apply_switches(switches: Switches) -> None:
    """Before the workload is built, and again after: a workload that sets one itself must not make a trial of something else."""
    if switches.tf32 is not None:
        torch.backends.cuda.matmul.allow_tf32 = switches.tf32  # this way the older and the newer switches agree
    if switches.cudnn_benchmark is not None:
        torch.backends.cudnn.benchmark = switches.cudnn_benchmark
    if switches.detect_anomaly is not None:
        torch.autograd.set_detect_anomaly(switches.detect_anomaly)
    if switches.sdpa is not None:
        for kernel in SDPA_KERNELS:
            _enable(kernel, kernel == switches.sdpa)


def _enable(kernel: str, enabled: bool) -> None:
    name = {"efficient": "mem_efficient"}.get(kernel, kernel)
    getattr(torch.backends.cuda, f"enable_{name}_sdp")(enabled)


def switches_in_force() -> dict[str, Any]:
    """What the process has, in the words of Switches. `sdpa` is a kernel's name only where torch may take no other."""
    enabled = [kernel for kernel in SDPA_KERNELS if _is_enabled(kernel)]
    return {
        "tf32": torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32",  # this way never raises: see simulate/kernels/work.py
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "detect_anomaly": torch.is_anomaly_enabled(),
        "sdpa": enabled[0] if len(enabled) == 1 else None,
    }


def _is_enabled(kernel: str) -> bool:
    name = {"efficient": "mem_efficient"}.get(kernel, kernel)
    return bool(getattr(torch.backends.cuda, f"{name}_sdp_enabled")())


def apply_allocator(settings: str) -> None:
    torch.cuda.memory._set_allocator_settings(settings)
