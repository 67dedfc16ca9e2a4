"""Seconds of cuDNN's batch norm, which has a block for each channel.

Blocks begin one after the other, so each channel has a cost; a channel's reads follow each other.
"""

import math
from collections.abc import Sequence

from vramcast.tracing.work import OperatorWork

NAMES = ("aten::cudnn_batch_norm", "aten::cudnn_batch_norm_backward")


def is_by_channel(work: OperatorWork) -> bool:
    """Whether the positions of a channel lie side by side. With channels last it has others."""
    is_last, samples, _, channels = work.sizes
    return work.operator in NAMES and not is_last and samples > 0 and channels > 0


def key_of(work: OperatorWork) -> str:
    """The key of its rates. In half precision it reads half as much with as many instructions."""
    return f"{work.operator} by channel {8 * work.item_bytes}"


def by_channel_seconds(
    work: OperatorWork, memory: float, reads: float, known: Sequence[float]
) -> float:
    """`memory` are the seconds of its bytes, `reads` are those that follow each other."""
    of_channel, of_read = known
    return math.hypot(memory, reads * of_read) + work.sizes[3] * of_channel
