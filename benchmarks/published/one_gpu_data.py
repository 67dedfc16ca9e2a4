"""What torchtune's and litgpt's runs on one GPU read at their start, generated.

python benchmarks/published/one_gpu_data.py FOLDER torchtune
PYTHONPATH=CHECKOUT python benchmarks/published/one_gpu_data.py FOLDER litgpt CHECKOUT

Weights are files with holes: of the right size, without values, which take no room on the disk.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from data import tokenizer

NUM_SAMPLES, NUM_CHARACTERS = 2000, 2000
# name -> hidden size, layers, heads, heads of keys and values, inner size, tied to the embedding
LLAMAS = {
    "llama-8b": (4096, 32, 32, 8, 14336, False),
    "llama-3b": (3072, 28, 24, 8, 8192, True),
}
VOCABULARY, HEAD_SIZE = 128_256, 128
# The tokens of Alpaca's longest sample, from litgpt's page, and of the others: these do not matter.
LONGEST = {
    "phi-1_5": 1044,
    "stablelm-base-alpha-3b": 1034,
    "Llama-2-7b-hf": 1304,
    "Llama-2-13b-hf": 1304,
    "falcon-40b": 1079,
}
USUAL = 100
# litgpt's scripts have sizes as constants: each micro batch is a copy of the script.
SCRIPTS, MICRO_BATCHES = ("lora", "adapter", "adapter_v2"), (1, 2, 4)


def llama_shapes(name: str) -> dict[str, list[int]]:
    """The weights by the names that Hugging Face gives them."""
    hidden, layers, heads, kv_heads, inner, tied = LLAMAS[name]
    shapes = {"model.embed_tokens.weight": [VOCABULARY, hidden], "model.norm.weight": [hidden]}
    if not tied:
        shapes["lm_head.weight"] = [VOCABULARY, hidden]
    inside = {
        "self_attn.q_proj": [heads * HEAD_SIZE, hidden],
        "self_attn.k_proj": [kv_heads * HEAD_SIZE, hidden],
        "self_attn.v_proj": [kv_heads * HEAD_SIZE, hidden],
        "self_attn.o_proj": [hidden, heads * HEAD_SIZE],
        "mlp.gate_proj": [inner, hidden],
        "mlp.up_proj": [inner, hidden],
        "mlp.down_proj": [hidden, inner],
        "input_layernorm": [hidden],
        "post_attention_layernorm": [hidden],
    }
    for layer in range(layers):
        for part, shape in inside.items():
            shapes[f"model.layers.{layer}.{part}.weight"] = shape
    return shapes


def write_safetensors(path: Path, shapes: dict[str, list[int]]) -> None:
    """In bf16: the header, and a hole where the values would be."""
    header, begin = {}, 0
    for name, shape in shapes.items():
        end = begin + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + begin)


def for_torchtune(folder: Path) -> None:
    for name, (hidden, _, heads, kv_heads, *_) in LLAMAS.items():
        original = folder / name / "original"
        original.mkdir(parents=True, exist_ok=True)
        (original / "tokenizer.model").write_text(tokenizer())
        names = ("hidden_size", "num_attention_heads", "num_key_value_heads")
        config = dict(zip(names, (hidden, heads, kv_heads), strict=True))
        (folder / name / "config.json").write_text(json.dumps(config))
        write_safetensors(folder / name / "model.safetensors", llama_shapes(name))
    # In the form of Alpaca; every character of the answers is a token.
    row = {"instruction": "count", "input": "", "output": "7 " * (NUM_CHARACTERS // 2)}
    (folder / "alpaca.json").write_text(json.dumps([row] * NUM_SAMPLES))


def for_litgpt(folder: Path, checkout: Path) -> None:
    from torch import save

    for name, longest in LONGEST.items():
        checkpoint, data = folder / "checkpoints" / name, folder / "alpaca" / name
        for made in (checkpoint, data):
            made.mkdir(parents=True, exist_ok=True)
        _write_tokenizer(checkpoint)
        _write_weights(checkpoint, name)
        save([_sample(longest), *[_sample(USUAL)] * 400], data / "train.pt")
        save([_sample(USUAL)] * 100, data / "test.pt")
    for script in SCRIPTS:
        text = (checkout / "finetune" / f"{script}.py").read_text()
        lines = text.splitlines()
        for size in MICRO_BATCHES:
            changed = [_with_sizes(line, size) for line in lines]
            (checkout / "finetune" / f"{script}_{size}.py").write_text("\n".join(changed) + "\n")


def _with_sizes(line: str, micro_batch: int) -> str:
    """Two micro batches an update in place of 128 samples, and short evaluations: the first micro
    batch has the longest sample, and makes the peak."""
    sizes = {
        "micro_batch_size": micro_batch,
        "batch_size": 2 * micro_batch,
        "eval_iters": 2,
        "eval_max_new_tokens": 2,
    }
    name = line.partition(" = ")[0]
    return f"{name} = {sizes[name]}" if name in sizes else line


def _sample(num_tokens: int) -> dict[str, Any]:
    import torch

    tokens = torch.ones(num_tokens, dtype=torch.int)
    return {"input_ids": tokens, "labels": tokens}


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models

    words = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "<unk>": 2}, unk_token="<unk>"))
    words.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def _write_weights(folder: Path, name: str) -> None:
    import torch
    from lit_gpt import GPT, Config  # of the checkout

    config = Config.from_name(name)
    (folder / "lit_config.json").write_text(json.dumps({"name": name}))
    with torch.device("meta"):
        shapes = {key: weight.shape for key, weight in GPT(config).state_dict().items()}
    weights = {key: torch.empty(shape, dtype=torch.bfloat16) for key, shape in shapes.items()}
    with torch.serialization.skip_data():
        torch.save(weights, folder / "lit_model.pth")


if __name__ == "__main__":
    folder, framework, *rest = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    if framework == "torchtune":
        for_torchtune(Path(folder))
    else:
        for_litgpt(Path(folder), Path(rest[0]))
