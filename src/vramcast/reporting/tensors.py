"""The largest tensors at a peak, in the terminal: the same table for a prediction, a search and a plan."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from vramcast.records.prediction import LargeTensor
from vramcast.reporting.tables import Heading, fitted
from vramcast.text import printable
from vramcast.units import format_bytes

HEADINGS = (
    Heading("size", left=False),
    Heading("what"),
    Heading("shape"),
    Heading("made by"),
    Heading("where"),
)


def largest_tensors(tensors: Sequence[LargeTensor], width: int, title: str) -> RenderableType:
    return fitted(HEADINGS, [_cells(tensor) for tensor in tensors], width, title)


def _cells(tensor: LargeTensor) -> list[str]:
    """Names of modules and files are the user's: no escape codes."""
    what = f"{tensor.category.replace('_', ' ')} {tensor.name}".strip()
    shape = f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
    where = " ".join(part for part in (tensor.module, tensor.source) if part)
    return [
        format_bytes(tensor.num_bytes),
        *map(printable, (what, shape, tensor.operator.removeprefix("aten::"), where)),
    ]
