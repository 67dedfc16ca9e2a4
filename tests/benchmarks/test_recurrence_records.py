"""What the H200 said of the zoo's recurrences: the page is made of it, the goal is met in it, and
predictions agree with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vramcast import predict

FOLDER = Path(__file__).parents[2] / "benchmarks" / "recurrence"
RECORDS = [json.loads(line) for line in (FOLDER / "h200-torch-2.11.jsonl").read_text().splitlines()]
NEWEST = {record["case"]: record for record in RECORDS}


def test_the_page_is_the_one_made_of_the_records(tmp_path: Path) -> None:
    page = (FOLDER / "README.md").read_text()
    records = tmp_path / "h200-torch-2.11.jsonl"
    records.write_text((FOLDER / records.name).read_text())
    subprocess.run([sys.executable, str(FOLDER / "table.py"), str(records)], check=True)
    made = (
        (tmp_path / "README.md")
        .read_text()
        .replace(str(records), f"benchmarks/recurrence/{records.name}")
    )
    assert made == page


def test_the_goals_are_met_by_results_that_are_right_and_repeatable() -> None:
    elman, scan, other = (NEWEST[name] for name in ("elman-fused", "scan-fused", "scan-fla"))
    assert elman["forward_backward_ms"] <= 8
    assert scan["forward_backward_ms"] <= other["forward_backward_ms"]
    for record in (elman, scan):
        assert record["repeatable"] and max(record["relative_errors"].values()) < 0.01


@pytest.mark.long
@pytest.mark.usefixtures("warm_simulations")
@pytest.mark.parametrize("model", ["e5-d1536-r270", "mamba2-50m"])
def test_what_a_fused_model_reserved_was_predicted_to_the_byte(model: str) -> None:
    """Batch 256 and length 512, where a wrong byte a token would be 131,072."""
    measured = NEWEST[f"model-{model}"]
    assert (
        predict(model, gpu="h200", batch_size=256, seq_len=512).peak_reserved_bytes
        == measured["peak_reserved_bytes"]
    )
