"""Writes README.md from the records: all ways to compute a recurrence. Needs no GPU.

PYTHONPATH=src python benchmarks/recurrence/table.py benchmarks/recurrence/h200-torch-2.11.jsonl
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cases import BATCH, LENGTH

from vramcast_zoo.catalogue import ENTRIES

Record = dict[str, Any]
GOAL_MS = 8.0
MATMUL_PEAK = 989e12  # of an H200 in bfloat16, dense, as NVIDIA states it
# tokens a second on a card of 48 GB
DOCUMENT_002 = {"e1-50m": 175e3, "e5-d1536-r270": 81e3, "mamba2-50m": 104e3}
COMMANDS = """    PYTHONPATH=src python benchmarks/recurrence/run.py --models \\
        --out records.jsonl --seconds 200
    PYTHONPATH=src python benchmarks/recurrence/table.py {path}
"""
INTRODUCTION = f"""One layer, batch {BATCH}, length {LENGTH}, bfloat16 with float32 accumulation;
medians of repeated calls, in ms.

Made by `table.py` from the records of `run.py`: do not edit by hand."""
EXPLANATIONS = (
    """*error* is the largest relative error (norm of the difference over norm) among the states and
    all gradients, against the plain loop in float32 on the same numbers.""",
    "*repeatable*: four runs gave the same bits.",
    """*call* tells records of different calls of the GPU machine apart; later ones of the same case
    win. A *note* says what is no longer in the code.""",
    """cuDNN multiplies its input by a matrix too; its times hold that product. Graphs replay fixed
    addresses; what a model would have to copy in and out is not in their times.""",
    """*scan-fla* is flash-linear-attention 0.6's chunked simple_gla, its kernels alone: keys and
    queries of every head, inputs times dt and decays are there already. It refuses to run backward
    with the Triton of torch 2.11 and was made to; its results were right here.""",
)


def paragraph(text: str, first: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()), 100, initial_indent=first, subsequent_indent=" " * len(first)
    )


def read(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def newest(records: Iterable[Record]) -> dict[str, Record]:
    return {record["case"]: record for record in records if record["outcome"] == "ok"}


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def sizes_of(record: Record) -> str:
    return " ".join(
        f"{key}={value}" for key, value in record["sizes"].items() if key not in ("batch", "length")
    )


def recurrences(records: Sequence[Record]) -> str:
    latest = newest(records)
    shown = [
        record
        for record in records
        if "forward_ms" in record and (record.get("note") or latest[record["case"]] is record)
    ]
    rows = [
        (
            record["case"],
            str(record.get("call", "")),
            sizes_of(record),
            f"{record['forward_ms']:.3f}",
            f"{record['forward_backward_ms']:.3f}",
            f"{max(record['relative_errors'].values()):.1e}" if "relative_errors" in record else "",
            {True: "yes", False: "no", None: ""}[record.get("repeatable")],
            record.get("note", ""),
        )
        for record in sorted(
            shown, key=lambda record: (record["recurrence"], record["forward_backward_ms"])
        )
    ]
    return table(("case", "call", "sizes", "forward", "both", "error", "repeatable", "note"), rows)


def in_short(latest: dict[str, Record]) -> list[str]:
    def both(case: str) -> float:
        return float(latest[case]["forward_backward_ms"])

    elman, product, scan, fla = (
        both("elman-fused"),
        both("product-alone"),
        latest["scan-fused"],
        latest["scan-fla"],
    )
    plain, cudnn, graph = (
        both(f"elman-{way}") / elman for way in ("plain", "cudnn", "graph-of-torch")
    )
    step_us = latest["elman-fused"]["forward_ms"] / LENGTH * 1e3
    bytes_above = (scan["peak_above_inputs_bytes"] / 1e9, fla["peak_above_inputs_bytes"] / 1e9)
    forward = fla["forward_ms"] / scan["forward_ms"]
    return [
        f"""Elman, 768 channels: **{elman:.2f} ms** forward and backward; the goal was
        {GOAL_MS:.0f}. The plain loop takes {plain:.1f} times as long, cuDNN {cudnn:.1f} times, 1024
        graph-captured steps of cuBLAS and tanh {graph:.1f} times.""",
        f"""The limit is the same arithmetic without the order, as three large products:
        {product:.2f} ms, {elman / product:.1f} times less. A step takes {step_us:.1f} µs, and
        little of it is arithmetic: 96 programs publish their part, wait until all twelve of their
        group have, read the state back from the L2 cache and multiply it in six chunks. Each is a
        trip to the L2 cache and back.""",
        f"""Mamba-2's scan: **{both("scan-fused"):.2f} ms** against {both("scan-fla"):.2f} ms of
        flash-linear-attention's kernels ({both("scan-fla") / both("scan-fused"):.2f} times as long;
        forward alone {forward:.2f} times). From the same inputs, with B and C expanded to all heads
        for it, that takes {fla["with_expansion_ms"]:.2f} ms, and {bytes_above[1]:.2f} GB above the
        inputs where ours takes {bytes_above[0]:.2f}.""",
    ]


def models(latest: dict[str, Record]) -> str:
    parameters = {entry.name: entry.parameters for entry in ENTRIES}
    rows = []
    for case, record in latest.items():
        if record["recurrence"] != "model":
            continue
        name = case.removeprefix("model-").removesuffix("-plain")
        rate, document = record["tokens_per_second"], DOCUMENT_002.get(name)
        used = 6 * parameters[name] * rate
        rows.append(
            (
                case.removeprefix("model-"),
                f"{rate:,.0f}",
                f"{document:,.0f}" if document else "-",
                f"{record['step_ms']:.1f}",
                f"{used / 1e12:.0f}",
                f"{used / MATMUL_PEAK:.0%}",
                f"{record['peak_reserved_bytes'] / 2**30:.2f}",
            )
        )
    header = (
        "model",
        "tokens/s",
        "document 002's",
        "ms a step",
        "TFLOP/s",
        "of the peak",
        "reserved, GiB",
    )
    about = f"""Batch {BATCH}, length {LENGTH}, pure bfloat16, AdamW, gradients clipped: whole
    training steps on random bytes. *TFLOP/s* counts 6 operations a parameter and token (scans,
    gates and spectral norms come on top), *of the peak* against {MATMUL_PEAK / 1e12:.0f} TFLOP/s.
    The document measured on another GPU, an Ada card of 48 GB."""
    return (
        f"## Whole models at the protocol's settings\n\n{paragraph(about)}\n\n{table(header, rows)}"
    )


def main(path: Path) -> None:
    records = read(path)
    latest = newest(records)
    about = next(record for record in records if "gpu" in record)
    dates = sorted({record["date"] for record in records})
    parts = [
        "# The zoo's recurrences: every way to compute them\n",
        INTRODUCTION + "\n",
        COMMANDS.format(path=path),
        "\n".join(paragraph(text, "- ") for text in EXPLANATIONS) + "\n",
        f"Measured {' and '.join(dates)} on one {about['gpu']} with torch {about['torch']}.\n",
        "## In short\n",
        "\n".join(paragraph(text, "- ") for text in in_short(latest)) + "\n",
        models(latest) + "\n",
        "## One layer\n",
        recurrences(records) + "\n",
    ]
    path.with_name("README.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
