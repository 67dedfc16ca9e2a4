"""A tokenizer, a small Llama and texts for the programs beside this file: no download."""

import json
import pathlib

from datasets import load_dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SYLLABLES = [f"{a}{b}{c}" for a in "bdfg" for b in "aeiou" for c in "klmnprst"]
WORDS = ["<pad>", "<unk>", "<s>", "</s>", *SYLLABLES]


def tokenizer():
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
    )


def llama():
    configuration = LlamaConfig(
        vocab_size=8000,
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    return LlamaForCausalLM(configuration)


def text(length, seed):
    return " ".join(WORDS[4 + (seed * 31 + i * 7) % (len(WORDS) - 4)] for i in range(length))


def rows(values):
    """As a data set of the library `datasets`, read from a file."""
    path = pathlib.Path("rows.jsonl")
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return load_dataset("json", data_files=str(path), split="train", cache_dir="cache")
