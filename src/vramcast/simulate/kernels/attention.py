"""scaled_dot_product_attention: which kernel the target GPU takes, and what each of them allocates."""

from __future__ import annotations

from typing import Any

import torch

from vramcast.simulate.kernels.registry import Target, kernel, new, scratch

MATH, FLASH, EFFICIENT, CUDNN = 0, 1, 2, 3
HALVES = (torch.float16, torch.bfloat16)


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


# ------------------------------------------------------------------------------------------------------------------- choice
def _needs_grad(*tensors: torch.Tensor | None) -> bool:
    return any(t is not None and t.requires_grad for t in tensors)


def _shapes_fit(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gqa: bool) -> bool:
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4 or 0 in (q.numel(), k.numel()):
        return False
    heads_fit = q.shape[1] == k.shape[1] == v.shape[1] or (
        gqa and k.shape[1] == v.shape[1] and q.shape[1] % k.shape[1] == 0
    )
    return (
        q.shape[0] == k.shape[0] == v.shape[0]
        and heads_fit
        and q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
    )


def _mask_fits(mask: torch.Tensor | None) -> bool:
    return mask is None or mask.shape[-1] == 1 or mask.stride(-1) == 1


def _can_use_cudnn(
    q: Any, k: Any, v: Any, mask: Any, dropout: float, causal: bool, gqa: bool
) -> bool:
    if not torch._C._get_cudnn_sdp_enabled() or q.dtype not in HALVES or Target.capability < (8, 0):
        return False
    if (
        not _shapes_fit(q, k, v, gqa)
        or not _mask_fits(mask)
        or _needs_grad(mask)
        or torch.are_deterministic_algorithms_enabled()
    ):
        return False
    widest = 256 if Target.capability[0] in (9, 10) else 128
    head_dims = (q.shape[-1], v.shape[-1])
    if any(d % 8 or d > widest for d in head_dims) or k.shape[2] == 1 or q.shape[2] == 1:
        return False
    return not (causal and q.shape[2] > k.shape[2])


def _can_use_flash(q: Any, k: Any, v: Any, mask: Any, causal: bool, gqa: bool) -> bool:
    if (
        not torch._C._get_flash_sdp_enabled()
        or mask is not None
        or q.dtype not in HALVES
        or Target.capability < (8, 0)
    ):
        return False
    if (
        not _shapes_fit(q, k, v, gqa)
        or q.shape[-1] > 256
        or not q.shape[-1] == k.shape[-1] == v.shape[-1]
    ):
        return False
    return not (causal and q.shape[2] != k.shape[2])


def _can_use_efficient(q: Any, k: Any, v: Any, mask: Any, causal: bool) -> bool:
    if not torch._C._get_mem_efficient_sdp_enabled() or q.dtype not in (*HALVES, torch.float32):
        return False
    if q.dtype == torch.bfloat16 and Target.capability < (8, 0):
        return False
    if not _shapes_fit(q, k, v, gqa=False) or not _mask_fits(mask) or (causal and mask is not None):
        return False
    alignment = 8 if q.dtype in HALVES else 4
    return q.shape[-1] % alignment == 0 and v.shape[-1] % alignment == 0


@kernel("_fused_sdp_choice")
def choose(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: Any = None,
    enable_gqa: bool = False,
) -> int:
    able = {
        CUDNN: _can_use_cudnn(q, k, v, mask, dropout, causal, enable_gqa),
        FLASH: _can_use_flash(q, k, v, mask, causal, enable_gqa),
        EFFICIENT: _can_use_efficient(q, k, v, mask, causal)
        and not (enable_gqa and q.shape[1] != k.shape[1]),
        MATH: True,
    }
    # Data-centre Hopper and Blackwell prefer cuDNN's kernel; everything else asks flash first.
    order = (
        (CUDNN, FLASH, EFFICIENT, MATH)
        if Target.capability in ((9, 0), (10, 0))
        else (FLASH, EFFICIENT, MATH)
    )
    return next(backend for backend in order if able[backend])


# -------------------------------------------------------------------------------------------------------------------- cuDNN
def _laid_out_like(q: torch.Tensor, width: int) -> torch.Tensor:
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
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    compute_log_sumexp: bool,
    dropout: float = 0.0,
    causal: bool = False,
    debug: bool = False,
    *,
    scale: Any = None,
) -> Any:
    seed, offset = new(dtype=torch.int64), new(dtype=torch.int64)
    out = _laid_out_like(q, v.shape[-1])
    log_sumexp = (
        new(*q.shape[:3], 1, dtype=torch.float32)
        if compute_log_sumexp
        else new(0, dtype=torch.float32)
    )
    workspace = scratch(256)
    del workspace
    return out, log_sumexp, None, None, q.shape[2], k.shape[2], seed, offset, None


@kernel("_scaled_dot_product_cudnn_attention_backward")
def cudnn_backward(
    grad: Any, q: Any, k: Any, v: Any, out: Any, log_sumexp: Any, *rest: Any, **options: Any
) -> Any:
    if grad.stride(-1) != 1 or any(s == 0 for s in grad.stride()):
        grad = grad.contiguous()
    grads = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    batch, heads, length, width = q.shape
    num_bytes = (
        batch * heads * length * (width * 4 + 4) + 256
    )  # the gradient of q in single precision, and a sum per row
    if k.shape[1] != heads:
        num_bytes += (
            batch * heads * k.shape[2] * (k.shape[-1] + v.shape[-1]) * q.element_size()
        )  # k and v per query head
    workspace = scratch(num_bytes)
    del workspace
    return grads


# -------------------------------------------------------------------------------------------------------------------- flash
def _splits(batch: int, heads: int, queries: int, keys: int, width: int) -> int:
    """How many pieces flash splits the keys into when batch and heads alone leave multiprocessors idle."""
    block = 256 if width <= 64 else 128 if width <= 128 else 64
    blocks_n, blocks_m = -(-keys // block), -(-queries // 64)
    work, slots = batch * heads * blocks_m, Target.num_multiprocessors * 2
    if work >= 0.8 * slots:
        return 1
    most = min(128, slots, blocks_n)
    efficiency = []
    for n in range(1, most + 1):
        eligible = n == 1 or -(-blocks_n // n) != -(-blocks_n // (n - 1))
        waves = work * n / slots
        efficiency.append(waves / -(-work * n // slots) if eligible else 0.0)
    return next(n for n, e in enumerate(efficiency, 1) if e >= 0.85 * max(efficiency))


@kernel("_scaled_dot_product_flash_attention")
def flash_forward(
    q: Any,
    k: Any,
    v: Any,
    dropout: float = 0.0,
    causal: bool = False,
    debug: bool = False,
    *,
    scale: Any = None,
) -> Any:
    batch, heads, queries, width = q.shape
    out = torch.empty_like(q.transpose(1, 2)).transpose(1, 2)
    log_sumexp = new(batch, heads, queries, dtype=torch.float32)
    splits = _splits(batch, heads, queries, k.shape[2], width) if dropout == 0 else 1
    if splits > 1:
        lse_parts = scratch(splits * batch * heads * queries * 4)
        out_parts = scratch(splits * batch * heads * queries * _up(width, 32) * 4)
        state, unused = new(2, dtype=torch.uint64), new(dtype=torch.uint64)
        del lse_parts, out_parts
    else:
        state, unused = new(2, dtype=torch.uint64), new(dtype=torch.uint64)
    if dropout > 0:
        philox = scratch(16)
        del philox
    return out, log_sumexp, None, None, queries, k.shape[2], state, unused, new(0, dtype=q.dtype)


@kernel("_scaled_dot_product_flash_attention_backward")
def flash_backward(
    grad: Any, q: Any, k: Any, v: Any, out: Any, log_sumexp: Any, *rest: Any, **options: Any
) -> Any:
    batch, heads, queries, width = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    grad_t, out_t = grad.transpose(1, 2), out.transpose(1, 2)
    dense_grad, dense_out = grad_t.contiguous(), out_t.contiguous()
    dq, dk, dv = (torch.empty_like(x.transpose(1, 2)) for x in (q, k, v))
    rounded, rounded_width = _up(queries, 128), _up(width, 32) if width <= 128 else _up(width, 64)
    softmax_d = new(batch, heads, rounded, dtype=torch.float32)
    dq_sum = new(batch, rounded, heads, rounded_width, dtype=torch.float32)
    if kv_heads != heads:
        dk_wide, dv_wide = (
            new(batch, keys, heads, width, dtype=q.dtype),
            new(batch, keys, heads, width, dtype=q.dtype),
        )
        del dk_wide, dv_wide
    del dq_sum, softmax_d, dense_grad, dense_out
    return dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)


# -------------------------------------------------------------------------------------------------------- memory-efficient
@kernel("_scaled_dot_product_efficient_attention")
def efficient_forward(
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    compute_log_sumexp: bool,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: Any = None,
) -> Any:
    batch, heads, queries, _ = q.shape
    out = new(batch, queries, heads, v.shape[-1], dtype=q.dtype).transpose(1, 2)
    log_sumexp = new(
        batch, heads, _up(queries, 32) if compute_log_sumexp else 0, dtype=torch.float32
    )
    if q.dtype in HALVES and v.shape[-1] > 128:
        accumulator = new(batch, queries, heads, v.shape[-1], dtype=torch.float32)
        del accumulator
    # the random state lives on the host
    return out, log_sumexp, torch.empty((), dtype=torch.int64), torch.empty((), dtype=torch.int64)


def _efficient_workspace(q: torch.Tensor, k: torch.Tensor, dropout: float) -> int:
    """Per (batch, head): the gradient of q in single precision and a lock per tile; k and v too where they exceed the registers."""
    queries, width = q.shape[2], q.shape[3]
    half = q.dtype in HALVES
    small_memory = Target.capability in (
        (8, 6),
        (8, 9),
        (12, 0),
    )  # 100 KiB of shared memory instead of 164 or more
    if width <= 64:
        rows, columns = 64, 64
    elif width <= 128:
        rows, columns = (128, 128) if half and not small_memory else (64, 128)
    else:
        rows, columns = (64, 64) if small_memory else (128, 64)
    num_floats = -(-queries // rows) * -(-width // columns) * (rows * columns + 4)
    if half and width > rows:
        num_floats += -(-k.shape[2] // 64) * 2 * 64 * _up(width, rows)
    return q.shape[0] * q.shape[1] * _up(num_floats, 4) * 4


@kernel("_scaled_dot_product_efficient_attention_backward")
def efficient_backward(
    grad: Any,
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    out: Any,
    log_sumexp: Any,
    seed: Any,
    offset: Any,
    dropout: float,
    mask: Any,
    causal: bool = False,
    *,
    scale: Any = None,
) -> Any:
    batch, heads, queries, _ = q.shape
    grads: list[torch.Tensor | None] = [
        new(b, t, h, d, dtype=q.dtype).transpose(1, 2) for b, h, t, d in (q.shape, k.shape, v.shape)
    ]
    grad_bias = None
    if bias is not None and mask[3]:
        keys = k.shape[2]
        grad_bias = new(batch, heads, queries, _up(keys, 16), dtype=bias.dtype)[..., :keys]
    if q.dtype in HALVES:
        delta = new(batch, heads, queries, dtype=torch.float32)
    else:
        product = grad.to(torch.float32) * out.to(
            torch.float32
        )  # one C++ expression: its parts live to the end of it
        sums = product.sum(-1)
        delta = sums.transpose(-2, -1).contiguous()
        del sums, product
    workspace = scratch(_efficient_workspace(q, k, dropout))
    del delta, workspace
    return *grads, grad_bias
