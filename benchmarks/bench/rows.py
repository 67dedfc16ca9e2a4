"""The reference table of document 002: what it says of each model. No torch is imported here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    model: str  # its name in the zoo
    last100: float
    tokens_per_second: float


ROWS = (
    Row("mamba2-50m", 1.4422, 104e3),
    Row("e5-d1536-r270", 1.4463, 81e3),
    Row("e5-d2048-r200", 1.4565, 87e3),
    Row("e5-d1024-r404", 1.4620, 88e3),
    Row("e1-50m", 1.4742, 175e3),
    Row("e5-d768-r539", 1.4815, 59e3),
)
UNFINISHED = (
    "unfinished"  # where in the folder of the results the steps of runs lie that did not end
)
BY_MODEL = {row.model: row for row in ROWS}
