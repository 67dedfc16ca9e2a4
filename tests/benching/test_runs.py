"""Whole benches in real processes: killed, failing, resumed, refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from vramcast.benching.api import bench, compare, split_models
from vramcast.benching.data import Corpus
from vramcast.benching.protocol import Protocol, read_protocol
from vramcast.benching.records import TrainedRun, Trial
from vramcast.benching.runs import ended
from vramcast.benching.trainer import Trainer
from vramcast.benching.trial_folder import TrialFolder
from vramcast.errors import EnvironmentProblem, UsageError, WorkloadError
from vramcast.processes import child_environment

PROTOCOL = """\
name = "tiny-1"
batch_size = 4
seq_len = 16
steps = 30
last_steps = 10
lr = 0.01
optimizer = "adamw"
precision = "fp32"
"""


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(PROTOCOL)
    return path


@pytest.fixture
def run_bench(toml: Path, data: Path, models: Path, tmp_path: Path) -> Callable[..., list[TrainedRun]]:
    def run(*words: str, out: str = "out", **options: object) -> list[TrainedRun]:
        named = [word if "=" in word else f"{models}:{word}" for word in words]
        return bench(named, out=tmp_path / out, protocol=str(toml), data=data, device="cpu", **options)  # type: ignore[arg-type]

    return run


RunBench = Callable[..., list[TrainedRun]]


def test_the_file_says_what_the_fixture_says(toml: Path, protocol: Protocol) -> None:
    assert read_protocol(toml).hash == protocol.hash


def test_two_models_are_trained_and_compared_and_not_trained_again(run_bench: RunBench, tmp_path: Path) -> None:
    news: list[dict[str, object]] = []
    first = run_bench("tiny", "tiny", "width=16", progress=lambda _, progress: news.append(progress))
    assert [run.outcome for run in first] == ["ok", "ok"]
    assert news[-1]["step"] == 30
    assert {"loss", "last_loss", "tokens_per_second", "memory_bytes", "seconds_left"} <= news[-1].keys()
    assert run_bench("tiny", "tiny", "width=16", progress=lambda *_: pytest.fail("trained again")) == first
    found = compare(tmp_path / "out")
    assert {model.model for model in found.models} == {run.trial.label for run in first}
    assert not list(tmp_path.glob("out/*/checkpoint.pt"))
    path, _ = tmp_path.glob("out/*/result.json")
    for text in (path.read_text()[:100], json.dumps({"version": 1}), "[]"):  # cut, edited, or something else
        path.write_text(text)
        with pytest.raises(UsageError):
            compare(tmp_path / "out")
    with pytest.raises(UsageError, match="holds no run"):
        compare(tmp_path / "nothing")


def test_a_bench_that_is_killed_goes_on_to_the_same_losses(
    run_bench: RunBench, make_trial: Callable[..., Trial], toml: Path, data: Path, models: Path, tmp_path: Path
) -> None:
    """kill -9 in the middle, of the bench itself: its worker ends with it, and the next bench goes on from the checkpoint."""
    words = [f"{models}:tiny", "slow_seconds=0.05"]
    options = {"out": str(tmp_path / "killed"), "protocol": str(toml), "data": str(data), "device": "cpu", "checkpoint_seconds": 0.1}
    code = f"from vramcast.benching.api import bench; bench({words!r}, **{options!r})"
    parent = subprocess.Popen([sys.executable, "-c", code], env=child_environment())
    try:
        _wait_for(lambda: list((tmp_path / "killed").glob("*/checkpoint.pt")))
        children = _descendants(parent.pid)
        os.kill(parent.pid, signal.SIGKILL)
    finally:
        parent.kill()
        parent.wait()
    assert children
    _wait_for(lambda: not any(_alive(pid) for pid in children))
    assert not list((tmp_path / "killed").glob("*/result.json"))
    with pytest.raises(UsageError, match="has not ended"):
        compare(tmp_path / "killed")
    resumed = run_bench("tiny", "slow_seconds=0.05", out="killed")[0]
    (tmp_path / "whole").mkdir()
    whole = Trainer(make_trial(), Corpus(data), TrialFolder(tmp_path / "whole"), 4, 60.0, {}, lambda _: None).run()
    assert resumed.resumed_at_steps
    assert resumed.losses == whole.losses


def test_a_trial_that_fails_does_not_take_the_others_with_it(run_bench: RunBench, models: Path, tmp_path: Path) -> None:
    dying, raising, fine = run_bench("dying", "raising", "tiny")
    assert (dying.outcome, raising.outcome, fine.outcome) == ("crashed", "crashed", "ok")
    assert "SIGKILL" in str(dying.error)
    assert "last words" in str(dying.error)
    assert "no such luck" in str(raising.error)
    with pytest.raises(UsageError, match="ended as crashed"):
        compare(tmp_path / "out")
    models.write_text(models.read_text() + "\n# changed\n")
    with pytest.raises(UsageError, match="not the same model_hash"):
        run_bench("tiny")


def test_wrong_usage_of_a_model_is_raised(make_trial: Callable[..., Trial], tmp_path: Path) -> None:
    problem = {"message": "no knob 'widht'", "advice": "Did you mean width?", "exit_code": 2}
    with pytest.raises(WorkloadError, match="tiny.*no knob 'widht'"):
        ended(make_trial(), TrialFolder(tmp_path), {"error": problem, "ended": 0})


def test_wrong_requests_are_refused_before_anything_starts(
    run_bench: RunBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vramcast.nvml.gpu_states", list)
    for options, reason in (
        ({"seeds": [1, 1]}, "different whole numbers"),
        ({"seeds": [-1]}, "different whole numbers"),
        ({"steps": 5}, "at least 10 steps"),
        ({"checkpoint_seconds": 0.0}, "above zero"),
    ):
        with pytest.raises(UsageError, match=reason):
            run_bench("tiny", **options)
    with pytest.raises(EnvironmentProblem, match="--device cpu"):
        bench(["e1-50m"], out=tmp_path / "x")
    with pytest.raises(UsageError, match="e1-50m"):
        bench(["e1-50n"], out=tmp_path / "x", device="cpu")
    with pytest.raises(UsageError, match="largest batch"):
        bench(["e1-50m"], out=tmp_path / "x", device="cpu", protocol="timebox")
    with pytest.raises(UsageError, match="not known"):
        bench(["e1-50m"], out=tmp_path / "x", device="tpu")
    assert not (tmp_path / "x").exists()


def test_knobs_belong_to_the_model_before_them() -> None:
    assert split_models(["a", "x=1", "y=2", "b"]) == [("a", {"x": "1", "y": "2"}), ("b", {})]
    for words, reason in ((["x=1", "a"], "before any model"), ([], "No model"), (["a", "a"], "twice")):
        with pytest.raises(UsageError, match=reason):
            split_models(words)


def _wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def _descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [found for child in children for found in (child, *_descendants(child))]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
