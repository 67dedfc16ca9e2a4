"""Models of transformers, built from their configuration on the GPU, with random weights."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from vramcast_zoo.known.adapters import linear_layers_later, materialized, quantized, with_lora
from vramcast_zoo.known.batches import random_batch
from vramcast_zoo.known.catalogue import KnownModel
from vramcast_zoo.known.configurations import configuration, longest, model_class
from vramcast_zoo.known.options import Options, Trained
from vramcast_zoo.parallel import weights_later
from vramcast_zoo.refusal import Refused, need


class Contrasted(Trained):
    def loss(self, *batch: Tensor) -> Tensor:
        found: Tensor = self.model(**self.named(batch), return_loss=True).loss
        return found


def build(known: KnownModel, options: Options) -> Trained:
    config = configuration(known)
    kind = model_class(known, config, options.task)
    # no cache of keys and values: it is for generating
    config.use_cache = False
    if options.task == "classification" and config.pad_token_id is None:
        config.pad_token_id = 0  # a decoder looks for the last token that is no padding
    positions = longest(config)
    _check_length(known, options, positions)
    model = _made(known, kind, config, options)
    model.train()
    if options.liger:
        _use_liger(known, model)
    if options.checkpointing:
        if not model.supports_gradient_checkpointing:
            raise Refused(
                f"hf:{known.name} ({known.type}) cannot be checkpointed in transformers.",
                "Leave checkpointing out.",
            )
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if options.prepare_kbit:
        need("peft", "prepare_kbit=true").prepare_model_for_kbit_training(
            model, use_gradient_checkpointing=False
        )
    if options.lora:
        model = with_lora(model, options.lora, options.lora_targets, options.lora_in_fp32)
        if options.checkpointing:
            model.enable_input_require_grads()
    trained = Contrasted if options.task == "contrastive" else Trained
    return trained(model, lambda: random_batch(config, options))


def _made(known: KnownModel, kind: Any, config: Any, options: Options) -> Any:
    attention, quantize = options.attention, options.quantize
    if quantize:
        need("bitsandbytes", f"quantize={quantize}")
    try:
        with torch.device(options.device), _no_weights(options):
            model = kind._from_config(
                config, dtype=options.weights, attn_implementation=attention or None
            )
    except (ValueError, ImportError) as error:
        if not attention:
            raise
        raise _without_attention(known, attention, str(error)) from None
    _check_dropout(known, config, attention)
    _move_stragglers(model, options.device)
    if quantize:
        quantized(model, quantize, options.weights, options.device)
        model.tie_weights()
        materialized(model, options.weights, options.device)
    if known.settings.get("tie_word_embeddings") is False:
        untie(model)
    return model


def _without_attention(known: KnownModel, attention: str, why: str) -> Refused:
    return Refused(
        f"attention={attention} cannot be had with hf:{known.name}: {why}",
        "Leave attention out, or give attention=sdpa or eager.",
    )


def _check_dropout(known: KnownModel, config: Any, attention: str) -> None:
    """What transformers says in the first step."""
    if attention != "flex_attention":
        return
    for name, value in config.to_dict().items():
        if name.startswith("att") and "drop" in name and value:
            why = f"it drops no attention, and the model has {name}={value}."
            raise _without_attention(known, attention, why)


def _no_weights(options: Options) -> AbstractContextManager[None]:
    """Where they are made later, in fewer bits or as parts."""
    if options.is_sharded:
        return weights_later()
    return linear_layers_later() if options.quantize else nullcontext()


def _move_stragglers(model: nn.Module, device: str) -> None:
    """torch.Tensor(768) is always on the CPU, whatever the default device is."""
    for part in model.modules():
        for tensor in (*part._parameters.values(), *part._buffers.values()):
            if tensor is not None and tensor.device.type == "cpu":
                tensor.data = tensor.data.to(device)


def untie(model: Any) -> None:
    """T5's configuration ties the head always, though the checkpoints of Flan-T5 have both."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if head is not None and head.weight is embedding.weight:
        head.weight = nn.Parameter(torch.empty_like(embedding.weight).normal_(std=0.02))


def _use_liger(known: KnownModel, model: Any) -> None:
    patches = need("liger-kernel", "liger=true", "liger_kernel.transformers.monkey_patch")
    known_types = patches.MODEL_TYPE_TO_APPLY_LIGER_FN
    if model.config.model_type not in known_types:
        raise Refused(
            f"Liger has no kernels for {model.config.model_type}, which hf:{known.name} is.",
            f"It has some for {', '.join(sorted(known_types))}.",
        )
    patches._apply_liger_kernel_to_instance(model=model)


def _check_length(known: KnownModel, options: Options, positions: int | None) -> None:
    for name in ("seq_len", "target_len"):
        length = options.sizes.get(name, 0)
        if positions is not None and length > positions:
            raise Refused(
                f"{name}={length} is longer than the {positions} positions that hf:{known.name} "
                "has learned.",
                f"Give {name}={positions} or less.",
            )
