"""Seconds of windows taken out of pictures (im2col), and put back (col2im)."""

from collections.abc import Sequence

from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import OperatorWork

COLUMNS = ("aten::im2col", "aten::col2im")  # kernels/work.py: sizes


def is_columns(work: OperatorWork) -> bool:
    return work.operator in COLUMNS and work.sizes[1] > 0


def columns_seconds(work: OperatorWork, gpu: Gpu, known: Sequence[float]) -> float:
    """Taken out by a kernel for each sample, in which a thread goes through a window."""
    fixed, of_column, more = known
    _, number, columns, in_window = work.sizes
    if work.operator == "aten::col2im":
        return fixed + columns * of_column + number * more
    return number * (fixed + max(columns / number * of_column, in_window * more))
