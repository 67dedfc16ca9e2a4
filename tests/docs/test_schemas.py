"""What the commands print with --json is as the schemas in docs/schemas say."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import in_process
import pytest
from generate import commands
from json_schemas import FOLDER, PRINTED, texts

from vramcast.records.accuracy import AccuracyResult
from vramcast.reporting.loading import load

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (extra dev)")
ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "tests" / "reporting" / "records"
PROGRAM = """\
import torch

def build(*, batch_size: int = 8, seq_len: int = 16, width: int = 64):
    model = torch.nn.Linear(width, width).cuda()

    def step():
        loss = model(torch.randn(batch_size, seq_len, width, device="cuda")).square().mean()
        loss.backward()
        model.zero_grad()
        return loss

    return step
"""
SMALL = ("--memory", "100MiB")
# Of each form that a command prints, the cheapest way to see it.
RUN = {
    "predict": ["predict", "train.py", *SMALL],
    "predict, several sizes": ["predict", "train.py", "--batch-sizes", "1-4", *SMALL],
    "predict, several GPUs": ["predict", "train.py", "--gpu", "t4,h200", "--tokens", "1M"],
    "predict, each knob": ["predict", "train.py", "--sensitivity", *SMALL],
    "max-batch": ["max-batch", "train.py", "--max", "64", *SMALL],
    "plan": ["plan", "train.py", "--seq-lens", "16,32", "--gpu", "t4"],
    "diff": ["diff", "train.py", "train.py", "width=32", "--fail-above", "2%"],
    "gpus": ["gpus"],
    "zoo": ["zoo"],
    "zoo, a budget": ["zoo", "e5", "--params", "50M", "--dim", "1536"],
    "server": ["server", "status"],
    "fit": ["fit", str(ROOT / "examples" / "document-004.csv")],
}
pytestmark = pytest.mark.usefixtures("warm_simulations")


def check(command: str, printed: Any) -> None:
    schema = json.loads((FOLDER / f"{command}.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(printed)


def test_every_command_with_json_has_a_schema_that_is_made_from_its_types() -> None:
    has_json = [
        name
        for name, command in commands().items()
        if any("--json" in option.opts for option in command.params)
    ]
    assert has_json == list(PRINTED)
    written = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert written == texts(), "run python docs/generate.py"


@pytest.mark.parametrize("form", RUN)
def test_real_output_is_as_the_schema_says(form: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    done = in_process.vramcast(*RUN[form], "--json", folder=tmp_path)
    assert done.returncode in (0, 3), done.stderr
    check(form.partition(",")[0], json.loads(done.stdout))


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("probe", "h200-measurement.json"),
        ("tune", "tune.json"),
        ("compare", "compare.json"),
        ("fit", "fit.json"),
    ],
)
def test_what_takes_longer_or_a_gpu_is_checked_on_what_it_printed_before(
    command: str, file: str
) -> None:
    """Read and written again: a field that was added since has its default."""
    (loaded, *_) = load(RECORDS / file)
    records = loaded.record if isinstance(loaded.record, list) else [loaded.record]
    printed = [json.loads(record.to_json()) for record in records]
    check(command, printed if command == "fit" else printed[0])


def test_the_accuracy_of_all_rows_is_as_its_schema_says() -> None:
    (loaded, *_) = load(ROOT / "benchmarks" / "accuracy" / "h200-torch-2.11")
    assert isinstance(loaded.record, AccuracyResult)
    check("accuracy", json.loads(loaded.record.to_json()))


def test_a_field_that_is_missing_or_of_another_type_is_found(tmp_path: Path) -> None:
    (loaded, *_) = load(RECORDS / "prediction.json")
    good = json.loads(loaded.record.to_json())
    check("predict", good)
    for change in ({"fits": "yes"}, {"kind": "plan"}, {"peak_reserved_bytes": -1}):
        with pytest.raises(jsonschema.ValidationError):
            check("predict", {**copy.deepcopy(good), **change})
