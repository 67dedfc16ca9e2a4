"""Random batches for every task: memory and speed do not depend on what the data says."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vramcast_zoo.known.options import Batch, Options

FRAMES_PER_SECOND = 16_000


def random_batch(config: Any, options: Options) -> Batch:
    with torch.device(options.device):
        return _MAKERS[options.task](config, options)


def _tokens(config: Any, batch_size: int, length: int) -> Tensor:
    # 0 and 1 often stand for padding
    return torch.randint(2, config.get_text_config().vocab_size, (batch_size, length))


def _causal(config: Any, options: Options) -> Batch:
    sizes = options.sizes
    batch_size, length = sizes["batch_size"], sizes["seq_len"]
    if options.packing:
        # one row, in which the positions of every sequence begin anew
        tokens = _tokens(config, 1, batch_size * length)
        positions = torch.arange(length).repeat(batch_size)[None]
        return {"input_ids": tokens, "position_ids": positions, "labels": tokens}
    tokens = _tokens(config, batch_size, length)
    return {"input_ids": tokens, "labels": tokens}


def _classification(config: Any, options: Options) -> Batch:
    sizes = options.sizes
    batch_size = sizes["batch_size"]
    tokens = _tokens(config, batch_size, sizes["seq_len"])
    return {"input_ids": tokens, "labels": torch.randint(0, config.num_labels, (batch_size,))}


def _token_labels(config: Any, options: Options) -> Batch:
    sizes = options.sizes
    tokens = _tokens(config, sizes["batch_size"], sizes["seq_len"])
    return {"input_ids": tokens, "labels": torch.randint(0, config.num_labels, tokens.shape)}


def _pairs(config: Any, options: Options) -> Batch:
    sizes = options.sizes
    tokens = _tokens(config, sizes["batch_size"], sizes["seq_len"])
    return {
        "input_ids": tokens,
        "labels": _tokens(config, sizes["batch_size"], sizes["target_len"]),
    }


def _pixels(config: Any, options: Options) -> Tensor:
    sizes = options.sizes
    shown = getattr(config, "vision_config", config)
    channels = getattr(shown, "num_channels", 3)
    side = sizes["image_size"]
    return torch.randn(sizes["batch_size"], channels, side, side, dtype=options.inputs)


def _image(config: Any, options: Options) -> Batch:
    sizes = options.sizes
    pixels = _pixels(config, options)
    labels = torch.randint(0, config.num_labels, (sizes["batch_size"],))
    return {"pixel_values": pixels, "labels": labels}


def _speech(config: Any, options: Options) -> Batch:
    sizes = options.sizes
    # two frames of sound make one position of the encoder
    shape = (sizes["batch_size"], config.num_mel_bins, 2 * config.max_source_positions)
    labels = _tokens(config, sizes["batch_size"], sizes["target_len"])
    return {"input_features": torch.randn(shape, dtype=options.inputs), "labels": labels}


def _sound(config: Any, options: Options) -> Batch:
    sizes = options.sizes
    sound = torch.randn(
        sizes["batch_size"], sizes["num_seconds"] * FRAMES_PER_SECOND, dtype=options.inputs
    )
    return {
        "input_values": sound,
        "labels": torch.randint(1, config.vocab_size, (sizes["batch_size"], sizes["target_len"])),
    }


def _text_and_image(config: Any, options: Options) -> Batch:
    sizes = options.sizes
    return {
        "input_ids": _tokens(config, sizes["batch_size"], sizes["seq_len"]),
        "pixel_values": _pixels(config, options),
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
