"""flash-attn 2 finds its compiled library, whose functions check and allocate, and compute nothing.

Why: the real one needs CUDA and a GPU. The Python part is the real one: it installs without a
compiler (docs/limits.md has how). Checks and sizes were read in its flash_api.cpp, not recorded.
Versions: flash-attn 2.6 to 2.8.
"""

import ctypes
import sys
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

from vramcast.allocator.blocks import round_up
from vramcast.simulate.kernels.attention import num_splits
from vramcast.simulate.kernels.registry import new
from vramcast.simulate.kernels.work import DTYPE_NUMBERS
from vramcast.simulate.patching import Patcher
from vramcast.tracing.work import PLAIN

LIBRARY = "torch"
NAME = "flash_attn_2_cuda"
MOST_WIDTH, ROWS = 256, 128
FORWARD_PRODUCTS, BACKWARD_PRODUCTS = 2, 5
# timed like torch's own flash attention, which is the same kernel
OPERATOR = "aten::_scaled_dot_product_flash_attention"
Tensor = torch.Tensor


def apply(patcher: Patcher) -> None:
    library, gpu = ModuleType(NAME), patcher.gpu.model
    library.__spec__ = ModuleSpec(NAME, None)
    note = partial(note_work, patcher.gpu.device.library)

    def fwd(
        q: Tensor, k: Tensor, v: Tensor, out: Any, alibi: Any, dropout: float, *more: Any
    ) -> Any:
        check(q, k, v, gpu.capability)
        _, causal, _, _, _, wants_softmax = more[:6]
        batch, queries, heads, width = q.shape
        keys = k.shape[1]
        out = torch.empty_like(q) if out is None else out
        sums = new(batch, heads, queries, dtype=torch.float32)
        mask = _mask(q, batch, heads, queries, keys) if wants_softmax else new(0, dtype=q.dtype)
        splits = num_splits(batch, heads, queries, keys, width) if dropout == 0 else 1
        parts = []
        if splits > 1:
            rows = splits, batch, heads, queries
            parts = [new(*rows, dtype=torch.float32)]
            parts.append(new(*rows, _rounded_width(width), dtype=torch.float32))
        random_state = new(2, dtype=torch.int64)
        note(q, k, batch, causal, is_forward=True)
        return out, sums, mask, random_state

    def varlen_fwd(q: Tensor, k: Tensor, v: Tensor, out: Any, starts: Tensor, *more: Any) -> Any:
        check(q, k, v, gpu.capability)
        *_, queries, keys, _, _, _, causal, _, _, _, wants_softmax, _ = more
        (total, heads, _), batch = q.shape, len(starts) - 1
        out = torch.empty_like(q) if out is None else out
        sums = new(heads, total, dtype=torch.float32)
        mask = _mask(q, batch, heads, queries, keys) if wants_softmax else new(0, dtype=q.dtype)
        random_state = new(2, dtype=torch.int64)
        note(q, k, batch, causal, is_forward=True)
        return out, sums, mask, random_state

    def backward(given: tuple[Any, ...], batch: int, rows: tuple[int, ...], more: Any) -> Any:
        """`rows` is the padded shape of the queries (batch and rows, or rows only), in which sums
        are kept."""
        _, q, k, v, _, _, *grads = given
        heads, width = q.shape[-2:]
        check(q, k, v, gpu.capability)
        grads = [
            torch.empty_like(x) if g is None else g for g, x in zip(grads, (q, k, v), strict=True)
        ]
        causal, is_deterministic = more
        row_sums = new(*(rows[:-1] if q.dim() == 4 else ()), heads, rows[-1], dtype=torch.float32)
        copies = -(-gpu.num_multiprocessors // (batch * heads)) if is_deterministic else 1
        query_sums = new(copies, *rows, heads, _rounded_width(width), dtype=torch.float32)
        per_head = []
        if k.shape[-2] != heads:
            shape = *k.shape[:-2], heads, width
            per_head = [new(*shape, dtype=q.dtype) for _ in (k, v)]
        note(q, k, batch, causal, is_forward=False)
        del query_sums, per_head
        return *grads, row_sums

    def bwd(*given: Any) -> Any:
        batch, queries = given[1].shape[:2]
        rows = batch, round_up(queries, ROWS)
        return backward(given[:9], batch, rows, (given[12], given[16]))

    def varlen_bwd(*given: Any) -> Any:
        batch = len(given[9]) - 1
        rows = (given[1].shape[0] + ROWS * batch,)
        return backward(given[:9], batch, rows, (given[17], given[21]))

    for function in (fwd, varlen_fwd, bwd, varlen_bwd):
        setattr(library, function.__name__, function)
    sys.modules[NAME] = library


def note_work(
    device: Any, q: Tensor, k: Tensor, batch: int, causal: bool, is_forward: bool
) -> None:
    """Samples of different lengths, one after the other, are timed as if all were as long."""
    queries, keys = (x.shape[:-2].numel() / batch for x in (q, k))
    pairs = batch * q.shape[-2] * queries * keys
    name = OPERATOR if is_forward else f"{OPERATOR}_backward"
    products = FORWARD_PRODUCTS if is_forward else BACKWARD_PRODUCTS
    flops = 2.0 * products * pairs * q.shape[-1] * (0.5 if causal else 1.0)
    num_bytes = 2.0 * products * q.element_size() * (q.numel() + k.numel())
    sizes = (ctypes.c_int64 * 4)(batch * q.shape[-2], round(queries), round(keys), q.shape[-1])
    device.vramcast_add_work(name.encode(), DTYPE_NUMBERS[q.dtype], flops, num_bytes, sizes, PLAIN)


def _rounded_width(width: int) -> int:
    return round_up(width, 32 if width <= ROWS else 64)


def _mask(q: Tensor, batch: int, heads: int, queries: int, keys: int) -> Tensor:
    return new(batch, heads, round_up(queries, ROWS), round_up(keys, ROWS), dtype=q.dtype)


def check(q: Tensor, k: Tensor, v: Tensor, capability: tuple[int, int]) -> None:
    width, heads, kept = q.shape[-1], q.shape[-2], k.shape[-2]
    wrong = {
        "FlashAttention only supports Ampere GPUs or newer.": capability < (8, 0),
        "FlashAttention only support fp16 and bf16 data type": q.dtype
        not in (torch.float16, torch.bfloat16),
        "query, key and value must have the same dtype": not q.dtype == k.dtype == v.dtype,
        "FlashAttention only supports head dimension at most 256": width > MOST_WIDTH,
        "head_size should be a multiple of 8": width % 8 != 0,
        "Input tensor must be on CUDA": not (q.is_cuda and k.is_cuda and v.is_cuda),
        "Number of heads in key/value must divide number of heads in query": heads % kept != 0,
    }
    for message, is_wrong in wrong.items():
        if is_wrong:
            raise RuntimeError(message)
