"""Small data for the programs of `lists/rarer.py`, in the form in which each of them reads it.

python benchmarks/programs/rarer_data.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from data import digits

NUM_DIGITS = {"train": 60_000, "t10k": 2_000}


def make(folder: Path) -> None:
    chosen = np.random.default_rng(0)
    (folder / "out").mkdir(parents=True, exist_ok=True)
    digits(folder / "sixty_thousand" / "MNIST" / "raw", NUM_DIGITS)
    _speech(folder / "speech", chosen)
    _web(folder / "web", chosen)


def _speech(folder: Path, chosen: np.random.Generator) -> None:
    """Features of frames of speech with noise, 98 numbers each, as RNNoise dumps them."""
    folder.mkdir(exist_ok=True)
    num_sequences, length, num_features = 160, 2000, 98
    shape = num_sequences * length, num_features
    chosen.random(shape, np.float32).tofile(folder / "features.f32")


def _web(folder: Path, chosen: np.random.Generator) -> None:
    """Numbers of GPT-2's tokens, as nanoGPT makes them of OpenWebText."""
    folder.mkdir(exist_ok=True)
    for part in ("train", "val"):
        chosen.integers(0, 50257, 200_000, dtype=np.uint16).tofile(folder / f"{part}.bin")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
