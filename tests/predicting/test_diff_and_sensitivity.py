"""Two runs compared, and how the peak moves with each knob."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import in_process
import pytest
from rich.console import Console

import vramcast
from vramcast.errors import UsageError
from vramcast.predicting.diff import diff_runs, with_knobs
from vramcast.records.run_diff import RunDiff
from vramcast.records.sensitivity import Sensitivity
from vramcast.reporting import showing

pytestmark = pytest.mark.usefixtures("warm_simulations")
WORKLOAD = """
import torch

def build(*, batch_size: int = 1024, width: int = 1024, groups: int = 8, seed: int = 1):
    if width % groups:
        raise ValueError("the width is no multiple of groups")
    layer = torch.nn.Linear(width, width, device="cuda")
    def step():
        loss = layer(torch.zeros(batch_size, width, device="cuda")).sum()
        loss.backward()
        return loss.detach()
    return step
"""


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("work") / "train.py"
    file.write_text(WORKLOAD)
    return f"{file}:build"


def test_two_workloads_with_knobs_are_predicted_and_compared(workload: str) -> None:
    words = [workload, "batch_size=1024", workload, "batch_size=4096", "--gpu", "h200"]
    done = in_process.vramcast("diff", *words, "--json")
    assert done.returncode == 3, done.stderr
    found = RunDiff.from_json(done.stdout)
    assert (found.knobs_a, found.knobs_b) == ({"batch_size": 1024}, {"batch_size": 4096})
    peak = found.totals_bytes[0]
    assert peak.what == "peak_reserved_bytes" and peak.a and peak.b and peak.b > peak.a
    assert "activations" in {one.what for one in found.categories_bytes}
    assert found.a.timeline and found.tensors_bytes and not found.same
    shown = StringIO()
    showing.show(found, Console(file=shown, width=100))
    assert "B reserves" in shown.getvalue() and "peak reserved" in shown.getvalue()


def test_a_line_is_compared_with_itself_and_with_a_record(
    workload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "line.py"
    use = "step = build(batch_size=int(sys.argv[1]))\nfor _ in range(9): step()"
    program.write_text(f"import sys\n{WORKLOAD}\n{use}\n")
    line = ["--gpu", "h200", "--json", "--", "python", "line.py", "{batch_size}"]
    done = in_process.vramcast("diff", "batch_size=1024", "batch_size=4096", *line)
    assert done.returncode == 3, done.stderr
    found = RunDiff.from_json(done.stdout)
    assert (found.knobs_a, found.knobs_b) == ({"batch_size": 1024}, {"batch_size": 4096})
    record = tmp_path / "a.json"
    record.write_text(vramcast.predict(line[4:], batch_size=1024, gpu="h200").to_json())
    done = in_process.vramcast("diff", str(record), "batch_size=1024", *line)
    assert done.returncode == 0, done.stderr
    done = in_process.vramcast("diff", *line)
    assert done.returncode == 2 and "not 1" in done.stderr


def test_a_record_and_a_file_that_is_not_there(tmp_path: Path, workload: str) -> None:
    record = tmp_path / "a.json"
    record.write_text(vramcast.predict(workload, gpu="h200").to_json())
    with pytest.raises(UsageError, match="There is no file .*missing.json"):
        vramcast.diff(record, tmp_path / "missing.json")


def test_two_records_are_compared_and_equal_ones_are_the_same(
    workload: str, tmp_path: Path
) -> None:
    one = vramcast.predict(workload, gpu="h200")
    (tmp_path / "a.json").write_text(one.to_json())
    other = replace(one, peak_reserved_bytes=2 * one.peak_reserved_bytes)
    (tmp_path / "b.json").write_text(other.to_json())
    same = vramcast.diff(tmp_path / "a.json", tmp_path / "a.json")
    assert isinstance(same, RunDiff) and same.same and same.knobs_a == {}
    found = vramcast.diff(tmp_path / "a.json", tmp_path / "b.json")
    assert isinstance(found, RunDiff) and not found.same
    # The page draws both timelines over each other.
    (tmp_path / "diff.json").write_text(found.to_json())
    page = vramcast.report(tmp_path / "diff.json")
    assert "Memory through both runs" in page.text
    assert diff_runs(one, other, names=("a", "b")).totals_bytes == found.totals_bytes


def test_what_cannot_be_compared_is_one_message(workload: str, tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text(vramcast.predict_many(workload, gpu="h200").to_json())
    with pytest.raises(UsageError, match="no prediction and no measurement"):
        vramcast.diff(tmp_path / "table.json", tmp_path / "table.json")
    with pytest.raises(UsageError, match="its own knobs"):
        vramcast.diff(tmp_path / "table.json", workload, a_knobs={"width": 8}, gpu="h200")
    done = in_process.vramcast("diff", "a", "b", "c")
    assert done.returncode == 2 and "not 3" in done.stderr
    assert with_knobs(["a", "x=1", "b"]) == (["a", "b"], [{"x": "1"}, {}])


def test_the_peak_moves_with_each_knob_as_single_predictions_say(workload: str) -> None:
    done = in_process.vramcast("predict", workload, "--gpu", "h200", "--sensitivity", "--json")
    assert done.returncode == 0, done.stderr
    found = Sensitivity.from_json(done.stdout)
    effects = {one.knob: one for one in found.effects}
    assert set(effects) == {"batch_size", "width", "groups"}
    assert (effects["batch_size"].value, effects["batch_size"].other_value) == (1024, 1025)
    # 9 groups do not divide the width: twice as many do.
    assert (effects["groups"].other_value, effects["groups"].more_reserved_bytes) == (16, 0)
    other = effects["width"].other_value
    wider = vramcast.predict(workload, gpu="h200", width=other)
    assert effects["width"].more_reserved_bytes == (
        wider.peak_reserved_bytes - found.peak_reserved_bytes
    )
    assert json.loads(done.stdout)["kind"] == "sensitivity"
    shown = StringIO()
    showing.show(found, Console(file=shown, width=100))
    assert "1 more sample:" in shown.getvalue()
    wrong = in_process.vramcast("predict", workload, "--gpu", "h200,t4", "--sensitivity")
    assert wrong.returncode == 2 and "--sensitivity is of one GPU" in wrong.stderr
    ignored = in_process.vramcast("predict", workload, "--gpu", "h200,t4", "--no-compile")
    assert ignored.returncode == 2 and "--no-compile are for one prediction" in ignored.stderr
