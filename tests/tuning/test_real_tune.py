"""A real tune on the CPU: interrupted, resumed, its result used; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

import vramcast
from vramcast.cli.commands import app
from vramcast.errors import UsageError
from vramcast.hardware import machine as machines
from vramcast.probing.manager import Prober
from vramcast.processes.progress import Progress
from vramcast.records.machine import Machine
from vramcast.records.store import read_lines
from vramcast.records.tune import TuneResult
from vramcast.tuning import inspection, runner
from vramcast.tuning.tune import tune
from vramcast.workload import Text

ASK = inspection.ask
WORKLOAD = f"{Path(__file__).with_name('invented_times.py')}:build"
ONLY = "sdpa,checkpointing-off,chunked-loss,anomaly-off,compile,amp-bf16"
OPTIONS = {
    "only": ONLY,
    "device": "cpu",
    "outlook": False,
    "knobs": {"batch_size": Text("2"), "dtype": Text("float32")},
    "target_steps": 1000,
}


@dataclass
class Ended:
    folder: Path
    recorded_when_interrupted: int
    result: TuneResult


@pytest.fixture(scope="module", autouse=True)
def quick(warm_probes: Prober) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machines, "look", Machine)
        for name, value in (("MEASURED_SECONDS", 0.1), ("FIRST_STEPS", 3), ("WARMUP_STEPS", 1)):
            patch.setattr(runner, name, value)
        patch.setattr(
            inspection, "ask", lambda _, request, **__: inspection.answer(request)
        )  # the test of a wrong knob starts a process
        yield


@pytest.fixture(scope="module")
def ended(quick: None, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("tune") / "run"

    def until_the_second(progress: Progress) -> None:
        if progress.line and "sdpa" not in progress.name:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(WORKLOAD, out=folder, progress=until_the_second, **OPTIONS)  # type: ignore[arg-type]
    recorded = len(list(read_lines(folder / "records.jsonl")))
    result = tune(WORKLOAD, out=folder, **OPTIONS)  # type: ignore[arg-type]
    return Ended(folder, recorded, result)


@pytest.mark.parametrize(
    ("name", "verdict", "words"),
    [
        ("sdpa", "applied", "x ("),
        ("anomaly-off", "applied", "x ("),
        ("chunked-loss", "rejected", "other losses"),
        ("checkpointing-off", "failed", "Unsupported"),
        ("compile", "not applicable", "no C compiler"),
        ("amp-bf16", "not applicable", "on the CPU"),
    ],
)
def test_real_runs_get_their_verdicts(ended: Ended, name: str, verdict: str, words: str) -> None:
    [row] = [row for row in ended.result.rows if row.name == name]
    assert row.verdict == verdict, row
    assert words in row.reason


def test_what_was_measured_before_the_interruption_is_not_measured_again(ended: Ended) -> None:
    lines = [line for line in read_lines(ended.folder / "records.jsonl") if line["kind"] == "run"]
    assert ended.recorded_when_interrupted >= 5  # A A B B A
    first = [line["key"] for line in lines[:5]]
    assert first[0] == first[1] == first[4] != first[2] == first[3]
    assert sum(line["key"] == first[2] for line in lines) <= 4


def test_the_total_is_that_of_the_times_of_the_steps(ended: Ended) -> None:
    assert ended.result.total.ratio == pytest.approx(10.0, rel=0.05)  # 100 ms to 10 ms
    assert ended.result.before.unit == "samples" and ended.result.before.work_per_step == 2
    assert ended.result.configuration["knobs"] == {"batch_size": 2, "attention": "auto"}
    assert ended.result.configuration["switches"] == {"detect_anomaly": False}


def test_the_files_are_there_and_the_configuration_can_be_probed(
    ended: Ended, tmp_path: Path
) -> None:
    assert TuneResult.from_json((ended.folder / "result.json").read_text()) == ended.result
    assert "# Optimisation log of " in (ended.folder / "log.md").read_text()
    config = vramcast.load_configuration(ended.folder / "final.json")
    measured = vramcast.probe(
        WORKLOAD, device="cpu", steps=3, config=config, optimizer="adamw-fused"
    )
    assert (
        measured.outcome == "ok"
        and measured.knobs["attention"] == "auto"
        and measured.knobs["optimizer"] == "adamw-fused"
    )
    assert measured.switches["detect_anomaly"] is False  # though the workload sets it


def test_another_tune_is_refused_in_the_same_folder(ended: Ended) -> None:
    with pytest.raises(UsageError, match="another tune: not the same knobs"):
        tune(WORKLOAD, out=ended.folder, **{**OPTIONS, "knobs": {"batch_size": Text("3")}})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--budget", "soon"], "not a time"),
        (["--only", "magic"], "no optimisation 'magic'"),
        (["--target-steps", "0"], "--target-steps"),
        (["--out", ""], "names no folder"),
        (["--gpu", "abacus"], "abacus"),
        (["--memory", "much"], "not a memory size"),
    ],
)
def test_wrong_requests_are_one_message_and_leave_nothing(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    out = [] if "--out" in arguments else ["--out", str(tmp_path / "new")]
    answer = CliRunner().invoke(app, ["tune", WORKLOAD, "--device", "cpu", *out, *arguments])
    assert isinstance(answer.exception, UsageError) and words in answer.exception.message
    assert not (tmp_path / "new").exists()


def test_without_a_gpu_it_says_what_can_be_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("vramcast.hardware.nvml.gpu_states", list)
    answer = CliRunner().invoke(app, ["tune", WORKLOAD, "--out", str(tmp_path / "x")])
    assert "no NVIDIA GPU here" in str(answer.exception) and "--device cpu" in str(answer.exception)


def test_a_knob_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "ask", ASK)
    answer = CliRunner().invoke(
        app,
        [
            "tune",
            WORKLOAD,
            "width=3",
            "--device",
            "cpu",
            "--out",
            str(tmp_path / "y"),
            "--only",
            "sdpa",
        ],
    )
    assert "no knob 'width'" in str(answer.exception)
    assert not (tmp_path / "y").exists()  # the corrected command may have it


def test_the_record_of_a_later_version_is_refused(ended: Ended) -> None:
    data = json.loads((ended.folder / "result.json").read_text())
    with pytest.raises(UsageError, match="version 99"):
        TuneResult.from_dict({**data, "version": 99})
