"""Steps that were measured, and the operators that their simulation calls."""

from __future__ import annotations

import gzip
import json
import math
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from vramcast.tracing.work import STRIDED, OperatorWork

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
SETS = HERE / "sets"  # steps that were predicted, then measured


class Step(NamedTuple):
    row: str
    medians: dict[str, float]  # seconds, by session: some hosts were faster than others
    works: list[OperatorWork]
    num_python_calls: int

    @property
    def mean_seconds(self) -> float:
        return math.exp(statistics.fmean(map(math.log, self.medians.values())))


def with_samples(work: OperatorWork) -> OperatorWork:
    """What was simulated before batch norm told samples, positions and channels last: as one large
    sample. Of cuDNN's only its own layout is taken to be there."""
    is_last, samples, positions, channels = work.sizes
    if "native_batch_norm" in work.operator and is_last < 2 and samples > 1 and positions == 1:
        # a matrix, simulated before it was taken for channels last
        return work._replace(sizes=(1, samples, 1, channels), access=STRIDED)
    if "batch_norm" not in work.operator or samples or not channels:
        return work
    is_last = int("native" in work.operator and work.access == STRIDED)
    tensors = 3 if work.operator.endswith("backward") else 2
    size = 2 if work.precision in ("bf16", "fp16") else 4
    positions = round(work.num_bytes / (tensors * size * channels))
    return work._replace(sizes=(is_last, 1, positions, channels))


def with_rows(work: OperatorWork) -> OperatorWork:
    """What was simulated before running sums across rows told how many these are."""
    is_across, rows, _, units = work.sizes
    if "::cum" not in work.operator or not is_across or rows or not units:
        return work
    size = work.item_bytes if work.dtype > 0 else 8  # those of integers
    return work._replace(sizes=(1, round(work.num_bytes / (2 * size * units)), 0, units))


def read_kernels(name: str) -> list[tuple[OperatorWork, float, int]]:
    """Each with its median seconds, and how often it was seen."""
    kernels = []
    path = RECORDED / name
    with gzip.open(path, "rt") if name.endswith(".gz") else open(path) as file:
        for line in file:
            operator, dtype, flops, num_bytes, sizes, access, seconds, count = json.loads(line)
            work = OperatorWork(operator, dtype, flops, num_bytes, tuple(sizes), 0, access)
            kernels.append((with_rows(with_samples(work)), seconds, count))
    return kernels


def works_of(record: dict[str, Any]) -> list[OperatorWork]:
    """In the order in which the step calls them."""
    made = (OperatorWork(*f[:4], tuple(f[4]), *f[5:]) for f in record["works"])
    works = [with_rows(with_samples(work)) for work in made]
    return [works[index] for index in record["order"]]


def read_steps(name: str) -> list[Step]:
    """A line of the file has its operators once, and the order in which they are called."""
    steps = []
    with gzip.open(RECORDED / name, "rt") as file:
        for record in map(json.loads, file):
            medians = {
                session: statistics.median(seconds)
                for session, seconds in record["seconds_by_session"].items()
            }
            calls = record["num_python_calls"]
            steps.append(Step(record["row"], medians, works_of(record), calls))
    return steps
