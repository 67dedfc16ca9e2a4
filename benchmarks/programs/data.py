"""Makes small data of the right form for the programs of the list: nothing is downloaded.

python benchmarks/programs/data.py FOLDER
"""

from __future__ import annotations

import json
import random
import struct
import sys
from pathlib import Path

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "bdfgklmnprst"]
CHAT = (
    "{% for message in messages %}{{ message['role'] + ' ' + message['content'] }} </s>"
    "{% endfor %}{% if add_generation_prompt %}assistant {% endif %}"
)
NUM_CLASSES, NUM_PICTURES, NUM_DIGITS = 8, 20, {"train": 6000, "t10k": 2000}


def make(folder: Path) -> None:
    _words(folder / "words")
    _pictures(folder / "pictures")
    _digits(folder / "MNIST" / "raw")
    _tokenizer(folder / "tokenizer")
    _llama(folder / "llama")
    _instructions(folder / "instructions")
    _sentencepiece(folder / "words" / "train.txt", folder / "llama")


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
        chat_template=CHAT,
        **dict(zip(names, special, strict=False)),
    ).save_pretrained(folder)


def _llama(folder: Path) -> None:
    """Weights and a tokenizer, as tools for fine-tuning want them: 27 million parameters."""
    from transformers import LlamaConfig, LlamaForCausalLM

    _tokenizer(folder)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=8000,
            hidden_size=512,
            intermediate_size=1408,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=4,
            max_position_embeddings=1024,
            pad_token_id=0,
            bos_token_id=2,
            eos_token_id=3,
        )
    ).save_pretrained(folder)


def _instructions(folder: Path) -> None:
    """In the form of Alpaca, and the index of them that LlamaFactory reads."""
    chosen = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "instruction": " ".join(chosen.choices(WORDS, k=20)),
            "input": "",
            "output": " ".join(chosen.choices(WORDS, k=120)),
        }
        for _ in range(400)
    ]
    (folder / "rows.json").write_text(json.dumps(rows))
    (folder / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json"}}))


def _sentencepiece(text: Path, folder: Path) -> None:
    """The tokenizer that torchtune's Llama 2 has."""
    from sentencepiece import SentencePieceTrainer

    SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "tokenizer"), vocab_size=400, pad_id=3
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))
