"""CUDA graphs keep memory of their own; what is missing for torch.compile is named."""

from __future__ import annotations

import ctypes
import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

import vramcast
from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.kernel_resources import Resources
from vramcast.simulate.patches import (
    autograd_cache,
    bitsandbytes_library,
    flash_attn_library,
    inductor,
    inductor_config,
    xformers_attention,
)
from vramcast.simulate.patching import Patcher

MIB = 1 << 20
CAPTURED = """
import torch

def build(*, replays: int = 1):
    model = torch.nn.Linear(8, 8).cuda()
    torch.optim.SGD(model.parameters()).step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        x = torch.ones(64 << 20, dtype=torch.uint8, device="cuda")
        x + x
    del x
    torch.cuda.empty_cache()

    def step():
        for _ in range(replays):
            graph.replay()
        return torch.ones(64 << 20, dtype=torch.uint8, device="cuda")

    return step
"""
WITHOUT_TRITON = """
import sys
import torch

sys.modules["triton"] = None

def build():
    model = torch.compile(torch.nn.Linear(64, 64).cuda())
    return lambda: model(torch.ones(64, 64, device="cuda")).sum().backward()
"""

OWN_FUNCTION = """
import torch

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        kept, gone = x + x, x + x
        ctx.save_for_backward(kept)
        del gone
        return x + x

    @staticmethod
    def backward(ctx, gradient):
        return gradient + gradient

def build():
    x = torch.ones(64 << 20, dtype=torch.uint8, device="cuda").view(torch.float32)
    x.requires_grad_()
    return lambda: Twice.apply(Twice.apply(x)).sum().backward()
"""

COMPILED_UPDATE = """
import torch

def build():
    model = torch.nn.Linear(4096, 4096, bias=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    update = torch.compile(lambda: optimizer.step(), backend="eager")

    def step():
        model(torch.ones(4096, device="cuda")).sum().backward()
        update()
        optimizer.zero_grad()

    return step
"""


@pytest.mark.usefixtures("warm_simulations")
def test_a_compiled_update_has_gradients_and_states_and_compiles_nothing_of_ours(
    tmp_path: Path,
) -> None:
    (tmp_path / "work.py").write_text(COMPILED_UPDATE)
    prediction = vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200")
    found = prediction.breakdown_bytes
    assert (found["optimizer_state"] // MIB, found["gradients"] // MIB) == (128, 64)
    assert prediction.compilation and not prediction.compilation.recompilations


@pytest.mark.usefixtures("warm_simulations")
def test_what_a_function_keeps_for_backward_is_activations(tmp_path: Path) -> None:
    """Compiled code is such a function: it runs without gradients."""
    (tmp_path / "work.py").write_text(OWN_FUNCTION)
    breakdown = vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200").breakdown_bytes
    assert breakdown["activations"] // (64 * MIB) >= 2


@pytest.mark.usefixtures("warm_simulations")
def test_the_memory_of_a_graph_is_not_used_by_others(tmp_path: Path) -> None:
    """Two tensors of 64 MiB in the graph, one of the step, and small ones."""
    (tmp_path / "work.py").write_text(CAPTURED)
    once, often = (
        vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200", replays=n) for n in (1, 100)
    )
    assert 3 * 64 * MIB <= once.peak_reserved_bytes < 4 * 64 * MIB
    assert once.step is not None and often.step is not None
    assert often.peak_reserved_bytes == once.peak_reserved_bytes
    assert often.step.moved_bytes > 90 * once.step.moved_bytes / 2
    assert once.num_parameters == 8 * 8 + 8  # though only the graph is left of the model


COPIED = """
import torch

def build():
    x, weight = (torch.ones(4096, 4096, device="cuda") for _ in range(2))

    @torch.compile(mode="reduce-overhead")
    def run(x):
        return (x @ weight).relu() @ weight

    def step():
        run(x)

    return step
"""


@pytest.mark.usefixtures("warm_simulations")
def test_a_captured_graph_frees_the_copy_of_an_input_when_it_has_used_it(tmp_path: Path) -> None:
    """Beside two tensors of 64 MiB and the copy of one that is used to the end there are never more
    than two: a copy and what is made of it, or two results. cuBLAS has a workspace of 32 MiB."""
    pytest.importorskip("triton")
    (tmp_path / "work.py").write_text(COPIED)
    found = vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200")
    assert found.compilation
    assert 5 * 64 * MIB < found.peak_allocated_bytes < 6 * 64 * MIB


def test_what_every_process_times_again_is_no_part_of_a_compilation() -> None:
    numbers = iter((5, 9, 9))
    device = SimpleNamespace(num=lambda _: next(numbers), library=MagicMock())
    gpu: Any = SimpleNamespace(compilations=None, device=device, not_counting=nullcontext)
    with SimulatedGpu.compiling(gpu):
        pass
    with SimulatedGpu.compiling(gpu, is_kept=False):
        pass
    assert gpu.compilations.spans == [(6, 10), (10, 10)]


TIMED = """
import os
import pathlib
import torch

def build():
    os.environ["VRAMCAST_CACHE"] = str(pathlib.Path(__file__).parent)
    x, y = (torch.ones(512, 512, device="cuda", requires_grad=True) for _ in range(2))
    multiplied = torch.compile(torch.mm, mode="max-autotune-no-cudagraphs")
    return lambda: multiplied(x, y).sum().backward()
"""


@pytest.mark.long
@pytest.mark.usefixtures("warm_simulations")
def test_what_was_timed_is_timed_again_with_a_filled_cache(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "work.py").write_text(TIMED)
    empty, filled = (vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200") for _ in range(2))
    assert empty.compilation and empty.limits and filled.limits == empty.limits
    assert filled.peak_allocated_bytes == empty.peak_allocated_bytes
    assert filled.peak_reserved_bytes == empty.peak_reserved_bytes


FOUR_BITS = """
import torch

def build():
    x = torch.ones(64, 1024, dtype=torch.bfloat16, device="cuda")
    weights = torch.ones(2048, 512, dtype=torch.uint8, device="cuda")
    packed = torch._convert_weight_to_int4pack(weights, 8)
    scales = torch.ones(8, 2048, 2, dtype=torch.bfloat16, device="cuda")

    def step():
        found = torch._weight_int4pack_mm(x, packed, 128, scales)
        assert found.shape == (64, 2048) and found.dtype == x.dtype
        return found

    return step
"""


@pytest.mark.usefixtures("warm_simulations")
def test_weights_of_four_bits_are_multiplied(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(FOUR_BITS)
    vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200")


WARNED = """
import warnings
import torch
import torch._decomp

def build():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.has_cuda
    assert found[0].filename == __file__, found[0].filename
    return lambda: torch.ones(1, device="cuda")
"""


@pytest.mark.usefixtures("warm_simulations")
def test_torch_warns_of_who_used_what_is_old(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WARNED)
    vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200")


WARMED_UP = """
import torch

def build():
    x, graph, done = torch.ones(1 << 20, device="cuda"), torch.cuda.CUDAGraph(), []

    def step():
        done.append(None)
        if len(done) <= 6:
            return x + x
        if len(done) == 7:
            with torch.cuda.graph(graph):
                x.sin()
        graph.replay()

    return step
"""


@pytest.mark.usefixtures("warm_simulations")
def test_steps_go_on_until_a_graph_is_captured_and_captures_compute_nothing(tmp_path: Path) -> None:
    """Its time is that of a replay: one kernel that reads and writes 4 MiB, and no host's time."""
    (tmp_path / "work.py").write_text(WARMED_UP)
    found = vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200")
    assert found.phases[-1].num_steps == 22
    assert found.step is not None and found.step.moved_bytes == pytest.approx(8 * MIB, rel=0.01)


ATTENTION = """
import torch

def build(*, version: int, keys: int = 4):
    shape = dict(device="cuda", dtype=torch.bfloat16)
    q, k, v = (torch.empty(2, 300, heads, 64, **shape) for heads in (4, keys, keys))
    ours = [x.transpose(1, 2) for x in (q, k, v)]

    def step():
        if version == 0:
            forward = torch.ops.aten._scaled_dot_product_flash_attention
            out, sums, *_, a, b, _ = forward(*ours, 0.0, True)
            out = out.transpose(1, 2).contiguous().transpose(1, 2)
            backward = torch.ops.aten._scaled_dot_product_flash_attention_backward
            return backward(out, *ours, out, sums, None, None, 300, 300, 0.0, True, a, b)
        if version == 3:
            import flash_attn_3._C

            flash, none = torch.ops.flash_attn_3, (None,)
            options = 1.0, True, -1, -1, 0, 0.0, True, None, 1, None, 0
            out, sums, *_ = flash.fwd(q, k, v, *none * 20, *options)
            grads = [torch.empty_like(x) for x in (q, k, v)]
            return flash.bwd(out, q, k, v, out, sums, *grads, *none * 6, 1.0, True, -1, -1, 0.0)
        import flash_attn_2_cuda as flash

        options = None, None, 0.0, 1.0, True, -1, -1, 0.0, False, None
        out, sums, _, state = flash.fwd(q, k, v, *options)
        grads = [torch.empty_like(x) for x in (q, k, v)]
        options = None, 0.0, 1.0, True, -1, -1, 0.0, False, None, state
        return flash.bwd(out, q, k, v, out, sums, *grads, *options)

    return step
"""


# Version 3 has sums of rows twice (12 KiB), and counters.
@pytest.mark.parametrize(("version", "more_bytes"), [(2, 2048), (3, 14 * 1024)])
@pytest.mark.usefixtures("warm_simulations")
def test_flash_attn_allocates_and_computes_what_torch_s_copy_of_it_does(
    tmp_path: Path, version: int, more_bytes: int
) -> None:
    (tmp_path / "work.py").write_text(ATTENTION)
    (tmp_path / "flash_attn_3").mkdir()
    (tmp_path / "flash_attn_3" / "__init__.py").touch()
    ours, its = (
        vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200", version=version)
        for version in (0, version)
    )
    assert its.peak_allocated_bytes == pytest.approx(ours.peak_allocated_bytes, abs=more_bytes)
    assert ours.step is not None and its.step is not None
    assert its.step.flops == ours.step.flops
    assert its.step.device_seconds == pytest.approx(ours.step.device_seconds, rel=0.1)


@pytest.mark.parametrize(
    ("dtype", "width", "message"),
    [(torch.float32, 64, "only support fp16 and bf16"), (torch.bfloat16, 60, "multiple of 8")],
)
def test_flash_attn_refuses_what_the_real_one_refuses(
    dtype: torch.dtype, width: int, message: str
) -> None:
    x = torch.empty(1, 8, 2, width, dtype=dtype, device="meta")
    with pytest.raises(RuntimeError, match=message):
        flash_attn_library.check(x, x, x, (9, 0))


@pytest.mark.usefixtures("warm_simulations")
def test_without_triton_the_step_is_eager_and_the_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WITHOUT_TRITON)
    prediction = vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200")
    assert any("pip install triton" in limit for limit in prediction.limits)


def test_where_triton_cannot_be_imported_the_step_is_eager_and_the_reason_is_said(
    tmp_path: Path,
) -> None:
    (tmp_path / "triton.py").write_text("raise ImportError('another compiler is missing')")
    begin = f"sys.modules.pop('triton', None)\nsys.path.insert(0, {str(tmp_path)!r})"
    text = WITHOUT_TRITON.replace('sys.modules["triton"] = None', begin)
    (tmp_path / "work.py").write_text(text)
    (note,) = vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200").limits
    assert "triton cannot be imported (another compiler is missing)" in note


def test_bitsandbytes_finds_a_library_whose_pages_can_be_written() -> None:
    gpu: Any = None
    patcher = Patcher(gpu)
    bitsandbytes_library.apply(patcher)
    try:
        library = ctypes.cdll.LoadLibrary("libbitsandbytes_cuda130.so")
    finally:
        patcher.undo()
    library.cadam32bit_grad_fp32.argtypes = [ctypes.c_void_p]
    assert library.cadam32bit_grad_fp32(None) == 0
    address = library.cget_managed_ptr(ctypes.c_size_t(8192))
    ctypes.memset(address, 1, 8192)
    with pytest.raises(OSError):
        ctypes.cdll.LoadLibrary("libbitsandbytes_cuda130.so")


def test_no_thread_compiles_in_worker_processes() -> None:
    """Backward runs in a thread of its own, and an update there may be compiled."""
    settings: Any = importlib.import_module(inductor_config.LIBRARY)
    gpu: Any = None
    patcher = Patcher(gpu)
    inductor_config.apply(patcher)
    try:
        with ThreadPoolExecutor(1) as other:
            found = other.submit(lambda: settings.compile_threads).result()
    finally:
        patcher.undo()
    assert found == 1


def test_what_compiling_allocates_is_kept_for_a_run_that_finds_the_graph() -> None:
    """Between the first allocation and the fifth: one of 20 bytes and one of 40 that are freed, and
    cuBLAS' workspace, which stays."""
    names = ["aten::empty", autograd_cache.WORKSPACE]
    allocations = np.array(
        [(10, 0), (20, 0), (30, 1), (40, 0), (50, 0), (60, 0)],
        [("num_bytes", np.int64), ("operator_name", np.int32)],
    )
    events = np.array([1, 2, 3, -2, 4, -1, -4, 5, 6, -5])
    gpu: Any = SimpleNamespace(
        device=SimpleNamespace(
            events_array=lambda: events,
            allocations_array=lambda: allocations,
            name=names.__getitem__,
        )
    )
    assert autograd_cache.allocated_between(gpu, 1, 5) == [20, 0, -1, 40, -2]


def test_tiles_of_a_product_that_do_not_fit_shared_memory_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = pytest.importorskip("triton.runtime.errors")
    properties = SimpleNamespace(shared_memory_per_block_optin=232448)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: properties)
    tiles = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128}
    kernel = SimpleNamespace(
        fn=SimpleNamespace(src=""),
        inductor_meta={"config_args": tiles},
        triton_meta={"signature": {"x": "*bf16"}},
    )
    inductor._check_shared_memory(kernel, SimpleNamespace(num_stages=3))
    with pytest.raises(errors.OutOfResources, match="262144"):
        inductor._check_shared_memory(kernel, SimpleNamespace(num_stages=4))


def test_a_kernel_of_flex_attention_needs_what_the_compiler_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on an H200, where one with learnt distances needed 245,760 bytes of 232,448."""
    errors = pytest.importorskip("triton.runtime.errors")
    properties = SimpleNamespace(shared_memory_per_block_optin=232448)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: properties)
    kernel = SimpleNamespace(fn=SimpleNamespace(src="SPARSE_KV_BLOCK_SIZE"))
    for found in (Resources(64, 232448), None):  # None: the compiler refuses it
        monkeypatch.setattr(inductor, "resources_of", lambda *_, found=found: found)
        inductor._check_shared_memory(kernel, SimpleNamespace())
    monkeypatch.setattr(inductor, "resources_of", lambda *_: Resources(64, 245760))
    with pytest.raises(errors.OutOfResources, match="245760"):
        inductor._check_shared_memory(kernel, SimpleNamespace())


def test_xformers_offers_the_kernels_of_torch_without_compiled_parts_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    common: Any = SimpleNamespace(_built_with_cuda=False)
    monkeypatch.setitem(sys.modules, xformers_attention.LIBRARY, common)
    gpu: Any = None
    patcher = Patcher(gpu)
    xformers_attention.apply(patcher)
    assert common._built_with_cuda
    patcher.undo()
    assert not common._built_with_cuda


NUMBERS = """
import torch

def numbers(device):
    a = torch.arange(-6, 30, device=device).view(6, 6)
    kept, odd = a[torch.tensor([3, 1], device=device)], torch.tensor([1, 7], device=device)
    return (
        a.sum(1), a.amax(0), (a > 20).any(1), (a % 7).argmax(1), a // 4, a % 4,
        torch.div(a, 4, rounding_mode="trunc"), torch.where(a > 3, a, -a), kept, a.t() * 2,
        torch.isin(a, odd), a.to(torch.uint8), (a.float() / 3).floor().long(), a.float().mean(),
        torch.log(a.abs() + 1.0).mul(3).long(), torch.ones(6, 6, device=device).tril() * a,
    )

def build():
    compiled, count = torch.compile(numbers), torch.zeros((), dtype=torch.int64, device="cuda")
    for place, (found, right) in enumerate(zip(compiled("cuda"), numbers("cpu"), strict=True)):
        assert torch.equal(found.cpu(), right), (place, found.tolist(), right.tolist())
    counted = torch.compile(lambda: count.add_(3))
    while int(count) < 6:
        counted()
    assert int(count) == 6
    x = torch.rand(3, device="cuda", requires_grad=True)
    return lambda: x.sum().backward()
"""


@pytest.mark.usefixtures("warm_simulations")
def test_compiled_steps_compute_what_decides_sizes_as_eager_ones_do(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "work.py").write_text(NUMBERS)
    assert vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200").compilation
