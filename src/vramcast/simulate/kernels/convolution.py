"""cuDNN convolutions. Their workspaces come from the calibration table; those it does not know are estimated, and said so in the limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vramcast.hardware.calibration.table import convolution_key
from vramcast.simulate.kernels.convolution_workspace import (
    DATA_GRADIENT,
    FORWARD,
    WEIGHT_GRADIENT,
    Convolution,
    workspace_bytes,
)
from vramcast.simulate.kernels.registry import Target, kernel, like, meta_result, note, scratch

aten = torch.ops.aten
DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
ESTIMATED = "cuDNN chooses its convolution workspaces by heuristics that are not published; where none was calibrated it is an estimate"


@dataclass(frozen=True)
class Geometry:
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int


def _channels_last(x: torch.Tensor) -> bool:
    return (
        x.dim() == 4
        and x.is_contiguous(memory_format=torch.channels_last)
        and not x.is_contiguous()
    )


def _workspace(
    which: int, x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, geometry: Geometry
) -> int:
    dtype, channels_last = DTYPES.get(x.dtype, "fp32"), _channels_last(x) or _channels_last(weight)
    sizes = {
        "x": tuple(x.shape),
        "weight": tuple(weight.shape),
        "stride": geometry.stride,
        "padding": geometry.padding,
    }
    key = convolution_key(
        dtype=dtype,
        channels_last=channels_last,
        **sizes,
        dilation=geometry.dilation,
        groups=geometry.groups,
    )
    known = Target.convolutions.measured(key)
    if known is not None:
        return known[which]
    Target.uncalibrated.add(key)
    note(ESTIMATED)
    near = Target.convolutions.between(key)
    if near is not None:
        return near[which]
    return workspace_bytes(which, Convolution(dtype, channels_last, x.shape, weight.shape, y.shape))


def _take_workspace(num_bytes: int) -> None:
    if num_bytes:
        work = scratch(num_bytes)
        del work


def _is_depthwise(x: torch.Tensor, weight: torch.Tensor, groups: int) -> bool:
    return groups == x.shape[1] and groups > 1 and weight.shape[0] % groups == 0


def _forward(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> torch.Tensor:
    meta = meta_result(
        aten.convolution.default,
        x,
        weight,
        bias,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
    )
    channels_last = _channels_last(x) or _channels_last(weight)
    if channels_last and meta.dim() == 4:
        meta = meta.contiguous(memory_format=torch.channels_last)
    out = like(meta)
    if not _is_depthwise(x, weight, groups):
        # a transposed convolution is the data gradient of a plain one
        images = (out, weight, x) if transposed else (x, weight, out)
        which = DATA_GRADIENT if transposed else FORWARD
        _take_workspace(_workspace(which, *images, Geometry(stride, padding, dilation, groups)))
    return out


@kernel("cudnn_convolution")
def cudnn_convolution(
    x: Any, weight: Any, padding: Any, stride: Any, dilation: Any, groups: int, *flags: Any
) -> torch.Tensor:
    return _forward(x, weight, None, stride, padding, dilation, False, [0] * len(stride), groups)


@kernel("cudnn_convolution_transpose")
def cudnn_convolution_transpose(
    x: Any,
    weight: Any,
    padding: Any,
    output_padding: Any,
    stride: Any,
    dilation: Any,
    groups: int,
    *flags: Any,
) -> torch.Tensor:
    return _forward(x, weight, None, stride, padding, dilation, True, output_padding, groups)


@kernel("_conv_depthwise2d", "conv_depthwise3d")
def depthwise(
    x: Any, weight: Any, kernel_size: Any, bias: Any, stride: Any, padding: Any, dilation: Any
) -> torch.Tensor:
    return like(
        meta_result(
            aten.convolution.default,
            x,
            weight,
            bias,
            stride,
            padding,
            dilation,
            False,
            [0] * len(stride),
            x.shape[1],
        )
    )


@kernel("convolution_backward")
def backward(
    grad: Any,
    x: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Any,
) -> Any:
    depthwise = _is_depthwise(x, weight, groups) and not transposed
    channels_last = _channels_last(x) or _channels_last(weight)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    grad = grad.contiguous(memory_format=layout)
    geometry = Geometry(stride, padding, dilation, groups)

    def data_gradient() -> torch.Tensor:
        out = torch.empty_like(x, memory_format=layout)
        if not depthwise:
            images = (grad, weight, x) if transposed else (x, weight, grad)
            _take_workspace(_workspace(FORWARD if transposed else DATA_GRADIENT, *images, geometry))
        return out

    def weight_gradient() -> torch.Tensor:
        out = torch.empty_like(
            weight, memory_format=layout if weight.dim() == 4 else torch.contiguous_format
        )
        if not depthwise:
            images = (grad, weight, x) if transposed else (x, weight, grad)
            _take_workspace(_workspace(WEIGHT_GRADIENT, *images, geometry))
        return out

    grad_x = grad_weight = grad_bias = None
    if depthwise and mask[1]:
        grad_weight = weight_gradient()
    if mask[0]:
        grad_x = data_gradient()
    if mask[1] and grad_weight is None:
        grad_weight = weight_gradient()
    if mask[2]:
        grad_bias = grad.sum([d for d in range(grad.dim()) if d != 1])
    return grad_x, grad_weight, grad_bias
