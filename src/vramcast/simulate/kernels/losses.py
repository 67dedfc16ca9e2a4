"""Losses whose CUDA kernels allocate more than their result."""

from typing import Any

import torch
from torch import Tensor

from vramcast.simulate.kernels.registry import kernel, known, new, note, scratch

NONE, MEAN, SUM = 0, 1, 2  # torch's enum Reduction
LARGE_CTC = 450  # LossCTC.cu


@kernel("mse_loss", "smooth_l1_loss")
def pointwise_loss(x: Tensor, reduction: int = MEAN) -> Tensor:
    """The scalar result keeps a buffer of the input's size, made for the unreduced losses."""
    out = torch.empty_like(x)
    if reduction == NONE:
        return out
    losses = torch.empty_like(x)
    reduce = torch.mean if reduction == MEAN else torch.sum
    return reduce(losses, [], out=out.resize_(()))


@kernel("binary_cross_entropy")
def binary_cross_entropy(x: Tensor, reduction: int = MEAN) -> Tensor:
    """The scalar result is put into the buffer of the unreduced losses, which it keeps."""
    losses = torch.empty_like(x)
    if reduction == NONE:
        return losses
    reduced = losses.mean() if reduction == MEAN else losses.sum()
    return losses.resize_(()).copy_(reduced)


@kernel("huber_loss")
def huber_loss(x: Tensor, reduction: int = MEAN) -> Tensor:
    losses = torch.empty_like(x)
    return losses.mean() if reduction == MEAN else losses.sum() if reduction == SUM else losses


@kernel("multi_margin_loss")
def multi_margin_loss(x: Tensor, reduction: int = MEAN) -> Tensor:
    is_reduced = reduction != NONE or x.dim() < 2
    out = new(*(() if is_reduced else x.shape[:1]), dtype=x.dtype)
    if is_reduced and x.dim() == 2:
        scratch(len(x) * x.element_size())
    return out


@kernel("multilabel_margin_loss_forward")
def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int = MEAN) -> Any:
    is_target = torch.empty_like(target, dtype=x.dtype)
    is_reduced = reduction != NONE or x.dim() < 2
    losses = scratch(len(x) * x.element_size()) if is_reduced and x.dim() == 2 else None
    out = new(*(() if is_reduced else x.shape[:1]), dtype=x.dtype)
    del losses
    return out, is_target


@kernel("_use_miopen_ctc_loss", "_use_miopen_ctc_loss.Tensor")
def use_miopen_for_ctc() -> bool:
    return False


@kernel("_use_cudnn_ctc_loss", "_use_cudnn_ctc_loss.Tensor")
def use_cudnn_for_ctc(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int
) -> bool:
    """torch's own conditions, but lengths on the GPU are assumed to meet them."""
    is_list = not isinstance(input_lengths, Tensor)
    fits = (
        torch.backends.cudnn.enabled
        and blank == 0
        and targets.dim() == 1
        and targets.dtype == torch.int32
        and targets.is_contiguous()
        and log_probs.dim() == 3
        and log_probs.dtype == torch.float32
    )
    if not is_list:
        lengths = (input_lengths, target_lengths)
        return fits and all(length.dtype == torch.int32 for length in lengths)
    is_on_host, whole = not targets.is_cuda, len(log_probs)
    pairs = zip(input_lengths, target_lengths, strict=False)
    return fits and is_on_host and all(a == whole and b < 256 and b <= a for a, b in pairs)


@kernel("_cudnn_ctc_loss", "_cudnn_ctc_loss.Tensor")
def cudnn_ctc_loss(log_probs: Tensor, target_lengths: Any) -> Any:
    """The gradient is computed together with the loss. The workspace is an estimate: two tables."""
    note("the workspace of cuDNN's CTC loss is an estimate")
    grad = torch.empty_like(log_probs, memory_format=torch.contiguous_format)
    longest = 255 if isinstance(target_lengths, Tensor) else max(target_lengths)
    steps, batch = log_probs.shape[:2]
    workspace = scratch(2 * batch * steps * (2 * longest + 1) * 4)
    costs = new(batch, dtype=log_probs.dtype)
    del workspace
    return costs, grad


def _ctc_table(log_probs: Tensor, targets: Tensor, target_lengths: Any) -> Tensor:
    """A value for each step and each place in the target, with blanks between its symbols."""
    length, batch = log_probs.shape[0], log_probs.shape[1] if log_probs.dim() == 3 else 1
    longest = _longest(target_lengths)
    if longest is None:
        longest = targets.shape[-1] // (batch if targets.dim() == 1 else 1)
    return new(batch, length, 2 * longest + 1, dtype=log_probs.dtype)


def _longest(lengths: Any) -> int | None:
    host = known(lengths) if isinstance(lengths, Tensor) and lengths.is_cuda else lengths
    return None if host is None else int(max(host))


def _ctc_lengths(log_probs: Tensor) -> list[Tensor]:
    """The lengths of inputs and targets, and where each target begins."""
    batch = log_probs.shape[1] if log_probs.dim() == 3 else 1
    return [new(batch, dtype=torch.int64) for _ in range(3)]


@kernel("_ctc_loss", "_ctc_loss.Tensor")
def ctc_loss(log_probs: Tensor, targets: Tensor, target_lengths: Any) -> Any:
    lengths = _ctc_lengths(log_probs)
    alpha = _ctc_table(log_probs, targets, target_lengths)
    losses = new(len(lengths[0]), dtype=log_probs.dtype)
    del lengths
    return losses, alpha


@kernel("_ctc_loss_backward", "_ctc_loss_backward.Tensor")
def ctc_loss_backward(log_probs: Tensor, targets: Tensor, target_lengths: Any) -> Tensor:
    lengths = _ctc_lengths(log_probs)
    beta = _ctc_table(log_probs, targets, target_lengths)
    out = new(*log_probs.shape, dtype=log_probs.dtype)  # dense, also where log_probs is turned
    steps, labels = log_probs.shape[0], log_probs.shape[-1]
    batch, _, places = beta.shape
    if 2 * steps + 24 * batch // 10 + 2 * labels // 10 > LARGE_CTC:  # blanks are summed separately
        torch.logsumexp(new(batch, steps, places // 2 + 1, dtype=beta.dtype), 2, True)
    del beta, lengths
    return out
