"""torch.compile compiles for the simulated GPU.

Why: Dynamo and Inductor need no GPU to lower a program for one; the code that they write runs on
the simulated device (inductor.py). Importing them takes seconds, so a function that is compiled
before that waits for its first call.
"""

import functools
import gc
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from vramcast.programs.watching import AROUND
from vramcast.records.store import cache_folder, make_folder
from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.patches import torch_dynamo
from vramcast.simulate.patching import Patcher
from vramcast.simulate.quick_imports import quick_imports

LIBRARY = "torch"
# Inductor's caches, in vramcast's cache. The number changes when the simulation changes.
FOLDER = "inductor-2"
OFF_NOTE = "torch.compile was switched off: the step was simulated as eager code"
NO_TRITON_NOTE = (
    "torch.compile was not simulated: the package triton {}. "
    "The step was simulated as eager code, which usually takes more memory"
)


def apply(patcher: Patcher) -> None:
    compile_really = torch.compile

    def compile(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda function: compile(function, **options)
        if options.get("disable"):
            return compile_really(model, **options)
        reason = _why_not(patcher, options.get("backend"))
        if reason:
            return _eager(model, reason, patcher)
        if isinstance(model, torch.nn.Module) or torch_dynamo.is_real():
            return _compiled(compile_really, model, options, patcher)
        return torch_dynamo.later(
            model, lambda function: _compiled(compile_really, function, options, patcher)
        )

    patcher.put(torch, "compile", functools.wraps(compile_really)(compile))


def _why_not(patcher: Patcher, backend: Any) -> str | None:
    if not patcher.gpu.compiles:
        return OFF_NOTE
    has_triton = sys.modules.get("triton") or importlib.util.find_spec("triton")
    if has_triton or not _is_inductor(backend):
        return None
    return NO_TRITON_NOTE.format("is not installed (pip install triton)")


def _is_inductor(backend: Any) -> bool:
    return backend in (None, "inductor")


def _why_triton_fails() -> str | None:
    try:
        importlib.import_module("triton")
    except ImportError as error:
        return NO_TRITON_NOTE.format(f"cannot be imported ({error})")
    return None


def _eager(model: Any, reason: str, patcher: Patcher) -> Any:
    """The model or function itself, with a note. A function adds the note when it is called:
    libraries compile some that are never used."""
    if isinstance(model, torch.nn.Module):
        patcher.gpu.note(reason)
        # not by setattr, which would make the module its own submodule
        vars(model)["_orig_mod"] = model
        return model

    @functools.wraps(model)
    def call(*arguments: Any, **options: Any) -> Any:
        patcher.gpu.note(reason)
        return model(*arguments, **options)

    return call


def forget() -> None:
    """Brings torch back to the state of a new process: nothing is compiled, and no kernel was
    timed."""
    sys.modules[torch_dynamo.NAME].reset()
    if codecache := sys.modules.get("torch._inductor.codecache"):
        codecache.PyCodeCache.cache_clear()


@contextmanager
def switched_off(gpu: SimulatedGpu) -> Iterator[None]:
    """Runs without torch.compile in this block, also functions that were compiled when their module
    was imported."""
    gpu.compiles = False
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        gpu.compiles = True


def _compiled(compile_really: Any, model: Any, options: dict[str, Any], patcher: Patcher) -> Any:
    reason = _why_triton_fails() if _is_inductor(options.get("backend")) else None
    if reason:
        return _eager(model, reason, patcher)
    is_first, patcher.gpu.has_compiled = not patcher.gpu.has_compiled, True
    folder = cache_folder() / FOLDER
    make_folder(folder)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    # Dynamo must see the modules' own method. Where a program is watched, calls from outside are
    # still seen.
    own: Any = torch.nn.Module._wrapped_call_impl
    if around := getattr(torch.nn.Module.__call__, AROUND, None):
        own = around(own)
        from torch._dynamo.eval_frame import skip_code

        skip_code(own.__code__)
    torch.nn.Module.__call__ = own  # type: ignore[method-assign]
    # Later garbage collections need not look at the objects of these imports, nor at a function's
    # model.
    may_freeze = is_first and patcher.gpu.is_of_function
    if may_freeze:
        gc.collect()
    with quick_imports():
        compiled = compile_really(model, **options)
        if may_freeze:
            gc.freeze()
    return compiled
