"""Makes small data of the right form for the programs of the list: nothing is downloaded.

python benchmarks/programs/data.py FOLDER
"""

from __future__ import annotations

import json
import random
import struct
import sys
from pathlib import Path

import kinds_data
import more_data
import other_data

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "bdfgklmnprst"]
CHAT = (
    "{% for message in messages %}{{ message['role'] + ' ' + message['content'] }} </s>"
    "{% endfor %}{% if add_generation_prompt %}assistant {% endif %}"
)
NUM_CLASSES, NUM_PICTURES, NUM_DIGITS = 8, 20, {"train": 6000, "t10k": 2000}


def make(folder: Path) -> None:
    (folder / "out").mkdir(parents=True, exist_ok=True)
    _words(folder / "words")
    _pictures(folder / "pictures")
    digits(folder / "MNIST" / "raw")
    digits(folder / "clothes" / "FashionMNIST" / "raw")
    _tokenizer(folder / "tokenizer")
    _llama(folder / "llama")
    _instructions(folder / "instructions")
    _sentencepiece(folder / "words" / "train.txt", folder / "llama")
    _characters(folder / "words" / "train.txt", folder / "characters")
    _pairs_of_pictures(folder / "pairs")
    _citations(folder / "citations")
    _bert(folder / "bert")
    _choices(folder / "choices")
    _preferences(folder)
    _stories(folder / "stories")
    encyclopedia(folder / "enwik8.gz")
    _wikitext(folder / "words" / "train.txt", folder / "wikitext")
    _boxes(folder / "boxes")
    _shapes(folder / "shapes")
    _tokens(folder / "tokens")
    _endings(folder / "endings")
    _chats(folder / "chats")
    _planetoid(folder / "planetoid")
    other_data.make(folder)
    more_data.make(folder)
    kinds_data.make(folder)


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


def digits(folder: Path, counts: dict[str, int] = NUM_DIGITS) -> None:
    """MNIST's files, with noise."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = random.Random(0)
    for part, count in counts.items():
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


def _characters(text: Path, folder: Path) -> None:
    """What nanoGPT's prepare.py makes of a text."""
    import pickle

    import numpy

    folder.mkdir(parents=True, exist_ok=True)
    words = text.read_text()
    characters = sorted(set(words))
    numbers = {character: index for index, character in enumerate(characters)}
    rows = numpy.array([numbers[character] for character in words], dtype=numpy.uint16)
    split = int(len(rows) * 0.9)
    rows[:split].tofile(folder / "train.bin")
    rows[split:].tofile(folder / "val.bin")
    known = {"vocab_size": len(numbers), "itos": dict(enumerate(characters)), "stoi": numbers}
    (folder / "meta.pkl").write_bytes(pickle.dumps(known))


def _pairs_of_pictures(folder: Path) -> None:
    """Two pictures side by side, as pix2pix reads them."""
    import numpy
    from PIL import Image

    chosen = numpy.random.default_rng(0)
    for part in ("train", "test", "val"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for number in range(12):
            pixels = chosen.integers(0, 255, (256, 512, 3), dtype=numpy.uint8)
            Image.fromarray(pixels).save(folder / part / f"{number}.jpg", quality=60)


def _citations(folder: Path) -> None:
    """A graph of the size and in the form of Cora."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = random.Random(0)
    num_papers, num_words, num_links = 2708, 1433, 5429
    with (folder / "cora.content").open("w") as file:
        for paper in range(num_papers):
            words = ["0"] * num_words
            for word in chosen.sample(range(num_words), 18):
                words[word] = "1"
            file.write("\t".join([str(paper), *words, f"class{paper % 7}"]) + "\n")
    links = [chosen.sample(range(num_papers), 2) for _ in range(num_links)]
    (folder / "cora.cites").write_text("".join(f"{a}\t{b}\n" for a, b in links))


def _bert(folder: Path) -> None:
    """Weights and a tokenizer of an encoder: 21 million parameters."""
    from transformers import BertConfig, BertModel

    _tokenizer(folder)
    BertModel(
        BertConfig(
            vocab_size=1000,
            hidden_size=512,
            intermediate_size=2048,
            num_hidden_layers=6,
            num_attention_heads=8,
            max_position_embeddings=1024,
        )
    ).save_pretrained(folder)


def _choices(folder: Path) -> None:
    """Questions in the form of SWAG."""
    chosen = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for part, num_rows in (("train", 400), ("val", 100)):
        rows = (
            {
                "sent1": " ".join(chosen.choices(WORDS, k=30)),
                "sent2": " ".join(chosen.choices(WORDS, k=10)),
                **{f"ending{i}": " ".join(chosen.choices(WORDS, k=25)) for i in range(4)},
                "label": index % 4,
            }
            for index in range(num_rows)
        )
        (folder / f"{part}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _preferences(folder: Path) -> None:
    """Answers and which is better, in the forms that TRL's scripts read. Every answer has the same
    length, so that the batches of a shuffled epoch take the same memory."""
    chosen = random.Random(0)

    def words(count: int) -> str:
        return " ".join(chosen.choices(WORDS, k=count))

    kinds = {
        "texts": lambda _: {"text": words(200)},
        "preferences": lambda _: {
            "prompt": words(20),
            "chosen": " " + words(120),
            "rejected": " " + words(120),
        },
        "judged": lambda index: {
            "prompt": words(20),
            "completion": " " + words(120),
            "label": index % 2 == 0,
        },
    }
    for kind, row in kinds.items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for part, num_rows in (("train", 256), ("test", 64)):
            lines = (json.dumps(row(index)) + "\n" for index in range(num_rows))
            (folder / kind / f"{part}.jsonl").write_text("".join(lines))


def _stories(folder: Path) -> None:
    """Numbers of tokens in shards, as llama2.c makes them of TinyStories."""
    import numpy

    chosen = numpy.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(3):
        tokens = chosen.integers(0, 32000, 400_000, dtype=numpy.uint16)
        tokens.tofile(folder / f"data{shard:02}.bin")


def encyclopedia(path: Path) -> None:
    """As many characters as programs that learn from enwik8 read of it."""
    import gzip

    text = " ".join(random.Random(0).choices(WORDS, k=25_000)).encode()
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(1 + 95_000_000 // len(text)):
            file.write(text)


def _wikitext(text: Path, folder: Path) -> None:
    """Where Lightning's demonstration looks for WikiText-2."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "wikitext-2.txt").write_text(text.read_text())


def _boxes(folder: Path) -> None:
    """Pictures with things in them, in the form of COCO."""
    import numpy
    from PIL import Image

    chosen, (width, height) = numpy.random.default_rng(0), (320, 240)
    box = [40, 40, 120, 100]
    corners = [40, 40, 160, 40, 160, 140, 40, 140]
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    for part, count in (("train2017", 96), ("val2017", 12)):
        (folder / part).mkdir(exist_ok=True)
        for number in range(count):
            pixels = chosen.integers(0, 255, (height, width, 3), dtype=numpy.uint8)
            Image.fromarray(pixels).save(folder / part / f"{number}.jpg", quality=60)
        named = {"width": width, "height": height}
        thing = {"bbox": box, "segmentation": [corners], "area": 12000, "iscrowd": 0}
        numbers = range(count)
        text = {
            "images": [{"id": i, "file_name": f"{i}.jpg", **named} for i in numbers],
            "annotations": [
                {"id": 1 + i, "image_id": i, "category_id": 1 + i % 4, **thing} for i in numbers
            ],
            "categories": [{"id": i, "name": f"thing{i}"} for i in range(1, 91)],
        }
        (folder / "annotations" / f"instances_{part}.json").write_text(json.dumps(text))


def _shapes(folder: Path) -> None:
    """Points of things and their parts, in the form of ShapeNet."""
    chosen, names = random.Random(0), ("Airplane", "Chair", "Lamp")
    (folder / "train_test_split").mkdir(parents=True, exist_ok=True)
    lines = (f"{name}\t{index:08}\n" for index, name in enumerate(names))
    (folder / "synsetoffset2category.txt").write_text("".join(lines))
    parts = {"train": range(40), "val": range(40, 46), "test": range(46, 56)}
    for index in range(len(names)):
        for kind in ("points", "points_label"):
            (folder / f"{index:08}" / kind).mkdir(parents=True, exist_ok=True)
        for number in range(56):
            rows = (" ".join(f"{chosen.random():.4f}" for _ in "xyz") + "\n" for _ in range(300))
            (folder / f"{index:08}" / "points" / f"{number}.pts").write_text("".join(rows))
            labels = "".join(f"{1 + row % 4}\n" for row in range(300))
            (folder / f"{index:08}" / "points_label" / f"{number}.seg").write_text(labels)
    for part, numbers in parts.items():
        found = [f"shape_data/{index:08}/{n}" for index in range(len(names)) for n in numbers]
        place = folder / "train_test_split" / f"shuffled_{part}_file_list.json"
        place.write_text(json.dumps(found))


def _tokens(folder: Path) -> None:
    """Numbers of GPT-2's tokens, as build-nanogpt makes them of FineWeb-Edu."""
    import numpy

    chosen = numpy.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for part, shard in (("val", 0), ("train", 1)):
        tokens = chosen.integers(0, 50257, 1_500_000, dtype=numpy.uint16)
        numpy.save(folder / f"edufineweb_{part}_{shard:06}.npy", tokens)


def _endings(folder: Path) -> None:
    """Sentences and how they may end, in the form of HellaSwag."""
    chosen = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    rows = (
        {
            "ctx": " ".join(chosen.choices(WORDS, k=20)),
            "label": number % 4,
            "endings": [" ".join(chosen.choices(WORDS, k=12)) for _ in range(4)],
        }
        for number in range(8)
    )
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "hellaswag_val.jsonl").write_text(text)


def _chats(folder: Path) -> None:
    """Conversations, and which is better, in the forms that minimind reads."""
    chosen = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)

    def chat() -> list[dict[str, str]]:
        said = ("user", 30), ("assistant", 200)
        return [{"role": r, "content": " ".join(chosen.choices(WORDS, k=k))} for r, k in said]

    rows = "".join(json.dumps({"conversations": chat()}) + "\n" for _ in range(256))
    (folder / "chats.jsonl").write_text(rows)
    rows = "".join(json.dumps({"chosen": chat(), "rejected": chat()}) + "\n" for _ in range(64))
    (folder / "judged.jsonl").write_text(rows)


def _planetoid(folder: Path) -> None:
    """The graph of Cora in the form that PyTorch Geometric reads."""
    import pickle

    import numpy
    from scipy import sparse

    chosen = numpy.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    sizes, num_words, num_classes = {"": 140, "all": 1708, "t": 1000}, 1433, 7
    for part, count in sizes.items():
        words = sparse.random(count, num_words, 0.0127, format="csr", random_state=0, dtype="f4")
        classes = numpy.eye(num_classes, dtype=numpy.int32)[numpy.arange(count) % num_classes]
        (folder / f"ind.cora.{part}x").write_bytes(pickle.dumps(words))
        (folder / f"ind.cora.{part}y").write_bytes(pickle.dumps(classes))
    links = chosen.integers(0, 2708, (2708, 4)).tolist()
    (folder / "ind.cora.graph").write_bytes(pickle.dumps(dict(enumerate(links))))
    (folder / "ind.cora.test.index").write_text("".join(f"{n}\n" for n in range(1708, 2708)))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
