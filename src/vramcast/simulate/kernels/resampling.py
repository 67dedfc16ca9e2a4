"""Images of other sizes. The kernels need dense tensors, so others are copied."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vramcast.simulate.kernels.registry import kernel, meta_result, new, suggest_memory_format

# with fewer, the kernels for channels last are not used
MIN_CHANNELS_LAST = 4
NEAREST = ("upsample_nearest", "_upsample_nearest_exact")
COPIED = "upsample_bilinear2d"
OTHERS = ("upsample_linear1d", COPIED, "upsample_bicubic2d", "upsample_trilinear3d")


def _layout(x: Tensor) -> torch.memory_format:
    """The layout of the result: channels last if the argument has it, even if that is a slice."""
    return suggest_memory_format(x) if x.dim() == 4 else torch.contiguous_format


def _dense(x: Tensor) -> Tensor:
    layout = _layout(x)
    is_wide = x.shape[1] >= MIN_CHANNELS_LAST
    return x.contiguous(memory_format=layout if is_wide else torch.contiguous_format)


@kernel(*(f"{name}{rank}d" for name in NEAREST for rank in (1, 2, 3)))
def nearest(x: Tensor, output_size: Sequence[int], **_others: Any) -> Tensor:
    out = _interpolated(x, output_size)
    torch.ops.vramcast.carry_spread(out, x)  # masks are brought to the size of features
    return out


@kernel(*(f"_{name}_aa" for name in (COPIED, "upsample_bicubic2d")))
def smoothed(x: Tensor, output_size: Sequence[int], **_others: Any) -> Tensor:
    return _interpolated(x, output_size)


def _interpolated(x: Tensor, output_size: Sequence[int]) -> Tensor:
    out = new(*x.shape[:2], *output_size, dtype=x.dtype, memory_format=_layout(x))
    _dense(x)
    return out


@kernel(
    *(f"{name}{rank}d_backward" for name in NEAREST for rank in (1, 2, 3)),
    *(f"{name}_backward" for name in OTHERS if name != COPIED),
)
def backward(grad: Tensor, input_size: Sequence[int], **_others: Any) -> Tensor:
    out = new(*input_size, dtype=grad.dtype, memory_format=_layout(grad))
    _dense(grad)
    return out


@kernel(f"{COPIED}_backward")
def copied_backward(grad: Tensor, input_size: Sequence[int], **_others: Any) -> Tensor:
    """Where the size does not change, torch copies the gradient as it is."""
    if list(grad.shape) == list(input_size):
        return new(*input_size, dtype=grad.dtype, memory_format=_layout(grad))
    return backward(grad, input_size)


@kernel("cudnn_grid_sampler")
def sampled(x: Tensor, grid: Tensor) -> Tensor:
    dense = x.contiguous(), grid.contiguous()
    out = new(*x.shape[:2], *grid.shape[1:3], dtype=x.dtype)
    del dense
    return out


@kernel("cudnn_grid_sampler_backward")
def sampled_backward(x: Tensor, grid: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    dense = x.contiguous(), grid.contiguous(), grad.contiguous()
    out = new(*x.shape, dtype=x.dtype), new(*grid.shape, dtype=grid.dtype)
    del dense
    return out


@kernel("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflected(x: Tensor, padding: Sequence[int]) -> Tensor:
    shape = list(x.shape)
    for i, extra in enumerate(padding):
        shape[-1 - i // 2] += extra
    out = new(*shape, dtype=x.dtype)
    x.contiguous()
    return out


@kernel(*(f"reflection_pad{rank}d_backward" for rank in (1, 2, 3)))
def reflected_backward(grad: Tensor, x: Tensor) -> Tensor:
    out = new(*x.shape, dtype=x.dtype)
    grad.contiguous()
    return out


@kernel("im2col")
def columns(x: Tensor, **options: Any) -> Tensor:
    return _resized(torch.ops.aten.im2col.default, x, options)


@kernel("col2im")
def folded(x: Tensor, **options: Any) -> Tensor:
    return _resized(torch.ops.aten.col2im.default, x, options)


def _resized(operator: Any, x: Tensor, options: dict[str, Any]) -> Tensor:
    """The result is allocated as large as the argument, then resized."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    dense = x.contiguous()
    out.resize_(meta_result(operator, x, **options).shape)
    del dense
    return out
