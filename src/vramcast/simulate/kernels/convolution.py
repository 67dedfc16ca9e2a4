"""cuDNN convolutions: workspaces as calibrated; others are estimated, and noted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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
from vramcast.simulate.kernels.registry import Target, kernel, like, meta_result, note, scratch

DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
ESTIMATED = (
    "cuDNN chooses its convolution workspaces by heuristics that are not published; "
    "where none was calibrated it is an estimate"
)


class Geometry(NamedTuple):
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int


def _geometry(arguments: dict[str, Any]) -> Geometry:
    return Geometry(*(arguments[name] for name in Geometry._fields))


def _is_channels_last(*tensors: Tensor) -> bool:
    return any(
        x.dim() == 4
        and x.is_contiguous(memory_format=torch.channels_last)
        and not x.is_contiguous()
        for x in tensors
    )


def _workspace_bytes(which: int, x: Tensor, weight: Tensor, y: Tensor, geometry: Geometry) -> int:
    """As measured; else between two measured batch sizes; else by a rule."""
    dtype, channels_last = DTYPES.get(x.dtype, "fp32"), _is_channels_last(x, weight)
    key = convolution_key(
        dtype=dtype,
        channels_last=channels_last,
        x=x.shape,
        weight=weight.shape,
        **geometry._asdict(),
    )
    gpu = Target.gpu
    known = gpu.convolutions.measured(key)
    if known is None:
        gpu.uncalibrated_kernels.add(key)
        note(ESTIMATED)
        known = gpu.convolutions.between(key)
    if known is not None:
        return known[which]
    return workspace_bytes(which, Convolution(dtype, channels_last, x.shape, weight.shape, y.shape))


def _is_depthwise(x: Tensor, weight: Tensor, groups: int) -> bool:
    return groups == x.shape[1] and groups > 1 and weight.shape[0] % groups == 0


def _result(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
    output_padding: Sequence[int] | None = None,
) -> Tensor:
    """The result of a plain convolution, or of a transposed one if it has an output padding."""
    *sizes, groups = geometry
    is_transposed, no_padding = output_padding is not None, [0] * len(geometry.stride)
    return meta_result(
        torch.ops.aten.convolution.default,
        *(x, weight, bias, *sizes, is_transposed, output_padding or no_padding, groups),
    )


@kernel("cudnn_convolution", "cudnn_convolution_transpose")
def forward(
    x: Tensor, weight: Tensor, output_padding: Sequence[int] | None = None, **others: Any
) -> Tensor:
    geometry = _geometry(others)
    meta = _result(x, weight, None, geometry, output_padding)
    if _is_channels_last(x, weight) and meta.dim() == 4:
        meta = meta.contiguous(memory_format=torch.channels_last)
    out = like(meta)
    if not _is_depthwise(x, weight, geometry.groups):
        if output_padding is None:
            scratch(_workspace_bytes(FORWARD, x, weight, out, geometry))
        else:  # a transposed convolution is the data gradient of a plain one
            scratch(_workspace_bytes(DATA_GRADIENT, out, weight, x, geometry))
    return out


@kernel("_conv_depthwise2d", "conv_depthwise3d")
def depthwise(x: Tensor, weight: Tensor, bias: Tensor | None, **others: Any) -> Tensor:
    return like(_result(x, weight, bias, _geometry({**others, "groups": x.shape[1]})))


@kernel("convolution_backward")
def backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    transposed: bool,
    wanted: Sequence[bool],
    **others: Any,
) -> Any:
    geometry = _geometry(others)
    depthwise = _is_depthwise(x, weight, geometry.groups) and not transposed
    layout = torch.channels_last if _is_channels_last(x, weight) else torch.contiguous_format
    grad = grad.contiguous(memory_format=layout)
    images = (grad, weight, x) if transposed else (x, weight, grad)

    def gradient(of: Tensor, which: int) -> Tensor:
        out = torch.empty_like(of, memory_format=layout)
        if not depthwise:
            scratch(_workspace_bytes(which, *images, geometry))
        return out

    grad_x = grad_weight = grad_bias = None
    if depthwise and wanted[1]:  # the weight's comes first
        grad_weight = gradient(weight, WEIGHT_GRADIENT)
    if wanted[0]:
        grad_x = gradient(x, FORWARD if transposed else DATA_GRADIENT)
    if wanted[1] and not depthwise:
        grad_weight = gradient(weight, WEIGHT_GRADIENT)
    if wanted[2]:
        grad_bias = grad.sum([d for d in range(grad.dim()) if d != 1])
    return grad_x, grad_weight, grad_bias
