"""predict --trace and diff as a person or a script meets them."""

from __future__ import annotations

import json
import pickle
import subprocess
from pathlib import Path
from typing import Any

import in_process
import pytest
from trace_examples import of, trace

from vramcast import UsageError
from vramcast.allocator.replay import replay
from vramcast.predicting.predict import predict
from vramcast.simulate import build
from vramcast.tracing.files import read_trace, write_files

pytestmark = pytest.mark.usefixtures("warm_simulations")
WORKLOAD = """\
import os
import torch
from torch import nn

def build(*, batch_size: int = 4096, width: int = 64):
    os.chdir("/")
    up, down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    model = nn.Sequential(up, nn.ReLU(), down).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        hidden = model[0](torch.randn(batch_size, width, device="cuda"))  # here
        loss = model[2](model[1](hidden)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.empty_cache()
        return loss

    return step
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return in_process.vramcast(*arguments, folder=folder, columns=160)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build.build()
    folder = tmp_path_factory.mktemp("traces")
    (folder / "work.py").write_text(WORKLOAD)
    return folder


@pytest.fixture(scope="module")
def prediction(folder: Path) -> dict[str, Any]:
    done = run(folder, "predict", "work.py", "--gpu", "h200", "--trace", "runs/one", "--json")
    assert done.returncode == 0, done.stderr
    assert "Wrote runs/one/trace.json" in done.stderr
    return dict(json.loads(done.stdout))


def test_the_trace_replays_to_the_prediction(folder: Path, prediction: dict[str, Any]) -> None:
    written = read_trace(folder / "runs" / "one")
    result = replay(written.events, written.sizes)
    assert result.peak_reserved_bytes == prediction["peak_reserved_bytes"]
    assert result.peak_allocated_bytes == prediction["peak_allocated_bytes"]
    assert (written.source, written.gpu, written.workload, written.knobs) == (
        "predicted",
        "h200",
        "work.py",
        prediction["knobs"],
    )
    assert list(written.steps) == [1, 2, 3, 4]


def test_allocations_know_operator_line_module_and_category(
    folder: Path, prediction: dict[str, Any]
) -> None:
    line = next(
        number for number, text in enumerate(WORKLOAD.splitlines(), 1) if text.endswith("# here")
    )
    allocations = read_trace(folder / "runs" / "one").allocations
    made_here = [
        allocation
        for allocation in allocations
        if f"work.py:{line} in step" in allocation.facts.get("source", "")
    ]
    assert {"aten::randn", "aten::addmm", "cublas_workspace"} <= {
        allocation.op for allocation in made_here
    }
    hidden = next(allocation for allocation in made_here if allocation.op == "aten::addmm")
    assert hidden.num_bytes == 4096 * 256 * 4
    assert (hidden.category, hidden.module) == ("activations", "0")
    assert any(
        allocation.facts.get("node", "").startswith("AddmmBackward") for allocation in allocations
    )
    assert not any("." in allocation.op for allocation in allocations)


def test_the_snapshot_beside_it_is_the_run_at_its_end(
    folder: Path, prediction: dict[str, Any]
) -> None:
    snapshot = pickle.loads((folder / "runs" / "one" / "snapshot.pickle").read_bytes())
    assert {"segments", "device_traces", "allocator_settings", "external_annotations"} <= set(
        snapshot
    )
    assert (
        sum(segment["total_size"] for segment in snapshot["segments"])
        <= prediction["peak_reserved_bytes"]
    )
    assert any(
        "work.py" in frame["filename"]
        for entry in snapshot["device_traces"][0]
        for frame in entry["frames"]
    )


def test_files_that_are_there_are_kept_and_the_simulation_is_not_even_begun(
    folder: Path, prediction: dict[str, Any]
) -> None:
    before = (folder / "runs" / "one" / "trace.json").read_bytes()
    done = run(folder, "predict", "no_such_file.py", "--trace", "runs/one")
    assert done.returncode == 2
    assert (folder / "runs" / "one" / "trace.json").read_bytes() == before


def test_python_writes_the_same_trace_and_over_an_old_one_only_by_force(
    folder: Path, prediction: dict[str, Any]
) -> None:
    workload = f"{folder / 'work.py'}:build"
    with pytest.raises(UsageError, match="already has trace.json and snapshot.pickle"):
        predict(workload, gpu="h200", trace=folder / "runs" / "one")
    again = predict(workload, gpu="h200", trace=str(folder / "runs" / "one"), force=True)
    assert again.peak_reserved_bytes == prediction["peak_reserved_bytes"]


def test_a_trace_of_many_batch_sizes_is_refused(folder: Path) -> None:
    done = run(folder, "predict", "work.py:build", "--batch-sizes", "1,2", "--trace", "runs")
    assert done.returncode == 2 and "--trace is for one run" in done.stderr


def test_the_same_trace_exits_with_0(tmp_path: Path) -> None:
    write_files(tmp_path / "a", trace(), {})
    done = run(tmp_path, "diff", "a", "a/trace.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "the same" in done.stdout


def test_different_traces_exit_with_3_and_show_the_first_place(tmp_path: Path) -> None:
    write_files(tmp_path / "a", of("mm:1 | mm:600 add:7000 gelu:3 mm:4 -2"), {})
    write_files(tmp_path / "b", of("mm:1 | mm:600 -2 gelu:3 mm:4", source="measured"), {})
    done = run(tmp_path, "diff", "a", "b")
    assert done.returncode == 3, done.stderr
    assert "2 differences: 1 only in A, 1 freed earlier on one side" in done.stdout
    assert "First difference, in step 1: only in A" in done.stdout
    assert "aten::add" in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.startswith(">"))
    assert row.split() == [">", "#3", "add", "7,000", "8.5", "KiB", "-"]


def test_a_diff_as_json_is_one_object(tmp_path: Path) -> None:
    write_files(tmp_path / "a", of("mm:1 mm:2"), {})
    write_files(tmp_path / "b", of("mm:1"), {})
    done = run(tmp_path, "diff", "a", "b", "--json")
    record = json.loads(done.stdout)
    assert (done.returncode, record["same"], record["num_differences"]["only_a"]) == (3, False, 1)
    assert record["a"]["num_allocations"] == 2
    assert record["first"]["lines"][record["first"]["position"]][1] is None


def test_bad_input_exits_with_2_and_one_message(tmp_path: Path) -> None:
    write_files(tmp_path / "a", trace(), {})
    (tmp_path / "cut.json").write_text((tmp_path / "a" / "trace.json").read_text()[:300])
    for other, reason in (("none", "There is no"), ("cut.json", "cut short")):
        done = run(tmp_path, "diff", "a", other)
        assert (done.returncode, done.stdout) == (2, "")
        assert reason in done.stderr
        assert "Traceback" not in done.stderr
