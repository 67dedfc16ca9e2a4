"""torch.save writes checkpoints without values.

Why: it copies every storage to the host, whose memory may be smaller, and the simulated ones have
no values. A program that saves within a step must not fail.
Versions: torch 2.10 to 2.13.
"""

from __future__ import annotations

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "torch"
NOTE = "torch.save wrote tensors of the simulated GPU without values: the file cannot be loaded"


def apply(patcher: Patcher) -> None:
    original = torch.UntypedStorage.cpu

    def cpu(self: torch.UntypedStorage) -> torch.UntypedStorage:
        if self.device.type != "cuda":
            return original(self)
        patcher.gpu.note(NOTE)
        return torch.UntypedStorage(0)

    patcher.put(torch.UntypedStorage, "cpu", cpu)
