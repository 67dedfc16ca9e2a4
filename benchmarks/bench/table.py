"""Writes README.md from the records: our table beside document 002's. Needs no GPU.

PYTHONPATH=src python benchmarks/bench/table.py benchmarks/bench/h200-torch-2.11
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rows import ROWS, UNFINISHED, Row

from vramcast.benching.protocol import STANDARD_1
from vramcast.benching.trial_folder import TrialFolder
from vramcast.records.bench import TrainedRun
from vramcast.records.store import read_lines, write_atomically
from vramcast.units import format_bytes, format_count, format_seconds

INTRODUCTION = """# Document 002's reference table, measured again

The six models under one protocol on one corpus, each in a process of its own. Made by `table.py`
from the records in `{folder}`: do not edit by hand.

    PYTHONPATH=src python benchmarks/bench/run.py --out {path} {options}
    PYTHONPATH=src python benchmarks/bench/table.py {path}

`vramcast compare {path}` says which of them are better, where they were trained under the same
protocol.

- **The document's losses are of other data** (1.3 TB of text) and of another GPU, which it does not
  name. They stand here for the order of the models and not for their size: no loss of one column
  can be compared with one of the other.
- *tok/s* is of the median step. The document's are of the whole run, start included.
- *memory* is the most that torch's allocator had handed out in a step. The document says nothing of
  it.
- *waited* is the share of the time in which a step waited for data.
"""
COLUMNS = (
    "model",
    "Last100",
    "document's",
    "parameters",
    "tok/s",
    "document's",
    "ratio",
    "memory",
    "steps",
    "time",
    "waited",
)
OVERHEAD = """## What bench's loop costs

The same model and batches in bench's training loop and in one written by hand (`overhead.py`), by
turns in the order A B B A in one process. The difference of losses shows that both did the same
work."""
OVERHEAD_COLUMNS = (
    "model",
    "steps",
    "bench",
    "by hand",
    "ratio",
    "goal",
    "largest difference of losses",
    "date",
)


def page(folder: Path) -> str:
    runs = {run.trial.model: run for run in read_runs(folder)}
    parts = [
        INTRODUCTION.format(
            folder=folder.name,
            path=shown_path(folder),
            options=options(list(runs.values()), folder),
        ),
        *([conditions(list(runs.values()))] if runs else []),
        markdown(COLUMNS, [cells(row, runs.get(row.model)) for row in ROWS]),
        "\n".join(f"- {note}" for note in notes(runs, folder)),
        overhead(folder),
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def shown_path(folder: Path) -> str:
    """From the root of the repository, where the commands are started."""
    root = Path(__file__).resolve().parents[2]
    return (
        folder.resolve().relative_to(root) if folder.resolve().is_relative_to(root) else folder
    ).as_posix()


def options(runs: Sequence[TrainedRun], folder: Path) -> str:
    """With which the records can be made again."""
    sessions = [line for line in read_lines(folder / "session.jsonl") if line["what"] == "session"]
    words = [f"--seconds {sessions[-1]['seconds']:g}" if sessions else "--seconds 570"]
    steps = {run.trial.protocol.steps for run in runs}
    if len(steps) == 1 and steps != {STANDARD_1.steps}:
        words.append(f"--steps {steps.pop()}")
    knobs = sessions[-1]["knobs"] if sessions else {}
    return " ".join([*(f"{name}={value}" for name, value in knobs.items()), *words])


def read_runs(folder: Path) -> list[TrainedRun]:
    return [TrainedRun.from_json(path.read_text()) for path in sorted(folder.glob("*/result.json"))]


def conditions(runs: Sequence[TrainedRun]) -> str:
    """Of all of them, where they are the same."""
    where = [run.environment for run in runs]
    data = sorted(
        {
            f"{run.trial.data.name} ({run.trial.data.size_bytes:,} bytes,"
            f" {run.trial.data.hash[:23]})"
            for run in runs
        }
    )
    versions = [
        f"{name} {', '.join(found)}"
        for name, found in (
            ("torch", distinct(where, "torch_version")),
            ("schedulefree", distinct(where, "schedulefree_version")),
        )
    ]
    dates = sorted({str(facts.get("time_utc", "?"))[:10] for facts in where})
    device = ", ".join(
        distinct(where, "gpu")
        if any(facts.get("gpu") for facts in where)
        else distinct(where, "device")
    )
    seeds = ", ".join(map(str, sorted({run.trial.seed for run in runs})))
    return (
        f"Measured {', '.join(dates)} on one {device} with {', '.join(versions)}. Data:"
        f" {'; '.join(data)}. Seed {seeds}."
    )


def distinct(facts: Sequence[dict[str, Any]], name: str) -> list[str]:
    return sorted({str(fact.get(name)) for fact in facts})


def cells(row: Row, run: TrainedRun | None) -> list[str]:
    document = (f"{row.last100:.4f}", f"~{row.tokens_per_second / 1e3:.0f}K")
    if run is None:
        return [row.model, "not run", document[0], "", "", document[1], *[""] * 5]
    speed = run.tokens_per_second
    return [
        run.trial.label,
        loss_cell(run),
        document[0],
        "" if run.parameters is None else format_count(run.parameters),
        "" if speed is None else f"{speed / 1e3:.0f}K",
        document[1],
        "" if speed is None else f"{speed / row.tokens_per_second:.2f} x",
        "" if run.peak_memory_bytes is None else format_bytes(run.peak_memory_bytes),
        str(len(run.losses)),
        format_seconds(run.training_seconds),
        f"{run.data_wait_fraction:.1%}",
    ]


def loss_cell(run: TrainedRun) -> str:
    if not math.isfinite(run.last_loss):
        return run.outcome
    return f"{run.last_loss:.4f}" + ("" if is_whole(run) else " \\*")


def is_whole(run: TrainedRun) -> bool:
    return run.trial.protocol_hash == STANDARD_1.hash


def notes(runs: dict[str, TrainedRun], folder: Path) -> list[str]:
    found = []
    by_protocol: dict[str, list[TrainedRun]] = {}
    for run in runs.values():
        by_protocol.setdefault(run.trial.protocol_hash, []).append(run)
    for group in by_protocol.values():
        found += about_group(group)
    for model, run in runs.items():
        if run.resumed_at_steps:
            found.append(
                f"{model} was interrupted, and resumed at step"
                f" {', '.join(map(str, run.resumed_at_steps))}"
            )
    return found + failures(runs, folder)


def about_group(group: Sequence[TrainedRun]) -> list[str]:
    """Runs under the same protocol: what it is where it is another one than the document's, and the
    order of the models.
    """
    names, rules = ", ".join(run.trial.model for run in group), group[0].trial.protocol
    found = []
    if not is_whole(group[0]):
        steps = f"{rules.steps:,} steps" if rules.steps is not None else f"{rules.seconds:g} s"
        found.append(
            f"\\* trained under {rules.name}, not {STANDARD_1.name}: {rules.metric} is that of the"
            f" end of {steps} ({names})"
        )
    ours = [
        run.trial.model
        for run in sorted(group, key=lambda run: run.last_loss)
        if run.outcome == "ok"
    ]
    if len(ours) > 1:
        theirs = [
            row.model for row in sorted(ROWS, key=lambda row: row.last100) if row.model in ours
        ]
        found.append(
            f"under {rules.name}, best first: {', '.join(ours)}; of the same models in the"
            f" document: {', '.join(theirs)}"
        )
    return found


def failures(runs: dict[str, TrainedRun], folder: Path) -> list[str]:
    """What was tried and did not end, from the latest attempt."""
    latest = {
        line["model"]: line
        for line in read_lines(folder / "session.jsonl")
        if line["what"] in ("timed", "given", "ended")
    }
    found = []
    for model, line in latest.items():
        if model not in runs:
            no_time = (
                f"a part of {line['share_seconds']:.0f} s was not enough"
                if "share_seconds" in line
                else "there was no time left"
            )
            why = line.get("failed", no_time)
            found.append(f"{model} has no result: {why}{unfinished(folder / UNFINISHED / model)}")
    return found


def unfinished(folder: Path) -> str:
    losses = [loss for loss in TrialFolder(folder).steps().losses if loss is not None]
    last = losses[-STANDARD_1.last_steps :]
    return (
        f"; after {len(losses):,} steps the mean loss of the last {len(last)} was"
        f" {statistics.fmean(last):.4f}"
        if last
        else ""
    )


def overhead(folder: Path) -> str:
    records = list(read_lines(folder / "overhead.jsonl"))
    if not records:
        return ""
    rows = [
        [
            record["model"],
            str(record["steps"]),
            *(
                " ".join(f"{seconds:.3f} s" for seconds in record[name])
                for name in ("bench_seconds", "by_hand_seconds")
            ),
            f"{record['ratio']:.3f}",
            (
                f"{'met' if record['ratio'] <= record['goal'] else '**missed**'} (at most"
                f" {record['goal']})"
            ),
            (
                f"{record['largest_loss_difference']:.2g}"
                f" ({record['largest_loss_difference_of_the_same_loop']:.2g} by hand twice)"
            ),
            record["environment"]["time_utc"][:10],
        ]
        for record in records
    ]
    return OVERHEAD + "\n\n" + markdown(OVERHEAD_COLUMNS, rows)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in header[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *rows))


def main() -> int:
    folder = Path(sys.argv[1])
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).with_name("README.md")
    write_atomically(target, page(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
