"""A callback for Hugging Face's Trainer: forecasts the run before its first step.

trainer = Trainer(..., callbacks=[VramForecast(gpu="rtx-4090", if_too_large="raise")])
"""

from typing import Any

from vramcast.integrations.forecasting import RunForecast, base_class

TrainerCallback = base_class("pip install transformers", "transformers:TrainerCallback")


class VramForecast(TrainerCallback):  # type: ignore[misc, valid-type]
    """The options are those of RunForecast: gpu, memory, if_too_large, timeout, line."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.forecast = RunForecast(**options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self.forecast.begin()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero and (found := self.forecast.end()):
            state.log_history.append({**found, "step": state.global_step})
