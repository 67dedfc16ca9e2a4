"""Random batches for every task: memory and speed do not depend on what the data says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

Batch = dict[str, Tensor]
Sizes = Mapping[str, int]
FRAMES_PER_SECOND = 16_000


def random_batch(
    task: str, config: Any, sizes: Sizes, dtype: torch.dtype, device: str, packed: bool
) -> Batch:
    with torch.device(device):
        return _MAKERS[task](config, sizes, dtype, packed)


def _tokens(config: Any, batch_size: int, length: int) -> Tensor:
    # 0 and 1 often stand for padding
    return torch.randint(2, config.get_text_config().vocab_size, (batch_size, length))


def _causal(config: Any, sizes: Sizes, _: torch.dtype, packed: bool) -> Batch:
    batch_size, length = sizes["batch_size"], sizes["seq_len"]
    if packed:
        # one row, in which the positions of every sequence begin anew
        tokens = _tokens(config, 1, batch_size * length)
        positions = torch.arange(length).repeat(batch_size)[None]
        return {"input_ids": tokens, "position_ids": positions, "labels": tokens}
    tokens = _tokens(config, batch_size, length)
    return {"input_ids": tokens, "labels": tokens}


def _classification(config: Any, sizes: Sizes, _: torch.dtype, packed: bool) -> Batch:
    batch_size = sizes["batch_size"]
    tokens = _tokens(config, batch_size, sizes["seq_len"])
    return {"input_ids": tokens, "labels": torch.randint(0, config.num_labels, (batch_size,))}


def _token_labels(config: Any, sizes: Sizes, _: torch.dtype, packed: bool) -> Batch:
    tokens = _tokens(config, sizes["batch_size"], sizes["seq_len"])
    return {"input_ids": tokens, "labels": torch.randint(0, config.num_labels, tokens.shape)}


def _pairs(config: Any, sizes: Sizes, _: torch.dtype, packed: bool) -> Batch:
    tokens = _tokens(config, sizes["batch_size"], sizes["seq_len"])
    return {
        "input_ids": tokens,
        "labels": _tokens(config, sizes["batch_size"], sizes["target_len"]),
    }


def _pixels(config: Any, sizes: Sizes, dtype: torch.dtype) -> Tensor:
    shown = getattr(config, "vision_config", config)
    channels = getattr(shown, "num_channels", 3)
    return torch.randn(
        sizes["batch_size"], channels, sizes["image_size"], sizes["image_size"], dtype=dtype
    )


def _image(config: Any, sizes: Sizes, dtype: torch.dtype, packed: bool) -> Batch:
    pixels = _pixels(config, sizes, dtype)
    labels = torch.randint(0, config.num_labels, (sizes["batch_size"],))
    return {"pixel_values": pixels, "labels": labels}


def _speech(config: Any, sizes: Sizes, dtype: torch.dtype, packed: bool) -> Batch:
    # two frames of sound make one position of the encoder
    shape = (sizes["batch_size"], config.num_mel_bins, 2 * config.max_source_positions)
    labels = _tokens(config, sizes["batch_size"], sizes["target_len"])
    return {"input_features": torch.randn(shape, dtype=dtype), "labels": labels}


def _sound(config: Any, sizes: Sizes, dtype: torch.dtype, packed: bool) -> Batch:
    sound = torch.randn(sizes["batch_size"], sizes["num_seconds"] * FRAMES_PER_SECOND, dtype=dtype)
    return {
        "input_values": sound,
        "labels": torch.randint(1, config.vocab_size, (sizes["batch_size"], sizes["target_len"])),
    }


def _text_and_image(config: Any, sizes: Sizes, dtype: torch.dtype, packed: bool) -> Batch:
    return {
        "input_ids": _tokens(config, sizes["batch_size"], sizes["seq_len"]),
        "pixel_values": _pixels(config, sizes, dtype),
    }


_MAKERS = {
    "causal": _causal,
    "masked": _causal,
    "classification": _classification,
    "tokens": _token_labels,
    "seq2seq": _pairs,
    "image": _image,
    "speech": _speech,
    "ctc": _sound,
    "contrastive": _text_and_image,
}
