"""Architectures of transformers in many fields, made small, with random weights: families.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vramcast_zoo.suites.training import DTYPES

Batch = dict[str, Any]
TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
VOCABULARY = 32000


def sizes_of(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of the table with what it shares; entries may have others inside."""
    shared = sizes_of(TABLE["sizes"][entry["like"]]) if "like" in entry else {}
    own = {name: value for name, value in entry.items() if name != "like"}
    nested = {name: sizes_of(value) for name, value in own.items() if isinstance(value, dict)}
    return shared | own | nested


def configuration(family: str) -> tuple[str, str, dict[str, Any]]:
    """The name of the model's class, the kind of its batches, its sizes."""
    sizes = sizes_of(TABLE["families"][family])
    return sizes.pop("model"), sizes.pop("batch", "next_token"), sizes


def _tokens(*shape: int, smallest: int = 3, largest: int = VOCABULARY) -> Tensor:
    return torch.randint(smallest, largest, shape, device="cuda")


def _classes(n: int, *shape: int) -> Tensor:
    return torch.randint(n, shape, device="cuda")


def _numbers(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda")


def _pictures(config: Any, n: int) -> Tensor:
    size = getattr(getattr(config, "vision_config", config), "image_size", 224)
    size = size[0] if isinstance(size, list | tuple) else size
    return _numbers(n, 3, size, size)


def _next_token(config: Any, n: int, length: int) -> Batch:
    tokens = _tokens(n, length)
    return {"input_ids": tokens, "labels": tokens}


def _pairs(config: Any, n: int, length: int) -> Batch:
    return {"input_ids": _tokens(n, length), "labels": _tokens(n, length // 2)}


def _captions(config: Any, n: int, length: int) -> Batch:
    tokens = _tokens(n, config.text_config.max_position_embeddings)
    return {"input_ids": tokens, "pixel_values": _pictures(config, n), "return_loss": True}


def _described(config: Any, n: int, length: int) -> Batch:
    return _next_token(config, n, 32) | {"pixel_values": _pictures(config, n)}


def _picture(config: Any, n: int, length: int) -> Batch:
    return {"pixel_values": _pictures(config, n), "labels": _classes(100, n)}


def _unlabelled(config: Any, n: int, length: int) -> Batch:
    return {"pixel_values": _pictures(config, n)}


def _mask(config: Any, n: int, length: int) -> Batch:
    pictures = _pictures(config, n)
    return {"pixel_values": pictures, "labels": _classes(21, n, *pictures.shape[2:])}


def _boxes(config: Any, n: int, length: int) -> Batch:
    def objects() -> Batch:
        classes = torch.tensor([1, 2], device="cuda")
        return {"class_labels": classes, "boxes": torch.rand(2, 4, device="cuda") / 2}

    labels = [objects() for _ in range(n)]
    return {"pixel_values": _pictures(config, n), "labels": labels}


def _clip(config: Any, n: int, length: int) -> Batch:
    return {"pixel_values": _numbers(n, 8, 3, 224, 224), "labels": _classes(40, n)}


def _speech(config: Any, n: int, length: int) -> Batch:
    return {"input_values": _numbers(n, 32000), "labels": _tokens(n, 20, smallest=1, largest=32)}


def _spectrum(config: Any, n: int, length: int) -> Batch:
    return {"input_values": _numbers(n, 512, 128), "labels": _classes(50, n)}


def _series(config: Any, n: int, length: int) -> Batch:
    return {"past_values": _numbers(n, 512, 7), "future_values": _numbers(n, 96, 7)}


def _decisions(config: Any, n: int, length: int) -> Batch:
    return {
        "states": _numbers(n, 20, 17),
        "actions": _numbers(n, 20, 6),
        "rewards": _numbers(n, 20, 1),
        "returns_to_go": _numbers(n, 20, 1),
        "timesteps": torch.arange(20, device="cuda").repeat(n, 1),
        "attention_mask": torch.ones(n, 20, device="cuda"),
    }


BATCHES: dict[str, Callable[[Any, int, int], Batch]] = {
    made.__name__.removeprefix("_"): made
    for made in (
        *(_next_token, _pairs, _captions, _described, _picture, _unlabelled, _mask, _boxes),
        *(_clip, _speech, _spectrum, _series, _decisions),
    )
}


def build(
    *, family: str = "gemma3", batch_size: int = 8, seq_len: int = 512, autocast: str = ""
) -> Callable[[], Tensor]:
    import transformers

    name, kind, sizes = configuration(family)
    model_class = getattr(transformers, name)
    config = model_class.config_class(**sizes)
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = model_class(config)
    model.cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = BATCHES[kind](config, batch_size, seq_len)
    dtype = DTYPES.get(autocast)

    def step() -> Tensor:
        with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
            output = model(**batch)
            loss = getattr(output, "loss", None)
            if loss is None:
                loss = output[0].float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        result: Tensor = loss.detach()
        return result

    return step
