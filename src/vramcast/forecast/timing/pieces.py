"""Seconds that each element takes of joined tensors (cat), and of pictures sampled at points
(grid_sampler). They count where memory would be faster."""

import math
from collections.abc import Sequence

from vramcast.forecast.timing.walks import RECORDED_ON
from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import OperatorWork

# native/work.h, kind_of_join: which of torch's kernels joins them
JOINED = ("joined in vectors", "joined densely", "joined with gaps", "joined one by one")
SAMPLED = "grid_sampler"
SHORT_POINTS = "points in 16 bits"  # these are added in pairs
SECTOR_BYTES = 32
NEAREST = 2  # sizes[0], where only the nearest element is taken


def name_of_pieces(work: OperatorWork) -> str:
    """The key of its rates; empty for other operators."""
    if work.operator == "aten::cat" and work.sizes[3] > 0:
        return JOINED[work.sizes[3] - 1]
    is_sampled = SAMPLED in work.operator and work.sizes[1] > 0
    kind = "points" if work.item_bytes > 2 else SHORT_POINTS
    return f"{work.operator} {kind}" if is_sampled else ""


def pieces_seconds(work: OperatorWork, gpu: Gpu, known: Sequence[float]) -> float:
    """Of joined tensors each has a cost, and short runs write parts of a sector. A point's thread
    goes from channel to channel, which takes its time however few points there are."""
    of_element, of_piece, *of_part = known
    pieces, elements, channels, _ = work.sizes
    scale = RECORDED_ON / gpu.num_multiprocessors
    if work.operator == "aten::cat":
        run_bytes = channels * work.item_bytes
        of_element += sum(of_part) * work.item_bytes * max(0.0, SECTOR_BYTES / run_bytes - 1)
        return (elements * of_element + pieces * of_piece) * scale
    corners = _corners(work)
    return math.hypot(elements * channels * corners * of_element * scale, channels * of_piece)


def moved_in_pieces(work: OperatorWork) -> float:
    """The bytes moved. Of what is sampled only those at the points are read."""
    is_read = SAMPLED in work.operator and not work.operator.endswith("_backward")
    return work.num_bytes - is_read * work.sizes[3] * work.item_bytes


def _corners(work: OperatorWork) -> int:
    """The elements that a sample is made of."""
    if work.sizes[0] == NEAREST:
        return 1
    return 8 if "_3d" in work.operator else 4
