"""`vramcast probe -- python train.py`: whole programs, really run, on the CPU."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from in_process import vramcast as command

import vramcast
from vramcast.errors import UsageError, WorkloadError
from vramcast.probing.manager import start_of
from vramcast.probing.run_folder import read_measurement
from vramcast.probing.trial import Trial
from vramcast.processes.progress import Progress
from vramcast.records.measurement import Measurement, Outcome
from vramcast.records.phases import PhaseName

SMALL = Path(__file__).parents[1] / "programs" / "small"
EPOCHS, LOOPS = SMALL / "epochs.py", SMALL / "loops.py"
pytestmark = pytest.mark.usefixtures("warm_probes")


def probe(*words: Any, **options: Any) -> tuple[Measurement, str]:
    lines: list[str] = []

    def listen(progress: Progress) -> None:
        lines.extend(filter(None, [progress.line]))

    line = ["python", *map(str, words)]
    return vramcast.probe(line, device="cpu", progress=listen, **options), "\n".join(lines)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_program_is_measured_phase_by_phase_and_ended_when_enough_was_seen(folder: Path) -> None:
    found, printed = probe(EPOCHS, "--batch_size={batch_size}", batch_size=16, out="run")
    assert found.outcome == Outcome.OK and found.verdict.stable
    names = [phase.name for phase in found.phases]
    assert names == ["build", "train", "evaluate", "save"]
    assert [phase.num_steps for phase in found.phases][1] == 3
    assert found.peak_allocated_bytes == max(p.peak_allocated_bytes for p in found.phases)
    # three layers of 256 x 256 and their biases
    assert found.num_parameters == 3 * (256 * 256 + 256)
    assert (len(found.warmup_seconds), found.steps_done) == (2, 1)
    assert found.samples_per_second is not None and found.knobs == {"batch_size": 16}
    assert "started as __main__ ['--batch_size=16'] the CPU" in printed
    assert "loaded again 0 True" in printed and "loaded again 1" not in printed
    assert read_measurement(folder / "run") == found
    assert "loaded again" in (folder / "run" / "worker.log").read_text()
    # the weights were not written, and nothing stands in their place
    assert os.listdir(folder) == ["run"]
    assert "weights were not written: best.pt" in found.notes


@pytest.mark.parametrize(
    ("kind", "steps"),
    [("loop", 3), ("by-hand", 3), ("accumulation", 3), ("thread", 3), ("leaves", 2)],
)
def test_a_program_of_any_shape_is_stopped_when_enough_was_seen(kind: str, steps: int) -> None:
    found, _ = probe(LOOPS, kind)
    assert found.outcome == Outcome.OK
    seen = {phase.name: phase.num_steps for phase in found.phases}
    assert seen[PhaseName.TRAIN] == steps
    assert len(found.warmup_seconds) + found.steps_done == steps


def test_as_many_steps_as_are_asked_for_and_the_whole_program() -> None:
    found, _ = probe(LOOPS, "loop", steps=5)
    assert (len(found.warmup_seconds), found.steps_done, found.measure_steps) == (2, 3, 3)
    found, _ = probe(LOOPS, "loop", steps=1)
    assert (found.warmup_seconds, found.steps_done) == ([], 1)
    found, printed = probe(LOOPS, "whole", whole=True)
    assert "all steps done" in printed and found.steps_done == 10


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("exit", "The program ended itself with exit code 3, before it trained."),
        ("message", "The program ended itself with the message: no data here"),
        ("raises", "ValueError: wrong value 7"),
        ("killed", "was ended by SIGKILL"),
    ],
)
def test_a_program_that_fails_is_a_measurement_that_says_how(kind: str, error: str) -> None:
    found, _ = probe(LOOPS, kind)
    assert found.outcome == Outcome.CRASHED and error in (found.error or "")
    assert "vramcast/p" not in (found.error or "")


def test_running_out_of_memory_is_an_outcome_with_the_phases_until_then(folder: Path) -> None:
    text = EPOCHS.read_text().replace(
        "    torch.save(", '    raise torch.OutOfMemoryError("CUDA out of memory")\n    torch.save('
    )
    (folder / "greedy.py").write_text(text)
    found, _ = probe("greedy.py")
    assert found.outcome == Outcome.OUT_OF_MEMORY
    assert [phase.name for phase in found.phases] == ["build", "train", "evaluate"]


def test_a_parameter_of_two_modules_is_counted_once(folder: Path) -> None:
    tied = "\nsecond = torch.nn.Linear(64, 64)\nsecond.weight = model.weight\n"
    text = LOOPS.read_text().replace("optimizer = None\n", f"optimizer = None{tied}", 1)
    (folder / "tied.py").write_text(text)
    found, _ = probe("tied.py", "loop")
    # the model, an unused one of its size, and the bias of the second
    assert found.num_parameters == 2 * (64 * 64 + 64) + 64


def test_a_program_that_takes_no_step_has_one_message() -> None:
    with pytest.raises(WorkloadError, match="no training step was seen"):
        probe(LOOPS, "forward")


def test_the_process_that_imports_torch_has_the_environment_of_the_line() -> None:
    line = ("PYTORCH_ALLOC_CONF=backend:cudaMallocAsync", "python", str(LOOPS), "{kind}")
    trial = Trial(workload="any", line=line, knobs={"kind": "loop"})
    settings = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}
    assert start_of(trial) == {"environment": settings, "python": []}


def test_the_command_shows_phases_and_writes_json(folder: Path) -> None:
    arguments = ["probe", "--device", "cpu", "--out", "run", "batch_size=4"]
    line = ["--", "python", str(EPOCHS), "--batch_size={batch_size}"]
    ended = command(*arguments, "--json", *line, folder=folder)
    assert ended.returncode == 0 and "started as __main__" in ended.stderr
    found = json.loads(ended.stdout)
    assert found["folder"] == "run" and len(found["phases"]) == 4
    shown = command("report", "run", "--format", "md", "--out", "-", folder=folder)
    assert "evaluate" in shown.stdout, shown.stderr


def test_a_line_alone_is_enough(folder: Path) -> None:
    ended = command("probe", "--", "python", "nothing.py", folder=folder)
    assert ended.returncode == 2 and "There is no file 'nothing.py'" in ended.stderr


def test_commands_that_take_no_line_say_which_do(folder: Path) -> None:
    ended = command("gpus", "--", "python", "train.py", folder=folder)
    assert ended.returncode == 2 and "vramcast gpus takes no launch line" in ended.stderr
    assert "predict, max-batch, plan, advise, probe, tune and diff do" in ended.stderr


def test_wrong_usage_of_a_line_is_said() -> None:
    with pytest.raises(UsageError, match="contradict"):
        probe(LOOPS, "loop", steps=2, whole=True)
    with pytest.raises(UsageError, match="--whole is for launch lines"):
        vramcast.probe(f"{LOOPS}:build", device="cpu", whole=True)
    with pytest.raises(WorkloadError, match="no value for it was given"):
        probe(LOOPS, "{kind}")
