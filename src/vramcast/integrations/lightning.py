"""A callback for Lightning's Trainer: forecasts the run before its first step.

trainer = Trainer(..., callbacks=[VramForecast(gpu="rtx-4090", if_too_large="raise")])
"""

from typing import Any

from vramcast.integrations.forecasting import RunForecast, base_class

# The same package has two names.
Callback = base_class(
    "pip install lightning",
    "lightning.pytorch.callbacks:Callback",
    "pytorch_lightning.callbacks:Callback",
)


class VramForecast(Callback):  # type: ignore[misc, valid-type]
    """The options are those of RunForecast: gpu, memory, if_too_large, timeout, line."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.forecast = RunForecast(**options)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_global_zero:
            self.forecast.begin()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_global_zero and (found := self.forecast.end()):
            for logger in trainer.loggers:
                logger.log_metrics(found, step=trainer.global_step)
