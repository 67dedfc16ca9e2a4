"""Runs code written for "cuda" on the CPU: the device in every call is replaced, nothing else.

For `probe --device cpu`, because a workload says "cuda" and has no knob for the device.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode

from vramcast.hardware.gpus import find_gpu
from vramcast.simulate.device import Device
from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.patches import torch_cuda
from vramcast.simulate.patching import DoesNothing, Patcher

CPU = torch.device("cpu")
NVTX = ("range_push", "range_pop", "mark", "range_start", "range_end")


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
    """The CPU for a name or number of a GPU. Anything else is returned as it is."""
    is_name = isinstance(device, str | torch.device)
    is_gpu = str(device).partition(":")[0] == "cuda" if is_name else type(device) is int
    return CPU if is_gpu else device


class Event(DoesNothing):
    """All work is done when a call returns, so events take the host's time."""

    wait = synchronize = DoesNothing.do_nothing
    _time = 0.0

    def record(self, *_: Any) -> None:
        self._time = time.perf_counter()

    def elapsed_time(self, end: Self) -> float:
        return 1e3 * (end._time - self._time)


class Stream(DoesNothing):
    cuda_stream = device_index = 0
    synchronize = wait_event = wait_stream = DoesNothing.do_nothing

    def is_capturing(self) -> bool:
        return False

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event


class HostMemory(Device):
    """A device that counts no allocations, and whose values are real."""

    def __init__(self) -> None:
        nothing = dict.fromkeys(("set_healthy", "begin_overlaps", "begin_reads"), lambda *_: None)
        self.library: Any = SimpleNamespace(
            **{f"vramcast_{name}": f for name, f in nothing.items()}
        )

    def watch_progress(self, num_finished: Callable[[int], int]) -> None: ...

    def allocated_bytes(self) -> int:
        return 0

    peak_allocated_bytes = allocated_bytes

    def events(self, start: int = 0) -> list[int]:
        return []

    def allocations(self, start: int = 0) -> list[Any]:
        return []

    def empty_cache(self) -> None: ...


class _GeneratorKind(type(torch._C.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class CpuGenerator(torch._C.Generator, metaclass=_GeneratorKind):
    def __new__(cls, device: Any = "cpu") -> Any:
        return torch._C.Generator(on_cpu(device))


@contextlib.contextmanager
def cuda_means_cpu() -> Iterator[None]:
    # Imported now: modes import it at their first call, when it would ask whether torch has CUDA
    # and get the answer of the patches below.
    import torch._dynamo

    host_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    model = replace(
        find_gpu("a100-80gb"),
        full_name="the CPU",
        total_bytes=host_bytes,
        num_multiprocessors=os.cpu_count() or 1,
    )
    patcher = Patcher(SimulatedGpu(model, HostMemory()))
    default_device, only = torch.set_default_device, Stream()
    try:
        torch_cuda.apply(patcher)
        patcher.put(torch.cuda, "default_generators", (torch._C.Generator(),))
        for name in NVTX:
            patcher.put(torch.cuda.nvtx, name, lambda *_, **__: None)
        for name, answer in {
            "Event": Event,
            "Stream": Stream,
            "current_stream": lambda *_, **__: only,
            "default_stream": lambda *_, **__: only,
            "stream": lambda *_, **__: DoesNothing(),
            "StreamContext": DoesNothing,
            "set_stream": lambda *_: None,
            "synchronize": lambda *_: None,
            "is_current_stream_capturing": lambda: False,
            "get_rng_state": lambda *_: torch.get_rng_state(),
            "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        }.items():
            patcher.put(torch.cuda, name, answer)
        patcher.put(torch.accelerator, "current_stream", torch.cuda.current_stream)
        # as in a build without CUDA: otherwise the compiler would ask the driver for streams
        patcher.put(torch.accelerator, "is_available", lambda: False)
        patcher.put(torch, "set_default_device", lambda device: default_device(on_cpu(device)))
        patcher.put(torch, "Generator", CpuGenerator)
        patcher.put(torch.Tensor, "record_stream", lambda *_: None)
        patcher.put(torch._C._nn, "_parse_to", _onto_the_cpu(torch._C._nn._parse_to))
        for kind, name in (
            (torch.amp.autocast_mode.autocast, "device_type"),
            (torch.amp.grad_scaler.GradScaler, "device"),
        ):
            patcher.put(kind, "__init__", _first_argument_on_cpu(kind.__init__, name))
        _talk_over_the_host(patcher)
        with OnCpu():
            yield
    finally:
        patcher.undo()


def _onto_the_cpu(parse_to: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the parser of Module.to's arguments, which no mode sees."""

    def parse(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = on_cpu(kwargs["device"])
        return parse_to(*map(on_cpu, args[:1]), *args[1:], **kwargs)

    return parse


def _first_argument_on_cpu(make: Callable[..., None], name: str) -> Callable[..., None]:
    """An __init__ with which kind("cuda", ...) makes kind("cpu", ...)."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        device = args[0] if args else kwargs.pop(name, "cuda")
        make(self, "cpu" if str(device).startswith("cuda") else device, *args[1:], **kwargs)

    return __init__


def _talk_over_the_host(patcher: Patcher) -> None:
    """Lets Gloo do on the CPU what NCCL does between GPUs."""
    import torch.distributed as dist

    if not dist.is_available():
        return
    init, parallel = dist.init_process_group, torch.nn.parallel.DistributedDataParallel
    make = parallel.__init__

    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> None:
        init("gloo", *args, **{**kwargs, "device_id": None})

    def __init__(self: Any, module: Any, *_: Any, **kwargs: Any) -> None:
        """Leaves out the other positional arguments, which are devices."""
        make(self, module, **{**kwargs, "device_ids": None, "output_device": None})

    patcher.put(dist, "init_process_group", init_process_group)
    patcher.put(parallel, "__init__", __init__)
