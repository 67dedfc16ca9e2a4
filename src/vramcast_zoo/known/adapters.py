"""Frozen weights of few bits by bitsandbytes, and LoRA by peft."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import nn

from vramcast_zoo.refusal import Refused, need

# "nf4-double": the scales of nf4 are quantized too
Quantize = Literal["", "nf4", "nf4-double", "int8"]


def quantized(model: Any, quantize: Quantize, dtype: torch.dtype, device: str) -> None:
    """Every linear layer but the head gets weights of few bits, made on the GPU one by one, as
    when a checkpoint is loaded. Like transformers it leaves out what a model wants to keep precise,
    such as T5's `wo`."""
    bnb = need("bitsandbytes", f"quantize={quantize}")
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    kept = set(getattr(model, "_keep_in_fp32_modules", None) or ())
    for name, part in list(model.named_modules()):
        if part is head or not _is_linear(part) or kept & {*name.split(".")}:
            continue
        parent = model.get_submodule(name.rpartition(".")[0])
        setattr(parent, name.rpartition(".")[2], _few_bits(bnb, part, quantize, dtype, device))
    # what transformers says of a model that it has loaded so: peft asks for it
    setattr(model, "is_loaded_in_8bit" if quantize == "int8" else "is_loaded_in_4bit", True)


def remarks_on_width(model: nn.Module) -> list[str]:
    """Of quantized models: the experts of a mixture are no linear layers in transformers 5, which
    quantizes nothing else."""
    sizes = [(weight.nbytes, weight.dim() == 3) for weight in model.parameters()]
    wide_bytes = sum(size for size, is_stacked in sizes if is_stacked)
    if wide_bytes * 10 < sum(size for size, _ in sizes):
        return []
    return [
        f"{wide_bytes / 2**30:.1f} GiB of weights are the experts of a mixture and were not "
        "quantized: transformers and bitsandbytes quantize linear layers only."
    ]


def _is_linear(part: nn.Module) -> bool:
    return type(part) is nn.Linear or type(part).__name__ == "Conv1D"


def _few_bits(
    bnb: Any, part: Any, quantize: Quantize, dtype: torch.dtype, device: str
) -> nn.Module:
    rows, columns = part.weight.shape
    if not isinstance(part, nn.Linear):  # GPT-2's Conv1D has its weight the other way round
        rows, columns = columns, rows
    weight = torch.empty(rows, columns, dtype=dtype, device=device).normal_(std=0.02)
    new: Any
    with torch.device("meta"):
        if quantize == "int8":
            new = bnb.nn.Linear8bitLt(
                columns, rows, part.bias is not None, has_fp16_weights=False, threshold=6.0
            )
        else:
            new = bnb.nn.Linear4bit(
                columns, rows, part.bias is not None, compute_dtype=dtype, quant_type="nf4"
            )
    if quantize == "int8":
        new.weight = bnb.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False)
    else:
        new.weight = bnb.nn.Params4bit(
            weight,
            requires_grad=False,
            quant_type="nf4",
            compress_statistics=quantize == "nf4-double",
            module=new,
        )
    if new.bias is not None:
        new.bias = nn.Parameter(torch.zeros(rows, dtype=dtype, device=device), requires_grad=False)
    # moving it is what quantizes it
    new.weight = new.weight.to(device)
    return new


@contextmanager
def linear_layers_later() -> Iterator[None]:
    """Linear layers made inside get no memory: `quantized` or `materialized` gives it to them."""
    make: Any = nn.Linear.__init__

    def on_meta(self: nn.Linear, *sizes: Any, **options: Any) -> None:
        make(self, *sizes, **{**options, "device": "meta"})

    nn.Linear.__init__ = on_meta  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Linear.__init__ = make  # type: ignore[method-assign]


def materialized(model: nn.Module, dtype: torch.dtype, device: str) -> None:
    """Layers that have no memory yet, such as the head, get it, with random values."""
    for part in model.modules():
        for name, value in list(part._parameters.items()):
            if value is not None and value.is_meta:
                new = torch.empty(value.shape, dtype=dtype, device=device)
                part._parameters[name] = nn.Parameter(new.normal_(std=0.02), requires_grad=False)


def with_lora(model: Any, rank: int, targets: str, in_fp32: bool) -> Any:
    """peft's adapters beside the named layers; everything else is frozen."""
    peft = need("peft", f"lora={rank}")
    wanted: str | list[str] = targets
    if targets != "all-linear":
        wanted = [word.strip() for word in targets.split(",") if word.strip()]
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=wanted)
    # before peft puts layers of its own among them
    names = sorted({name.rpartition(".")[2] for name, p in model.named_modules() if _has_lora(p)})
    try:
        return peft.get_peft_model(model, config, autocast_adapter_dtype=in_fp32)
    except ValueError as problem:
        raise _no_lora(targets, names, str(problem)) from None


def _no_lora(targets: str, names: list[str], why: str) -> Refused:
    layers = f"Linear layers of this model: {', '.join(names)}"
    if "not found in the base model" in why:
        return Refused(
            f"lora_targets={targets} fits no layer of the model.",
            f"{layers}; all-linear means all of them.",
        )
    # such as Mamba's out_proj, which its kernels read without calling the layer
    return Refused(
        f"peft puts no adapters beside lora_targets={targets} of this model: {why}",
        f"{layers}. Name some of them: lora_targets={','.join(names[:2])}.",
    )


def _has_lora(part: nn.Module) -> bool:
    return isinstance(part, nn.Linear) or type(part).__name__ == "Conv1D"
