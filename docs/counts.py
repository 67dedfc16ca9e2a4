"""How many predictions hit, counted in the pages and records of benchmarks/: README types no count.

A row of a page is one measurement on a GPU. "Before" counts the predictions that were committed
before any of their rows was measured; causes of errors were mended after that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from blocks import ROOT

BENCHMARKS = ROOT / "benchmarks"
NEAR_PERCENT = 1.0
# The page, the column with the error, and the predictions made before, where they are kept.
SUITES = (
    ("the reference suite", "docs/accuracy.md", "reserved", ""),
    ("known models by name: full, LoRA, QLoRA", "docs/accuracy-known.md", "reserved", "known"),
    ("20 libraries from every field", "docs/accuracy-wide.md", "reserved", "wide"),
    ("70 architectures of transformers", "docs/accuracy-families.md", "reserved", "families"),
    ("one of 8 to 1,024 GPUs", "docs/accuracy-distributed.md", "reserved", "distributed"),
    (
        "torch.compile, Triton and other kernels",
        "docs/accuracy-compiled.md",
        "reserved",
        "compiled",
    ),
    ("programs of other people", "benchmarks/programs/README.md", "error", "programs"),
)
# Rows of docs/published.md that README shows.
PUBLISHED = (
    "8B, FSDP 8",
    "8B, FSDP 128, compile",
    "70B, FSDP 32, TP 8, compile, float8, async TP",
    "405B, FSDP 8, TP 8, PP 8 1F1B, compile, float8, async TP",
)


class Count(NamedTuple):
    num_rows: int
    num_exact: int
    num_near: int


def rows_of(page: Path) -> Iterator[dict[str, str]]:
    """The rows of all tables of a page, by the names of their columns. Of two columns with one name
    the first counts."""
    names: list[str] = []
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            names = []
        elif not names:
            names = cells
        elif set(line) - set("|-: "):
            yield dict(reversed([*zip(names, cells, strict=False)]))


def counted(errors: Iterable[str]) -> Count:
    """Of cells such as `exact` and `+1.26 %`; others are of rows without a measurement."""
    known = [error for error in errors if error == "exact" or error.endswith("%")]
    percents = [0.0 if error == "exact" else float(error.rstrip(" %")) for error in known]
    num_near = sum(abs(percent) <= NEAR_PERCENT for percent in percents)
    return Count(len(known), known.count("exact"), num_near)


def exact_before(suite: str) -> tuple[int, int]:
    """(exact, all) of the predictions that were made before their rows were measured."""
    if suite == "programs":
        return _exact_programs_before()
    accuracy = BENCHMARKS / "accuracy"
    predicted = _peaks(accuracy / f"{suite}-predicted", "prediction")
    measured = _peaks(accuracy / f"{suite}-h200-torch-2.11", "measurement")
    pairs = [(predicted[row], measured[row]) for row in predicted if measured.get(row)]
    return sum(first == second for first, second in pairs), len(pairs)


def _exact_programs_before() -> tuple[int, int]:
    lines = (BENCHMARKS / "programs" / "before.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["predicted_reserved_bytes"] is not None]
    hits = [row["predicted_reserved_bytes"] == row["measured_reserved_bytes"] for row in rows]
    return sum(hits), len(hits)


def _peaks(folder: Path, kind: str) -> dict[str, int]:
    """Of a row that was predicted twice before it was measured, its first prediction counts."""
    lines = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    ordered = reversed(lines) if kind == "prediction" else lines
    return {
        line["row"]: line["record"]["peak_reserved_bytes"]
        for line in ordered
        if line["kind"] == kind and line["record"].get("outcome", "ok") == "ok"
    }


def the_counts() -> str:
    """The table of README."""
    lines = [
        "| measured on an H200 | rows | to the byte | within 1 % | before measuring |",
        "|---|---:|---:|---:|---:|",
    ]
    for what, page, column, suite in SUITES:
        found = counted(row[column] for row in rows_of(ROOT / page) if row.get(column))
        before = "{} of {}".format(*exact_before(suite)) if suite else ""
        cells = [f"[{what}]({page})", *map(str, found), before]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(["", *lines, "", ""])


def the_published() -> str:
    """Some rows of torchtitan's own table, and how many of all are near."""
    rows = [row for row in rows_of(ROOT / "docs/published.md") if "GPUs" in row]
    errors = [abs(float(row["error"].rstrip(" %"))) for row in rows]
    near = sum(error <= 3 for error in errors)
    shown = [row for row in rows if row["Llama 3.1"] in PUBLISHED]
    lines = [
        "| Llama 3.1 | GPUs | published | predicted | error |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {row['Llama 3.1']} | {row['GPUs']} | {row['published, GiB']} GiB "
            f"| {row['predicted, GiB']} GiB | {row['error']} |"
            for row in shown
        ),
    ]
    said = (
        f"{near} of their {len(rows)} rows are within 3 %, the worst is off by "
        f"{max(errors):.0f} %: [all of them](docs/published.md)."
    )
    return "\n".join(["", *lines, "", said, "", ""])
