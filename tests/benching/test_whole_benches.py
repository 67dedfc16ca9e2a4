"""Whole benches in real processes: killed, failing, resumed, refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from waiting import comes_true

from vramcast.benching import workers
from vramcast.benching.bench import bench, compare
from vramcast.benching.data import Corpus
from vramcast.benching.models import split_models
from vramcast.benching.protocol import read_protocol
from vramcast.benching.trainer import Trainer
from vramcast.benching.trial_folder import Steps, TrialFolder
from vramcast.benching.workers import (
    LocalWorker,
    Machine,
    finished_run,
    folder_name,
    run_trials,
)
from vramcast.cli import bench as cli_bench
from vramcast.cli import compare as cli_compare
from vramcast.errors import EnvironmentProblem, UsageError, WorkloadError
from vramcast.processes.lifetime import child_environment
from vramcast.processes.progress import Progress, ignore
from vramcast.records.bench import BenchTrial, Protocol, TrainedRun
from vramcast.records.store import locked_folder
from vramcast.reporting.showing import show

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
def run_bench(
    toml: Path, data: Path, models: Path, tmp_path: Path
) -> Callable[..., list[TrainedRun]]:
    def run(*words: str, out: str = "out", **options: object) -> list[TrainedRun]:
        named = [word if "=" in word else f"{models}:{word}" for word in words]
        return bench(
            named, out=tmp_path / out, protocol=str(toml), data=data, device="cpu", **options
        )  # type: ignore[arg-type]

    return run


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramcast.records.store.LOCK_SECONDS", 0.0)


RunBench = Callable[..., list[TrainedRun]]


def test_the_file_says_what_the_fixture_says(toml: Path, protocol: Protocol) -> None:
    assert read_protocol(toml).hash == protocol.hash


def test_models_are_trained_and_compared_and_one_that_fails_takes_no_other_with_it(
    toml: Path,
    data: Path,
    models: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On two GPUs, as far as the processes know."""
    monkeypatch.setattr(
        "vramcast.benching.bench.this_machine",
        lambda _: Machine(None, lambda _: [LocalWorker("0"), LocalWorker("1")]),
    )
    out = tmp_path / "out"
    words = [f"{models}:tiny", f"{models}:tiny", "width=16"]
    words += [f"{models}:{name}" for name in ("dying", "raising", "forking")]
    options = {"protocol": str(toml), "data": str(data), "device": "cpu"}
    assert cli_bench.bench(words, out=str(out), as_json=True, **options) == 1
    shown = json.loads(capsys.readouterr().out)
    small, large, dying, raising, forking = shown["runs"]
    outcomes = [run["outcome"] for run in shown["runs"]]
    assert outcomes == ["ok", "ok", "crashed", "crashed", "ok"]
    # a fork of the trainer neither trains nor writes a step
    assert (forking["last_loss"], forking["steps"]) == (small["last_loss"], small["steps"])
    assert "SIGKILL" in dying["error"]
    assert "last words" in dying["error"]
    assert "no such luck" in raising["error"]
    assert (small["steps"], small["tokens"], small["metric"]) == (30, 30 * 4 * 16, "Last10")
    with pytest.raises(UsageError, match="ended as crashed"):
        compare(out)
    assert not list(tmp_path.glob("out/*/checkpoint.pt"))

    news: list[object] = []
    only_good = words[:3]
    again = bench(only_good, out=out, progress=news.append, **options)  # type: ignore[arg-type]
    assert [run.summary() for run in again] == [small, large]
    assert news == []  # nothing was trained again
    assert [run.environment["variables"]["CUDA_VISIBLE_DEVICES"] for run in again] == ["0", "1"]
    found = compare(*(out / folder_name(run.trial) for run in again))
    assert {model.model for model in found.models} == {small["model"], large["model"]}
    _check_what_is_shown(again, out, capsys)
    _check_that_spoiled_results_are_refused(out / folder_name(again[0].trial))
    models.write_text(models.read_text() + "\n# changed\n")
    with pytest.raises(UsageError, match="not the same model_hash"):
        bench(only_good, out=out, **options)  # type: ignore[arg-type]


def _check_what_is_shown(
    runs: list[TrainedRun], out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(width=200)
    show(
        [
            *runs,
            replace(runs[0], outcome="diverged"),
            replace(runs[0], outcome="out_of_memory", losses=[]),
        ],
        console,
    )
    text = capsys.readouterr().out
    for word in (
        "Last10",
        "tiny-1",
        "text.bin",
        "diverged at step 30",
        "out_of_memory",
        f"{runs[0].last_loss:.4f}",
    ):
        assert word in text
    code = cli_compare.compare([str(out / folder_name(run.trial)) for run in runs], as_json=False)
    text = capsys.readouterr().out
    assert ("is better than" in text, "not distinguishable" in text) == (
        (True, False) if code == 0 else (False, True)
    )
    assert "one seed" in text


def _check_that_spoiled_results_are_refused(folder: Path) -> None:
    path = folder / "result.json"
    for text in (
        path.read_text()[:100],
        json.dumps({"version": 1}),
        "[]",
    ):  # cut, edited, or something else
        path.write_text(text)
        with pytest.raises(UsageError):
            compare(folder)
    path.unlink()
    with pytest.raises(UsageError, match="has not ended"):
        compare(folder)
    with pytest.raises(UsageError, match="holds no run"):
        compare(folder / "nothing")


def test_a_bench_that_is_killed_or_interrupted_goes_on_to_the_same_losses(
    run_bench: RunBench,
    make_trial: Callable[..., BenchTrial],
    toml: Path,
    data: Path,
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """kill -9 of the bench itself: its worker ends with it. Then Ctrl-C. The next bench goes on
    from the checkpoint each time.
    """
    words = [f"{models}:tiny", "holds=true"]
    options = {
        "out": str(tmp_path / "killed"),
        "protocol": str(toml),
        "data": str(data),
        "device": "cpu",
        "checkpoint_seconds": 1e-9,
    }
    code = f"from vramcast.benching.bench import bench; bench({words!r}, **{options!r})"
    monkeypatch.chdir(tmp_path)
    hold = tmp_path / "hold"
    hold.touch()
    parent = subprocess.Popen([sys.executable, "-c", code], env=child_environment())
    try:
        assert comes_true(lambda: list((tmp_path / "killed").glob("*/checkpoint.pt")))
        workers = _descendants(parent.pid)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert workers
    assert comes_true(lambda: not any(_alive(pid) for pid in workers))
    assert not list((tmp_path / "killed").glob("*/result.json"))

    of_other_tests = set(_descendants(os.getpid()))

    def interrupt(_: Progress) -> None:
        workers[:] = set(_descendants(os.getpid())) - of_other_tests
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_bench("tiny", "holds=true", out="killed", progress=interrupt, checkpoint_seconds=1e-9)
    assert workers
    assert comes_true(lambda: not any(_alive(pid) for pid in workers))
    hold.unlink()
    (tmp_path / "whole").mkdir()
    folder = TrialFolder(next((tmp_path / "killed").iterdir()))
    resumed = Trainer(folder.trial(), Corpus(data), folder, 60.0, {}, lambda _: None).run()
    whole = Trainer(
        make_trial(), Corpus(data), TrialFolder(tmp_path / "whole"), 60.0, {}, lambda _: None
    ).run()
    assert resumed.resumed_at_steps
    assert resumed.losses == whole.losses


def test_wrong_usage_of_a_model_is_raised_and_leaves_no_trial_behind(
    make_trial: Callable[..., BenchTrial], tmp_path: Path
) -> None:
    def refused() -> Iterator[Any]:
        raise WorkloadError("no knob 'widht'", "Did you mean width?")
        yield

    folder = TrialFolder(tmp_path / "trial")
    folder.begin(make_trial())
    with pytest.raises(WorkloadError, match="tiny.*no knob 'widht'"):
        finished_run(make_trial(), folder, refused(), ignore)
    assert not folder.path.exists()  # nothing is left that would look like a trial
    folder.begin(make_trial())
    folder.add_steps(0, Steps([1.0], [0.1], [1]))
    with pytest.raises(WorkloadError):
        finished_run(make_trial(), folder, refused(), ignore)
    assert len(folder.steps()) == 1  # what was trained before is kept


def test_wrong_requests_are_refused_before_anything_starts(
    run_bench: RunBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vramcast.hardware.nvml.gpu_states", list)
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
        bench(["e1-50n"], out=tmp_path / "x")  # the name comes before the GPU that is not there
    with pytest.raises(UsageError, match="largest batch"):
        bench(["e1-50m"], out=tmp_path / "x", device="cpu", protocol="timebox")
    with pytest.raises(UsageError, match="not known"):
        bench(["e1-50m"], out=tmp_path / "x", device="tpu")
    assert not (tmp_path / "x").exists()


def test_seeds_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--seeds '1,x'"):
        bench(["e1-50m"], seeds="1,x", out=tmp_path / "x", device="cpu")
    with pytest.raises(UsageError, match="200,000; at most"):
        bench(["e1-50m"], seeds=range(200_000), out=tmp_path / "x", device="cpu")
    with pytest.raises(UsageError, match="--out is ''"):
        cli_bench.bench(["e1-50m"], out="", device="cpu")


@pytest.mark.usefixtures("no_waiting")
def test_two_benches_do_not_train_into_the_same_files(
    make_trial: Callable[..., BenchTrial], tmp_path: Path
) -> None:
    folder = TrialFolder(tmp_path / "trial")
    folder.begin(make_trial())
    with folder.lock(), pytest.raises(UsageError, match="is being written by"), folder.lock():
        pass
    with folder.lock():
        pass


@pytest.mark.usefixtures("no_waiting")
def test_begin_again_with_force_is_refused_while_another_bench_trains_there(
    make_trial: Callable[..., BenchTrial], tmp_path: Path
) -> None:
    folder = TrialFolder(tmp_path / "trial")
    folder.begin(make_trial())
    folder.add_steps(0, Steps([1.0], [0.1], [1]))
    with folder.lock():
        for attempt in (folder.check, folder.begin):
            options = {"force": True} if attempt == folder.check else {}
            with pytest.raises(UsageError, match="is being written by"):
                attempt(make_trial(), **options)
    assert len(folder.steps()) == 1
    folder.check(make_trial(), force=True)
    assert len(folder.steps()) == 0
    # the lock is still the same one for a bench that begins now
    with folder.lock(), pytest.raises(UsageError, match="is being written by"), folder.lock():
        pass


@pytest.mark.usefixtures("no_waiting")
def test_a_bench_that_was_refused_removes_nothing_of_the_one_that_trains_there(
    make_trial: Callable[..., BenchTrial], tmp_path: Path
) -> None:
    folder = TrialFolder(tmp_path / "trial")
    folder.begin(make_trial())
    with folder.lock():
        folder.forget()
    assert folder.trial() == make_trial()


def test_a_trial_that_hangs_is_stopped_and_the_next_is_trained(
    run_bench: Callable[..., list[TrainedRun]], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = iter([0.5])
    # the first trial's limit; the others have time
    usual = workers.Silence.__init__

    def begin(silence: workers.Silence) -> None:
        usual(silence)
        monkeypatch.setattr(workers, "MAX_SILENT_SECONDS", next(limits, 1800.0))

    monkeypatch.setattr(workers.Silence, "__init__", begin)
    hanging, sound = run_bench("hanging", "tiny")
    assert hanging.outcome == "crashed" and "No step ended within" in str(hanging.error)
    assert (sound.outcome, len(sound.losses)) == ("ok", 30)


def test_how_long_a_trial_may_be_silent_grows_with_how_long_it_was() -> None:
    silence = workers.Silence()
    assert silence.limit_seconds == workers.MAX_SILENT_SECONDS and not silence.is_too_long
    silence._since -= 1000
    silence.end()
    assert silence.limit_seconds == pytest.approx(20_000, rel=0.01)
    silence._since -= 30_000
    assert silence.is_too_long


@pytest.mark.usefixtures("no_waiting")
def test_a_second_bench_in_one_folder_is_refused_also_with_force_and_is_told_who_has_it(
    run_bench: Callable[..., list[TrainedRun]], tmp_path: Path
) -> None:
    with locked_folder(tmp_path / "out"):
        for force in (False, True):
            with pytest.raises(UsageError, match=f"is being written by process {os.getpid()} "):
                run_bench("tiny", force=force)
    assert os.listdir(tmp_path / "out") == []


def test_checkpoints_of_a_run_that_was_killed_at_its_end_are_removed_by_the_next_bench(
    make_trial: Callable[..., BenchTrial], tmp_path: Path
) -> None:
    trial = make_trial()
    folder = TrialFolder(tmp_path / folder_name(trial))
    folder.begin(trial)
    folder.write_result(
        TrainedRun(
            trial=trial,
            outcome="ok",
            environment={},
            losses=[1.0],
            step_seconds=[1.0],
            step_memory_bytes=[1],
        )
    )
    for left in (folder.checkpoint, folder.new_checkpoint):
        left.write_bytes(b"")
    run_trials([trial], tmp_path, [LocalWorker()], {}, force=False, progress=ignore)
    assert {*os.listdir(folder.path)} == {"trial.json", "result.json"}


def test_a_trial_that_begins_again_has_no_result(
    make_trial: Callable[..., BenchTrial], tmp_path: Path
) -> None:
    """Else how an earlier attempt failed would be taken for how this one ended."""
    folder = TrialFolder(tmp_path / "trial")
    folder.begin(make_trial())
    folder.write_result(TrainedRun(trial=make_trial(), outcome="crashed", environment={}))
    folder.new_checkpoint.write_bytes(b"cut short when the process was killed")
    folder.begin(make_trial())
    assert folder.result() is None
    assert not folder.new_checkpoint.exists()


def test_steps_that_were_edited_are_refused_by_the_name_of_their_file(
    make_trial: Callable[..., BenchTrial], tmp_path: Path
) -> None:
    folder = TrialFolder(tmp_path / "trial")
    folder.begin(make_trial())
    folder.add_steps(0, Steps([1.0], [0.1], [1]))
    steps = next(path for path in folder.path.iterdir() if path.suffix == ".jsonl")
    whole = steps.read_text()
    assert len(folder.steps()) == 1
    for spoiled in (
        whole.replace('"losses": [1.0]', '"losses": []'),
        whole.replace('"losses": [1.0]', '"losses": ["low"]'),
    ):
        assert spoiled != whole
        steps.write_text(spoiled)
        with pytest.raises(UsageError, match="steps.jsonl"):
            folder.steps()


def test_a_file_where_the_folder_should_be_is_refused(
    make_trial: Callable[..., BenchTrial], data: Path
) -> None:
    with pytest.raises(UsageError, match="Not a directory"):
        TrialFolder(data / "trial").begin(make_trial())
    with pytest.raises(UsageError, match="Not a directory"):
        TrialFolder(data / "trial").check(make_trial(), force=True)


def test_knobs_belong_to_the_model_before_them() -> None:
    assert split_models(["a", "x=1", "y=2", "b"]) == [("a", {"x": "1", "y": "2"}), ("b", {})]
    for words, reason in (
        (["x=1", "a"], "before any model"),
        ([], "No model"),
        (["a", "a"], "twice"),
    ):
        with pytest.raises(UsageError, match=reason):
            split_models(words)


def _descendants(pid: int) -> list[int]:
    children = [
        int(child)
        for task in Path(f"/proc/{pid}/task").glob("*/children")
        for child in task.read_text().split()
    ]
    return [found for child in children for found in (child, *_descendants(child))]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
