"""Makes small data of the right form for the programs of the list: nothing is downloaded.

python benchmarks/programs/data.py FOLDER
"""

from __future__ import annotations

import random
import struct
import sys
from pathlib import Path

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "bdfgklmnprst"]
NUM_CLASSES, NUM_PICTURES, NUM_DIGITS = 8, 20, {"train": 6000, "t10k": 2000}


def make(folder: Path) -> None:
    _words(folder / "words")
    _pictures(folder / "pictures")
    _digits(folder / "MNIST" / "raw")
    _tokenizer(folder / "tokenizer")


def _words(folder: Path) -> None:
    chosen = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, num_lines in (("train", 4000), ("valid", 400), ("test", 400)):
        lines = (" ".join(chosen.choices(WORDS, k=40)) for _ in range(num_lines))
        # minGPT's chargpt begins its samples with this
        (folder / f"{name}.txt").write_text("O God, O God!\n" + "\n".join(lines) + "\n")


def _pictures(folder: Path) -> None:
    import numpy
    from PIL import Image

    chosen = numpy.random.default_rng(0)
    for part in ("train", "val"):
        for index in range(NUM_CLASSES):
            place = folder / part / f"class{index}"
            place.mkdir(parents=True, exist_ok=True)
            for number in range(NUM_PICTURES):
                pixels = chosen.integers(0, 255, (256, 256, 3), dtype=numpy.uint8)
                Image.fromarray(pixels).save(place / f"{number}.jpg", quality=60)


def _digits(folder: Path) -> None:
    """MNIST's files, with noise."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = random.Random(0)
    for part, count in NUM_DIGITS.items():
        pixels = struct.pack(">IIII", 2051, count, 28, 28) + chosen.randbytes(count * 28 * 28)
        labels = struct.pack(">II", 2049, count) + bytes(i % 10 for i in range(count))
        (folder / f"{part}-images-idx3-ubyte").write_bytes(pixels)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)


def _tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<unk>", "<s>", "</s>", "[CLS]", "[SEP]", "[MASK]"]
    numbers = {word: index for index, word in enumerate([*special, *WORDS])}
    words = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    names = ("pad_token", "unk_token", "bos_token", "eos_token", "cls_token", "sep_token")
    PreTrainedTokenizerFast(
        tokenizer_object=words,
        mask_token="[MASK]",
        model_max_length=1024,
        **dict(zip(names, special, strict=False)),
    ).save_pretrained(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
