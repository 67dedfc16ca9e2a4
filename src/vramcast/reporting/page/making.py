"""From loaded records to one report: which kind becomes which sections, and what belongs together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.records.accuracy import AccuracyResult
from vramcast.records.comparison import Comparison
from vramcast.records.fit import MemoryFit
from vramcast.records.max_batch import MaxBatch
from vramcast.records.measurement import Measurement
from vramcast.records.plan import Plan
from vramcast.records.prediction import BatchSizeCurve, Prediction
from vramcast.records.tune import TuneResult
from vramcast.reporting.page import (
    accuracy,
    bench,
    laws,
    max_batch,
    measurement,
    plan,
    prediction,
    tune,
)
from vramcast.reporting.page.loading import Loaded, load
from vramcast.reporting.page.sections import Report, Section
from vramcast.text import printable
from vramcast.tracing.files import MemoryTrace

LONGEST_MESSAGE = 300


def make_report(paths: Sequence[Path]) -> Report:
    loaded = [one for path in paths for one in load(path)]
    sections = [section for one in loaded for section in _checked(one, loaded)]
    title = (
        sections[0].title
        if len(loaded) == 1
        else f"{sections[0].title}, and {len(loaded) - 1} more"
    )
    return Report(
        title=title, sections=sections, sources=list(dict.fromkeys(str(one.path) for one in loaded))
    )


def _checked(one: Loaded, others: Sequence[Loaded]) -> list[Section]:
    """Every field is of its type; that they fit together, as indices and counts do, is seen when they are used."""
    try:
        return sections_of(one, others)
    except (
        LookupError,
        ArithmeticError,
        ValueError,
        TypeError,
        AttributeError,
        SyntaxError,
    ) as problem:
        what = f"{one.path}: the parts of this record do not fit together ({type(problem).__name__}: {problem})."
        raise UsageError(
            printable(what, LONGEST_MESSAGE),
            "It was edited or made by another program: make it again.",
        ) from None


def sections_of(one: Loaded, others: Sequence[Loaded]) -> list[Section]:
    """A kind of record that is new gets a line here and a file beside this one."""
    record = one.record
    match record:
        case Prediction():
            same = [other for other in others if _measures(other.record, record)]
            overlay = measurement.overlay_of([trace for other in same for trace in other.traces])
            return prediction.of_prediction(record, [other.record for other in same], overlay)
        case BatchSizeCurve():
            return prediction.of_curve(record)
        case Measurement():
            return measurement.of_measurement(record, one.traces[0] if one.traces else None)
        case MemoryTrace():
            return measurement.of_trace(record)
        case MaxBatch():
            return max_batch.of_max_batch(
                record,
                [
                    other.record
                    for other in others
                    if _measures(other.record, record, but="batch_size")
                ],
            )
        case Plan():
            return plan.of_plan(record)
        case TuneResult():
            return tune.of_tune(record)
        case AccuracyResult():
            return accuracy.of_accuracy(record)
        case Comparison():
            return bench.of_comparison(record)
        case [MemoryFit(), *_]:
            return laws.sections_of(record)
        case _:
            return bench.of_runs(record)


def _measures(other: Any, record: Prediction | MaxBatch, but: str = "") -> bool:
    """A run of the same workload with the same knobs, one perhaps excepted."""
    if not isinstance(other, Measurement) or other.workload.removesuffix(
        ":build"
    ) != record.workload.removesuffix(":build"):
        return False
    return {k: v for k, v in other.knobs.items() if k != but} == {
        k: v for k, v in record.knobs.items() if k != but
    }
