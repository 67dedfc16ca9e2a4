"""Runs code written for "cuda" on the CPU: the device in every call is replaced, nothing else.

`probe --device cpu` needs it: a workload says "cuda" and has no knob for the device.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")


class OnCpu(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if "device" in kwargs:
            kwargs["device"] = on_cpu(kwargs["device"])
        kwargs.pop("pin_memory", None)
        # the only call that takes a device's name without its keyword
        if func is torch.Tensor.to:
            args = (args[0], *map(on_cpu, args[1:2]), *args[2:])
        return func(*(on_cpu(a) if isinstance(a, torch.device) else a for a in args), **kwargs)


def on_cpu(device: Any) -> Any:
    """The CPU for whatever names a GPU; anything else as it is."""
    if isinstance(device, torch.device):
        return CPU if device.type == "cuda" else device
    if isinstance(device, str) and (device == "cuda" or device.startswith("cuda:")):
        return CPU
    if type(device) is int:  # a GPU's number
        return CPU
    return device


class AtOnce:
    """A stream or an event of a device that has done everything when the call returns."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._time = 0.0

    def record(self, *_: Any) -> None:
        self._time = time.perf_counter()

    def elapsed_time(self, end: AtOnce) -> float:
        return 1e3 * (end._time - self._time)

    def query(self) -> bool:
        return True

    def synchronize(self, *_: Any) -> None:
        pass

    wait = wait_stream = wait_event = synchronize

    def record_event(self, event: AtOnce | None = None) -> AtOnce:
        event = event or AtOnce()
        event.record()
        return event

    def __enter__(self) -> AtOnce:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _GeneratorKind(type(torch._C.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class CpuGenerator(torch._C.Generator, metaclass=_GeneratorKind):
    def __new__(cls, device: Any = "cpu") -> Any:
        return torch._C.Generator(on_cpu(device))


_HOST_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
_PROPERTIES = SimpleNamespace(
    name="the CPU",
    major=8,
    minor=0,
    total_memory=_HOST_BYTES,
    multi_processor_count=os.cpu_count() or 1,
)


def _answering(value: Any) -> Callable[..., Any]:
    """A new function for each name: torch.compile's table of functions wants no two alike."""
    return lambda *_, **__: value


# What a training step may ask of torch.cuda, answered for the CPU.
_NOTHING = (
    "synchronize",
    "empty_cache",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
    "set_device",
    "set_stream",
    "init",
)
_NVTX = ("range_push", "range_pop", "mark", "range_start", "range_end")
_NO_BYTES = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
_CUDA_ANSWERS: dict[str, Any] = {
    **{name: _answering(None) for name in _NOTHING},
    **{name: _answering(0) for name in _NO_BYTES},
    **{name: type(name, (AtOnce,), {}) for name in ("Stream", "Event", "device", "stream")},
    "current_stream": lambda *_: AtOnce(),
    "default_stream": lambda *_: AtOnce(),
    "get_rng_state": lambda *_: torch.get_rng_state(),
    "set_rng_state": lambda state, *_: torch.set_rng_state(state),
    "memory_summary": lambda *_, **__: "",
    "is_available": lambda: True,  # a script that insists on a GPU is what this is for
    "is_current_stream_capturing": lambda: False,
    "current_device": lambda: 0,
    "device_count": lambda: 1,
    "memory_stats_as_nested_dict": lambda *_, **__: {
        **{
            name: {"all": dict.fromkeys(("current", "peak", "allocated", "freed"), 0)}
            for name in ("allocated_bytes", "reserved_bytes")
        },
        "num_alloc_retries": 0,
        "num_ooms": 0,
    },
    "mem_get_info": lambda *_: (_HOST_BYTES, _HOST_BYTES),
    "get_device_name": lambda *_: _PROPERTIES.name,
    "get_device_properties": lambda *_: _PROPERTIES,
    "get_device_capability": lambda *_: (_PROPERTIES.major, _PROPERTIES.minor),
    "is_bf16_supported": lambda *_, **__: True,
}


@contextlib.contextmanager
def cuda_means_cpu() -> Iterator[None]:
    default_device = torch.set_default_device
    # torch.cuda.memory_stats is made of memory_stats_as_nested_dict
    nested_stats = _CUDA_ANSWERS["memory_stats_as_nested_dict"]
    patches = [
        *(patch.object(torch.cuda, name, answer) for name, answer in _CUDA_ANSWERS.items()),
        patch.object(torch.cuda.memory, "memory_stats_as_nested_dict", nested_stats),
        *(patch.object(torch.cuda.nvtx, name, _answering(None)) for name in _NVTX),
        patch.object(torch.Tensor, "record_stream", _answering(None)),
        patch.object(torch._C._nn, "_parse_to", _onto_the_cpu(torch._C._nn._parse_to)),
        patch.object(torch, "set_default_device", lambda device: default_device(on_cpu(device))),
        patch.object(torch, "Generator", CpuGenerator),
        _first_argument_on_cpu(torch.amp.autocast_mode.autocast, "device_type"),
        _first_argument_on_cpu(torch.amp.grad_scaler.GradScaler, "device"),
        OnCpu(),
    ]
    with contextlib.ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield


def _onto_the_cpu(parse_to: Callable[..., Any]) -> Callable[..., Any]:
    """For Module.to, which reads its arguments where no mode sees them."""

    def parse(*args: Any, **kwargs: Any) -> Any:
        given = {"device": on_cpu(kwargs["device"])} if "device" in kwargs else {}
        return parse_to(*map(on_cpu, args[:1]), *args[1:], **{**kwargs, **given})

    return parse


def _first_argument_on_cpu(kind: Any, name: str) -> Any:
    """A patch under which kind("cuda", ...) makes kind("cpu", ...)."""
    original = kind.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        device = args[0] if args else kwargs.pop(name, "cuda")
        original(self, "cpu" if str(device).startswith("cuda") else device, *args[1:], **kwargs)

    return patch.object(kind, "__init__", __init__)
