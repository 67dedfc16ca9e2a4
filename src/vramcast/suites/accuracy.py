"""How good are the predictions? The Python face of `vramcast accuracy`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.hardware import nvml
from vramcast.hardware.gpus import find_gpu
from vramcast.predicting.predict import predict
from vramcast.probing.manager import Prober
from vramcast.probing.trial import Trial
from vramcast.records.accuracy import AccuracyResult
from vramcast.records.measurement import Measurement
from vramcast.records.prediction import Prediction
from vramcast.records.store import write_atomically, write_json
from vramcast.simulate import build
from vramcast.suites import campaign
from vramcast.suites.catalogue import HF, Row, rows_of
from vramcast.suites.page import as_markdown
from vramcast.suites.results import summarise

WARMUP_STEPS = 2
# where the host is the slower side, step times spread by 20 %: a median needs more than a few; under the cap only memory is asked for
MEASURE_STEPS, CAPPED_STEPS = 12, 3
# What most of an import of one of its models is: once for all of them, and for them alone. In a process that had imported it, zoo-e10
# was measured 1 % larger than in one that had not.
HUGGING_FACE = ("transformers.modeling_utils", "transformers.generation")


def accuracy(
    suites: Sequence[str] = (),
    *,
    out: str | Path,
    against: str | Path | None = None,
    only: Sequence[str] = (),
    peers: bool = True,
    progress: Callable[[str, str], None] = lambda *_: None,
    force: bool = False,
) -> AccuracyResult:
    """Predict and measure every row of the suites, and compare. What `out` already holds is not done again, except with `force`.

    `against` takes the measurements from another run's folder instead: that needs no GPU.
    """
    rows = _chosen(rows_of(suites), only)
    folder = Path(out)
    recorded = campaign.read_records(Path(against)) if against is not None else None
    gpu = _gpu_to_predict(recorded)
    known = _begin(folder, against, force=force)
    _check_same_machine(known, gpu)
    build.build()
    with (
        Prober() as plain,
        Prober(preload=_importable("transformers", HUGGING_FACE)) as with_transformers,
    ):

        def measure(row: Row, cap: int | None) -> Measurement:
            return _measure(with_transformers if row.workload == HF else plain, row, cap)

        seams = campaign.Seams(
            predict=lambda row: _predict(row, gpu),
            measure=measure if recorded is None else None,
            ask_peers=campaign.ask_peers if peers and recorded is None else None,
        )
        records = campaign.run(rows, folder, seams, known, progress)
    for name, kinds in (recorded or {}).items():
        records.setdefault(name, {}).update(
            {kind: record for kind, record in kinds.items() if kind != "prediction"}
        )
    return _finish(rows, records, folder, gpu)


def _begin(folder: Path, against: str | Path | None, *, force: bool) -> campaign.Records:
    """What the folder holds. Called when the request is known to be sound: --force with a typo must not cost a run."""
    records = folder / campaign.RECORDS_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (
            force
            and against is not None
            and records.exists()
            and records.samefile(_records_file(Path(against)))
        ):
            raise UsageError(
                f"--force would delete the measurements in {records} that --against names.",
                "Choose another with --out.",
            )
        if force:
            records.unlink(missing_ok=True)
        return campaign.read_records(folder) if records.exists() else {}
    except OSError as problem:
        raise UsageError(
            f"The folder {folder} cannot be used: {problem.strerror}.", "Choose another with --out."
        ) from None


def _records_file(path: Path) -> Path:
    return path / campaign.RECORDS_NAME if path.is_dir() else path


def _finish(
    rows: Sequence[Row], records: campaign.Records, folder: Path, gpu: str
) -> AccuracyResult:
    measured = {
        record["measurement"].get("torch_version") or ""
        for record in records.values()
        if "measurement" in record
    } - {""}
    result = summarise(
        campaign.compared(rows, records),
        gpu=gpu,
        torch_version=metadata.version("torch"),
        measured_torch_version=", ".join(sorted(measured)),
    )
    write_json(folder / "accuracy.json", result.to_dict())
    write_atomically(folder / "accuracy.md", as_markdown(result))
    return result


def _chosen(rows: list[Row], only: Sequence[str]) -> list[Row]:
    unknown = sorted(set(only) - {row.name for row in rows})
    if unknown:
        raise UsageError(
            f"There is no row {unknown[0]!r} in these suites.",
            f"Rows: {', '.join(row.name for row in rows)}.",
        )
    return [row for row in rows if row.name in only] if only else rows


def _gpu_to_predict(recorded: campaign.Records | None) -> str:
    """The GPU there is, or the one the recorded measurements come from."""
    if recorded is not None:
        names = {
            kinds["measurement"].get("gpu") for kinds in recorded.values() if "measurement" in kinds
        } - {None}
        if len(names) != 1:
            raise UsageError(
                f"The measurements come from {len(names)} GPUs, not from one.",
                "Give a folder with the records of one GPU.",
            )
        return find_gpu(str(names.pop())).name
    gpus = nvml.gpu_states()
    if not gpus:
        raise EnvironmentProblem(
            "There is no NVIDIA GPU here to measure on.",
            "Compare with recorded measurements instead: vramcast accuracy --against FOLDER (needs no GPU).",
        )
    return find_gpu(gpus[0].name).name


def _check_same_machine(known: campaign.Records, gpu: str) -> None:
    """A run is resumed only under the torch and for the GPU it was begun with: a table must not mix them."""
    torch_version = metadata.version("torch")
    for kinds in known.values():
        seen = kinds.get("prediction", {})
        if (
            seen.get("torch_version", torch_version).partition("+")[0]
            != torch_version.partition("+")[0]
            or seen.get("gpu", gpu) != gpu
        ):
            raise UsageError(
                f"The folder holds a run under torch {seen.get('torch_version')} for {seen.get('gpu')}, not {torch_version} and {gpu}.",
                "Choose another folder with --out.",
            )


def _predict(row: Row, gpu: str) -> Prediction:
    return predict(row.workload, gpu=gpu, allocator=row.allocator or "", **row.knobs)


def _measure(prober: Prober, row: Row, cap: int | None) -> Measurement:
    trial = Trial(
        workload=row.workload,
        knobs=row.knobs,
        allocator=row.allocator,
        memory_cap_bytes=cap,
        warmup_steps=WARMUP_STEPS,
        measure_steps=MEASURE_STEPS if cap is None else CAPPED_STEPS,
    )
    return prober.run(trial)


def _importable(package: str, modules: Sequence[str]) -> Sequence[str]:
    import importlib.util

    return modules if importlib.util.find_spec(package) else ()
