"""Operators made of other kernels, and grouped products; reductions are in native/reductions.h."""

from typing import Any

import torch
from torch import Tensor

from vramcast.simulate.kernels.registry import (
    accumulator_dtype,
    kernel,
    meta_result,
    new,
    scratch,
)

CHUNK = 65536  # elements that one block of a foreach kernel works on
GROUP_BYTES = 1024  # for the description of one group of a grouped product


@kernel("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(x: Tensor, dim: Any = None) -> Tensor:
    return (x != 0).sum() if dim is None else (x != 0).sum(dim)


@kernel("histc")
def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    out = new(bins, dtype=x.dtype)
    if min == max and x.numel():
        x.min()
        x.max()
    return out


@kernel("renorm")
def renorm(x: Tensor, p: float, dim: int) -> Tensor:
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    others = [d for d in range(x.dim()) if d != dim % x.dim()]
    torch.linalg.vector_norm(x, p, others, True, dtype=accumulator_dtype(x))
    return out


@kernel("normal.Tensor_Tensor", "normal.float_Tensor")
def normal(mean: Tensor | float, std: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """torch checks twice that the deviations are not negative."""
    std.min().ge(0)
    shapes = [x.shape for x in (mean, std) if isinstance(x, Tensor)]
    out = torch.empty(torch.broadcast_shapes(*shapes), dtype=std.dtype, device="cuda")
    std.min().ge(0)
    if not isinstance(mean, Tensor):
        mean = torch.full((), mean, dtype=std.dtype, device="cuda")
    return out.normal_(generator=generator).mul_(std).add_(mean)


@kernel("ldexp.Tensor")
def ldexp(x: Tensor, other: Tensor) -> Tensor:
    return x * torch.pow(2.0, other)


@kernel("frexp.Tensor")
def frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.int32)


@kernel("_cdist_backward")
def cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float) -> Tensor:
    """Writes the contribution of every pair, then adds them up."""
    out = new(x1.shape[:-2].numel(), *x1.shape[-2:], dtype=x1.dtype)
    if p and grad.numel():
        pairs = new(len(out), x2.shape[-2], *x1.shape[-2:], dtype=x1.dtype)
        torch.sum(pairs, 1, out=out)
    return out.view(x1.shape)


@kernel("_pdist_backward")
def pdist_backward(grad: Tensor, x: Tensor, p: float) -> Tensor:
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if p and grad.numel():
        torch.sum(new(len(x) - 1, *x.shape, dtype=x.dtype), 0, out=out)
    return out


@kernel("_foreach_norm.Scalar")
def foreach_norm(x: list[Tensor], dtype: torch.dtype | None = None) -> list[Tensor]:
    """Partial norms of every chunk of every tensor first, then one scalar for each tensor."""
    if x[0].is_complex():
        return [torch.linalg.vector_norm(t, dtype=dtype) for t in x]
    chunks = max(-(-t.numel() // CHUNK) for t in x)
    partial = scratch(len(x) * chunks * accumulator_dtype(x[0]).itemsize)
    norms = [new(dtype=dtype or x[0].dtype) for _ in x]
    del partial
    return norms


@kernel("_grouped_mm")
def grouped_mm(
    x: Tensor, mat2: Tensor, offs: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """torch's Meta kernel takes only bfloat16. Other types are multiplied group by group."""
    operands = (
        torch.empty_strided(t.shape, t.stride(), dtype=torch.bfloat16, device="meta")
        for t in (x, mat2)
    )
    shape = meta_result(torch.ops.aten._grouped_mm.default, *operands, offs=offs)
    out = torch.empty_strided(
        shape.shape, shape.stride(), dtype=out_dtype or x.dtype, device="cuda"
    )
    if x.dtype == torch.bfloat16:
        scratch((offs.numel() if offs is not None else x.shape[0]) * GROUP_BYTES)
    elif x.dim() == 2 and mat2.dim() == 3:
        torch.mm(x[:1], mat2[0], out=out[:1])
    return out
