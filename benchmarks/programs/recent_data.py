"""Small data for the programs of `lists/recent.py`, in the form in which each of them reads it.

python benchmarks/programs/recent_data.py FOLDER
"""

from __future__ import annotations

import itertools
import pickle
import random
import sys
from pathlib import Path

import numpy as np
from data import WORDS, encyclopedia


def make(folder: Path) -> None:
    (folder / "out").mkdir(parents=True, exist_ok=True)
    encyclopedia(folder / "enwik8.gz")
    _small_pictures(folder / "small_pictures", np.random.default_rng(0))
    _documents(folder / "chat" / "base_data_climbmix")
    _tokens(folder / "chat" / "tokenizer")


def _small_pictures(folder: Path, chosen: np.random.Generator) -> None:
    """Pictures of 64 x 64 in a folder for each class, as ImageNet was made smaller."""
    from PIL import Image

    for kind in range(8):
        (folder / f"class{kind}").mkdir(parents=True, exist_ok=True)
        for number in range(60):
            pixels = chosen.integers(0, 256, (64, 64, 3), np.uint8)
            Image.fromarray(pixels).save(folder / f"class{kind}" / f"{number}.png")


def _documents(folder: Path) -> None:
    """Shards of texts as nanochat downloads them; the last one is for evaluation."""
    import pyarrow
    import pyarrow.parquet

    folder.mkdir(parents=True, exist_ok=True)
    chosen = random.Random(0)
    for shard in range(3):
        texts = [" ".join(chosen.choices(WORDS, k=chosen.randint(50, 900))) for _ in range(800)]
        table = pyarrow.table({"text": texts})
        pyarrow.parquet.write_table(
            table, folder / f"shard_{shard:05d}.parquet", row_group_size=100
        )


def _tokens(folder: Path) -> None:
    """4,096 tokens, as nanochat's own tok_train writes them: bytes and pairs of them."""
    import tiktoken
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    special = [
        "bos",
        *(
            f"{who}_{end}"
            for who in ("user", "assistant", "python", "output")
            for end in ("start", "end")
        ),
    ]
    pairs = itertools.product(range(32, 127), repeat=2)
    words = [bytes([one]) for one in range(256)]
    words += [bytes(pair) for pair in itertools.islice(pairs, 4096 - 256 - len(special))]
    encoding = tiktoken.Encoding(
        name="rustbpe",
        pat_str=r"\p{L}+|\p{N}|[^\p{L}\p{N}]+",
        mergeable_ranks={word: rank for rank, word in enumerate(words)},
        special_tokens={f"<|{name}|>": len(words) + rank for rank, name in enumerate(special)},
    )
    (folder / "tokenizer.pkl").write_bytes(pickle.dumps(encoding))
    lengths = [*map(len, words), *[0] * len(special)]
    torch.save(torch.tensor(lengths, dtype=torch.int32), folder / "token_bytes.pt")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
