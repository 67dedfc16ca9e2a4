"""Small data for the programs of `lists/recent.py`, in the form in which each of them reads it.

python benchmarks/programs/recent_data.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from data import encyclopedia


def make(folder: Path) -> None:
    (folder / "out").mkdir(parents=True, exist_ok=True)
    encyclopedia(folder / "enwik8.gz")
    _small_pictures(folder / "small_pictures", np.random.default_rng(0))


def _small_pictures(folder: Path, chosen: np.random.Generator) -> None:
    """Pictures of 64 x 64 in a folder for each class, as ImageNet was made smaller."""
    from PIL import Image

    for kind in range(8):
        (folder / f"class{kind}").mkdir(parents=True, exist_ok=True)
        for number in range(60):
            pixels = chosen.integers(0, 256, (64, 64, 3), np.uint8)
            Image.fromarray(pixels).save(folder / f"class{kind}" / f"{number}.png")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
