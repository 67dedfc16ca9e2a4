"""Callbacks for trainers: they forecast the run that they are in, and compare at its end."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from vramcast.errors import UsageError
from vramcast.integrations import forecasting
from vramcast.integrations.forecasting import (
    DoesNotFit,
    RunForecast,
    base_class,
    compared,
    own_line,
)
from vramcast.programs.program_run import INSIDE

LOOPS = Path(__file__).parents[1] / "programs" / "small" / "loops.py"


class Predicted:
    """Stands for a prediction, and for `predict`."""

    def __init__(self, fits: bool = True) -> None:
        self.fits, self.lines, self.options = fits, [], {}
        self.peak_reserved_bytes, self.capacity_bytes = 3 << 30, 2 << 30
        self.step_seconds = 0.25

    def __call__(self, line: list[str], **options: Any) -> Predicted:
        self.lines.append(line)
        self.options = options
        return self


@pytest.fixture(autouse=True)
def started_with_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of pytest-xdist runs no file."""
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(LOOPS), raising=False)


@pytest.fixture
def predicted(monkeypatch: pytest.MonkeyPatch) -> Predicted:
    found = Predicted()
    monkeypatch.setattr(forecasting, "predict", found)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    return found


@pytest.mark.usefixtures("warm_simulations")
def test_the_line_of_this_process_is_predicted_and_the_callback_in_it_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "train.py"
    inside = "from vramcast.integrations.forecasting import RunForecast\nRunForecast().begin()\n"
    program.write_text(inside + LOOPS.read_text())
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, str(program), "loop"])
    shown: list[str] = []
    forecast = RunForecast(gpu="h200", show=shown.append)
    forecast.begin()
    assert forecast.prediction is not None
    assert forecast.prediction.workload.endswith(f"{program} loop")
    assert "of GPU memory predicted" in shown[0] and "it fits" in shown[0]


def test_a_run_that_does_not_fit_warns_or_raises(predicted: Predicted) -> None:
    predicted.fits = False
    shown: list[str] = []
    with pytest.warns(UserWarning, match=r"will not fit.*3\.00 GiB.*2\.00 GiB"):
        RunForecast(gpu="h200", show=shown.append).begin()
    with pytest.raises(DoesNotFit, match="will not fit"):
        RunForecast(gpu="h200", if_too_large="raise", show=shown.append).begin()
    with pytest.raises(UsageError, match="if_too_large"):
        RunForecast(if_too_large="stop")


def test_what_cannot_be_forecast_is_a_warning_and_training_goes_on(
    predicted: Predicted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.warns(UserWarning, match="one of several processes"):
        RunForecast(gpu="h200").begin()
    monkeypatch.delenv("WORLD_SIZE")
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    with pytest.warns(UserWarning, match="runs no file"):
        RunForecast(gpu="h200").begin()
    assert predicted.lines == []


def test_inside_of_vramcast_nothing_is_forecast(
    predicted: Predicted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(INSIDE, "1")
    forecast = RunForecast(gpu="h200")
    forecast.begin()
    assert predicted.lines == [] and forecast.end() == {}


def test_the_line_is_that_of_the_interpreter_with_its_flags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-O", "train.py", "--lr=1"])
    assert own_line() == [sys.executable, "-O", "train.py", "--lr=1"]


def test_a_callback_whose_library_is_missing_says_what_to_install() -> None:
    with pytest.raises(ImportError, match="pip install nothing"):
        base_class("pip install nothing", "a_package_that_is_not_there:Callback")()


def test_predicted_is_compared_with_measured() -> None:
    assert compared(102 << 20, 100 << 20).endswith("measured 100.0 MiB (+2.00 %).")
    assert "nothing was measured" in compared(1 << 20, None)


def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 2 << 30)


def test_the_callback_of_hugging_face_begins_with_training_and_logs_at_its_end(
    predicted: Predicted, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    from vramcast.integrations.hf import VramForecast

    on_a_gpu(monkeypatch)
    shown: list[str] = []
    callback = VramForecast(gpu="h200", show=shown.append)
    state = SimpleNamespace(is_world_process_zero=True, log_history=[], global_step=7)
    callback.on_train_begin(None, state, None)
    callback.on_train_end(None, state, None)
    assert predicted.options["gpu"] == "h200" and len(predicted.lines) == 1
    [logged] = state.log_history
    assert logged["vramcast/measured_reserved_bytes"] == 2 << 30 and logged["step"] == 7
    assert "(+50.00 %)" in shown[-1]
    callback = VramForecast(gpu="h200")
    callback.on_train_begin(None, SimpleNamespace(is_world_process_zero=False), None)
    assert len(predicted.lines) == 1


def test_the_callback_of_lightning_begins_with_fit_and_logs_at_its_end(
    predicted: Predicted, monkeypatch: pytest.MonkeyPatch
) -> None:
    callbacks = ModuleType("pytorch_lightning.callbacks")
    callbacks.Callback = type("Callback", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pytorch_lightning", ModuleType("pytorch_lightning"))
    monkeypatch.setitem(sys.modules, "pytorch_lightning.callbacks", callbacks)
    monkeypatch.delitem(sys.modules, "vramcast.integrations.lightning", raising=False)
    VramForecast = importlib.import_module("vramcast.integrations.lightning").VramForecast
    on_a_gpu(monkeypatch)
    logged: list[dict[str, float]] = []
    logger = SimpleNamespace(log_metrics=lambda found, step: logged.append(found))
    trainer = SimpleNamespace(is_global_zero=True, loggers=[logger], global_step=7)
    callback = VramForecast(gpu="h200", show=lambda _: None)
    assert isinstance(callback, callbacks.Callback)
    callback.on_fit_start(trainer, None)
    callback.on_train_end(trainer, None)
    assert logged[0]["vramcast/predicted_reserved_bytes"] == 3 << 30
