"""data.py CHECKOUT: what torchtitan reads at its start, generated into its checkout.

A tokenizer of Llama 3's size (128,000 words of no meaning), a text, and its configurations without
profiler and TensorBoard.
"""

from __future__ import annotations

import base64
import itertools
import json
import sys
from pathlib import Path

NUM_TOKENS = 128_000
OFF = ("enable_profiling = true", "enable_tensorboard = true")


def tokenizer() -> str:
    """Every byte is a token; the others are made of letters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ("".join(word) for n in (2, 3, 4) for word in itertools.product(letters, repeat=n))
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [word.encode() for word in itertools.islice(words, NUM_TOKENS - 256)]
    return "".join(f"{base64.b64encode(t).decode()} {rank}\n" for rank, t in enumerate(tokens))


def main(folder: Path) -> None:
    """In the folder of a checkout: the paths are those that torchtitan's configurations have."""
    (folder / "tokenizer.model").write_text(tokenizer())
    text = folder / "tests" / "assets" / "c4_test"
    text.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"text": "the quick brown fox " * 5000}) for _ in range(512)]
    (text / "data.json").write_text("\n".join(rows))
    for config in (folder / "train_configs").glob("llama3_*.toml"):
        changed = config.read_text()
        for line in OFF:
            changed = changed.replace(line, line.replace("true", "false"))
        (folder / config.name).write_text(changed)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
