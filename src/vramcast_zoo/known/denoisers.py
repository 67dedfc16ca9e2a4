"""U-Nets and transformers of diffusers, which learn to tell noise from images.

Only the network that is trained: pictures and texts are encoded beforehand.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vramcast_zoo.known.adapters import with_lora
from vramcast_zoo.known.catalogue import KnownModel
from vramcast_zoo.known.options import Batch, Options, Trained
from vramcast_zoo.refusal import Refused, need

PIXELS_PER_LATENT = 8
NUM_WORDS = 77
NUM_TIMES = 1000
# of SDXL: what is known of a text as a whole, and the sizes of its image
POOLED, NUM_TIME_IDS = 1280, 6


class Denoiser(Trained):
    def loss(self, *batch: Tensor) -> Tensor:
        given = self.named(batch)
        noise = given.pop("noise")
        if "text_embeds" in given:
            extra = {name: given.pop(name) for name in ("text_embeds", "time_ids")}
            given["added_cond_kwargs"] = extra  # type: ignore[assignment]
        found = self.model(**given).sample
        # a model that also learns the variance has twice the channels
        return F.mse_loss(found[:, : noise.shape[1]].float(), noise.float())


def build(known: KnownModel, options: Options) -> Trained:
    what = f"hf:{known.name}"
    diffusers = need("diffusers", what)
    _check(known, options)
    settings = {name: one for name, one in known.settings.items() if not name.startswith("_")}
    kind = getattr(diffusers, known.type, None)
    if kind is None or known.type not in _EXTRA:
        raise Refused(
            f"{what} is a {known.type}, which vramcast cannot train.",
            f"It knows {', '.join(_EXTRA)}.",
        )
    model = _made(kind, settings, options)
    config = model.config
    model.train()
    if options.checkpointing:
        model.enable_gradient_checkpointing()
    if options.lora:
        model = with_lora(model, options.lora, options.lora_targets, options.lora_in_fp32)
    return Denoiser(model, lambda: _batch(known.type, config, options))


def _made(kind: Any, settings: dict[str, Any], options: Options) -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(options.weights)
    try:
        with torch.device(options.device):
            return kind(**settings)
    finally:
        torch.set_default_dtype(before)


def _check(known: KnownModel, options: Options) -> None:
    if options.sizes["image_size"] % PIXELS_PER_LATENT:
        raise Refused(
            f"image_size={options.sizes['image_size']} is no multiple of {PIXELS_PER_LATENT}.",
            "Give 512 or 1024.",
        )
    for knob in ("quantize", "attention"):
        if getattr(options, knob):
            raise Refused(
                f"{knob}={getattr(options, knob)} is not for models of diffusers such as "
                f"hf:{known.name}.",
                f"Leave {knob} out.",
            )


def _batch(kind: str, config: Any, options: Options) -> Batch:
    batch_size, side = options.sizes["batch_size"], options.sizes["image_size"] // PIXELS_PER_LATENT
    with torch.device(options.device):
        latents = torch.randn(batch_size, config.in_channels, side, side, dtype=options.inputs)
        return {
            "hidden_states" if kind == "DiTTransformer2DModel" else "sample": latents,
            "timestep": torch.randint(0, NUM_TIMES, (batch_size,)),
            **_EXTRA[kind](config, batch_size, options),
            "noise": torch.randn_like(latents),
        }


def _texts(config: Any, batch_size: int, options: Options) -> Batch:
    made: dict[str, tuple[int, ...]] = {
        "encoder_hidden_states": (batch_size, NUM_WORDS, config.cross_attention_dim)
    }
    if config.addition_embed_type == "text_time":
        made |= {"text_embeds": (batch_size, POOLED), "time_ids": (batch_size, NUM_TIME_IDS)}
    return {name: torch.randn(shape, dtype=options.inputs) for name, shape in made.items()}


def _classes(config: Any, batch_size: int, options: Options) -> Batch:
    return {"class_labels": torch.randint(0, config.num_embeds_ada_norm, (batch_size,))}


_EXTRA = {"UNet2DConditionModel": _texts, "DiTTransformer2DModel": _classes}
