"""Layer, RMS, group and batch normalisation."""

import math
from typing import Any

import torch
from torch import Tensor

from vramcast.allocator.blocks import last_power_of_two
from vramcast.simulate.kernels.registry import (
    Target,
    accumulator_dtype,
    kernel,
    new,
    scratch,
    suggest_memory_format,
)


def _num_partial_sums(x: Tensor, shape: list[int]) -> int:
    """How many partial sums of a weight's gradient there are, one for each block of rows; 0 for one
    pass.

    layer_norm_kernel.cu takes two passes where there are many rows and few columns.
    """
    columns = math.prod(shape)
    rows = x.numel() // max(columns, 1)
    if rows <= 64 * 1024 or columns // 32 >= Target.gpu.model.num_multiprocessors // 2:
        return 0
    return min(32 * 1024 // -(-columns // 32), -(-rows // 32))


def _statistics_shape(x: Tensor, shape: list[int]) -> list[int]:
    """The shape of mean or variance: one for each row."""
    return [*x.shape[: x.dim() - len(shape)], *[1] * len(shape)]


@kernel("native_layer_norm")
def layer_norm(x: Tensor, normalized_shape: list[int]) -> Any:
    dense = x.contiguous()
    rows, dtype = _statistics_shape(x, normalized_shape), accumulator_dtype(x)
    out = torch.empty_like(dense, memory_format=torch.contiguous_format)
    return out, new(*rows, dtype=dtype), new(*rows, dtype=dtype)


@kernel("_fused_rms_norm")
def rms_norm(x: Tensor, normalized_shape: list[int]) -> Any:
    x = x.contiguous()
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    return out, new(*_statistics_shape(x, normalized_shape), dtype=accumulator_dtype(x))


@kernel("native_layer_norm_backward", "_fused_rms_norm_backward")
def backward(
    grad: Tensor,
    x: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None,
    wanted: list[bool],
    bias: Tensor | None = None,
) -> Any:
    """RMS normalisation has no bias, and nothing in `wanted` for it."""
    x = x.contiguous()
    grad_x = torch.empty_like(x) if wanted[0] else None
    grads = [
        torch.empty_like(parameter) if is_wanted and parameter is not None else None
        for is_wanted, parameter in zip(wanted[1:], (weight, bias), strict=False)
    ]
    grad = grad.contiguous()
    blocks = _num_partial_sums(x, normalized_shape)
    if blocks and grads[0] is not None:
        shape, dtype = (blocks, math.prod(normalized_shape)), grads[0].dtype
        partials = [new(*shape, dtype=dtype) if g is not None else None for g in grads]
        for index, partial in enumerate(partials):
            if partial is not None:
                grads[index] = partial.sum(0).view(normalized_shape)
    return grad_x, *grads


@kernel("native_group_norm")
def group_norm(x: Tensor, N: int, C: int, HxW: int, group: int) -> Any:
    results = torch.empty_like(x), *(new(N, group, dtype=x.dtype) for _ in range(2))
    if HxW > 1:
        scale_and_shift = [new(N, C, dtype=accumulator_dtype(x)) for _ in range(2)]
        del scale_and_shift
    return results


@kernel("native_group_norm_backward")
def group_norm_backward(
    x: Tensor, weight: Tensor, N: int, C: int, group: int, wanted: list[bool]
) -> Any:
    """The scratch tensors have the names of group_norm_kernel.cu."""
    grad_x = torch.empty_like(x) if wanted[0] else None
    grad_weight = torch.empty_like(weight) if wanted[1] else None
    grad_bias = torch.empty_like(weight) if wanted[2] else None
    dtype = accumulator_dtype(x)
    ds, db = new(N, C, dtype=dtype), new(N, C, dtype=dtype)
    if grad_x is not None:
        c2, c3 = new(N, group, dtype=dtype), new(N, group, dtype=dtype)
        c1 = new(N, C, dtype=dtype) if weight is not None else None
        del c2, c3, c1
    del ds, db
    return grad_x, grad_weight, grad_bias


def _has_channels_last(x: Tensor) -> bool:
    """Whether x is channels-last. A matrix of samples and channels counts too."""
    if x.is_contiguous():
        return x.dim() > 1 and x.stride()[1] == 1
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.dim() in layouts and x.is_contiguous(memory_format=layouts[x.dim()])


def _is_neither(x: Tensor) -> bool:
    """Whether the forward pass has no special kernel for x: it has them for contiguous tensors, and
    for channels last in 4 dimensions. (The backward pass has one also for channels last in 5.)"""
    return not x.is_contiguous() and not (x.dim() == 4 and _has_channels_last(x))


def _channels_last_scratch(x: Tensor, num_sums: int) -> None:
    """Partial sums of blocks of rows, as Normalization.cuh launches its kernels."""
    channels = x.shape[1]
    rows = x.numel() // max(1, channels)
    width = min(last_power_of_two(channels), 32)
    height = min(last_power_of_two(-(-rows // 16)), 512 // width)
    if width * height != 512:
        width = min(last_power_of_two(channels), 512 // height)
    blocks = min(-(-rows // (height * 16)), 128)
    if blocks >= 8:
        scratch(num_sums * channels * blocks * 4, -(-channels // width) * 4)


@kernel("native_batch_norm", "_native_batch_norm_legit")
def batch_norm(x: Tensor, training: bool) -> Any:
    out, dtype = torch.empty_like(x), accumulator_dtype(x)
    if training and _is_neither(x):
        dims = [0, *range(2, x.dim())]
        variance, mean = torch.var_mean(x.to(dtype), dims, correction=0)
        return out, mean, variance
    saved = [new(x.shape[1], dtype=dtype) for _ in range(2)]
    if training and _has_channels_last(x):
        _channels_last_scratch(x, 4)
    return out, *saved


@kernel("native_batch_norm_backward")
def batch_norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor | None, train: bool, wanted: list[bool]
) -> Any:
    dtype, channels = accumulator_dtype(x), x.shape[1]

    def parameter(is_wanted: bool) -> Tensor | None:
        return new(channels, dtype=dtype if weight is None else weight.dtype) if is_wanted else None

    if not (train and _has_channels_last(x)):
        grad_x = torch.empty_like(x) if wanted[0] else None
        return grad_x, parameter(wanted[1]), parameter(wanted[2])
    sums = [new(channels, dtype=dtype) for _ in range(2)]
    gradients = parameter(wanted[1]), parameter(wanted[2])
    _channels_last_scratch(x, 2)
    grad_x = torch.empty_like(x) if wanted[0] else None
    del sums
    return grad_x, *gradients


# cuDNN's kernels with channels last, as recorded on an H200, keep partial sums of 64 channels for
# each block of so many pixels. The forward pass depends on the bytes of an element.
FORWARD_PIXELS, BACKWARD_PIXELS = {4: 64, 2: 160}, 96


def _use_cudnn_scratch(x: Tensor, *, backward: bool) -> None:
    if suggest_memory_format(x) == torch.contiguous_format:
        return
    channels = x.shape[1]
    groups, item_bytes = -(-channels // 64), 4 if channels % 4 == 0 else 16
    pixels = BACKWARD_PIXELS if backward else FORWARD_PIXELS[x.element_size()]
    blocks = -(-x.numel() // (channels * pixels)) * groups
    num_bytes = 1056 + 512 * blocks + item_bytes * groups
    scratch(num_bytes if backward else num_bytes + 16 + item_bytes * blocks)


@kernel("cudnn_batch_norm")
def cudnn_batch_norm(x: Tensor, weight: Tensor, training: bool) -> Any:
    out = torch.empty_like(x, memory_format=suggest_memory_format(x))
    num_kept = x.shape[1] if training else 0
    kept = [new(num_kept, dtype=weight.dtype) for _ in ("mean", "variance")]
    if training:
        _use_cudnn_scratch(x, backward=False)
    return out, *kept, new(0, dtype=torch.uint8)


@kernel("cudnn_batch_norm_backward")
def cudnn_batch_norm_backward(x: Tensor, grad: Tensor, weight: Tensor) -> Any:
    layout = suggest_memory_format(x)
    dense = grad.contiguous(memory_format=layout)
    grad_x = torch.empty_like(x, memory_format=layout)
    gradients = torch.empty_like(weight), torch.empty_like(weight)
    _use_cudnn_scratch(x, backward=True)
    del dense
    return grad_x, *gradients
