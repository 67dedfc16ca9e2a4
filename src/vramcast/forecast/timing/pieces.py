"""Seconds that each element takes of joined tensors (cat), and of pictures sampled at points
(grid_sampler). They count where memory would be faster."""

from collections.abc import Sequence

from vramcast.forecast.timing.walks import RECORDED_ON
from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import OperatorWork

# native/work.h, kind_of_join: which of torch's kernels joins them
JOINED = ("joined in vectors", "joined densely", "joined with gaps", "joined one by one")
SAMPLED = "aten::grid_sampler_"
NEAREST = 2  # sizes[0], where only the nearest element is taken


def name_of_pieces(work: OperatorWork) -> str:
    """The key of its rates; empty for other operators."""
    if work.operator == "aten::cat" and work.sizes[3] > 0:
        return JOINED[work.sizes[3] - 1]
    is_sampled = work.operator.startswith(SAMPLED) and work.sizes[1] > 0
    return f"{work.operator} points" if is_sampled else ""


def pieces_seconds(work: OperatorWork, gpu: Gpu, known: Sequence[float]) -> float:
    """The seconds of elements, and of tensors or points."""
    of_element, of_piece = known
    pieces, elements = work.sizes[:2]
    if work.operator != "aten::cat":
        pieces, elements = elements, elements * work.sizes[2] * _corners(work)
    return (elements * of_element + pieces * of_piece) * RECORDED_ON / gpu.num_multiprocessors


def _corners(work: OperatorWork) -> int:
    """The elements that a sample is made of."""
    if work.sizes[0] == NEAREST:
        return 1
    return 8 if "_3d" in work.operator else 4
