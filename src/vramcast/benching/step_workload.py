"""The step of a trial as a workload: what `predict` and `max_batch` simulate is what `bench` runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from vramcast.benching.protocol import VOCABULARY
from vramcast.benching.trainer import Training
from vramcast.records.bench import Trial


def build(*, trial: str, batch_size: int = 1) -> Callable[[], Tensor]:
    """`trial` is the record as JSON: knobs are plain values."""
    asked = replace(Trial.from_json(trial), device="cuda", batch_size=batch_size)
    training = Training(asked)

    def step() -> Tensor:
        windows = torch.randint(
            VOCABULARY, (batch_size, asked.protocol.seq_len + 1), dtype=torch.uint8, device="cuda"
        )
        return training.step(windows.long())

    return step
