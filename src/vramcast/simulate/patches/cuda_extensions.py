"""CUDA extensions that a program compiles with torch.utils.cpp_extension work without nvcc.

Why: their kernels cannot run without a GPU, but their host code allocates the results. It is
compiled with kernels that do nothing. A call takes as long as going once through its tensors.
"""

import ctypes
import functools
import inspect
import sys
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

import torch

from vramcast.simulate.extensions.compiling import host_sources, is_cuda
from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.kernels.work import work_of
from vramcast.simulate.patching import Patcher

LIBRARY = "torch.utils.cpp_extension"
COMPILING = "vramcast: compiling the host code of the CUDA extension {name}, once (about a minute)"


def apply(patcher: Patcher) -> None:
    library = sys.modules[LIBRARY]
    compile_it: Callable[..., Any] = library._jit_compile
    signature = inspect.signature(compile_it)

    @functools.wraps(compile_it)
    def compile_host_code(*positional: Any, **named: Any) -> Any:
        given = signature.bind(*positional, **named).arguments
        if not any(map(is_cuda, given["sources"])) or given.get("is_standalone"):
            return compile_it(**given)
        with host_sources(
            given["name"],
            given["sources"],
            given["extra_include_paths"] or (),
            given["extra_cuda_cflags"] or (),
        ) as host:
            given |= {
                "sources": host.sources,
                "extra_include_paths": host.include_paths,
                "extra_cflags": [*(given["extra_cflags"] or ()), *host.flags],
                "extra_cuda_cflags": [],
                "extra_ldflags": _without_cuda(given["extra_ldflags"] or ()),
                "build_directory": str(host.folder),
                "with_cuda": False,
                "verbose": False,  # else an error does not say what the compiler said
            }
            if not any(host.folder.glob("*.so")):
                print(COMPILING.format(name=given["name"]), file=sys.stderr, flush=True)
            known = _with_cuda_kernel()
            try:
                module = compile_it(**given)
            except RuntimeError as problem:
                raise RuntimeError(
                    f"the host code of the CUDA extension {given['name']!r}, without its kernels, "
                    f"was not compiled: {_first_error(problem)}"
                ) from None
        _describe(next(host.folder.glob("*.so")), patcher.gpu)
        for operator in _with_cuda_kernel() - known:
            patcher.gpu.device.library.vramcast_add_extension_operator(operator.encode())
        return _with_work(module, given["name"], patcher.gpu)

    patcher.put(library, "_jit_compile", compile_host_code)


def _with_cuda_kernel() -> set[str]:
    return set(torch._C._dispatch_get_registrations_for_dispatch_key("CUDA"))


def _without_cuda(flags: Any) -> list[str]:
    return [flag for flag in flags if not flag.startswith(("-lcu", "-lc10_cuda", "-ltorch_cuda"))]


def _first_error(problem: RuntimeError) -> str:
    lines = str(problem).splitlines()
    return next((line.strip() for line in lines if "error:" in line), lines[0])


def _describe(library: Any, gpu: SimulatedGpu) -> None:
    model = gpu.model
    ctypes.CDLL(str(library)).vramcast_describe_gpu(
        model.num_multiprocessors,
        *model.capability,
        ctypes.c_int64(model.total_bytes),
        model.max_threads_per_multiprocessor,
        model.l2_cache_bytes,
    )


def _with_work(module: Any, name: str, gpu: SimulatedGpu) -> Any:
    """Each function notes the bytes of its tensors; there is no module where operators are only
    registered with torch."""
    for function_name, function in vars(module).items() if inspect.ismodule(module) else ():
        if isinstance(function, BuiltinFunctionType):
            setattr(module, function_name, _noting(function, f"{name}::{function_name}", gpu))
    return module


def _noting(function: Callable[..., Any], name: str, gpu: SimulatedGpu) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        work = work_of("extension", (*arguments, *named.values()), {}, result)
        gpu.device.library.vramcast_add_work(name.encode(), *work)
        return result

    return call
