"""cuDNN convolutions: workspaces as calibrated; others are estimated, and noted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vramcast.hardware.calibration.table import convolution_key
from vramcast.simulate.kernels.convolution_workspace import (
    DATA_GRADIENT,
    FORWARD,
    WEIGHT_GRADIENT,
    Convolution,
    workspace_bytes,
)
from vramcast.simulate.kernels.registry import Target, kernel, like, meta_result, note, use_scratch

DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
ESTIMATED = (
    "cuDNN chooses its convolution workspaces by heuristics that are not published; "
    "where none was calibrated it is an estimate"
)


@dataclass(frozen=True)
class Geometry:
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int


def _is_channels_last(*tensors: Tensor) -> bool:
    return any(
        x.dim() == 4
        and x.is_contiguous(memory_format=torch.channels_last)
        and not x.is_contiguous()
        for x in tensors
    )


def _take_workspace(which: int, x: Tensor, weight: Tensor, y: Tensor, geometry: Geometry) -> None:
    num_bytes = _workspace_bytes(which, x, weight, y, geometry)
    if num_bytes:
        use_scratch(num_bytes)


def _workspace_bytes(which: int, x: Tensor, weight: Tensor, y: Tensor, geometry: Geometry) -> int:
    """As measured; else between two measured batch sizes; else by a rule."""
    dtype, channels_last = DTYPES.get(x.dtype, "fp32"), _is_channels_last(x, weight)
    key = convolution_key(
        dtype=dtype,
        channels_last=channels_last,
        x=tuple(x.shape),
        weight=tuple(weight.shape),
        stride=geometry.stride,
        padding=geometry.padding,
        dilation=geometry.dilation,
        groups=geometry.groups,
    )
    gpu = Target.gpu
    measured = gpu.convolutions.measured(key)
    if measured is not None:
        return measured[which]
    gpu.uncalibrated_kernels.add(key)
    note(ESTIMATED)
    between = gpu.convolutions.between(key)
    if between is not None:
        return between[which]
    return workspace_bytes(which, Convolution(dtype, channels_last, x.shape, weight.shape, y.shape))


def _is_depthwise(x: Tensor, weight: Tensor, groups: int) -> bool:
    return groups == x.shape[1] and groups > 1 and weight.shape[0] % groups == 0


def _result(
    x: Tensor,
    weight: Tensor,
    geometry: Geometry,
    bias: Tensor | None = None,
    output_padding: Sequence[int] | None = None,
) -> Tensor:
    """The result of a plain convolution, or of a transposed one if it has an output padding."""
    return meta_result(
        torch.ops.aten.convolution.default,
        x,
        weight,
        bias,
        geometry.stride,
        geometry.padding,
        geometry.dilation,
        output_padding is not None,
        output_padding or [0] * len(geometry.stride),
        geometry.groups,
    )


@kernel("cudnn_convolution", "cudnn_convolution_transpose")
def forward(
    x: Tensor,
    weight: Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    output_padding: Sequence[int] | None = None,
    **_: Any,
) -> Tensor:
    geometry = Geometry(stride, padding, dilation, groups)
    meta = _result(x, weight, geometry, output_padding=output_padding)
    if _is_channels_last(x, weight) and meta.dim() == 4:
        meta = meta.contiguous(memory_format=torch.channels_last)
    out = like(meta)
    if not _is_depthwise(x, weight, groups):
        if output_padding is None:
            _take_workspace(FORWARD, x, weight, out, geometry)
        else:  # a transposed convolution is the data gradient of a plain one
            _take_workspace(DATA_GRADIENT, out, weight, x, geometry)
    return out


@kernel("_conv_depthwise2d", "conv_depthwise3d")
def depthwise(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    **_: Any,
) -> Tensor:
    return like(_result(x, weight, Geometry(stride, padding, dilation, x.shape[1]), bias))


@kernel("convolution_backward")
def backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
    wanted: Sequence[bool],
    **_: Any,
) -> Any:
    depthwise = _is_depthwise(x, weight, groups) and not transposed
    layout = torch.channels_last if _is_channels_last(x, weight) else torch.contiguous_format
    grad = grad.contiguous(memory_format=layout)
    geometry = Geometry(stride, padding, dilation, groups)
    images = (grad, weight, x) if transposed else (x, weight, grad)

    def data_gradient() -> Tensor:
        out = torch.empty_like(x, memory_format=layout)
        if not depthwise:
            _take_workspace(FORWARD if transposed else DATA_GRADIENT, *images, geometry)
        return out

    def weight_gradient() -> Tensor:
        weight_layout = layout if weight.dim() == 4 else torch.contiguous_format
        out = torch.empty_like(weight, memory_format=weight_layout)
        if not depthwise:
            _take_workspace(WEIGHT_GRADIENT, *images, geometry)
        return out

    grad_x = grad_weight = grad_bias = None
    if depthwise and wanted[1]:  # the weight's comes first
        grad_weight = weight_gradient()
    if wanted[0]:
        grad_x = data_gradient()
    if wanted[1] and not depthwise:
        grad_weight = weight_gradient()
    if wanted[2]:
        grad_bias = grad.sum([d for d in range(grad.dim()) if d != 1])
    return grad_x, grad_weight, grad_bias
