"""Every change made to torch's Python side while a device is simulated, each with its reason; all in a worker process of its own.

torch 2.10 to 2.13: the same list serves; names a version lacks are skipped.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from vramcast.simulate import meta_kernels, saving
from vramcast.simulate.backward_threads import wait_until_idle
from vramcast.simulate.target import SimulatedGpu


class Stream:
    """The one stream there is."""

    cuda_stream = 0
    device_index = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        return event or Event()

    def _nothing(self, *_: Any, **__: Any) -> None: ...

    synchronize = wait_event = wait_stream = _nothing


class Event:
    """Time does not pass on the simulated device."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        return 1.0

    def _nothing(self, *_: Any, **__: Any) -> None: ...

    record = wait = synchronize = _nothing


class StreamContext:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: Any) -> None: ...


def _answers(gpu: SimulatedGpu) -> dict[str, Any]:
    """What torch.cuda answers about the target GPU."""
    properties = types.SimpleNamespace(
        name=gpu.name,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        total_memory=gpu.total_bytes,
        multi_processor_count=gpu.num_multiprocessors,
        max_threads_per_multi_processor=gpu.max_threads_per_multiprocessor,
        warp_size=32,
        L2_cache_size=50 << 20,
        is_integrated=0,
        gcnArchName=gpu.name,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472,
    )
    allocated: Callable[..., int] = lambda *_, **__: gpu.allocated_bytes()
    peak: Callable[..., int] = lambda *_, **__: gpu.peak_allocated_bytes()
    return {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": gpu.capability >= (8, 0),
        "is_tf32_supported": gpu.capability >= (8, 0),
        "device_count": 1,
        "_device_count_nvml": 1,
        "current_device": 0,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "get_device_name": gpu.name,
        "get_device_capability": gpu.capability,
        "get_device_properties": properties,
        "get_arch_list": [f"sm_{gpu.capability[0]}{gpu.capability[1]}"],
        "mem_get_info": lambda *_, **__: (gpu.total_bytes - gpu.allocated_bytes(), gpu.total_bytes),
        "memory_allocated": allocated,
        "memory_reserved": allocated,
        "max_memory_allocated": peak,
        "max_memory_reserved": peak,
        "memory_stats_as_nested_dict": lambda *_, **__: _memory_stats(gpu),
        "memory_summary": "",
        "utilization": 0,
        "is_current_stream_capturing": False,
        "current_stream": lambda *_: Stream(),
        "default_stream": lambda *_: Stream(),
        "stream": lambda *_: contextlib.nullcontext(),
        "get_rng_state": lambda *_, **__: _host_rng_state(),
        "get_rng_state_all": lambda *_, **__: [_host_rng_state()],
        "Stream": Stream,
        "Event": Event,
        "StreamContext": StreamContext,
    }


_NOTHING = (
    "_lazy_init",
    "init",
    "synchronize",
    "set_device",
    "set_stream",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_accumulated_memory_stats",
    "ipc_collect",
    "set_per_process_memory_fraction",
    "_lazy_call",
)


def _memory_stats(gpu: SimulatedGpu) -> dict[str, Any]:
    """What torch.cuda.memory_stats makes its answer of. What is reserved comes out of the replay, after the steps: here it is what is in use."""
    in_use = {
        "current": gpu.allocated_bytes(),
        "peak": gpu.peak_allocated_bytes(),
        "allocated": gpu.peak_allocated_bytes(),
        "freed": 0,
    }
    names = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")
    return {
        **{name: {"all": dict(in_use)} for name in names},
        "num_alloc_retries": 0,
        "num_ooms": 0,
    }


def _host_rng_state() -> Any:
    import torch

    return torch.zeros(16, dtype=torch.uint8, device="cpu")


def _function(answer: Any) -> Any:
    return answer if callable(answer) else lambda *_, **__: answer


def _patch_cuda(gpu: SimulatedGpu, put: Callable[[Any, str, Any], None]) -> None:
    import torch

    for name, answer in _answers(gpu).items():
        put(torch.cuda, name, _function(answer))
    for name in _NOTHING:
        put(torch.cuda, name, lambda *_, **__: None)
    put(
        torch.cuda, "_initialized", True
    )  # checkpointing asks whether there is a random state to save
    put(torch.cuda, "empty_cache", lambda: gpu.empty_cache())
    for module in (torch.cuda.memory, torch.cuda.random):
        for name in (*_answers(gpu), *_NOTHING):
            if hasattr(module, name):
                put(module, name, getattr(torch.cuda, name))
    # checks that read torch's build instead of asking the device
    put(torch.backends.cudnn, "is_available", lambda: True)
    put(
        torch.backends.cudnn,
        "is_acceptable",
        lambda tensor: tensor.is_cuda and tensor.dtype in torch.backends.cudnn.CUDNN_TENSOR_DTYPES,
    )
    modes = {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}
    put(
        importlib.import_module("torch.backends.cudnn.rnn"),
        "get_cudnn_mode",
        lambda mode: modes[mode],
    )
    put(torch.backends.cudnn, "version", lambda: 91900)
    put(torch.version, "cuda", torch.version.cuda or "13.0")
    put(torch._C, "_cuda_getCurrentRawStream", lambda *_: 0)
    run_backward = torch.autograd._engine_run_backward

    def run_to_the_end(*arguments: Any, **options: Any) -> Any:
        result = run_backward(*arguments, **options)
        wait_until_idle()
        return result

    put(torch.autograd, "_engine_run_backward", run_to_the_end)


def _patch_compile(gpu: SimulatedGpu, put: Callable[[Any, str, Any], None]) -> None:
    """Compiled code is simulated as if it were not compiled."""
    import torch

    def compile(model: Any = None, **_: Any) -> Any:
        gpu.note(
            "torch.compile is not modelled: the step was simulated as eager code, which usually takes more memory"
        )
        return model if model is not None else (lambda function: function)

    put(torch, "compile", compile)
    put(torch.nn.Module, "compile", lambda *_, **__: compile())


class _Graph:
    """A CUDA graph that repeats nothing: the step it was captured from has been simulated."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> _Graph:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def pool(self) -> tuple[int, int]:
        return 0, 0

    def _nothing(self, *_: Any, **__: Any) -> None: ...

    capture_begin = capture_end = replay = reset = _nothing


def _patch_graphs(gpu: SimulatedGpu, put: Callable[[Any, str, Any], None]) -> None:
    """What a graph captures is simulated as if it were run; what it repeats takes no further memory."""
    import torch

    def note() -> None:
        gpu.note(
            "CUDA graphs are not modelled: the step was simulated as eager code; a graph keeps memory of its own and takes more"
        )

    class Graph(
        _Graph
    ):  # a class, as in torch: transformers has `torch.cuda.CUDAGraph | None` in a signature
        def __init__(self, *_: Any, **__: Any) -> None:
            note()

    def make_graphed_callables(callables: Any, *_: Any, **__: Any) -> Any:
        note()
        return callables

    put(torch.cuda, "CUDAGraph", Graph)
    put(torch.cuda, "graph", Graph)
    put(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    put(torch.cuda, "make_graphed_callables", make_graphed_callables)


class _LazyDynamo(types.ModuleType):
    """Optimizers import torch._dynamo only to switch it off; that import takes longer than most predictions."""

    def __init__(self, folder: str) -> None:
        super().__init__("torch._dynamo")
        self.__dict__["_folder"] = folder

    @staticmethod
    def disable(function: Any = None, recursive: bool = True, **_: Any) -> Any:
        return function if function is not None else (lambda f: f)

    @staticmethod
    def graph_break(*_: Any, **__: Any) -> None: ...

    @staticmethod
    def is_compiling() -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._become_real()
        return getattr(self, name)

    @property
    def __path__(self) -> list[str]:  # type: ignore[override]
        """Asked for by whoever imports a submodule: they need the real thing."""
        self._become_real()
        return self.__path__

    def _become_real(self) -> None:
        """Run the real module in this object, so that whoever holds it holds the real one."""
        meta_kernels.load()  # first, or the imports below meet a half-initialised torch
        folder = self.__dict__.pop("_folder")
        spec = importlib.util.spec_from_file_location(
            "torch._dynamo", f"{folder}/__init__.py", submodule_search_locations=[folder]
        )
        assert spec is not None and spec.loader is not None
        self.__class__ = types.ModuleType  # type: ignore[assignment]
        self.__spec__, self.__loader__, self.__path__, self.__package__, self.__file__ = (
            spec,
            spec.loader,
            [folder],
            "torch._dynamo",
            spec.origin,
        )
        spec.loader.exec_module(self)


def _patch_dynamo() -> None:
    import torch

    if "torch._dynamo" not in sys.modules:
        sys.modules["torch._dynamo"] = _LazyDynamo(f"{torch.__path__[0]}/_dynamo")


def patch_triton(note: Callable[[str], None]) -> None:
    """A Triton kernel cannot run here; its launch is a note in the limits. Called again whenever triton may have been imported."""
    jit = sys.modules.get("triton.runtime.jit")
    if jit is None or getattr(jit, "_vramcast", False):
        return

    def launch(self: Any, *_: Any, **__: Any) -> None:
        name = getattr(getattr(self, "fn", None), "__name__", "?")
        note(
            f"the Triton kernel {name} was launched directly: what it computes and allocates is not modelled; register it as a torch custom op with a fake kernel"
        )

    jit.JITFunction.run = launch
    autotuner = sys.modules.get("triton.runtime.autotuner")
    if autotuner is not None:
        autotuner.Autotuner.run = launch
        autotuner.Heuristics.run = launch
    jit._vramcast = True  # type: ignore[attr-defined]


@contextlib.contextmanager
def installed(gpu: SimulatedGpu) -> Iterator[None]:
    """torch answers for the simulated GPU inside this block, and as before after it."""
    before: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        if hasattr(owner, name) or owner is sys.modules["torch._C"]:
            before.append((owner, name, getattr(owner, name, None)))
            setattr(owner, name, value)

    _patch_dynamo()
    _patch_cuda(gpu, put)
    _patch_compile(gpu, put)
    _patch_graphs(gpu, put)
    saving.patch(gpu, put)
    try:
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)
