"""Kernels that allocate in another order than their Meta version, or a little more than their result."""

from __future__ import annotations

from typing import Any

import torch

from vramcast.simulate.kernels.registry import kernel, new, scratch

aten = torch.ops.aten


@kernel("native_dropout")
def dropout(x: torch.Tensor, p: float, train: bool | None) -> Any:
    if train is False or p == 0 or x.numel() == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    mask = torch.empty_like(x, dtype=torch.bool)
    return torch.empty_like(x), mask


@kernel("mse_loss", "smooth_l1_loss")
def pointwise_loss(
    x: Any, target: Any, reduction: int = 1, *rest: Any, **options: Any
) -> torch.Tensor:
    """The scalar result sits in a buffer of the size of the input: it was made for the unreduced losses."""
    out = torch.empty_like(x)
    if reduction == 0:
        return out
    losses = torch.empty_like(x)
    return (
        torch.mean(losses, [], out=out.resize_(()))
        if reduction == 1
        else torch.sum(losses, [], out=out.resize_(()))
    )


@kernel("huber_loss")
def huber_loss(x: Any, target: Any, reduction: int = 1, delta: float = 1.0) -> torch.Tensor:
    losses = torch.empty_like(x)
    return losses.mean() if reduction == 1 else losses.sum() if reduction == 2 else losses


@kernel("_softmax", "_log_softmax")
def softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    out = new(*x.shape, dtype=torch.float32 if half_to_float else x.dtype)
    dense = x.contiguous()
    del dense
    return out


@kernel("_softmax_backward_data")
def softmax_backward(grad: Any, output: Any, dim: int, dtype: Any) -> torch.Tensor:
    out = new(*grad.shape, dtype=dtype)
    product = grad * output
    dense, dense_output = product.contiguous(), output.contiguous()
    del dense, dense_output, product
    return out


@kernel("_log_softmax_backward_data")
def log_softmax_backward(grad: Any, output: Any, dim: int, dtype: Any) -> torch.Tensor:
    out = new(*grad.shape, dtype=dtype)
    dense, dense_output = grad.contiguous(), output.contiguous()
    del dense, dense_output
    return out


@kernel("count_nonzero.dim_IntList")
def count_nonzero(x: torch.Tensor, dim: Any) -> torch.Tensor:
    return (x != 0).sum(dim)


@kernel("count_nonzero")
def count_all_nonzero(x: torch.Tensor, dim: Any = None) -> torch.Tensor:
    return (x != 0).sum() if dim is None else (x != 0).sum(dim)


@kernel("log_sigmoid_forward")
def log_sigmoid(x: torch.Tensor) -> Any:
    return torch.empty_like(x), new(0, dtype=x.dtype)


@kernel(
    "_use_miopen_ctc_loss",
    "_use_miopen_ctc_loss.Tensor",
    "_use_cudnn_ctc_loss",
    "_use_cudnn_ctc_loss.Tensor",
)
def use_cudnn_ctc(*arguments: Any, **options: Any) -> bool:
    return False


@kernel("_ctc_loss", "_ctc_loss.Tensor")
def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    *rest: Any,
    **options: Any,
) -> Any:
    length, batch = log_probs.shape[0], log_probs.shape[1] if log_probs.dim() == 3 else 1
    longest = targets.shape[-1]
    return new(batch, dtype=log_probs.dtype), new(
        batch, length, 2 * longest + 1, dtype=log_probs.dtype
    )


@kernel("_ctc_loss_backward", "_ctc_loss_backward.Tensor")
def ctc_loss_backward(grad: Any, log_probs: Any, targets: Any, *rest: Any, **options: Any) -> Any:
    length, batch = log_probs.shape[0], log_probs.shape[1]
    beta = new(batch, length, 2 * targets.shape[-1] + 1, dtype=log_probs.dtype)
    out = torch.empty_like(log_probs)
    del beta
    return out


@kernel("_grouped_mm")
def grouped_mm(
    a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> torch.Tensor:
    from vramcast.simulate.kernels.registry import like, meta_result

    out = like(meta_result(aten._grouped_mm.default, a, b, offs, bias, out_dtype))
    groups = offs.numel() if offs is not None else a.shape[0]
    descriptors = scratch(groups * 1024)
    del descriptors
    return out


@kernel("_foreach_norm.Scalar")
def foreach_norm(
    tensors: Any, ord: Any = 2, dtype: torch.dtype | None = None
) -> list[torch.Tensor]:
    """Partial norms per chunk of every tensor first, then one scalar each."""
    chunks = max(-(-t.numel() // 65536) for t in tensors)
    wide = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
    partial = scratch(len(tensors) * chunks * wide.itemsize)
    norms = [new(dtype=dtype or tensors[0].dtype) for _ in tensors]
    del partial
    return norms


@kernel("_fused_sgd_", "_fused_sgd_.tensor_lr", "_fused_adagrad_", "_fused_adagrad_.tensor_lr")
def fused_update(*arguments: Any, **options: Any) -> None:
    """In place, without scratch memory."""


@kernel("record_stream", "_assert_async", "_assert_async.msg")
def nothing(*arguments: Any, **options: Any) -> None:
    return None
