"""Forecasts the run of this very process, and compares with the measured memory at its end.

The line that started this process is predicted in a worker process, on the simulated GPU. Inside
that simulated run, and under vramcast's own commands, nothing is forecast.
"""

import os
import pkgutil
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from vramcast.errors import UsageError, VramcastError
from vramcast.hardware import nvml
from vramcast.predicting.predict import DEFAULT_TIMEOUT_SECONDS, predict
from vramcast.programs.program_run import INSIDE
from vramcast.records.prediction import Prediction
from vramcast.units import format_bytes

CHOICES = ("warn", "raise")


class DoesNotFit(VramcastError):
    """The run will need more memory than the GPU has."""


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class RunForecast:
    """`gpu` and `memory` are as in predict; without them, the GPU here is used. `line` is by
    default the one that this process was started with."""

    def __init__(
        self,
        *,
        gpu: str | None = None,
        memory: str | int | None = None,
        if_too_large: str = "warn",
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        line: Sequence[str] | None = None,
        show: Callable[[str], None] = _print,
    ) -> None:
        if if_too_large not in CHOICES:
            raise UsageError(f"if_too_large is {if_too_large!r}.", 'Give "warn" or "raise".')
        self._gpu, self._memory, self._timeout = gpu, memory, timeout
        self._raises, self._line, self._show = if_too_large == "raise", line, show
        self.prediction: Prediction | None = None
        self.measured_bytes: int | None = None

    def begin(self) -> None:
        """Makes the forecast. To be called before the first step."""
        if os.environ.get(INSIDE) or self.prediction is not None:
            return
        try:
            self.prediction = self._predicted()
        except VramcastError as problem:
            warnings.warn(f"vramcast made no forecast: {problem}", stacklevel=3)
            return
        self._show(described(self.prediction))
        if not self.prediction.fits:
            text = f"This run will not fit. {described(self.prediction)}"
            if self._raises:
                raise DoesNotFit(
                    text, "Take a smaller batch (vramcast max-batch finds it) or a larger GPU."
                )
            warnings.warn(text, stacklevel=3)

    def end(self) -> dict[str, float]:
        """The predicted and the measured memory, for a logger. To be called after training."""
        import torch

        if self.prediction is None:
            return {}
        found = {"vramcast/predicted_reserved_bytes": float(self.prediction.peak_reserved_bytes)}
        if torch.cuda.is_available() and torch.cuda.max_memory_reserved():
            self.measured_bytes = torch.cuda.max_memory_reserved()
            found["vramcast/measured_reserved_bytes"] = float(self.measured_bytes)
        self._show(compared(self.prediction.peak_reserved_bytes, self.measured_bytes))
        return found

    def _predicted(self) -> Prediction:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UsageError(
                "This run is one of several processes.",
                "Forecast it on the command line: vramcast predict -- torchrun ...",
            )
        gpu, memory = self._gpu, self._memory
        if gpu is None and memory is None:
            gpu = nvml.gpu_here()
            memory = _total_bytes() if gpu is None else None
        line = own_line() if self._line is None else list(self._line)
        return predict(line, gpu=gpu, memory=memory, timeout=self._timeout)


def base_class(install: str, *places: str) -> Any:
    """The class of a library, from a package that is already imported or else the first one
    installed. Without any, a class that says what to install when it is used."""
    for place in sorted(places, key=lambda place: place.partition(":")[0] not in sys.modules):
        try:
            return pkgutil.resolve_name(place)
        except ImportError:
            continue

    def __init__(self: Any) -> None:
        raise ImportError(f"This callback needs a package that is not installed: {install}")

    return type("NotInstalled", (), {"__init__": __init__})


def own_line() -> list[str]:
    """The line that this process was started with."""
    if getattr(sys.modules.get("__main__"), "__file__", None) is None:
        raise UsageError(
            "This process runs no file, so it cannot be run again.",
            "Put the training into a file, or give line=[...].",
        )
    return [sys.executable, *sys.orig_argv[1:]]


def _total_bytes() -> int | None:
    import torch

    if not torch.cuda.is_available():
        return None
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)


def described(prediction: Prediction) -> str:
    text = f"vramcast: {format_bytes(prediction.peak_reserved_bytes)} of GPU memory predicted"
    if prediction.capacity_bytes is not None:
        verdict = "it fits" if prediction.fits else "it does not fit"
        text += f", of {format_bytes(prediction.capacity_bytes)}: {verdict}"
    if prediction.step_seconds is not None:
        text += f"; a step takes about {prediction.step_seconds:.3g} s"
    return f"{text}."


def compared(predicted_bytes: int, measured_bytes: int | None) -> str:
    predicted = f"vramcast: predicted {format_bytes(predicted_bytes)}"
    if not measured_bytes:
        return f"{predicted}; nothing was measured: this process used no GPU."
    off = 100 * (predicted_bytes - measured_bytes) / measured_bytes
    return f"{predicted}, measured {format_bytes(measured_bytes)} ({off:+.2f} %)."
