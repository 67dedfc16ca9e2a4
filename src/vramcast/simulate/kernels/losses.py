"""Losses whose CUDA kernels allocate more than their result."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vramcast.simulate.kernels.registry import kernel, new

NONE, MEAN, SUM = 0, 1, 2  # torch's enum Reduction


@kernel("mse_loss", "smooth_l1_loss")
def pointwise_loss(x: Tensor, reduction: int = MEAN) -> Tensor:
    """The scalar result keeps a buffer of the input's size, made for the unreduced losses."""
    out = torch.empty_like(x)
    if reduction == NONE:
        return out
    losses = torch.empty_like(x)
    reduce = torch.mean if reduction == MEAN else torch.sum
    return reduce(losses, [], out=out.resize_(()))


@kernel("huber_loss")
def huber_loss(x: Tensor, reduction: int = MEAN) -> Tensor:
    losses = torch.empty_like(x)
    return losses.mean() if reduction == MEAN else losses.sum() if reduction == SUM else losses


@kernel(
    "_use_miopen_ctc_loss",
    "_use_miopen_ctc_loss.Tensor",
    "_use_cudnn_ctc_loss",
    "_use_cudnn_ctc_loss.Tensor",
)
def use_library_for_ctc() -> bool:
    return False


def _ctc_table(log_probs: Tensor, targets: Tensor) -> Tensor:
    """A value for each step and each place in the target, with blanks between its symbols."""
    length, batch = log_probs.shape[0], log_probs.shape[1] if log_probs.dim() == 3 else 1
    return new(batch, length, 2 * targets.shape[-1] + 1, dtype=log_probs.dtype)


@kernel("_ctc_loss", "_ctc_loss.Tensor")
def ctc_loss(log_probs: Tensor, targets: Tensor) -> Any:
    batch = log_probs.shape[1] if log_probs.dim() == 3 else 1
    return new(batch, dtype=log_probs.dtype), _ctc_table(log_probs, targets)


@kernel("_ctc_loss_backward", "_ctc_loss_backward.Tensor")
def ctc_loss_backward(log_probs: Tensor, targets: Tensor) -> Tensor:
    beta = _ctc_table(log_probs, targets)
    out = torch.empty_like(log_probs)
    del beta
    return out
