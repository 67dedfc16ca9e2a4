"""Run code written for "cuda" on the CPU: the device in every call is replaced, nothing else.

Needed for `probe --device cpu`: a workload says "cuda" (that is what predict simulates and probe measures) and has no knob for the device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")
MOVES = (torch.Tensor.to,)  # the only call that takes a device's name without its keyword


class OnCpu(TorchFunctionMode):
    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if "device" in kwargs:
            kwargs["device"] = on_cpu(kwargs["device"])
        kwargs.pop("pin_memory", None)
        return func(*(on_cpu(a) if isinstance(a, torch.device) or func in MOVES else a for a in args), **kwargs)


def on_cpu(device: Any) -> Any:
    """The CPU for whatever names a GPU; anything else as it is."""
    if isinstance(device, torch.device):
        return CPU if device.type == "cuda" else device
    if isinstance(device, str) and (device == "cuda" or device.startswith("cuda:")):
        return CPU
    return device


# what a training step may ask of torch.cuda, answered for a machine whose only device is the CPU
_CUDA_ANSWERS: dict[str, Callable[..., Any]] = {
    "synchronize": lambda *_: None,
    "empty_cache": lambda: None,
    "reset_peak_memory_stats": lambda *_: None,
    "set_device": lambda *_: None,
    "current_device": lambda: 0,
    "device_count": lambda: 1,
    "memory_allocated": lambda *_: 0,
    "max_memory_allocated": lambda *_: 0,
    "memory_reserved": lambda *_: 0,
    "max_memory_reserved": lambda *_: 0,
    "is_bf16_supported": lambda *_, **__: True,
}


@contextlib.contextmanager
def cuda_means_cpu() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name, answer in _CUDA_ANSWERS.items():
            stack.enter_context(patch.object(torch.cuda, name, answer))
        stack.enter_context(_first_argument_on_cpu(torch.amp.autocast_mode.autocast, "device_type"))
        stack.enter_context(_first_argument_on_cpu(torch.amp.grad_scaler.GradScaler, "device"))
        stack.enter_context(OnCpu())
        yield


def _first_argument_on_cpu(kind: Any, name: str) -> Any:
    """A patch under which kind("cuda", ...) makes kind("cpu", ...)."""
    original = kind.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        device = args[0] if args else kwargs.pop(name, "cuda")
        original(self, "cpu" if str(device).startswith("cuda") else device, *args[1:], **kwargs)

    return patch.object(kind, "__init__", __init__)
