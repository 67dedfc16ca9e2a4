"""The one way to show a record: as sections, in the terminal, as HTML or Markdown; and reports."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from vramcast.errors import UsageError
from vramcast.records.measurement import Measurement
from vramcast.records.prediction import MaxBatch, Prediction
from vramcast.records.store import write_atomically
from vramcast.reporting.sections import Report, Section
from vramcast.reporting.terminal import show_sections

if TYPE_CHECKING:  # not imported otherwise, so that showing one prediction starts fast
    from vramcast.reporting.loading import Loaded
    from vramcast.tracing.trace import Trace

FILE_WIDTH = 120
MARK = "vramcast report"  # this is in the first line of every report
# A new kind of record gets a line here and a file beside this one, imported when it is needed.
MAKERS: Mapping[str, tuple[str, str]] = {
    "BatchSizeCurve": ("batch_sizes", "of_curve"),
    "PredictionTable": ("prediction_table", "of_table"),
    "Trace": ("trace", "of_trace"),
    "Plan": ("plan", "of_plan"),
    "TuneResult": ("tune", "of_tune"),
    "AccuracyResult": ("accuracy", "of_accuracy"),
    "Comparison": ("bench", "of_comparison"),
    "MemoryFit": ("laws", "of_fit"),
    "Advice": ("advice", "of_advice"),
    "Sensitivity": ("prediction_table", "of_sensitivity"),
    "RunDiff": ("run_diff", "of_run_diff"),
}


class Format(StrEnum):
    HTML = "html"
    MARKDOWN = "md"
    TERMINAL = "terminal"


@dataclass(frozen=True)
class Page:
    report: Report
    format: Format
    text: str
    figures: list[Path]


def show(record: Any, console: Console | None = None) -> None:
    """Print a record as its command does: `show(predict("train.py:build", gpu="rtx-4090"))`."""
    show_sections(sections_of(record), console or Console())


def markdown_of(record: Any, title: str) -> str:
    from vramcast.reporting.markdown import as_markdown

    return as_markdown(Report(title=title, sections=sections_of(record)))


def render(report: Report, form: Format) -> str:
    if form == Format.HTML:
        from vramcast.reporting.html import as_html

        return as_html(report)
    if form == Format.MARKDOWN:
        from vramcast.reporting.markdown import as_markdown

        return as_markdown(report)
    file = StringIO()
    console = Console(file=file, width=FILE_WIDTH, no_color=True)
    show_sections(report.sections, console, detail=True)
    return f"{MARK}\n{file.getvalue()}"


def make_report(paths: Sequence[Path]) -> Report:
    from vramcast.reporting.loading import load

    loaded = [one for path in paths for one in load(path)]
    sections = [
        section for one in loaded for section in sections_of(one.record, one.traces, loaded)
    ]
    more = f", and {len(loaded) - 1} more" if len(loaded) > 1 else ""
    sources = dict.fromkeys(str(one.path) for one in loaded)
    return Report(title=f"{sections[0].heading}{more}", sections=sections, sources=[*sources])


def sections_of(
    record: Any, traces: "Sequence[Trace]" = (), others: "Sequence[Loaded]" = ()
) -> list[Section]:
    """The sections of a record. `traces` are a measurement's; `others` may hold measurements of the
    same workload."""
    match record:
        case Prediction():
            return _of_prediction(record, others)
        case Measurement():
            return _made("measurement", "of_measurement", record, *traces[:1])
        case MaxBatch():
            runs = [other.record for other in others]
            same_runs = [run for run in runs if _measures(run, record, but="batch_size")]
            return _made("max_batch", "of_max_batch", record, same_runs)
        case [Section(), *_]:
            return list(record)
        case [first, *_] if type(first).__name__ == "MemoryFit":
            return [section for found in record for section in sections_of(found)]
        case [first, *_] if type(first).__name__ == "TrainedRun":
            return _made("bench", "of_runs", record)
    return _made(*MAKERS[type(record).__name__], record)


def _of_prediction(record: Prediction, others: "Sequence[Loaded]") -> list[Section]:
    same = [other for other in others if _measures(other.record, record)]
    measured = [one for other in same for one in other.traces]
    overlay = _made("trace", "overlay_of", measured) if measured else []
    return _made("prediction", "of_prediction", record, [o.record for o in same], overlay)


def _made(file: str, function: str, *arguments: Any) -> list[Any]:
    made: list[Any] = getattr(import_module(f"{__package__}.{file}"), function)(*arguments)
    return made


def _measures(run: Any, record: Prediction | MaxBatch, but: str = "") -> bool:
    """Whether this run measures the same workload with the same knobs, apart from `but`."""

    def identity(of: Measurement | Prediction | MaxBatch) -> tuple[object, ...]:
        return of.workload.removesuffix(":build"), {**of.knobs, but: None}

    return isinstance(run, Measurement) and identity(run) == identity(record)


def report(
    *runs: str | os.PathLike[str],
    format: str | None = None,
    out: str | os.PathLike[str] | None = None,
    figures: str | os.PathLike[str] | None = None,
) -> Page:
    """Show what commands recorded: `report("runs/tune", out="page.html")`.

    A run is a folder, or a file with what a command printed with --json. `format` is html, md or
    terminal; without it the ending of `out` decides. `figures` is a folder for every chart as SVG.
    Only a file that is a report is written over.
    """
    target = None if out is None else Path(out)
    if format is None:
        format = _format_of(target)
    elif format not in list(Format):
        raise UsageError(f"--format {format!r} is not known.", f"Formats: {', '.join(Format)}.")
    if target is not None:
        check_free(target, "-o")
    made = make_report([Path(run) for run in runs])
    drawn = []
    if figures is not None:
        from vramcast.reporting.svg import write_figures

        drawn = write_figures(made, _folder(figures))
    page = Page(made, Format(format), render(made, Format(format)), drawn)
    if target is not None:
        write_atomically(target, page.text)
    return page


def write_report(sections: Sequence[Section], target: Path) -> None:
    """Writes what a command showed, in the format of the file's ending."""
    if _format_of(target) is Format.MARKDOWN:
        from vramcast.reporting.markdown import brief_markdown

        text = f"<!-- {MARK} -->\n\n{brief_markdown(sections)}"
    else:
        text = render(Report(title=sections[0].heading, sections=sections), Format.HTML)
    write_atomically(target, text)


def _format_of(target: Path | None) -> Format:
    is_markdown = target is not None and target.suffix.lower() in (".md", ".markdown")
    return Format.MARKDOWN if is_markdown else Format.HTML


def check_free(target: Path, option: str) -> None:
    """Refuses a file that exists and is no report. `option` is the option that names the file."""
    if target.is_dir():
        raise UsageError(
            f"{target} is a folder.", f"Give a file: {option} {target / 'report.html'}."
        )
    if target.exists() and not (target.is_file() and _is_report(target)):
        raise UsageError(
            f"{target} exists and is not a report of vramcast.",
            f"Choose another file with {option}.",
        )


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return MARK.encode() in file.read(100)


def _folder(figures: str | os.PathLike[str]) -> Path:
    path = Path(figures)
    if not os.fspath(figures) or path.exists() and not path.is_dir():
        raise UsageError(
            f"--figures {os.fspath(figures)!r} is not a folder.",
            "Give a folder. It is created if needed.",
        )
    return path
