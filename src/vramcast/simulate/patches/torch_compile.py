"""torch.compile returns the model as it is.

Why: compiled code is simulated as eager code. The answer says so.
Versions: torch 2.10 to 2.15.
"""

from __future__ import annotations

from typing import Any

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "torch"
NOTE = (
    "torch.compile is not modelled: the step was simulated as eager code, "
    "which usually takes more memory"
)


def apply(patcher: Patcher) -> None:
    def compile(model: Any = None, **_: Any) -> Any:
        patcher.gpu.note(NOTE)
        return model if model is not None else (lambda function: function)

    patcher.put(torch, "compile", compile)
    patcher.put(torch.nn.Module, "compile", lambda *_, **__: patcher.gpu.note(NOTE))
