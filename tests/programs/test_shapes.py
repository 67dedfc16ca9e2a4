"""Programs are seen to train, evaluate and save however they read their data."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast
from vramcast.errors import WorkloadError
from vramcast.processes.progress import Progress
from vramcast.records.phases import PhaseName
from vramcast.records.prediction import Prediction

SHAPES = Path(__file__).parent / "small" / "shapes.py"
ALL_PHASES = [PhaseName.BUILD, PhaseName.TRAIN, PhaseName.EVALUATE, PhaseName.SAVE]
pytestmark = pytest.mark.usefixtures("warm_simulations")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def predict(kind: str, *launcher: str) -> tuple[Prediction, list[str]]:
    printed: list[str] = []

    def listen(progress: Progress) -> None:
        printed.append(progress.line or "")

    line = [*(launcher or ["python"]), str(SHAPES), kind]
    return vramcast.predict(line, gpu="h200", progress=listen), printed


@pytest.mark.parametrize("kind", ["gan", "read-ahead", "own-iterator", "kept-iterator", "ignite"])
def test_an_epoch_ends_early_and_its_evaluation_and_saving_are_seen(kind: str) -> None:
    found, printed = predict(kind)
    assert [phase.name for phase in found.phases] == ALL_PHASES
    assert found.phases[1].num_steps <= 12
    if kind == "ignite":
        assert "the engine ended in epoch 1" in printed
        assert printed.count("evaluated 8") == 3


def test_epochs_are_left_out_also_where_each_makes_its_own_loader() -> None:
    found, _ = predict("new-loaders")
    assert [phase.name for phase in found.phases] == ALL_PHASES
    assert found.phases[1].num_steps <= 12


def test_each_epoch_of_an_iterator_without_end_is_ended_by_itself() -> None:
    found, printed = predict("kept-iterator")
    assert "evaluated 24" in printed, "three batches of the evaluation's own"
    assert not any("failed" in note for note in found.notes)


def test_workers_make_only_the_batches_that_are_read() -> None:
    _, printed = predict("counts")
    assert printed.count("read 3 made 3") == 2


def test_an_evaluation_after_the_last_of_many_epochs_is_seen() -> None:
    found, printed = predict("at-the-end")
    assert [phase.name for phase in found.phases] == ALL_PHASES
    assert found.phases[1].num_steps <= 12
    assert "evaluated 24" in printed and "ended" in printed


def test_every_pass_of_an_evaluation_is_seen_before_epochs_go_without_batches() -> None:
    found, printed = predict("averaged")
    assert [phase.name for phase in found.phases] == ALL_PHASES
    assert "epoch 0 model 24" in printed and "epoch 0 average 24" in printed
    assert "epoch 1 model 0" in printed and "epoch 1 average 0" in printed


@pytest.mark.parametrize("kind", ["until-enough", "mean-of-batches"])
def test_a_program_that_cannot_do_without_batches_is_ended(kind: str) -> None:
    found, _ = predict(kind)
    assert [phase.name for phase in found.phases] == ALL_PHASES[:2]
    assert not any("failed" in note for note in found.notes)


def test_an_evaluation_that_keeps_its_outputs_runs_on_while_memory_grows() -> None:
    found, printed = predict("keeps-outputs")
    assert "kept 40" in printed
    # 40 batches of 8 rows of 64 * 4096 numbers
    assert found.peak_phase == "evaluate"
    assert found.peak_allocated_bytes > 40 * 8 * 64 * 4096 * 4


def test_a_stream_gives_an_evaluation_as_many_batches_as_it_asks_for() -> None:
    found, printed = predict("stream")
    assert "evaluated 80" in printed
    assert [phase.name for phase in found.phases[-2:]] == [PhaseName.EVALUATE, PhaseName.TRAIN]


def test_data_workers_that_stay_for_the_next_epoch_are_not_waited_for_at_the_end() -> None:
    _, printed = predict("workers")
    assert "workers after the epoch 0" in printed and "workers 0" in printed


def test_what_a_program_does_after_its_last_step_is_no_part_of_the_time_of_a_step() -> None:
    found, _ = predict("tidies-up")
    assert found.step is not None and found.step.host_seconds < 0.01  # a call is 2 microseconds


def test_the_bytes_of_a_storage_of_negative_numbers_can_be_copied() -> None:
    found, printed = predict("bytes")
    assert "bytes 32" in printed
    assert not any("failed" in note for note in found.notes)


def test_samples_of_a_model_in_training_mode_are_an_evaluation() -> None:
    found, _ = predict("samples")
    assert [phase.name for phase in found.phases] == ALL_PHASES[:3]
    assert found.peak_phase == "evaluate"


def test_an_evaluation_of_very_many_forward_passes_is_ended_once_memory_does_not_grow() -> None:
    found, printed = predict("long-sample")
    assert "sampled" not in printed
    assert any("an evaluation was ended after 256 forward passes" in note for note in found.notes)
    evaluation = next(phase for phase in found.phases if phase.name == PhaseName.EVALUATE)
    assert evaluation.num_steps < 1000
    assert evaluation.peak_allocated_bytes > 4096 * 64 * 4


def test_passes_of_a_sample_that_are_no_calls_of_the_module_are_not_all_run() -> None:
    found, printed = predict("direct-sample")
    whole = vramcast.predict(["python", str(SHAPES), "direct-sample"], gpu="h200", whole=True)
    ran = [line.split() for line in printed if line.startswith("sampled")]
    assert ran[0][1] == "201," and int(ran[0][-1]) < 50
    assert found.phases[2].peak_allocated_bytes == whole.phases[2].peak_allocated_bytes


def test_a_program_in_which_cudnn_tries_kernels_runs_once() -> None:
    found, printed = predict("benchmark")
    assert printed.count("began") == 1
    assert any("cudnn.benchmark" in limit for limit in found.limits)


def test_a_choice_between_two_tensors_has_the_layout_that_torch_gives_it() -> None:
    _, printed = predict("layouts")
    assert printed.count("alike True") == 9


def test_weights_are_not_written_by_a_library_that_the_launcher_has_imported() -> None:
    found, _ = predict("safetensors", "accelerate", "launch")
    assert "weights were not written: model.safetensors, model.pt" in found.notes
    assert list(Path().iterdir()) == []


def test_small_numbers_are_read_back_from_safetensors_as_they_were_written() -> None:
    _, printed = predict("safetensors-of-steps")
    assert "loaded [7, 300] 0.5" in printed
    assert list(Path().iterdir()) == []


def test_what_jit_traces_is_what_the_program_computes() -> None:
    _, printed = predict("traced")
    assert "traced ['prim::GetAttr', 'aten::linear']" in printed
    assert not any("TracerWarning" in line for line in printed)


def test_what_is_saved_before_the_training_is_part_of_what_is_built() -> None:
    found, _ = predict("saves-first")
    assert [phase.name for phase in found.phases] == [PhaseName.BUILD, PhaseName.TRAIN]


def test_a_program_that_counts_what_it_evaluated_finds_as_many_samples_as_it_read() -> None:
    found, printed = predict("counted")
    assert [phase.name for phase in found.phases] == ALL_PHASES
    assert "evaluated 24 of 24" in printed
    assert not any("failed" in note for note in found.notes)


def test_steps_that_differ_are_a_limit_and_optimizers_that_take_turns_are_not() -> None:
    found, _ = predict("random-sizes")
    assert any("training steps differ" in limit for limit in found.limits)
    alike, _ = predict("gan")
    assert not any("training steps differ" in limit for limit in alike.limits)


def test_no_more_workers_are_started_than_batches_are_made_ready() -> None:
    _, printed = predict("many-workers")
    assert "2 workers of 6" in printed


def test_what_a_network_decides_is_computed_where_a_guess_was_wrong() -> None:
    found, _ = predict("chosen-rows")
    assert found.phases[1].num_steps >= 3
    assert not any("assumed" in limit for limit in found.limits)


def test_a_program_that_fails_when_all_is_computed_too_shows_its_own_error() -> None:
    with pytest.raises(WorkloadError, match="the network has chosen nothing"):
        predict("never-right")
