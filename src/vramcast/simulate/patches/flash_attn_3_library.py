"""flash-attn 3 finds its compiled operators, which check and allocate, and compute nothing.

Why: the real ones need CUDA and a GPU. The Python part is the real one. Checks and sizes were read
in its hopper/flash_api.cpp, not recorded.
Versions: flash-attn 3, of August 2026.
"""

import sys
from functools import partial
from types import ModuleType
from typing import Any

import torch

from vramcast.allocator.blocks import round_up
from vramcast.simulate.kernels.registry import new
from vramcast.simulate.patches.flash_attn_library import check, note_work
from vramcast.simulate.patching import Patcher

LIBRARY = "flash_attn_3"
WIDTHS = 64, 96, 128, 192, 256
CAUSAL, SPLITS, BACKWARD_CAUSAL, LEFT, RIGHT, SOFTCAP = 24, 31, 16, 17, 18, 19  # arguments
Tensor = torch.Tensor


def apply(patcher: Patcher) -> None:
    name = f"{LIBRARY}._C"
    sys.modules[name] = ModuleType(name)
    for function in (fwd, bwd):
        setattr(torch.ops.flash_attn_3, function.__name__, partial(function, patcher.gpu))


def fwd(gpu: Any, *given: Any) -> Any:
    q, k, v, out, starts = *given[:3], given[6], given[7]
    check(q, k, v, gpu.model.capability)
    causal, splits, heads = given[CAUSAL], given[SPLITS], q.shape[-2]
    rows = q.shape[:-2]
    batch = rows[0] if starts is None else len(starts) - 1
    out = new(*q.shape[:-1], v.shape[-1], dtype=q.dtype) if out is None else out
    sums_shape = (batch, heads, rows[1]) if starts is None else (heads, rows[0])
    sums = new(*sums_shape, dtype=torch.float32)
    counters = None
    is_windowed = max(given[CAUSAL + 1 : CAUSAL + 3]) >= 0
    if causal or is_windowed or starts is not None:  # a counter hands out blocks
        vectors = 1 + causal + 2 * (starts is not None)
        counters = new(1 + vectors * round_up(batch, 4), dtype=torch.int32)
    parts: list[Tensor | None] = [None, None]
    if splits > 1:
        widths = v.shape[-1:], ()
        parts = [new(splits, *sums_shape, *width, dtype=torch.float32) for width in widths]
    note_work(gpu.device.library, q, k, batch, causal, is_forward=True)
    del counters
    return out, sums, *parts


def bwd(gpu: Any, *given: Any) -> Any:
    _, q, k, v, _, _, *grads = given[:9]
    starts, queries = given[9], given[13]
    check(q, k, v, gpu.model.capability)
    heads, width = q.shape[-2], next(w for w in WIDTHS if w >= max(q.shape[-1], v.shape[-1]))
    grads = [torch.empty_like(x) if g is None else g for g, x in zip(grads, (q, k, v), strict=True)]
    block_rows, block_keys = _block(width, gpu.model.capability, given)
    if starts is None:
        batch, queries = q.shape[:2]
        rows, key_rows = round_up(queries, block_rows), round_up(k.shape[1], block_keys)
        first: tuple[int, ...] = (batch,)
    else:
        batch, first = len(starts) - 1, ()
        rows, key_rows = (
            round_up(len(x) + batch * m, m) for x, m in ((q, block_rows), (k, block_keys))
        )
    sums = [new(*first, heads, rows, dtype=torch.float32) for _ in range(2)]
    sums.append(new(*first, heads, rows * width, dtype=torch.float32))
    if k.shape[-2] != heads:
        shape = *first, k.shape[-2], key_rows * width
        sums += [new(*shape, dtype=torch.float32) for _ in range(2)]
    counters = new(-(-queries // block_rows), batch, heads, dtype=torch.int32)
    note_work(gpu.device.library, q, k, batch, given[BACKWARD_CAUSAL], is_forward=False)
    del counters
    return sums


def _block(width: int, capability: tuple[int, int], given: tuple[Any, ...]) -> tuple[int, int]:
    """The number of queries and of keys in a block."""
    causal, left, right, softcap = (given[i] for i in (BACKWARD_CAUSAL, LEFT, RIGHT, SOFTCAP))
    is_special = causal or left >= 0 or right >= 0 or softcap > 0
    if capability >= (9, 0):
        rows = {64: 96 if causal and softcap > 0 else 128, 128: 64 if is_special else 80}
        return rows.get(width, 64), {192: 96, 256: 80}.get(width, 128)
    if capability in ((8, 6), (8, 9)):
        return 64 if width <= 192 else 32, 128 if width <= 96 else 96 if width == 128 else 64
    return 128 if width == 64 else 64, {192: 80, 256: 64}.get(width, 128)
