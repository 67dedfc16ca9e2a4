"""A callback for Lightning's Trainer: forecasts the run before its first step.

trainer = Trainer(..., callbacks=[VramForecast(gpu="rtx-4090", if_too_large="raise")])
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from vramcast.integrations.forecasting import RunForecast


def _callback() -> Any:
    """Of the package that the program uses: there are two names for one."""
    names = ("lightning.pytorch", "pytorch_lightning")
    loaded = [name for name in names if name in sys.modules]
    for name in (*loaded, *names):
        try:
            return import_module(f"{name}.callbacks").Callback
        except ModuleNotFoundError:
            continue
    raise ImportError("vramcast.integrations.lightning needs Lightning: pip install lightning")


class VramForecast(_callback()):  # type: ignore[misc]
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
