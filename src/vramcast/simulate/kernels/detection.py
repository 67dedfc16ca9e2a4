"""Operators of torchvision that detect objects."""

from __future__ import annotations

import torch
from torch import Tensor

from vramcast.simulate.kernels.registry import kernel, new

BOXES_PER_WORD = 64


@kernel("torchvision::nms")
def nms(dets: Tensor, scores: Tensor) -> Tensor:
    """Boxes by falling score; a bit for every pair that overlaps; half of the boxes are kept."""
    if not dets.numel():
        return new(0, dtype=torch.int64)
    order = scores.sort(stable=True, dim=0, descending=True)[1]
    ordered = dets.index_select(0, order).contiguous()
    count = dets.shape[0]
    overlaps = new(count * -(-count // BOXES_PER_WORD), dtype=torch.int64)
    keep = new(count, dtype=torch.bool)
    kept = order.masked_select(keep)
    del ordered, overlaps
    return kept
