"""cuDNN convolutions. Their workspaces follow heuristics that are not published: an estimate, and said so in the limits."""

from __future__ import annotations

from typing import Any

import torch

from vramcast.simulate.kernels.registry import kernel, like, meta_result, note, scratch

aten = torch.ops.aten
WEIGHT_GRADIENT_BYTES = 4 << 20


def _num_bytes(*tensors: torch.Tensor) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _channels_last(x: torch.Tensor) -> bool:
    return x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def _pointwise(weight: torch.Tensor) -> bool:
    return all(n == 1 for n in weight.shape[2:])


def _padded_bytes(x: torch.Tensor) -> int:
    """With the channels rounded up to eight in half precision, as the tensor cores want them."""
    if x.dtype not in (torch.float16, torch.bfloat16):
        return _num_bytes(x)
    return _num_bytes(x) // x.shape[1] * (-(-x.shape[1] // 8) * 8)


def _workspace(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> int:
    """cuDNN's fast kernels work on channels-last data with padded channels; what is not so is converted in its workspace."""
    note("cuDNN chooses its convolution workspaces by heuristics that are not published; theirs is an estimate")
    if _pointwise(weight) and x.shape[2:] == out.shape[2:]:
        return 400  # a matrix product
    padded = _padded_bytes(x) + _padded_bytes(weight)
    if _channels_last(x) or _channels_last(weight):
        return padded + 16 if x.shape[1] % 8 and x.dtype != torch.float32 else 131
    return padded + _num_bytes(out) + 16


def _is_depthwise(x: torch.Tensor, weight: torch.Tensor, groups: int) -> bool:
    return groups == x.shape[1] and groups > 1 and weight.shape[0] % groups == 0


def _forward(x: torch.Tensor, weight: torch.Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int) -> torch.Tensor:
    meta = meta_result(aten.convolution.default, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    channels_last = _channels_last(x) or _channels_last(weight)
    if channels_last and meta.dim() == 4:
        meta = meta.contiguous(memory_format=torch.channels_last)
    out = like(meta)
    if not _is_depthwise(x, weight, groups):
        work = scratch(_workspace(x, weight, out))
        del work
    return out


@kernel("cudnn_convolution")
def cudnn_convolution(x: Any, weight: Any, padding: Any, stride: Any, dilation: Any, groups: int, *flags: Any) -> torch.Tensor:
    return _forward(x, weight, None, stride, padding, dilation, False, [0] * len(stride), groups)


@kernel("cudnn_convolution_transpose")
def cudnn_convolution_transpose(x: Any, weight: Any, padding: Any, output_padding: Any, stride: Any, dilation: Any, groups: int, *flags: Any) -> torch.Tensor:
    return _forward(x, weight, None, stride, padding, dilation, True, output_padding, groups)


@kernel("_conv_depthwise2d", "conv_depthwise3d")
def depthwise(x: Any, weight: Any, kernel_size: Any, bias: Any, stride: Any, padding: Any, dilation: Any) -> torch.Tensor:
    return like(meta_result(aten.convolution.default, x, weight, bias, stride, padding, dilation, False, [0] * len(stride), x.shape[1]))


@kernel("convolution_backward")
def backward(grad: Any, x: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int, mask: Any) -> Any:
    depthwise = _is_depthwise(x, weight, groups) and not transposed
    channels_last = _channels_last(x) or _channels_last(weight)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    grad = grad.contiguous(memory_format=layout)

    def data_gradient() -> torch.Tensor:
        out = torch.empty_like(x, memory_format=layout)
        if not depthwise:
            work = scratch(_workspace(x, weight, grad))
            del work
        return out

    def weight_gradient() -> torch.Tensor:
        out = torch.empty_like(weight, memory_format=layout if weight.dim() == 4 else torch.contiguous_format)
        if not depthwise:
            work = scratch(_workspace(x, weight, grad) + WEIGHT_GRADIENT_BYTES)
            del work
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
