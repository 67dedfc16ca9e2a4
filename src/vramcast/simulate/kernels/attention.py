"""scaled_dot_product_attention: which kernel the GPU takes, and what each of them allocates.

The choice follows sdp_utils.cpp in torch's native/transformers/cuda.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vramcast.allocator.blocks import round_up
from vramcast.hardware.calibration.table import minor_version
from vramcast.simulate.kernels.registry import Target, kernel, new, scratch, take_random

MATH, FLASH, EFFICIENT, CUDNN = 0, 1, 2, 3  # torch's enum SDPBackend
BACKENDS = {"math": MATH, "flash": FLASH, "efficient": EFFICIENT, "cudnn": CUDNN}
NAMES = {backend: name for name, backend in BACKENDS.items()}
# the default, if neither GPU nor program has changed it
TORCH_ORDER = [FLASH, EFFICIENT, MATH, CUDNN, 4]
HALVES = (torch.float16, torch.bfloat16)
# GPUs with 100 KiB of shared memory instead of 164 or more
SMALL_SHARED_MEMORY = ((8, 6), (8, 9), (12, 0))
# From torch 2.14 on the efficient kernel accepts fewer heads of k and v than of q, and all fused
# kernels accept a single head of k and v without enable_gqa.
SHARES_HEADS = minor_version(torch.__version__) >= (2, 14)


# ------------------------------------------------------------------------------------- choice
def _is_fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, gqa: bool) -> bool:
    """Whether the shapes and strides suit all fused kernels."""
    if any(x.dim() != 4 for x in (q, k, v)) or 0 in (q.numel(), k.numel()):
        return False
    heads, kv_heads = q.shape[1], k.shape[1]
    return (
        q.shape[0] == k.shape[0] == v.shape[0]
        and kv_heads == v.shape[1]
        and (
            heads == kv_heads or (gqa and heads % kv_heads == 0) or (SHARES_HEADS and kv_heads == 1)
        )
        and q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
        and (mask is None or mask.shape[-1] == 1 or mask.stride(-1) == 1)
    )


def _can_use_cudnn(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> bool:
    max_width = 256 if Target.gpu.model.capability[0] in (9, 10) else 128
    return (
        torch._C._get_cudnn_sdp_enabled()
        and q.dtype in HALVES
        and Target.gpu.model.capability >= (8, 0)
        and not (mask is not None and mask.requires_grad)
        and not torch.are_deterministic_algorithms_enabled()
        and all(width % 8 == 0 and width <= max_width for width in (q.shape[-1], v.shape[-1]))
        and 1 not in (q.shape[2], k.shape[2])
        and not (causal and q.shape[2] > k.shape[2])
    )


def _can_use_flash(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> bool:
    return (
        torch._C._get_flash_sdp_enabled()
        and mask is None
        and q.dtype in HALVES
        and Target.gpu.model.capability >= (8, 0)
        and q.shape[-1] == k.shape[-1] == v.shape[-1] <= 256
        and not (causal and q.shape[2] != k.shape[2])
    )


def _can_use_efficient(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> bool:
    alignment = 8 if q.dtype in HALVES else 4
    return (
        torch._C._get_mem_efficient_sdp_enabled()
        and q.dtype in (*HALVES, torch.float32)
        and not (q.dtype == torch.bfloat16 and Target.gpu.model.capability < (8, 0))
        and (SHARES_HEADS or q.shape[1] == k.shape[1])
        and not (causal and mask is not None)
        and q.shape[-1] % alignment == v.shape[-1] % alignment == 0
    )


CAN_USE = {CUDNN: _can_use_cudnn, FLASH: _can_use_flash, EFFICIENT: _can_use_efficient}


@kernel("_fused_sdp_choice")
def choose(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    enable_gqa: bool = False,
) -> int:
    order = Target.gpu.attention.order = _order()
    if _is_fused(q, k, v, attn_mask, enable_gqa):
        for name in order:
            backend = BACKENDS[name]
            if backend == MATH or CAN_USE[backend](q, k, v, attn_mask, is_causal):
                Target.gpu.attention.used.add(name)
                return backend
    Target.gpu.attention.used.add("math")
    return MATH


def _order() -> tuple[str, ...]:
    """The order of kernels that the user or the program has set. Without one, data-centre Hopper
    and Blackwell prefer cuDNN's kernel, and other GPUs try flash first. They never reach cuDNN's,
    because math comes before it and is always possible."""
    if Target.gpu.attention.asked_for:
        return Target.gpu.attention.asked_for
    said = torch._C._get_sdp_priority_order()
    if said != TORCH_ORDER:
        return tuple(NAMES[backend] for backend in said if backend in NAMES)
    prefers_cudnn = Target.gpu.model.capability in ((9, 0), (10, 0))
    return ("cudnn", "flash", "efficient") if prefers_cudnn else ("flash", "efficient")


# -------------------------------------------------------------------------------------- cuDNN
def _laid_out_like(q: Tensor, width: int) -> Tensor:
    """A dense tensor whose dimensions lie in memory in the order of q's."""
    if width == q.shape[-1]:
        return torch.empty_like(q)
    strides = q.stride()
    order = sorted(range(4), key=lambda d: -strides[d])
    shape = (*q.shape[:3], width)
    dense = new(*(shape[d] for d in order), dtype=q.dtype)
    return dense.permute(*(order.index(d) for d in range(4)))


@kernel("_scaled_dot_product_cudnn_attention")
def cudnn_forward(
    q: Tensor, k: Tensor, v: Tensor, compute_log_sumexp: bool, dropout_p: float = 0.0
) -> Any:
    if dropout_p > 0:
        take_random(q.shape[:3].numel() * k.shape[2])
    seed, offset = new(dtype=torch.int64), new(dtype=torch.int64)
    out = _laid_out_like(q, v.shape[-1])
    shape = (*q.shape[:3], 1) if compute_log_sumexp else (0,)
    log_sumexp = new(*shape, dtype=torch.float32)
    scratch(256)
    return out, log_sumexp, None, None, q.shape[2], k.shape[2], seed, offset, None


@kernel("_scaled_dot_product_cudnn_attention_backward")
def cudnn_backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Any:
    if grad.stride(-1) != 1 or 0 in grad.stride():
        grad = grad.contiguous()
    grads = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    batch, heads, length, width = q.shape
    # the gradient of q in single precision, and a sum for each row
    num_bytes = batch * heads * length * (width * 4 + 4) + 256
    if k.shape[1] != heads:  # gradients of k and v for each head of q
        num_bytes += batch * heads * k.shape[2] * (k.shape[-1] + v.shape[-1]) * q.element_size()
    scratch(num_bytes)
    return grads


# -------------------------------------------------------------------------------------- flash
def num_splits(batch: int, heads: int, queries: int, keys: int, width: int) -> int:
    """Into how many parts flash splits the keys where multiprocessors would be idle.

    num_splits_heuristic in flash_api.cpp: the fewest parts that fill the GPU to 85 % of the best.
    """
    block = 256 if width <= 64 else 128 if width <= 128 else 64
    key_blocks = -(-keys // block)
    num_blocks = batch * heads * -(-queries // 64)
    slots = Target.gpu.model.num_multiprocessors * 2
    if num_blocks >= 0.8 * slots:
        return 1
    efficiency = []
    for n in range(1, min(128, slots, key_blocks) + 1):
        eligible = n == 1 or -(-key_blocks // n) != -(-key_blocks // (n - 1))
        waves = num_blocks * n / slots
        efficiency.append(waves / -(-num_blocks * n // slots) if eligible else 0.0)
    return next(n for n, e in enumerate(efficiency, 1) if e >= 0.85 * max(efficiency))


@kernel("_scaled_dot_product_flash_attention")
def flash_forward(q: Tensor, k: Tensor, dropout_p: float = 0.0) -> Any:
    batch, heads, queries, width = q.shape
    out = torch.empty_like(q.transpose(1, 2)).transpose(1, 2)
    log_sumexp = new(batch, heads, queries, dtype=torch.float32)
    splits = num_splits(batch, heads, queries, k.shape[2], width) if dropout_p == 0 else 1
    parts = []
    if splits > 1:  # parts of the log-sum-exp and of the result
        rows = splits * batch * heads * queries
        parts = scratch(rows * 4, rows * round_up(width, 32) * 4)
    rng_state, unused = new(2, dtype=torch.uint64), new(dtype=torch.uint64)
    parts.clear()
    if dropout_p > 0:
        scratch(16)
        take_random(batch * heads * 32)
    debug_mask = new(0, dtype=q.dtype)
    return out, log_sumexp, None, None, queries, k.shape[2], rng_state, unused, debug_mask


@kernel("_scaled_dot_product_flash_attention_backward")
def flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor
) -> tuple[Tensor, ...]:
    batch, heads, queries, width = q.shape
    dense = grad.transpose(1, 2).contiguous(), out.transpose(1, 2).contiguous()
    # strides as torch's Meta kernel has them, which torch.compile relies on: heads may be expanded
    grads = [torch.empty_like(x) for x in (q, k, v)]
    rounded_queries = round_up(queries, 128)
    rounded_width = round_up(width, 32 if width <= 128 else 64)
    row_sums = new(batch, heads, rounded_queries, dtype=torch.float32)
    grad_q_sums = new(batch, rounded_queries, heads, rounded_width, dtype=torch.float32)
    if k.shape[1] != heads:  # gradients of k and v for each head of q
        per_head = [new(batch, k.shape[2], heads, width, dtype=q.dtype) for _ in (k, v)]
        del per_head
    del grad_q_sums, row_sums, dense
    return tuple(grads)


# --------------------------------------------------------------------------- memory-efficient
@kernel("_scaled_dot_product_efficient_attention")
def efficient_forward(
    q: Tensor, k: Tensor, v: Tensor, compute_log_sumexp: bool, dropout_p: float = 0.0
) -> Any:
    batch, heads, queries, _width = q.shape
    if dropout_p > 0:
        take_random(q.shape[:3].numel() * k.shape[2])
    out = new(batch, queries, heads, v.shape[-1], dtype=q.dtype).transpose(1, 2)
    rows = round_up(queries, 32) if compute_log_sumexp else 0
    log_sumexp = new(batch, heads, rows, dtype=torch.float32)
    if q.dtype in HALVES and v.shape[-1] > 128:
        new(batch, queries, heads, v.shape[-1], dtype=torch.float32)  # sums, freed at once
    # the random state lives on the host
    return out, log_sumexp, torch.empty((), dtype=torch.int64), torch.empty((), dtype=torch.int64)


def _efficient_workspace_bytes(shape: Sequence[int], keys: int, dtype: torch.dtype) -> int:
    """The workspace for all heads: the gradient of q in single precision, a lock for each tile, and
    gradients of k and v where these do not fit into registers."""
    batch, heads, queries, width = shape
    half = dtype in HALVES
    small_memory = Target.gpu.model.capability in SMALL_SHARED_MEMORY
    if width <= 64:
        rows, columns = 64, 64
    elif width <= 128:
        rows, columns = (128, 128) if half and not small_memory else (64, 128)
    else:
        rows, columns = (64, 64) if small_memory else (128, 64)
    num_floats = -(-queries // rows) * -(-width // columns) * (rows * columns + 4)
    if half and width > rows:  # the keys are split into so few parts that at most 200 run at once
        parts = max(1, min(-(-keys // 64), 200 // (batch * heads)))
        num_floats += parts * 2 * 64 * round_up(width, rows)
    return batch * heads * round_up(num_floats, 4) * 4


@kernel("_scaled_dot_product_efficient_attention_backward")
def efficient_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    wanted: list[bool],
    packed: tuple[int, int, int] | None = None,
) -> Any:
    """`packed`: how many sequences lie one after the other, and the most queries and keys of
    one."""
    batch, heads, queries, width = q.shape
    grad = grad.transpose(1, 2).contiguous().transpose(1, 2)
    grads = [
        new(b, t, h, d, dtype=q.dtype).transpose(1, 2) for b, h, t, d in (q.shape, k.shape, v.shape)
    ]
    # gradients of k and v for each head of q
    for_each_head = [
        new(b, t, heads, d, dtype=q.dtype) for b, h, t, d in (k.shape, v.shape) if h != heads
    ]
    grad_bias = None
    if attn_bias is not None and wanted[3]:
        keys = k.shape[2]
        grad_bias = new(batch, heads, queries, round_up(keys, 16), dtype=attn_bias.dtype)
        grad_bias = grad_bias[..., :keys]
    if q.dtype in HALVES:
        row_sums = new(batch, heads, queries, dtype=torch.float32)
    else:
        # one C++ expression: its parts live until its end
        product = grad.to(torch.float32) * out.to(torch.float32)
        sums = product.sum(-1)
        row_sums = sums.transpose(-2, -1).contiguous()
        del sums, product
    num_sequences, most_queries, most_keys = packed or (batch, queries, k.shape[2])
    shape = num_sequences, heads, most_queries, width
    scratch(_efficient_workspace_bytes(shape, most_keys, q.dtype))
    del row_sums, for_each_head
    return *grads, grad_bias


@kernel("_efficient_attention_backward")
def efficient_backward_by_rows(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    out: Tensor,
    cu_seqlens_q: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    bias_requires_grad: bool,
) -> Any:
    """The same, for tensors of [batch, row, head, width]. Nested tensors and libraries call it
    directly."""
    packed = None
    if cu_seqlens_q is not None:
        packed = cu_seqlens_q.numel() - 1, max_seqlen_q, max_seqlen_k
    grad, q, k, v, out = (x.transpose(1, 2) for x in (grad, q, k, v, out))
    wanted = [True, True, True, bias_requires_grad]
    *grads, grad_bias = efficient_backward(grad, q, k, v, bias, out, wanted, packed)
    return *(one.transpose(1, 2) for one in grads), grad_bias
