"""What the kernels written in Python compute and move: floating-point operations by shape, bytes read and written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from vramcast.tracing.work import PLAIN, STRIDED, TF32

Sizes = tuple[int, int, int, int]
NO_SIZES: Sizes = (0, 0, 0, 0)
# questions and notes: nothing runs on the GPU
WITHOUT_KERNEL = (
    "_fused_sdp_choice",
    "record_stream",
    "_use_miopen_ctc_loss",
    "_use_cudnn_ctc_loss",
    "_cudnn_rnn_flatten_weight",
)
# c10::ScalarType
DTYPE_NUMBERS = {torch.float16: 5, torch.float32: 6, torch.float64: 7, torch.bfloat16: 15}
# where in the arguments is_causal is
CAUSAL_ARGUMENT = {
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_flash_attention_backward": 11,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_efficient_attention_backward": 11,
    "_scaled_dot_product_cudnn_attention": 6,
    "_scaled_dot_product_cudnn_attention_backward": 14,
}


def work_of(
    name: str, arguments: Sequence[Any], options: Mapping[str, Any], result: Any
) -> tuple[int, float, float, Sizes, int]:
    """(dtype number, floating-point operations, bytes, sizes, access) of one call of the operator `name`, without its overload."""
    tensors = list(_tensors((arguments, result)))
    num_bytes = float(sum(t.numel() * t.element_size() for t in tensors if t.is_cuda))
    dtype = next((DTYPE_NUMBERS.get(t.dtype, -1) for t in tensors if t.is_floating_point()), -1)
    if dtype == DTYPE_NUMBERS[torch.float32] and _in_tf32(name):
        dtype = TF32
    flops, sizes = _flops(name, arguments, options, result)
    return dtype, flops, num_bytes, sizes, STRIDED if _crosses_rows(name, arguments) else PLAIN


def _in_tf32(name: str) -> bool:
    """cuDNN rounds to tf32 unless told not to. `torch.backends.cudnn.allow_tf32` cannot be asked: it raises where the newer switches were used."""
    kind = "conv" if "conv" in name else "rnn" if "cudnn_rnn" in name else ""
    return bool(kind) and torch._C._get_fp32_precision_getter("cuda", kind) == "tf32"


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _crosses_rows(name: str, arguments: Sequence[Any]) -> bool:
    """A softmax over another dimension than the innermost has a kernel of its own, ten times slower."""
    if "softmax" not in name:
        return False
    x, dim = arguments[0], arguments[2 if "backward" in name else 1]
    return x.dim() > 0 and math.prod(x.shape[dim % x.dim() + 1 :]) > 1


def _flops(
    name: str, arguments: Sequence[Any], options: Mapping[str, Any], result: Any
) -> tuple[float, Sizes]:
    if name in CAUSAL_ARGUMENT:
        return _attention(name, arguments, options)
    if name == "convolution_backward":
        wanted = arguments[10]  # of the input's, the weight's and the bias's gradients
        return (bool(wanted[0]) + bool(wanted[1])) * _convolution(
            arguments[0], arguments[2]
        ), NO_SIZES
    if "conv" in name and isinstance(result, torch.Tensor):
        return _convolution(result, arguments[1]), NO_SIZES
    if name == "_grouped_mm":
        return 2.0 * result.numel() * arguments[0].shape[-1], (
            1,
            arguments[0].shape[-2],
            result.shape[-1],
            arguments[0].shape[-1],
        )
    if name in ("_cudnn_rnn", "_cudnn_rnn_backward"):
        return _recurrent(name, arguments)
    if arguments and isinstance(arguments[0], list | tuple):
        return 0.0, (len(arguments[0]), 0, 0, 0)
    return 0.0, NO_SIZES


def _attention(
    name: str, arguments: Sequence[Any], options: Mapping[str, Any]
) -> tuple[float, Sizes]:
    """Two products of [T, S] x D forward, five backward; half of each where the mask is causal."""
    backward = name.endswith("_backward")
    q, k = arguments[1:3] if backward else arguments[:2]
    batch, heads, length, width = q.shape
    position = CAUSAL_ARGUMENT[name]
    causal = (
        bool(arguments[position])
        if len(arguments) > position
        else bool(options.get("is_causal", False))
    )
    flops = (
        (5 if backward else 2)
        * 2.0
        * batch
        * heads
        * length
        * k.shape[2]
        * width
        * (0.5 if causal else 1.0)
    )
    return flops, (batch * heads, length, k.shape[2], width)


def _convolution(result: torch.Tensor, weight: torch.Tensor) -> float:
    """Every result is a sum over one filter."""
    return 2.0 * result.numel() * weight.numel() / max(1, weight.shape[0])


def _recurrent(name: str, arguments: Sequence[Any]) -> tuple[float, Sizes]:
    """Every step multiplies by every weight. The sizes: steps one after the other, batch, matrices of a step, width."""
    x, weights = arguments[0], arguments[1]
    offset = 0 if name == "_cudnn_rnn" else 4  # output and its gradients come before the mode
    hidden, layers, batch_first, two_ways = (arguments[i + offset] for i in (7, 9, 10, 13))
    steps, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    flops = (
        2.0
        * steps
        * batch
        * sum(math.prod(w.shape) for w in weights if w.dim() > 1)
        * (1 if name == "_cudnn_rnn" else 2)
    )
    return flops, (steps, batch, layers * (2 if two_ways else 1), hidden)
