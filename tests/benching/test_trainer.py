"""One trial in this process: what is recorded, and that an interrupted run goes on to the same
losses.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from vramcast.benching import trainer, training_step
from vramcast.benching.data import Corpus
from vramcast.benching.protocol import STANDARD_1
from vramcast.benching.trainer import Trainer
from vramcast.benching.trial_folder import Steps, TrialFolder
from vramcast.errors import EnvironmentProblem, WorkloadError
from vramcast.records.bench import BenchTrial, OptimizerName, Precision, Protocol, TrainedRun

MakeTrial = Callable[..., BenchTrial]


class Interrupted(Exception):
    pass


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "MAX_BLOCK_STEPS", 4)


def train(
    trial: BenchTrial,
    data: Path,
    folder: Path,
    tell: Any = lambda _: None,
    checkpoint_seconds: float = 1e9,
    tensorboard: bool = False,
) -> TrainedRun:
    folder.mkdir(exist_ok=True)
    return Trainer(
        trial, Corpus(data), TrialFolder(folder), checkpoint_seconds, {}, tell, tensorboard
    ).run()


def stop_at(step: int) -> Callable[[dict[str, Any]], None]:
    def tell(progress: dict[str, Any]) -> None:
        if progress["step"] >= step:
            raise Interrupted

    return tell


def test_a_model_learns_and_every_step_is_recorded(
    make_trial: MakeTrial, data: Path, tmp_path: Path
) -> None:
    run = train(make_trial(), data, tmp_path / "run")
    assert run.outcome == "ok"
    assert len(run.losses) == len(run.step_seconds) == len(run.step_memory_bytes) == 30
    assert run.last_loss < run.losses[0]  # type: ignore[operator]
    assert run.last_loss == pytest.approx(statistics.fmean(run.last_losses))
    assert run.parameters == 256 * 8 + 2 * 3 * (8 * 8 + 8) + 8 * 256 + 256
    assert run.tokens == 30 * 4 * 16
    assert 0 <= run.data_wait_fraction <= 1


def test_the_same_trial_gives_the_same_losses_and_another_seed_others(
    make_trial: MakeTrial, data: Path, tmp_path: Path
) -> None:
    first, again = (
        train(make_trial(), data, tmp_path / "a"),
        train(make_trial(), data, tmp_path / "b"),
    )
    assert first.losses == again.losses
    assert train(make_trial(seed=7), data, tmp_path / "c").losses != first.losses


@pytest.mark.parametrize(
    ("model", "optimizer", "precision"),
    [
        ("tiny", OptimizerName.ADAMW, Precision.FP32),
        ("tiny", OptimizerName.ADAMW_SCHEDULEFREE, Precision.BF16),
        ("tiny", OptimizerName.ADAMW, Precision.AMP_BF16),
        ("noisy", OptimizerName.ADAMW, Precision.FP32),
    ],
)
def test_an_interrupted_run_goes_on_to_the_losses_of_an_uninterrupted_one(
    make_trial: MakeTrial,
    data: Path,
    tmp_path: Path,
    protocol: Protocol,
    model: str,
    optimizer: OptimizerName,
    precision: Precision,
) -> None:
    trial = make_trial(model, protocol=replace(protocol, optimizer=optimizer, precision=precision))
    whole = train(trial, data, tmp_path / "whole")
    folder = tmp_path / "parts"
    for step in (11, 21):
        with pytest.raises(Interrupted):
            # a checkpoint after every block: the last one is lost, its steps are done again
            train(trial, data, folder, tell=stop_at(step), checkpoint_seconds=1e-9)
    resumed = train(trial, data, folder, checkpoint_seconds=1e-9)
    assert len(resumed.resumed_at_steps) == 2
    assert resumed.losses == whole.losses
    assert TrialFolder(folder).steps().losses == whole.losses


def test_blocks_that_are_written_while_the_next_one_runs_are_the_same(
    make_trial: MakeTrial,
    data: Path,
    tmp_path: Path,
    protocol: Protocol,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That is how it is done on a GPU: resumed, diverged, and ended by the clock."""
    at_once = train(make_trial(), data, tmp_path / "at once")
    monkeypatch.setitem(trainer.BLOCKS_BEHIND, "cpu", 1)
    with pytest.raises(Interrupted):
        train(make_trial(), data, tmp_path / "behind", tell=stop_at(15), checkpoint_seconds=1e-9)
    behind = train(make_trial(), data, tmp_path / "behind")
    assert behind.resumed_at_steps
    assert behind.losses == at_once.losses
    assert train(make_trial("diverging"), data, tmp_path / "diverging").losses == [None] * 4
    timed = train(
        make_trial(protocol=replace(protocol, steps=None, seconds=0.2)), data, tmp_path / "timed"
    )
    assert sum(timed.step_seconds[:-1]) < 0.2 <= timed.training_seconds


def test_a_checkpoint_that_cannot_be_written_ends_the_run(
    make_trial: MakeTrial, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "run" / ".checkpoint.pt.new").mkdir(parents=True)
    with pytest.raises(EnvironmentProblem, match="checkpoint .* cannot be written"):
        train(make_trial(), data, tmp_path / "run", checkpoint_seconds=1e-9)


def test_a_damaged_checkpoint_or_one_without_its_steps_begins_again(
    make_trial: MakeTrial, data: Path, tmp_path: Path
) -> None:
    whole = train(make_trial(), data, tmp_path / "whole")
    for damaged in ("checkpoint.pt", "steps.jsonl"):
        folder = tmp_path / damaged
        with pytest.raises(Interrupted):
            train(make_trial(), data, folder, tell=stop_at(15), checkpoint_seconds=1e-9)
        (folder / damaged).write_bytes((folder / damaged).read_bytes()[:40])
        again = train(make_trial(), data, folder)
        assert again.resumed_at_steps == []
        assert again.losses == whole.losses


@pytest.mark.parametrize("lost", ["step", "optimizer", "numpy_random", "model"])
def test_a_checkpoint_of_another_structure_is_named(
    make_trial: MakeTrial, data: Path, tmp_path: Path, lost: str
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(make_trial(), data, folder, tell=stop_at(15), checkpoint_seconds=1e-9)
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    if lost == "model":
        state["model"] = {"of another model": torch.zeros(1)}
    else:
        del state[lost]
    torch.save(state, folder / "checkpoint.pt")
    with pytest.raises(EnvironmentProblem, match="checkpoint.pt does not fit this model"):
        train(make_trial(), data, folder)


def test_tensorboard_gets_every_step_once_also_of_a_resumed_run(
    make_trial: MakeTrial, data: Path, tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard", reason="the package tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trial, folder = make_trial(), tmp_path / "run"
    with pytest.raises(Interrupted):
        train(trial, data, folder, tell=stop_at(15), checkpoint_seconds=1e-9, tensorboard=True)
    run = train(trial, data, folder, tensorboard=True)
    assert run.resumed_at_steps
    events = EventAccumulator(str(TrialFolder(folder).board))
    events.Reload()
    by_step, by_tokens = events.Scalars("loss"), events.Scalars("loss by tokens")
    assert [event.step for event in by_step] == list(range(1, 31))
    assert [event.value for event in by_step] == pytest.approx(run.losses)
    assert [event.step for event in by_tokens] == [4 * 16 * step for step in range(1, 31)]
    assert by_step[-1].wall_time - by_step[0].wall_time == pytest.approx(
        sum(run.step_seconds[1:]), abs=1e-3
    )


@pytest.mark.parametrize(
    ("seconds", "loss", "told"),
    [
        (None, 1.5, "loss 1.5000  Last10 1.5000  640 tok/s  1.00 GiB  2.3 s left"),
        (90.7, None, "loss nan  Last10 nan  640 tok/s  1.00 GiB  1 min 30 s left"),
    ],
)
def test_progress_is_one_line(
    make_trial: MakeTrial,
    data: Path,
    tmp_path: Path,
    protocol: Protocol,
    seconds: float | None,
    loss: float | None,
    told: str,
) -> None:
    rules = replace(protocol, seconds=seconds, steps=None if seconds else 30)
    folder = TrialFolder(tmp_path)
    one = Trainer(make_trial(protocol=rules), Corpus(data), folder, 60.0, {}, lambda _: None)
    one.done = Steps([1.5] * 6 + [loss], [0.1] * 7, [1, 2, 3, 4, 5, 6, 2**30])
    shown = one.progress(Steps([loss], [0.1], [2**30]))
    assert shown["detail"] == f"step 7  {told}"
    assert shown["fraction"] == pytest.approx(0.7 / seconds if seconds else 7 / 30)


def test_a_time_boxed_run_ends_with_its_time(
    make_trial: MakeTrial, data: Path, tmp_path: Path, protocol: Protocol
) -> None:
    run = train(
        make_trial(protocol=replace(protocol, steps=None, seconds=0.3)), data, tmp_path / "run"
    )
    assert run.outcome == "ok"
    assert sum(run.step_seconds[:-1]) < 0.3 <= run.training_seconds


def test_losses_that_are_not_finite_end_the_run_as_diverged(
    make_trial: MakeTrial, data: Path, tmp_path: Path
) -> None:
    run = train(make_trial("diverging"), data, tmp_path / "run")
    assert run.outcome == "diverged"
    assert run.losses == [None] * 4
    assert TrainedRun.from_json(run.to_json()) == run


def test_the_loss_is_taken_in_float32_whatever_the_models_precision() -> None:
    class Fixed(torch.nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return torch.linspace(0, 3, 256).to(torch.bfloat16).expand(*tokens.shape, 256)

    assert (
        training_step.next_byte_loss(Fixed(), torch.zeros(2, 5, dtype=torch.long)).dtype
        is torch.float32
    )


@pytest.mark.parametrize(
    ("function", "word"), [("narrow", "vocabulary=256"), ("no_model", "not a model")]
)
def test_a_model_of_another_form_is_told_what_is_expected(
    make_trial: MakeTrial, data: Path, tmp_path: Path, function: str, word: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        train(make_trial(function), data, tmp_path / "run")
    assert word in str(caught.value)


def test_a_knob_that_the_model_does_not_have_is_answered_with_those_it_has(
    make_trial: MakeTrial, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(WorkloadError, match="width"):
        train(make_trial(widht="16"), data, tmp_path / "run")


def test_without_the_package_schedulefree_the_protocol_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "schedulefree", None)
    with pytest.raises(EnvironmentProblem, match="pip install schedulefree"):
        training_step.make_optimizer(STANDARD_1, [])


def test_data_that_change_during_the_run_end_it(
    make_trial: MakeTrial, data: Path, tmp_path: Path
) -> None:
    def spoil(_: dict[str, Any]) -> None:
        data.write_bytes(b"something else entirely" * 100)

    with pytest.raises(EnvironmentProblem, match="changed while it was in use"):
        train(make_trial(), data, tmp_path / "run", tell=spoil)


@pytest.mark.parametrize("name", ["e1-50m", "gpt2-124m"])
def test_models_of_the_zoo_are_made_with_other_sizes(name: str) -> None:
    knobs = (
        {"dim": "16", "depth": "1"}
        if name == "e1-50m"
        else {"dim": "16", "depth": "1", "heads": "2", "vocabulary": "256"}
    )
    model = training_step.build_model(name, knobs)
    assert training_step.next_byte_loss(model, torch.randint(256, (2, 9))).item() == pytest.approx(
        5.5, abs=1.0
    )
