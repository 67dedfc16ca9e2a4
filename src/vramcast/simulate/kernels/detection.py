"""Operators of torchvision."""

import torch
from torch import Tensor

from vramcast.simulate.kernels.registry import kernel, known, new, set_known

BOXES_PER_WORD = 64
MOST_IMAGES_AT_ONCE = 32  # of a deformable convolution


@kernel("torchvision::nms")
def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Sorts boxes by score and keeps one bit for every pair, whether it overlaps. Where values are
    not known, half of the boxes are kept."""
    if not dets.numel():
        return new(0, dtype=torch.int64)
    order = scores.sort(stable=True, dim=0, descending=True)[1]
    ordered = dets.index_select(0, order).contiguous()
    count = dets.shape[0]
    overlaps = new(count * -(-count // BOXES_PER_WORD), dtype=torch.int64)
    keep = new(count, dtype=torch.bool)
    boxes, values, places = known(dets), known(scores), known(order)
    if boxes is not None and values is not None and places is not None:
        best = torch.ops.torchvision.nms(boxes, values, iou_threshold)
        set_known(keep, torch.isin(places, best))
    kept = order.masked_select(keep)
    del ordered, overlaps
    return kept


class _Columns:
    """The patches that the filters of a deformable convolution see, as the rows of a matrix. It has
    as many images as are processed at once."""

    def __init__(self, x: Tensor, weight: Tensor, offset: Tensor, groups: int) -> None:
        most = min(len(x), MOST_IMAGES_AT_ONCE)
        self.images = max(n for n in range(1, most + 1) if len(x) % n == 0)
        self.times = range(len(x) // self.images * groups)
        self.filters = weight[: len(weight) // groups].flatten(1)
        shape = x.shape[1] * weight[0, 0].numel(), self.images * offset[0, 0].numel()
        self.rows = new(*shape, dtype=x.dtype)[: self.filters.shape[1]]


@kernel("torchvision::deform_conv2d")
def deform_conv2d(
    x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, groups: int
) -> Tensor:
    """The products give the result in another order, so it is copied."""
    given = [t.contiguous() for t in (x, offset, weight, mask, bias)]
    shape = len(x), len(weight), *offset.shape[2:]
    out, ordered = torch.zeros(shape, device="cuda", dtype=x.dtype), new(*shape, dtype=x.dtype)
    columns = _Columns(x, weight, offset, groups)
    made = ordered.view(-1, columns.rows.shape[1])[: len(columns.filters)]
    for _ in columns.times:
        torch.mm(columns.filters, columns.rows, out=made)
    result = out + bias.view(1, -1, 1, 1)
    del columns, made, ordered, out, given
    return result


@kernel("torchvision::_deform_conv2d_backward")
def deform_conv2d_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    groups: int,
) -> tuple[Tensor, ...]:
    grad, x, weight, offset, mask = (t.contiguous() for t in (grad, x, weight, offset, mask))
    grads = [torch.zeros_like(t) for t in (x, offset, mask)]
    columns = _Columns(x, weight, offset, groups)
    for _ in columns.times:
        part = grad[: columns.images, : len(columns.filters)].transpose(0, 1).flatten(1)
        torch.mm(columns.filters.t(), part, out=columns.rows)
        del part
    images, times = columns.images, columns.times
    del columns
    grad_weight = torch.zeros_like(weight)
    ordered = grad.unflatten(0, (-1, images)).transpose(1, 2).contiguous()
    columns = _Columns(x, weight, offset, groups)
    made = grad_weight[: len(columns.filters)].flatten(1)
    for _ in times:
        torch.mm(ordered[0, : len(made)].flatten(1), columns.rows.t(), out=made)
    del columns, ordered
    sums = grad.sum((0, 2, 3))
    grad_bias = torch.ones_like(bias) * sums
    return grads[0], grad_weight, *grads[1:], grad_bias
