"""Models of transformers, built from their configuration on the GPU, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from vramcast_zoo.known.adapters import (
    Quantize,
    linear_layers_later,
    materialized,
    quantized,
    with_lora,
)
from vramcast_zoo.known.batches import Batch
from vramcast_zoo.known.catalogue import KnownModel
from vramcast_zoo.known.configurations import configuration, longest, model_class
from vramcast_zoo.refusal import Refused, need


class Trained(nn.Module):
    """A model and its batches, as the zoo's training step asks for them."""

    def __init__(
        self, model: nn.Module, make_batch: Callable[[], Batch], longest: int | None = None
    ) -> None:
        super().__init__()
        self.model, self.longest, self._make_batch = model, longest, make_batch
        self.names: tuple[str, ...] = ()
        self.extra: dict[str, Any] = {}

    def random_batch(self, *_: Any) -> tuple[Tensor, ...]:
        batch = self._make_batch()
        self.names = tuple(batch)
        return tuple(batch.values())

    def loss(self, *batch: Tensor) -> Tensor:
        found: Tensor = self.model(**dict(zip(self.names, batch, strict=True)), **self.extra).loss
        return found


def build(
    known: KnownModel,
    *,
    task: str,
    dtype: torch.dtype,
    attention: str,
    quantize: Quantize,
    checkpointing: bool,
    liger: bool,
    lora: int,
    lora_targets: str,
    lora_in_fp32: bool,
    make_batch: Callable[[Any], Batch],
    device: str,
) -> Trained:
    config = configuration(known)
    kind = model_class(known, config, task)
    # no cache of keys and values: it is for generating
    config.use_cache = False
    model = _made(known, kind, config, dtype, attention, quantize, device)
    model.train()
    if liger:
        _use_liger(known, model)
    if checkpointing:
        if not model.supports_gradient_checkpointing:
            raise Refused(
                f"hf:{known.name} ({known.type}) cannot be checkpointed in transformers.",
                "Leave checkpointing out.",
            )
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if lora:
        model = with_lora(model, lora, lora_targets, in_fp32=lora_in_fp32)
        if checkpointing:
            model.enable_input_require_grads()
    trained = Trained(model, lambda: make_batch(config), longest(config))
    trained.extra = {"return_loss": True} if task == "contrastive" else {}
    return trained


def _made(
    known: KnownModel,
    kind: Any,
    config: Any,
    dtype: torch.dtype,
    attention: str,
    quantize: Quantize,
    device: str,
) -> Any:
    if quantize:
        need("bitsandbytes", f"quantize={quantize}")
    try:
        with torch.device(device), linear_layers_later() if quantize else nullcontext():
            model = kind._from_config(config, dtype=dtype, attn_implementation=attention or None)
    except (ValueError, ImportError) as error:
        if not attention:
            raise
        raise Refused(
            f"attention={attention} cannot be had with hf:{known.name}: {error}"
        ) from None
    if quantize:
        quantized(model, quantize, dtype, device)
        model.tie_weights()
        materialized(model, dtype, device)
    return model


def _use_liger(known: KnownModel, model: Any) -> None:
    patches = need("liger-kernel", "liger=true", "liger_kernel.transformers.monkey_patch")
    known_types = patches.MODEL_TYPE_TO_APPLY_LIGER_FN
    if model.config.model_type not in known_types:
        raise Refused(
            f"Liger has no kernels for {model.config.model_type}, which hf:{known.name} is.",
            f"It has some for {', '.join(sorted(known_types))}.",
        )
    patches._apply_liger_kernel_to_instance(model=model)
