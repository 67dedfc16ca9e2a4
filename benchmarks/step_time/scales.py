"""Learns how much each feature tells convolutions apart, and writes it to their table.

    python benchmarks/step_time/scales.py [STEPS]

Each recorded one, without those that convolutions.py holds out, is told by those most like it, and
the scales of the features change so that it is told better, from what they were. convolutions.py
then makes the table with them. 200 steps take some minutes.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from convolutions import (
    LONGEST,
    TABLE_OF_CONVOLUTIONS,
    TABLES,
    scales_of,
    solve,
    timed_convolutions,
    values_of,
)

from vramcast.forecast.timing.convolutions import COMMON, NOISE

NEIGHBOURS, AT_ONCE, RATE, KEPT = 40, 96, 0.1, 2e-4
USUAL_ERROR = 0.1


def told(places: torch.Tensor, left: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
    """As convolutions.by_likeness, by the others."""
    with torch.no_grad():
        distances = torch.cdist(places[asked], places)
        distances[torch.arange(len(asked)), asked] = torch.inf
        number = min(NEIGHBOURS, len(places) - 1)
        nearest = distances.topk(number, largest=False).indices
    near, place = places[nearest], places[asked][:, None]
    squares = ((near[:, :, None] - near[:, None]) ** 2).sum(-1)
    matrix = torch.exp(-(squares + 1e-8).sqrt()) + NOISE * torch.eye(number)
    alike = torch.exp(-(((near - place) ** 2).sum(-1) + 1e-8).sqrt())
    return (alike * torch.linalg.solve(matrix, left[nearest][..., None])[..., 0]).sum(-1)


def learned(
    inputs: np.ndarray, wanted: np.ndarray, seconds: np.ndarray, start: np.ndarray, steps: int
) -> np.ndarray:
    left = torch.tensor(wanted - inputs @ solve(inputs, wanted), dtype=torch.float32)
    features = torch.tensor(inputs[:, COMMON:], dtype=torch.float32)
    weights = torch.tensor(np.minimum(seconds, LONGEST) ** 0.5, dtype=torch.float32)
    weights /= weights.mean()
    before = torch.tensor(np.log(start), dtype=torch.float32)
    logarithms = before.clone().requires_grad_()
    optimizer = torch.optim.Adam([logarithms])
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    draw = torch.Generator().manual_seed(0)
    for _ in range(steps):
        asked = torch.randint(len(left), (AT_ONCE,), generator=draw)
        wrong = told(features * logarithms.exp(), left, asked) - left[asked]
        errors = torch.nn.functional.huber_loss(
            wrong, torch.zeros_like(wrong), reduction="none", delta=USUAL_ERROR
        )
        loss = (errors / USUAL_ERROR * weights[asked]).mean()
        loss = loss + KEPT * ((logarithms - before) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([logarithms], 1.0)
        optimizer.step()
        rates.step()
    found: np.ndarray = logarithms.exp().detach().numpy()
    return found


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with np.load(TABLES / TABLE_OF_CONVOLUTIONS) as file:
        table = dict(file)
    for name, chosen in timed_convolutions().items():
        kept = [t for t in chosen if not t.is_held_out]
        seconds = np.array([t.seconds for t in kept])
        found = learned(*values_of(kept), seconds, scales_of(name), steps)
        print(name, np.round(found, 2).tolist(), flush=True)
        table[f"{name} scales"] = found.astype(np.float32)
    np.savez_compressed(TABLES / TABLE_OF_CONVOLUTIONS, **table)


if __name__ == "__main__":
    main()
