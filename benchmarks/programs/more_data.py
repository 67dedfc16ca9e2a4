"""Data of other kinds for data.py: solids, words with their vectors, titles, lists."""

from __future__ import annotations

import json
import random
from pathlib import Path


def make(folder: Path) -> None:
    _solids(folder / "solids")
    _tagged(folder / "tagged")
    _titles(folder / "titles")
    _list_of_pictures(folder / "pictures", folder / "lists")
    _vocabulary(folder / "words" / "train.txt", folder / "lists")


def _solids(folder: Path) -> None:
    """Points on the surfaces of solids of forty kinds."""
    import h5py
    import numpy as np

    numbers = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for part, num_solids in (("train", 160), ("test", 48)):
        with h5py.File(folder / f"ply_data_{part}0.h5", "w") as file:
            file["data"] = numbers.normal(size=(num_solids, 2048, 3)).astype(np.float32)
            file["label"] = (np.arange(num_solids) % 40).reshape(-1, 1).astype(np.uint8)


def _tagged(folder: Path) -> None:
    """Vectors of words, as a tagger of names reads them."""
    numbers = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    lines = (
        " ".join((f"word{index}", *(f"{numbers.gauss(0, 1):.3f}" for _ in range(50))))
        for index in range(200)
    )
    (folder / "words.emb").write_text("\n".join(lines) + "\n")


def _titles(folder: Path) -> None:
    """Titles of ten kinds of news, a character a token."""
    numbers = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    letters = [chr(0x4E00 + index) for index in range(2000)]
    for part, num_titles in (("train", 4000), ("dev", 1000), ("test", 1000)):
        lines = (
            f"{''.join(numbers.choices(letters, k=20))}\t{index % 10}"
            for index in range(num_titles)
        )
        (folder / f"{part}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _list_of_pictures(pictures: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    found = sorted(str(path) for path in (pictures / "train").rglob("*.jpg"))
    (folder / "train_images.json").write_text(json.dumps(found))


def _vocabulary(text: Path, folder: Path) -> None:
    """Every word of a text, with the mark of what is not in it; programs add their own marks."""
    words = dict.fromkeys(("<unk>", *text.read_text().split()))
    (folder / "vocabulary.txt").write_text("\n".join(words) + "\n")
