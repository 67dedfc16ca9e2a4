"""Which function shows which record to people."""

from __future__ import annotations

from rich.console import Console

from vramcast.records.accuracy import AccuracyResult
from vramcast.records.base import Record
from vramcast.records.comparison import Comparison
from vramcast.records.fit import MemoryFit
from vramcast.records.max_batch import MaxBatch
from vramcast.records.measurement import Measurement
from vramcast.records.plan import Plan
from vramcast.records.prediction import BatchSizeCurve, Prediction
from vramcast.records.tune import TuneResult


def show_record(record: Record, console: Console) -> None:
    if isinstance(record, TuneResult):
        from vramcast.reporting.page.sections import Report
        from vramcast.reporting.page.terminal import show_report
        from vramcast.reporting.page.tune import of_tune

        show_report(Report(title=record.workload, sections=of_tune(record)), console)
        return
    from vramcast.reporting.accuracy import show_accuracy
    from vramcast.reporting.bench import show_comparison
    from vramcast.reporting.fits import show_fit
    from vramcast.reporting.largest import show_max_batch
    from vramcast.reporting.measured import show_measurement
    from vramcast.reporting.plans import show_plan
    from vramcast.reporting.terminal import show_curve, show_prediction

    show = {
        AccuracyResult: show_accuracy,
        BatchSizeCurve: show_curve,
        Comparison: show_comparison,
        MaxBatch: show_max_batch,
        Measurement: show_measurement,
        MemoryFit: show_fit,
        Plan: show_plan,
        Prediction: show_prediction,
    }[type(record)]
    show(record, console)  # type: ignore[operator]
