"""Small traces for these tests, and a strategy that makes any."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from vramcast.tracing import files
from vramcast.tracing.files import from_rows
from vramcast.tracing.trace import Trace

HEAD: dict[str, Any] = {
    "source": "predicted",
    "workload": "train.py:build",
    "knobs": {"batch_size": 8},
    "gpu": "h200",
    "torch_version": "2.13.0",
    "allocator_settings": "",
}
MIB = 2**20
ROWS: list[list[Any]] = [
    ["alloc", 1, 4, "aten::empty"],
    ["free", 1],
    [
        "alloc",
        2,
        30 * MIB,
        "aten::empty",
        {"category": "parameters", "name": "weight", "source": "train.py:7 in build"},
    ],
    ["step", 1],
    [
        "alloc",
        3,
        5 * MIB,
        "aten::addmm",
        {"category": "activations", "module": "mlp.up", "source": "train.py:12 in step"},
    ],
    ["alloc", 4, 32 * MIB, "cublas_workspace", {"category": "workspaces"}],
    ["free", 3],
    ["empty_cache"],
    ["step", 2],
    ["alloc", 5, 3 * MIB + 1, "aten::mm", {"category": "temporaries", "node": "AddmmBackward0"}],
]


def to_rows(trace: Trace) -> list[list[Any]]:
    """The events as a trace file has them."""
    return [json.loads(line) for line in files._lines(trace)]


def trace(rows: list[Any] | None = None, **head: Any) -> Trace:
    return from_rows(ROWS if rows is None else rows, **{**HEAD, **head})


def of(text: str, **head: Any) -> Trace:
    """'mm:100 add:20 -1 | mm:100 !': allocations, frees by number, steps and emptied caches. ?:5
    has no known operator."""
    rows: list[Any] = []
    num_allocs = num_steps = 0
    for word in text.split():
        if word == "|":
            num_steps += 1
            rows.append(["step", num_steps])
        elif word == "!":
            rows.append(["empty_cache"])
        elif word.startswith("-"):
            rows.append(["free", int(word[1:])])
        else:
            op, _, num_bytes = word.partition(":")
            num_allocs += 1
            rows.append(
                [
                    "alloc",
                    num_allocs,
                    int(num_bytes),
                    "" if op == "?" else op if op == "cublas_workspace" else f"aten::{op}",
                ]
            )
    return trace(rows, **head)


@st.composite
def traces(draw: st.DrawFn, *, most: int = 60) -> Trace:
    """Any trace: what is freed has been allocated, once."""
    rows: list[Any] = []
    alive: list[int] = []
    num_allocs = num_steps = 0
    for choice in draw(st.lists(st.integers(0, 9), max_size=most)):
        if choice <= 5:
            num_allocs += 1
            alive.append(num_allocs)
            op = draw(
                st.sampled_from(["aten::mm", "aten::add", "aten::_to_copy", "cublas_workspace", ""])
            )
            rows.append(
                [
                    "alloc",
                    num_allocs,
                    draw(st.sampled_from([1, 512, 600, 4096, 3 * MIB, 12 * MIB])),
                    op,
                ]
            )
        elif choice <= 7 and alive:
            rows.append(["free", alive.pop(draw(st.integers(0, len(alive) - 1)))])
        elif choice == 8:
            num_steps += 1
            rows.append(["step", num_steps])
        elif choice == 9:
            rows.append(["empty_cache"])
    return trace(rows)
