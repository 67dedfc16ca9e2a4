"""Upsampling: the kernels want dense tensors, and copy others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vramcast.simulate.kernels.registry import kernel, new

# with fewer, the kernels for channels last are not used
MIN_CHANNELS_LAST = 4
NEAREST = ("upsample_nearest", "_upsample_nearest_exact")
OTHERS = ("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d")


def _layout(x: Tensor) -> torch.memory_format:
    """Of a result: channels last if the argument has them last."""
    is_last = x.dim() == 4 and x.stride(1) == 1 and x.shape[1] > 1 and x.stride(3) == x.shape[1]
    return torch.channels_last if is_last else torch.contiguous_format


def _dense(x: Tensor) -> Tensor:
    layout = _layout(x)
    is_wide = x.shape[1] >= MIN_CHANNELS_LAST
    return x.contiguous(memory_format=layout if is_wide else torch.contiguous_format)


@kernel(*(f"{name}{rank}d" for name in NEAREST for rank in (1, 2, 3)))
def nearest(x: Tensor, output_size: Sequence[int], **_others: Any) -> Tensor:
    out = new(*x.shape[:2], *output_size, dtype=x.dtype, memory_format=_layout(x))
    _dense(x)
    return out


@kernel(
    *(f"{name}{rank}d_backward" for name in NEAREST for rank in (1, 2, 3)),
    *(f"{name}_backward" for name in OTHERS),
)
def backward(grad: Tensor, input_size: Sequence[int], **_others: Any) -> Tensor:
    out = new(*input_size, dtype=grad.dtype, memory_format=_layout(grad))
    _dense(grad)
    return out
