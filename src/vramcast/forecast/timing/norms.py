"""Seconds of norms that have a block for each channel, or for each norm of a weight.

Blocks begin one after the other, so each has a cost, and within a block reads follow each other: a
few long channels leave most of the GPU idle.
"""

import math
from collections.abc import Sequence

from vramcast.tracing.work import CONVERTING, STRIDED, OperatorWork

_BATCH = ("cudnn_batch_norm", "native_batch_norm")
BATCH = frozenset(f"aten::{name}{way}" for name in _BATCH for way in ("", "_backward"))
GROUPS = frozenset(("aten::native_group_norm", "aten::native_group_norm_backward"))
WEIGHTS = frozenset(("aten::_weight_norm_interface", "aten::_weight_norm_interface_backward"))


def is_by_channel(work: OperatorWork) -> bool:
    """Whether the positions of a channel lie side by side. Channels last, lines of one position and
    gradients that lie otherwise have other kernels."""
    is_other, numbers, _, units = work.sizes
    if not numbers or not units:
        return False
    if work.operator in GROUPS:
        return work.access != STRIDED
    is_batch = work.operator in BATCH and not is_other and work.access != CONVERTING
    return is_batch or work.operator in WEIGHTS


def key_of(work: OperatorWork) -> str:
    """The key of its rates. In half precision it reads half as much with as many instructions."""
    kind = " in turn" if work.operator in WEIGHTS and work.sizes[0] else ""
    return f"{work.operator} by channel {8 * work.item_bytes}{kind}"


def channels_of(work: OperatorWork) -> int:
    """native/work.h, kernels/work.py: a group norm tells its channels beside its groups."""
    return work.sizes[1] if work.operator in GROUPS else work.sizes[3]


def by_channel_seconds(
    work: OperatorWork, memory: float, reads: float, known: Sequence[float]
) -> float:
    """`memory` are the seconds of its bytes, `reads` are those that follow each other."""
    of_channel, of_read, *of_group = known
    seconds = math.hypot(memory, reads * of_read) + channels_of(work) * of_channel
    return seconds + sum(of_group) * work.sizes[3]
