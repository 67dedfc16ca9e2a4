"""`vramcast.accuracy`: predict and measure the rows of the suites, and compare."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from vramcast.errors import UsageError, VramcastError
from vramcast.forecast.timing.rates import shipped
from vramcast.hardware import nvml
from vramcast.hardware.gpus import find_gpu
from vramcast.predicting.predict import DEFAULT_TIMEOUT_SECONDS, full_request
from vramcast.probing.facts import Facts
from vramcast.probing.manager import Prober, start_of
from vramcast.probing.measurement import measurement_from
from vramcast.probing.trial import Trial
from vramcast.processes.ask import TaskFailed, ask
from vramcast.processes.progress import Progress, Report, ignore
from vramcast.records.accuracy import (
    AccuracyResult,
    PeerEstimates,
    Records,
    RowPrediction,
    RowRecords,
    append_record,
    read_records,
    result_from,
    rows_file,
)
from vramcast.records.base import Record
from vramcast.records.measurement import Measurement, Outcome
from vramcast.records.prediction import Prediction
from vramcast.records.store import locked_folder, usable, write_atomically, write_json
from vramcast.reporting.accuracy import scatter
from vramcast.reporting.showing import markdown_of
from vramcast.reporting.svg import write_view
from vramcast.simulate import build
from vramcast.simulate.many import ClusterProblem, asking, in_parallel
from vramcast.simulate.workspaces import as_taken_by
from vramcast.suites.catalogue import SuiteRow, rows_of

# With capped memory only the outcome matters.
CAPPED_STEPS = 3
# Most of the import time of Hugging Face models. It is imported once for their rows, and not for
# others, because it makes zoo-e10 1 % larger.
HUGGING_FACE = ("transformers.modeling_utils", "transformers.generation")
PEER_SECONDS = 120.0


def accuracy(
    suites: Sequence[str] = (),
    *,
    out: str | Path,
    against: str | Path | None = None,
    only: Sequence[str] = (),
    peers: bool = True,
    figure: str | Path | None = None,
    force: bool = False,
    ray: str | None = None,
    progress: Report = ignore,
) -> AccuracyResult:
    """Predict and measure every row of the suites, and compare.

    What `out` holds is not done again, except with `force`. `against` is a folder to take
    measurements from: that needs no GPU. `figure` is a file for a chart. `ray` is the address of a
    Ray cluster, which predicts.
    """
    if figure is not None and Path(figure).suffix not in (".svg", ".png", ".pdf"):
        raise UsageError(
            f"--figure {str(figure)!r} is not a .svg, .png or .pdf file.",
            "For example --figure accuracy.svg.",
        )
    rows, folder = _chosen(rows_of(suites), only), Path(out)
    recorded = read_records(Path(against)) if against is not None else None
    gpu = _gpu_to_predict(recorded)
    with locked_folder(folder):
        known = _begin(folder, against, force=force)
        torch_version = metadata.version("torch")
        _check_same_machine(known, torch_version, gpu)
        build.build()
        is_predicted = all(row.name in known and known[row.name].prediction for row in rows)
        with (
            _workspaces_as_in(recorded),
            asking(DEFAULT_TIMEOUT_SECONDS, None if is_predicted else ray) as (
                simulate,
                num_workers,
            ),
            _measuring() as measure,
        ):

            def predict(row: SuiteRow, stop: threading.Event) -> Prediction:
                workload = row.line or row.workload
                request = full_request(workload, row.knobs, gpu, allocator=_allocator(row))
                return Prediction.from_dict(simulate(request, stop))

            total, finished = len(rows) * (3 + peers if recorded is None else 1), count(1)
            records = run(
                rows,
                folder,
                known,
                predict=predict,
                num_workers=num_workers,
                measure=measure if recorded is None else None,
                ask_peers=estimates_of_peers if peers and recorded is None else None,
                progress=lambda what: progress(Progress("Comparing", next(finished), total, what)),
            )
        if recorded is not None:
            records = {
                name: replace(recorded.get(name, RowRecords()), prediction=made.prediction)
                for name, made in records.items()
            }
        result = result_from(records, shipped().calibrated_on, gpu=gpu, torch_version=torch_version)
        _write(result, folder, figure)
    return result


def _write(result: AccuracyResult, folder: Path, figure: str | Path | None) -> None:
    write_json(folder / "accuracy.json", result.to_dict())
    title = f"Accuracy, made by vramcast accuracy on {datetime.now(UTC):%Y-%m-%d}"
    write_atomically(folder / "accuracy.md", markdown_of(result, title))
    if figure is not None:
        chart = scatter(result)
        write_view(chart, chart.views[0], Path(figure))


@contextmanager
def _measuring() -> Iterator[Callable[[Trial], Measurement]]:
    preload = HUGGING_FACE if find_spec("transformers") else ()
    with Prober() as plain, Prober(preload) as with_transformers:

        def measure(trial: Trial) -> Measurement:
            if trial.line:
                with Prober(**start_of(trial)) as own:
                    return own.run(trial)
            prober = with_transformers if "huggingface" in trial.workload else plain
            return prober.run(trial)

        yield measure


@contextmanager
def _workspaces_as_in(recorded: Records | None) -> Iterator[None]:
    """In this block, predictions take workspaces like the torch that measured, as far as that can
    be set."""
    before = dict(os.environ)
    runs = [row.measurement for row in (recorded or {}).values() if row.measurement]
    if runs and runs[0].torch_version:
        os.environ.update(as_taken_by(runs[0].torch_version))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _begin(folder: Path, against: str | Path | None, *, force: bool) -> Records:
    """The records in the folder. Called after all checks, so that --force deletes nothing because
    of a typo."""
    with usable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        records = rows_file(folder)
        if records.exists() and force:
            if against is not None and records.samefile(rows_file(Path(against))):
                raise UsageError(
                    f"--force would delete the measurements in {records} that --against names.",
                    "Choose another with --out.",
                )
            records.unlink()
        return read_records(folder) if records.exists() else {}


def _chosen(rows: list[SuiteRow], only: Sequence[str]) -> list[SuiteRow]:
    names = [row.name for row in rows]
    unknown = sorted(set(only).difference(names))
    if unknown:
        raise UsageError(
            f"There is no row {unknown[0]!r} in these suites.", f"Rows: {', '.join(names)}."
        )
    return [row for row in rows if row.name in only] if only else rows


def _gpu_to_predict(recorded: Records | None) -> str:
    if recorded is not None:
        runs = [row.measurement for row in recorded.values() if row.measurement]
        names = {run.gpu for run in runs if run.gpu}
        if len(names) != 1:
            raise UsageError(
                f"The measurements come from {len(names)} GPUs, not from one.",
                "Give a folder with the records of one GPU.",
            )
        return find_gpu(names.pop()).name
    gpus = nvml.require_gpu(
        "measure on",
        "Compare with recorded measurements instead: "
        "vramcast accuracy --against FOLDER (needs no GPU).",
    )
    return find_gpu(gpus[0].name).name


def _check_same_machine(known: Records, torch_version: str, gpu: str) -> None:
    """Checks that one table does not mix versions of torch or GPUs."""
    for row in known.values():
        seen = row.prediction
        if seen is None or seen.error is not None:
            continue
        releases = {version.partition("+")[0] for version in (seen.torch_version, torch_version)}
        if len(releases) > 1 or seen.gpu != gpu:
            raise UsageError(
                f"The folder holds a run under torch {seen.torch_version} for {seen.gpu}, "
                f"not {torch_version} and {gpu}.",
                "Choose another folder with --out.",
            )


def run(
    rows: Sequence[SuiteRow],
    folder: Path,
    known: Records,
    *,
    predict: Callable[[SuiteRow, threading.Event], Prediction],
    num_workers: int | None = None,
    measure: Callable[[Trial], Measurement] | None = None,
    ask_peers: Callable[[SuiteRow], PeerEstimates] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Records:
    """Makes the records that are not in `known`, and writes each at once, so that a run can be
    interrupted."""
    records = {row.name: replace(known.get(row.name, RowRecords())) for row in rows}

    def keep(row: SuiteRow, kind: str, record: Record) -> None:
        append_record(folder, row.name, kind, record)
        setattr(records[row.name], kind, record)
        progress(f"{kind} {row.name}")

    def side_by_side(
        kind: str, make: Callable[[SuiteRow, threading.Event], Record], num_workers: int | None
    ) -> None:
        missing = [row for row in rows if getattr(records[row.name], kind) is None]
        in_parallel(
            make,
            missing,
            num_workers=num_workers,
            done=lambda place, one: keep(missing[place], kind, one),
        )

    def predicted(row: SuiteRow, stop: threading.Event) -> RowPrediction:
        try:
            return RowPrediction.from_prediction(predict(row, stop))
        except ClusterProblem:
            raise
        except VramcastError as error:
            return RowPrediction(workload=row.workload, error=str(error))

    side_by_side("prediction", predicted, num_workers)
    if ask_peers is not None:
        side_by_side("peers", lambda row, _: ask_peers(row), None)
    if measure is None:
        return records
    for row in rows:
        have = records[row.name]
        trial = Trial(
            workload=row.workload,
            knobs=row.knobs,
            allocator=row.allocator,
            measure_steps=row.measure_steps,
            line=row.line,
        )
        if have.measurement is None:
            keep(row, "measurement", _measured(measure, trial))
        # A row that ran is run again with no more memory than predicted.
        is_run = have.measurement is not None and have.measurement.outcome == Outcome.OK
        cap = have.prediction.peak_reserved_bytes if have.prediction else None
        if have.capped is None and is_run and cap is not None:
            capped = replace(trial, memory_cap_bytes=cap, measure_steps=CAPPED_STEPS)
            keep(row, "capped", _measured(measure, capped))
    return records


def _measured(measure: Callable[[Trial], Measurement], trial: Trial) -> Measurement:
    try:
        return measure(trial)
    except VramcastError as error:  # a row that cannot run must not stop the others
        return measurement_from(trial, Facts(outcome=Outcome.UNSUPPORTED, error=error.message))


def _allocator(row: SuiteRow) -> str | None:
    """The row's allocator settings. Without any, a program keeps its own, and a function has
    none."""
    return row.allocator if row.line else row.allocator or ""


def estimates_of_peers(row: SuiteRow) -> PeerEstimates:
    """Estimates by other methods, in a process of their own because they start CUDA."""
    if row.line:
        return PeerEstimates.all_failed("takes no launch line")
    try:
        answer = ask(
            "vramcast.suites.peers:estimates",
            {"workload": row.workload, "knobs": row.knobs},
            timeout_seconds=PEER_SECONDS,
            environment={"OMP_NUM_THREADS": "1"},
        )
        return PeerEstimates.from_dict(answer)
    except VramcastError as problem:
        kind = problem.kind if isinstance(problem, TaskFailed) else type(problem).__name__
        return PeerEstimates.all_failed(kind)
