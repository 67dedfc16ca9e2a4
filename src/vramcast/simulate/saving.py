"""torch.save of tensors that have no values: a checkpoint within a step is no reason to fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramcast.simulate.target import SimulatedGpu


def patch(gpu: SimulatedGpu, put: Callable[[Any, str, Any], None]) -> None:
    """torch.save brings every storage to the host: those of the simulated device come empty, for a model may be larger than the host."""
    import torch

    original = torch.UntypedStorage.cpu

    def cpu(self: torch.UntypedStorage) -> torch.UntypedStorage:
        if self.device.type != "cuda":
            return original(self)
        gpu.note(
            "torch.save wrote tensors of the simulated GPU without values: the file cannot be loaded"
        )
        return torch.UntypedStorage(0)

    put(torch.UntypedStorage, "cpu", cpu)
