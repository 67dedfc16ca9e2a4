"""Convolutions: which library torch chooses, and the copies and the workspace it takes."""

import math
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import _ConvBackend as Backend

from vramcast.hardware.calibration.table import convolution_key
from vramcast.simulate.cudnn import plans
from vramcast.simulate.cudnn.convolution import DATA_GRADIENT, FORWARD, WEIGHT_GRADIENT
from vramcast.simulate.kernels.convolution_workspace import Layer, tried_bytes, workspace_bytes
from vramcast.simulate.kernels.registry import Target, kernel, new, note, scratch
from vramcast.simulate.kernels.work import uses_tf32

DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
ESTIMATED = (
    "convolution workspaces that were not calibrated are estimates; where the package "
    "nvidia-cudnn-cu13==9.19.0.56 is installed, cuDNN itself says most of them"
)
ESTIMATED_IN_PART = (
    "what cuBLAS takes for weight gradients of 1 x 1 convolutions in channels_last is an estimate"
)
OTHER_CUDNN = (
    "cuDNN's convolution workspaces were measured in another version than this torch comes with, "
    "which may choose others"
)
TRIED = (
    "cudnn.benchmark: which algorithms cuDNN tries in the first step is not known, so the memory "
    "for it is an estimate that may be far too low; later steps do not have it"
)
KEPT = (
    "cudnn.benchmark: the first step has the memory in which cuDNN tries its kernels; which one is "
    "the fastest, and what it takes in later steps, only a GPU can tell"
)
DETERMINISTIC = (
    "deterministic convolutions: cuDNN leaves out kernels whose results vary; their workspaces are "
    "taken to be those of its free choice"
)
Size = tuple[int, ...]
DEPTHWISE = (Backend.CudaDepthwise2d, Backend.CudaDepthwise3d)
CUDNN = (Backend.Cudnn, Backend.CudnnTranspose)


class Geometry(NamedTuple):
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int


def _geometry(arguments: dict[str, Any]) -> Geometry:
    return Geometry(*(arguments[name] for name in Geometry._fields))


def _layout(x: Tensor, other: Tensor) -> torch.memory_format:
    """The layout in which cuDNN is called: channels last if either tensor has it."""
    return torch._C._conv_determine_backend_memory_format(x, other, Backend.Cudnn)


def _run(which: int, x: Tensor, weight: Tensor, y: Tensor, geometry: Geometry, tf32: bool) -> None:
    """Takes the workspace of cuDNN's kernel.

    A transposed convolution is the data gradient of a plain one: `x` is its result, `y` its input.
    """
    gpu = Target.gpu
    dtype = DTYPES.get(x.dtype, "fp32")
    # only single precision is rounded to TF32
    tf32 = tf32 and x.dtype == torch.float32
    channels_last = _layout(x, weight) != torch.contiguous_format
    shapes = x.shape, weight.shape, y.shape
    convolution, key = _layer(dtype, tf32, channels_last, *shapes, *map(_hashable, geometry))
    workspace = _workspace_bytes(which, convolution, key)
    # torch keeps a plan for each thread, whether it was tried out or not
    plan = (threading.get_ident(), which, key, tf32)
    if torch.backends.cudnn.benchmark:
        asked = plans.tried_bytes(which, convolution, gpu.model, _is_deterministic())
        tried = [workspace, *(asked or tried_bytes(which, convolution))]
        if plan not in gpu.convolution_plans:
            note(TRIED if asked is None else KEPT)
            gpu.has_tried_kernels = True
            _try_algorithms(tried)
        workspace = gpu.fastest(tried) if gpu.fastest else workspace
    gpu.convolution_plans.add(plan)
    scratch(workspace)


def _hashable(size: Any) -> Any:
    return size if isinstance(size, int) else tuple(size)


@lru_cache(1 << 12)
def _layer(
    dtype: str, tf32: bool, channels_last: bool, x: Size, weight: Size, y: Size, *geometry: Any
) -> tuple[Layer, str]:
    """The convolution, and as text. They are kept, because every step has the same ones."""
    sizes = {"x": tuple(x), "weight": tuple(weight), **Geometry(*geometry)._asdict()}
    convolution = Layer(dtype, tf32, channels_last, y=tuple(y), **sizes)
    return convolution, convolution_key(dtype=dtype, channels_last=channels_last, **sizes)


def _is_deterministic() -> bool:
    return torch.backends.cudnn.deterministic or torch.are_deterministic_algorithms_enabled()


def _try_algorithms(sizes: Sequence[int]) -> None:
    """Takes the largest workspace that fits, as cudnn.benchmark does for all kernels that it tries,
    then empties the cache."""
    gpu = Target.gpu
    gpu.was_asked = True
    limit_bytes = min(gpu.memory.limit_bytes, gpu.model.usable_bytes)
    free_bytes = limit_bytes - gpu.device.library.vramcast_allocated()
    size = max((size for size in sizes if size <= free_bytes), default=0)
    while size:
        try:
            scratch(size)
            break
        except torch.OutOfMemoryError:
            size //= 2
    gpu.device.empty_cache()


def _workspace_bytes(which: int, convolution: Layer, key: str) -> int:
    """The workspace: measured, else as cuDNN says, else between two measured batch sizes, else by a
    model."""
    gpu = Target.gpu
    is_in_tables = convolution.dtype != "fp32" or convolution.tf32
    if gpu.convolutions.of_other_cudnn:
        note(OTHER_CUDNN)
    if is_in_tables and (known := gpu.convolutions.measured(key)) is not None:
        return known[which]
    gpu.uncalibrated_kernels.add(key)
    asked = plans.workspace_bytes(which, convolution, gpu.model, _is_deterministic())
    if asked is not None:
        return asked
    note(ESTIMATED if plans.version() is None else ESTIMATED_IN_PART)
    if _is_deterministic():
        note(DETERMINISTIC)
    known = gpu.convolutions.between(key) if is_in_tables else None
    return workspace_bytes(which, convolution) if known is None else known[which]


def _result_shape(
    x: Tensor, weight: Tensor, geometry: Geometry, output_padding: Sequence[int] | None = None
) -> list[int]:
    """The shape of the result. A convolution with an output padding is a transposed one."""
    sizes = zip(x.shape[2:], weight.shape[2:], *geometry[:3], strict=True)
    if output_padding is None:
        spans = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes]
        return [x.shape[0], weight.shape[0], *spans]
    spans = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in sizes]
    channels = weight.shape[1] * geometry.groups
    return [x.shape[0], channels, *map(sum, zip(spans, output_padding, strict=True))]


def _forward(
    x: Tensor, weight: Tensor, shape: Sequence[int], geometry: Geometry, tf32: bool
) -> Any:
    layout = _layout(x, weight)
    out = new(*shape, dtype=x.dtype, memory_format=layout)
    weight, x = weight.contiguous(memory_format=layout), x.contiguous(memory_format=layout)
    _run(FORWARD, x, weight, out, geometry, tf32)
    return out


def _data_gradient(
    grad: Tensor, weight: Tensor, shape: Sequence[int], geometry: Geometry, tf32: bool
) -> Tensor:
    layout = _layout(grad, weight)
    out = new(*shape, dtype=grad.dtype, memory_format=layout)
    weight, grad = weight.contiguous(memory_format=layout), grad.contiguous(memory_format=layout)
    _run(DATA_GRADIENT, out, weight, grad, geometry, tf32)
    return out


def _weight_gradient(
    grad: Tensor, x: Tensor, shape: Sequence[int], geometry: Geometry, tf32: bool
) -> Tensor:
    layout = _layout(x, grad)
    grad, x = grad.contiguous(memory_format=layout), x.contiguous(memory_format=layout)
    out = new(*shape, dtype=grad.dtype, memory_format=layout)
    _run(WEIGHT_GRADIENT, x, out, grad, geometry, tf32)
    return out


@kernel("cudnn_convolution")
def forward(x: Tensor, weight: Tensor, allow_tf32: bool, **others: Any) -> Tensor:
    geometry = _geometry(others)
    shape = _result_shape(x, weight, geometry)
    result: Tensor = _forward(x, weight, shape, geometry, allow_tf32)
    return result


@kernel("cudnn_convolution_transpose")
def transposed_forward(
    x: Tensor, weight: Tensor, output_padding: Sequence[int], allow_tf32: bool, **others: Any
) -> Tensor:
    geometry = _geometry(others)
    shape = _result_shape(x, weight, geometry, output_padding)
    return _data_gradient(x, weight, shape, geometry, allow_tf32)


@kernel("_conv_depthwise2d", "conv_depthwise3d")
def depthwise(x: Tensor, weight: Tensor, **others: Any) -> Tensor:
    shape = _result_shape(x, weight, _geometry({**others, "groups": x.shape[1]}))
    return new(*shape, dtype=x.dtype)


@kernel("convolution_backward")
def backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    transposed: bool,
    output_padding: Sequence[int],
    wanted: Sequence[bool],
    **others: Any,
) -> Any:
    geometry = _geometry(others)
    is_1d = x.dim() == 3
    if is_1d:  # torch computes it in two dimensions, and not with channels last
        grad, x, weight = (tensor.unsqueeze(2) for tensor in (grad, x.contiguous(), weight))
        stride, padding, dilation, groups = geometry
        geometry = Geometry([1, *stride], [0, *padding], [1, *dilation], groups)
        output_padding = [0, *output_padding]
    *sizes, groups = geometry
    backend = torch._C._select_conv_backend(
        x, weight, None, *sizes, transposed, output_padding, groups
    )
    if backend in CUDNN:
        gradients = _cudnn_backward(grad, x, weight, geometry, transposed, wanted)
    else:
        gradients = _native_backward(grad, x, weight, backend, wanted)
    grad_bias = grad.sum([d for d in range(grad.dim()) if d != 1]) if wanted[2] else None
    grad_x, grad_weight = gradients
    if is_1d:
        grad_x, grad_weight = (g if g is None else g.squeeze(2) for g in gradients)
    return grad_x, grad_weight, grad_bias


def _cudnn_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    geometry: Geometry,
    transposed: bool,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    tf32 = uses_tf32("conv")
    if wanted[1]:
        x = x.contiguous(memory_format=_layout(x, weight))
    grad_x = grad_weight = None
    if transposed:
        grad = grad.contiguous(memory_format=_layout(x, x))
        if wanted[0]:
            grad_x = _forward(grad, weight, x.shape, geometry, tf32)
        if wanted[1]:
            grad_weight = _weight_gradient(x, grad, weight.shape, geometry, tf32)
    else:
        grad = grad.to(memory_format=_layout(x, x))
        if wanted[0]:
            grad_x = _data_gradient(grad, weight, x.shape, geometry, tf32)
        if wanted[1]:
            grad_weight = _weight_gradient(grad, x, weight.shape, geometry, tf32)
    return grad_x, grad_weight


def _native_backward(
    grad: Tensor, x: Tensor, weight: Tensor, backend: Any, wanted: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The backward pass by torch's own kernels. All but depthwise ones copy patches into
    columns."""
    grad, x = grad.contiguous(), x.contiguous()
    columns = 0 if backend in DEPTHWISE else _columns_bytes(grad, weight)
    grad_x = grad_weight = None
    if backend == Backend.CudaDepthwise2d and wanted[1]:  # the weight's gradient is allocated first
        grad_weight = torch.empty_like(weight, memory_format=torch.contiguous_format)
    if wanted[0]:
        grad_x = torch.empty_like(x)
        scratch(columns)
    if wanted[1] and grad_weight is None:
        grad_weight = torch.empty_like(weight, memory_format=torch.contiguous_format)
        scratch(columns)
    return grad_x, grad_weight


def _columns_bytes(y: Tensor, weight: Tensor) -> int:
    """The size of one image's patches, as the columns of a matrix. A 1 x 1 filter needs none."""
    if math.prod(weight.shape[2:]) == 1:
        return 0
    return math.prod(weight.shape[1:]) * math.prod(y.shape[2:]) * y.element_size()


@kernel("_slow_conv2d_forward", "slow_conv3d_forward", "slow_conv_dilated2d", "slow_conv_dilated3d")
def slow_forward(x: Tensor, weight: Tensor, **others: Any) -> Tensor:
    """torch's own kernel, which copies patches into columns. A missing argument has torch's
    default."""
    ones = [1] * (weight.dim() - 2)
    defaults = {"stride": ones, "padding": [0 for _ in ones], "dilation": ones, "groups": 1}
    shape = _result_shape(x, weight, _geometry({**defaults, **others}))
    out = new(*shape, dtype=x.dtype)
    scratch(_columns_bytes(out, weight))
    return out
