"""cuDNN's memory for LSTMs with projections is what an H200 took for 300 of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from vramcast.simulate.kernels.recurrent_workspace import Recurrent, reserve_bytes, workspace_bytes

RECORDED = Path(__file__).parents[1] / "recordings" / "h200-torch-2.11-projections.jsonl.gz"
ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def described(row: dict) -> Recurrent:
    return Recurrent(
        kind="LSTM",
        item_bytes=ITEM_BYTES[row["dtype"]],
        input_size=row["size"],
        hidden=row["hidden"],
        projection=row["proj"],
        layers=row["layers"],
        batch=row["batch"],
        steps=row["steps"],
        all_steps=row["steps"] * row["batch"],
        directions=1 + row["both"],
        dropout=row["dropout"] > 0,
        is_half=row["dtype"] == "float16",
    )


def rows() -> list[dict]:
    with gzip.open(RECORDED, "rt") as file:
        return [json.loads(line) for line in file]


def test_what_is_kept_for_the_backward_pass() -> None:
    assert all(abs(reserve_bytes(described(row)) - row["reserve"]) <= 256 for row in rows())


def test_workspaces_where_the_input_is_not_wider_than_the_state() -> None:
    narrow = [row for row in rows() if row["size"] <= row["hidden"]]
    wrong = [
        row
        for row in narrow
        if abs(workspace_bytes(described(row), backward=False) - row["workspace"]) > 160
    ]
    assert len(narrow) == 270
    assert wrong == []


def test_packed_samples_as_one_trace_has_them() -> None:
    traced = Recurrent(
        kind="LSTM", item_bytes=4, input_size=300, hidden=512, projection=128, layers=2, batch=64,
        steps=80, all_steps=3170, directions=2, is_packed=True,
    )  # fmt: skip
    assert workspace_bytes(traced, backward=False) == 142_991_616
    assert reserve_bytes(traced) == 175_288_576
