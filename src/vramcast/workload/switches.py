"""torch's process-wide switches: their names, how they are set, and which are in force.

torch is imported only in the process that runs the workload.
"""

from dataclasses import asdict, dataclass
from typing import Any

from vramcast.errors import UsageError
from vramcast.workload.forced_changes import AUTOCAST_DTYPES, FORCED, force, in_force

# Our name of each kernel, and torch's.
SDPA_KERNELS = {"flash": "flash", "efficient": "mem_efficient", "cudnn": "cudnn", "math": "math"}


@dataclass(frozen=True, kw_only=True)
class Switches:
    """Switches to set; None leaves what the workload has."""

    tf32: bool | None = None  # float32 matrix products with inputs rounded to 10 mantissa bits
    cudnn_benchmark: bool | None = None
    detect_anomaly: bool | None = None
    sdpa: str | None = None  # the only kernel that scaled_dot_product_attention may use
    # Changes of the step itself, for programs without a knob for them: forced_changes.py.
    autocast: str | None = None  # bf16 or fp16
    checkpoint_every: int | None = None  # 1: every block that the model repeats
    foreach: bool | None = None  # for optimizers that leave it to torch
    fused: bool | None = None
    set_to_none: bool | None = None  # for zero_grad

    def __post_init__(self) -> None:
        if self.autocast not in (None, *AUTOCAST_DTYPES):
            advice = f"It is one of {', '.join(AUTOCAST_DTYPES)}, or absent."
            raise UsageError(f"The switch autocast is {self.autocast!r}.", advice)
        if self.checkpoint_every is not None and self.checkpoint_every < 1:
            raise UsageError(
                f"The switch checkpoint_every is {self.checkpoint_every}.", "It is 1 or more."
            )
        if self.sdpa not in (None, *SDPA_KERNELS):
            advice = f"It is one of {', '.join(SDPA_KERNELS)}, or absent."
            raise UsageError(f"The switch sdpa is {self.sdpa!r}.", advice)

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def apply_switches(switches: Switches) -> None:
    """Sets the switches. Called before the workload is built and again after, because it may set
    some itself."""
    import torch

    if switches.tf32 is not None:
        # set in this way, torch's older and newer switches agree
        torch.backends.cuda.matmul.allow_tf32 = switches.tf32
    if switches.cudnn_benchmark is not None:
        torch.backends.cudnn.benchmark = switches.cudnn_benchmark
    if switches.detect_anomaly is not None:
        torch.autograd.set_detect_anomaly(switches.detect_anomaly)
    if switches.sdpa is not None:
        for kernel, name in SDPA_KERNELS.items():
            getattr(torch.backends.cuda, f"enable_{name}_sdp")(kernel == switches.sdpa)
    for name in FORCED:
        if (value := getattr(switches, name)) is not None:
            force(name, value)


def switches_in_force() -> dict[str, Any]:
    """The switches of this process. `sdpa` is a kernel's name only if torch may use no other."""
    import torch

    enabled = [
        kernel
        for kernel, name in SDPA_KERNELS.items()
        if getattr(torch.backends.cuda, f"{name}_sdp_enabled")()
    ]
    return {
        # read in this way it never raises: see simulate/kernels/work.py
        "tf32": torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32",
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "detect_anomaly": torch.is_anomaly_enabled(),
        "sdpa": enabled[0] if len(enabled) == 1 else None,
        **in_force(),
    }


def apply_allocator(settings: str) -> None:
    import torch

    torch.cuda.memory._set_allocator_settings(settings)
