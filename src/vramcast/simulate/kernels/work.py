"""The floating-point operations and the bytes moved of the kernels that are written in Python."""

import ctypes
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from vramcast.simulate.kernels.indexing import UNSORTED_INDICES
from vramcast.simulate.kernels.registry import PLAIN as PLAIN_TYPES
from vramcast.simulate.kernels.registry import suggest_memory_format, tensors_in
from vramcast.tracing.work import (
    CONVERTING,
    DROPPED,
    EVALUATED,
    MASKED,
    MASKED_AND_DROPPED,
    PLAIN,
    STRIDED,
    TF32,
    Convolution,
    is_padded,
)

Sizes = tuple[int, int, int, int]
FOUR = ctypes.c_int64 * 4
# nothing runs on the GPU for these
WITHOUT_KERNEL = (
    "_fused_sdp_choice",
    "record_stream",
    "_use_miopen_ctc_loss",
    "_use_cudnn_ctc_loss",
    "_cudnn_rnn_flatten_weight",
)
SUMS_OF_ROWS = ("_embedding_bag", "_embedding_bag_forward_only")
# Of the first tensor only the indexed elements are read (1), or read and written (2).
NAMED_ELEMENTS = {"index": 1, "take": 1, "_index_put_impl_": 2}
SCANS = ("cum", "logcum", "_logcum")
# Their rates are those of strided access, as for operators whose tensors have different shapes.
NOT_IN_VECTORS = ("topk", "cudnn_batch_norm", "cudnn_batch_norm_backward")
ENLARGED = "upsample_bilinear2d_backward"
Work = tuple[int, float, float, Any, int]
MOST_KNOWN = 1 << 14
_known: dict[tuple[Any, ...], Work] = {}
# c10::ScalarType
DTYPE_NUMBERS = {torch.float16: 5, torch.float32: 6, torch.float64: 7, torch.bfloat16: 15}


def kept_work_of(
    name: str, arguments: Sequence[Any], named: Mapping[str, Any], result: Any
) -> Work:
    """As work_of, where all arguments are named. It is kept, because a step calls most operators
    many times with tensors of the same shapes."""
    key = None if name in NAMED_ELEMENTS else _key(name, named, result)
    if key is None:
        return work_of(name, arguments, named, result)
    if (work := _known.get(key)) is None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        work = _known[key] = work_of(name, arguments, named, result)
    return work


def _key(name: str, named: Mapping[str, Any], result: Any) -> tuple[Any, ...] | None:
    """All that the work depends on. None where it may depend on more."""
    parts = [name, uses_tf32(name), *named]
    return tuple(parts) if _describe((*named.values(), result), parts) else None


def _describe(values: Iterable[Any], parts: list[Any]) -> bool:
    """Appends what can be compared. False where a value cannot be described."""
    for value in values:
        if type(value) in PLAIN_TYPES:
            parts.append(value)
        elif isinstance(value, torch.Tensor) and value.layout == torch.strided:
            parts += (value.shape, value.stride(), value.dtype, value.is_cuda)
        elif isinstance(value, list | tuple):
            parts.append(len(value))
            if not _describe(value, parts):
                return False
        else:
            return False
    return True


def work_of(name: str, arguments: Sequence[Any], named: Mapping[str, Any], result: Any) -> Work:
    """Type, floating-point operations, bytes, sizes and access of one call of an operator."""
    tensors = tensors_in((arguments, result))
    num_bytes = float(sum([t.nbytes for t in tensors if t.is_cuda]))
    dtype = next((DTYPE_NUMBERS.get(t.dtype, -1) for t in tensors if t.is_floating_point()), -1)
    if dtype == DTYPE_NUMBERS[torch.float32] and uses_tf32(name):
        dtype = TF32
    flops, sizes = _flops(name, named, result)
    if "conv" in name and flops:
        num_bytes = _moved_by_convolution(name, named, result)
    if arguments and isinstance(arguments[0], list | tuple) and not flops:
        sizes = len(arguments[0]), 0, 0, 0
    if name == "roll":  # one pass for each dimension
        num_bytes *= max(1, len(named.get("dims") or ()))
    if name in NAMED_ELEMENTS:
        num_bytes, sizes = _moved_by_name(name, arguments, result)
    elif units := _units(name, named):
        shape = named["x"].shape if "batch_norm" in name else (0, 0, 0)
        sizes = int(_is_across(name, named)), shape[0], math.prod(shape[2:]), units
        if "group_norm" in name:  # channels of all samples, and how long they are
            sizes = 0, named["N"] * named["C"], named["HxW"], units
        if name.startswith(SCANS) and sizes[0]:
            sizes = 1, named["x"].numel() // units, 0, units
        if _is_evaluated(name, named):
            sizes, num_bytes = (sizes[0] + EVALUATED, *sizes[1:]), 2.0 * named["x"].nbytes
    if name == ENLARGED:
        is_last, number = int(_is_across(name, named)), named["grad"].numel()
        sizes = is_last, 4 * number, math.prod(named["input_size"]), is_last * number
    if name in SUMS_OF_ROWS:  # each row as often as it is named
        table = named["weight"]
        num_bytes += named["indices"].numel() * table[:1].nbytes - table.nbytes
    if name.endswith("_dense_backward"):
        rows = named["indices"].numel()
        if rows > UNSORTED_INDICES or "bag" in name:
            sizes = 0, rows, named["num_weights"], named["grad"].shape[-1]
    # Slower kernels: additions at positions are sorted, attention with dropout draws random
    # numbers, and norms without weights, with channels last or of rows have other kernels.
    is_slow = (
        name in NOT_IN_VECTORS
        or (name == "native_layer_norm_backward" and named["weight"] is None)
        or any(map(named.get, ("accumulate", "dropout_p")))
        or ("batch_norm" in name and _is_across(name, named))
        or named.get("HxW") == 1
        or ("softmax" in name and _is_across(name, named) and _threads_of_row(name, named) > 1)
    )
    access = STRIDED if is_slow else PLAIN
    if named.get("attn_bias") is not None:
        access = MASKED_AND_DROPPED if access == DROPPED else MASKED
    elif access == PLAIN and _lies_otherwise(name, named):
        access = CONVERTING
    return dtype, flops, num_bytes, FOUR(*sizes), access


def _is_evaluated(name: str, named: Mapping[str, Any]) -> bool:
    """Whether a batch norm only scales and shifts, with the mean and variance that it has kept. In
    the backward pass it reads the gradient alone, unless those of its weights are wanted too."""
    is_trained = named.get("training", named.get("train", True))
    return "batch_norm" in name and not is_trained and not any(named.get("wanted", ())[1:])


def uses_tf32(name: str) -> bool:
    """Whether cuDNN rounds to TF32, which it does by default.

    `torch.backends.cudnn.allow_tf32` cannot be asked: it raises where newer switches were used.
    """
    kind = "conv" if "conv" in name else "rnn" if "cudnn_rnn" in name else ""
    return bool(kind) and torch._C._get_fp32_precision_getter("cuda", kind) == "tf32"


def _is_across(name: str, named: Mapping[str, Any]) -> bool:
    """Whether the kernel for strided rows is used: for a softmax or running sum, over another
    dimension than the last; for batch norm and upsampling, with channels last."""
    x = named.get("x", named.get("grad"))
    if name == ENLARGED:  # a slice with channels last counts too
        return suggest_memory_format(x) == torch.channels_last
    if "batch_norm" in name:
        return _is_channels_last(x) and not _lies_otherwise(name, named)
    if not ("softmax" in name or name.startswith(("topk", *SCANS))) or not x.dim():
        return False
    dim = named.get("dim", -1) % x.dim() + 1
    return math.prod(x.shape[dim:]) > 1 if "softmax" in name else dim < x.dim()


def _lies_otherwise(name: str, named: Mapping[str, Any]) -> bool:
    """Whether the gradient of a batch norm's result does not lie as its input does: each channel
    has a block then, which goes from place to place."""
    if name != "native_batch_norm_backward" or _is_evaluated(name, named):
        return False
    return bool(named["grad"].stride() != named["x"].stride())


def _grouped_product(named: Mapping[str, Any], result: torch.Tensor) -> tuple[float, Sizes]:
    """Groups share the rows, the columns or what is summed over: taken as equal shares, since where
    they begin is on the GPU."""
    left, right = named["x"], named["mat2"]
    (rows, inner), columns = left.shape[-2:], right.shape[-1]
    groups = next(t.shape[0] for t in (left, right, result) if t.dim() == 3)
    shared = left.dim(), right.dim()
    sizes = (
        math.ceil(rows / groups) if shared == (2, 3) else rows,
        math.ceil(columns / groups) if shared == (3, 2) else columns,
        math.ceil(inner / groups) if shared == (2, 2) else inner,
    )
    of_all = groups if shared == (3, 3) else 1
    return 2.0 * of_all * rows * columns * inner, (groups, *sizes)


def _flops(name: str, named: Mapping[str, Any], result: Any) -> tuple[float, Sizes]:
    if name.startswith("_scaled_dot_product"):
        return _attention(name, named)
    if "conv" in name:
        return _convolution(name, named, result)
    if name == "_grouped_mm":
        return _grouped_product(named, result)
    if name.startswith("_cudnn_rnn"):
        return _recurrent(name, named)
    if name == "im2col":  # a kernel for each sample
        samples, taken = math.prod(named["x"].shape[:-3]), math.prod(named["kernel_size"])
        return 0.0, (0, samples, result.numel(), taken)
    if name.startswith("cudnn_grid_sampler"):  # native/work.h: note_sampled
        points = named["grid"].numel() // 2
        return 0.0, (0, points, named["x"].shape[1], named["x"].numel())
    if name.startswith(("upsample_", "_upsample_")):
        return 0.0, _resized(named.get("x", named.get("grad")), result)
    if "ctc_loss" in name:  # step after step: how many, samples, letters
        steps, *others = named["log_probs"].shape
        return 0.0, (0, steps, math.prod(others[:-1]), others[-1])
    if name.startswith("_fft_"):
        signal = [(result if name == "_fft_c2r" else named["x"]).shape[dim] for dim in named["dim"]]
        return 0.0, (0, math.prod(signal), signal[-1], len(signal))
    if name == "col2im":
        return 0.0, (0, result.numel(), named["x"].numel(), 0)
    matrix = named.get("A", named.get("x"))
    if "linalg_" in name and isinstance(matrix, torch.Tensor) and matrix.dim() > 1:
        return 0.0, _system(matrix, named.get("B"))
    return 0.0, (0, 0, 0, 0)


def _resized(given: torch.Tensor, found: torch.Tensor) -> Sizes:
    """As count_pixels in native/work.h."""
    large = max(given, found, key=torch.numel)
    pixels = math.prod(large.shape[2:]) if large.is_contiguous() else 0
    return 0, given.numel(), found.numel(), pixels


def _system(matrix: torch.Tensor, wanted: torch.Tensor | None) -> Sizes:
    """The number of matrices, their columns, and the columns of the right-hand side."""
    columns = max(1, min(matrix.shape[-2:]))
    number = matrix.numel() // max(1, math.prod(matrix.shape[-2:]))
    of_wanted = 0 if wanted is None else wanted.numel() // max(1, number * columns)
    return number, columns, of_wanted, 0


def _attention(name: str, named: Mapping[str, Any]) -> tuple[float, Sizes]:
    """Operations of two products of [T, S] x D forward, five backward; half of each with a causal
    mask."""
    batch, heads, length, width = named["q"].shape
    keys = named["k"].shape[2]
    num_products = 5 if name.endswith("_backward") else 2
    share = 0.5 if named.get("is_causal") else 1.0
    flops = num_products * 2.0 * batch * heads * length * keys * width * share
    return flops, (batch * heads, length, keys, width)


def _convolution(name: str, named: Mapping[str, Any], result: Any) -> tuple[float, Sizes]:
    """Operations and sizes. Every result is a sum over one filter; each of the two gradients takes
    as much.

    A transposed convolution is the data gradient of another one, whose results are its input.
    """
    x, weight, is_backward = named["x"], named["weight"], name.endswith("backward")
    result = named["grad"] if is_backward else result
    is_transposed = bool(named.get("transposed")) or "transpose" in name
    of_data, of_weight = (
        map(bool, named.get("wanted", (1, 1))[:2]) if is_backward else (False, False)
    )
    small = x if is_transposed else result
    groups = max(1, int(named.get("groups") or 1))
    if "depthwise" in name:
        groups = weight.shape[0]
    dilation = named.get("dilation") or [1]
    sizes = Convolution(
        positions=small.numel() // max(1, small.shape[1]),
        filters=small.shape[1] // groups,
        channels=max(1, weight.shape[1]),
        kernel=math.prod(weight.shape[2:]),
        dims=weight.dim() - 2,
        is_transposed=is_transposed,
        # cuDNN's layout: that of either's strides, which a slice has too
        is_channels_last={*map(suggest_memory_format, (x, weight))} != {torch.contiguous_format},
        of_data=of_data,
        of_weight=of_weight,
        batch=int(x.shape[0]),
        is_dilated=max(dilation) > 1,
        is_padded=is_padded(weight.shape[2:], named.get("padding") or [0], dilation),
        side=weight.shape[-1],
        stride=(named.get("stride") or [1])[-1],
    )
    num_products = of_data + of_weight if is_backward else 1
    flops = 2.0 * num_products * small.numel() * weight.numel() / max(1, weight.shape[0])
    return flops, sizes.packed


def _is_channels_last(tensor: torch.Tensor) -> bool:
    if tensor.dim() == 2:  # samples and channels: neighbouring elements are channels
        return tensor.is_contiguous()
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    layout = formats.get(tensor.dim())
    if layout is None or tensor.is_contiguous():
        return False
    return tensor.is_contiguous(memory_format=layout)


def _moved_by_convolution(name: str, named: Mapping[str, Any], result: Any) -> float:
    """The bytes moved: forward and each gradient go once through input, result and weight."""
    is_backward = name.endswith("backward")
    tensors = named["x"], named["weight"], named["grad"] if is_backward else result
    passes = sum(map(bool, named.get("wanted", (1, 1))[:2])) if is_backward else 1
    return float(passes * sum(t.numel() * t.element_size() for t in tensors))


def _moved_by_name(name: str, arguments: Sequence[Any], result: Any) -> tuple[float, Sizes]:
    """The bytes moved by indexing, and its sizes, as in native/work.h. The last sizes are places
    and rows."""
    x = arguments[0]
    others = [t for t in tensors_in((arguments[1:], result)) if t is not x]
    size, row = x.element_size(), math.prod(x.shape[_num_named(name, arguments) :])
    most = max((t.numel() for t in others), default=0)
    copied = x.numel() * size if result is not x and NAMED_ELEMENTS[name] > 1 else 0
    moved = sum(t.numel() * t.element_size() for t in others) + copied
    is_whole = _num_named(name, arguments) == 1 and row * size % 16 == 0
    rows = most // max(1, row) if is_whole or NAMED_ELEMENTS[name] > 1 else 0
    # sizes[1]: there is a mask, so the host waits for the number of true elements
    is_masked = any(t.dtype in (torch.bool, torch.uint8) for t in tensors_in(arguments[1:2]))
    places = x.numel() // max(1, row) if NAMED_ELEMENTS[name] > 1 else 0
    return float(moved + most * size * NAMED_ELEMENTS[name]), (0, int(is_masked), places, rows)


def _num_named(name: str, arguments: Sequence[Any]) -> int:
    """How many of the first dimensions are indexed."""
    return len(arguments[1]) if "index_put" in name or name == "index" else 1


def _units(name: str, named: Mapping[str, Any]) -> int:
    """The rows, channels or groups that a kernel computes side by side. 0 for other kernels."""
    x = named.get("x", named.get("grad"))
    if not isinstance(x, torch.Tensor) or not x.numel():
        return 0
    if "batch_norm" in name:
        return int(x.shape[1])
    if "group_norm" in name:
        return int(named["N"] * named["group"])
    if "normalized_shape" in named:
        return x.numel() // max(1, math.prod(named["normalized_shape"]))
    if not x.dim() or not ("softmax" in name or name.startswith(("sort", "topk", *SCANS))):
        return 0
    length = int(x.shape[named.get("dim", -1)])
    rows = x.numel() // length
    if _is_across(name, named):
        return rows * _threads_of_row(name, named)
    return _blocks_of_scan(rows, length) if name.startswith(SCANS) else rows


def _threads_of_row(name: str, named: Mapping[str, Any]) -> int:
    """SoftMax.cu, SpatialSoftMax_getBlockSize: with few elements beside it, several threads share a
    row."""
    x, dim = named.get("x", named.get("grad")), named["dim"]
    length, inner = x.shape[dim], math.prod(x.shape[dim % x.dim() + 1 :])
    if "softmax" not in name or inner > 64 or length < 64:
        return 1
    return int(1 << min(1024 // inner, length).bit_length() - 1)


def _blocks_of_scan(rows: int, length: int) -> int:
    """ScanUtils.cuh, get_log_num_threads_x_inner_scan. Its unsigned subtraction wraps round, so
    many short rows get a block each. CUB scans a single row (0)."""
    if rows == 1:
        return 0
    logarithm = (9 + (length - 1).bit_length() - (rows - 1).bit_length()) % (1 << 32) // 2
    return math.ceil(rows / (512 >> min(max(4, logarithm), 9)))


def _recurrent(name: str, named: Mapping[str, Any]) -> tuple[float, Sizes]:
    """Operations: every step multiplies by every weight. Sizes: steps, batch, matrices of a step,
    width."""
    steps, batch = named["x"].shape[:2]
    if named["batch_first"]:
        steps, batch = batch, steps
    all_steps = steps * batch
    if batch_sizes := named["batch_sizes"]:  # packed: samples have lengths of their own
        steps, batch, all_steps = len(batch_sizes), batch_sizes[0], steps
    num_weights = sum(w.numel() for w in named["weight"] if w.dim() > 1)
    num_products = 2 if name.endswith("_backward") else 1
    directions = 2 if named["bidirectional"] else 1
    sizes = (steps, batch, named["num_layers"] * directions, named["hidden_size"])
    return 2.0 * all_steps * num_weights * num_products, sizes
