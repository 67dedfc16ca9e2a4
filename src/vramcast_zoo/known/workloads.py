"""From the name of a known model to the function that builds a training step of it."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch

from vramcast_zoo.known import huggingface
from vramcast_zoo.known.adapters import Quantize
from vramcast_zoo.known.batches import random_batch
from vramcast_zoo.known.catalogue import KnownModel, find
from vramcast_zoo.known.tasks import TASKS, TaskName, sizes_of
from vramcast_zoo.optimizers import OptimizerName
from vramcast_zoo.parallel import Parallel, Spread
from vramcast_zoo.refusal import Refused, need
from vramcast_zoo.training import DEVICE, CompileMode, Step, _sign, training_step

# "bf16": what is trained is in bf16 too; "amp-": what is trained stays fp32
KnownPrecision = Literal["fp32", "bf16", "amp-bf16", "amp-fp16"]
# of the weights; "": as the precision says
Dtype = Literal["", "fp32", "bf16", "fp16"]
Attention = Literal["", "sdpa", "eager", "flash_attention_2", "flex_attention"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def hf(name: str) -> Callable[..., Step]:
    """The function that builds a training step of a model of transformers."""
    known = find(name)
    sizes = sizes_of(known.settings, known.task)

    def build(**knobs: Any) -> Step:
        given = {size: knobs.pop(size) for size in sizes}
        return _train(known, given, **knobs)

    is_text = "seq_len" in sizes and known.task != "contrastive"
    absent = set() if is_text else {"liger", "packing"}
    defaults = {"task": known.task, "precision": "bf16" if known.task == "causal" else "amp-bf16"}
    _with_signature(build, name, sizes, absent, defaults)
    return build


def _train(
    known: KnownModel,
    sizes: Mapping[str, int],
    *,
    precision: KnownPrecision = "bf16",
    optimizer: OptimizerName = "adamw",
    lora: int = 0,
    quantize: Quantize = "",
    checkpointing: bool = False,
    task: TaskName = "causal",
    dtype: Dtype = "",
    lr: float = 1e-4,
    clip: float = 1.0,
    accumulation: int = 1,
    lora_targets: str = "all-linear",
    attention: Attention = "",
    compile: bool = False,
    compile_mode: CompileMode = "default",
    liger: bool = False,
    packing: bool = False,
    optimizer_in_backward: bool = False,
    parallel: Parallel = "",
    seed: int = 42,
) -> Step:
    """Weights are random: memory and speed do not depend on them.

    `lora` is the rank of peft's adapters; 0 trains all weights. `packing` puts the sequences of a
    batch one after the other into one row.
    """
    _check(known, sizes, task, lora=lora, quantize=quantize, packing=packing)
    torch.manual_seed(seed)
    weights = _weights_dtype(precision, dtype, is_frozen=bool(lora))
    inputs = torch.float32 if precision.startswith("amp-") else weights
    model = huggingface.build(
        known,
        task=task,
        dtype=weights,
        attention=attention,
        quantize=quantize,
        checkpointing=checkpointing,
        liger=liger,
        lora=lora,
        lora_targets=lora_targets,
        lora_in_fp32=precision != "bf16",
        make_batch=lambda config: random_batch(task, config, sizes, inputs, DEVICE, packing),
        device=DEVICE,
    )
    _check_length(known, sizes, model.longest)
    trainable: Any = Spread(model, parallel, precision) if parallel else model
    return training_step(
        trainable,
        trainable.random_batch,
        precision=precision,
        optimizer=optimizer,
        lr=lr,
        clip=clip,
        accumulation=accumulation,
        compile=compile,
        compile_mode=compile_mode,
        optimizer_in_backward=optimizer_in_backward,
        device=DEVICE,
    )


def _weights_dtype(precision: KnownPrecision, dtype: Dtype, *, is_frozen: bool) -> torch.dtype:
    if dtype:
        return DTYPES[dtype]
    if precision == "amp-fp16" and is_frozen:
        return torch.float16
    if precision == "bf16" or (is_frozen and precision != "fp32"):
        return torch.bfloat16
    return torch.float32


def _check(
    known: KnownModel,
    sizes: Mapping[str, int],
    task: str,
    *,
    lora: int,
    quantize: str,
    packing: bool,
) -> None:
    for size, value in sizes.items():
        if value < 1:
            raise Refused(f"{size}={value} must be at least 1.")
    if lora:
        need("peft", f"lora={lora}")
    if lora < 0:
        raise Refused(f"lora={lora} is no rank.", "Give 8 or 16, or 0 to train all weights.")
    if quantize and not lora:
        raise Refused(
            f"quantize={quantize} freezes the weights, and nothing is left to train.",
            "Add adapters, for example lora=16.",
        )
    if missing := TASKS[task].sizes.keys() - sizes.keys():
        raise Refused(
            f"hf:{known.name} ({known.type}) is not trained for task={task}: it has no "
            f"{' or '.join(sorted(missing))}.",
            f"Its usual task is {known.task}.",
        )
    if packing and task != "causal":
        raise Refused(f"packing=true is for task=causal, not {task}.", "Leave packing out.")


def _check_length(known: KnownModel, sizes: Mapping[str, int], longest: int | None) -> None:
    for name in ("seq_len", "target_len"):
        if longest is not None and sizes.get(name, 0) > longest:
            raise Refused(
                f"{name}={sizes[name]} is longer than the {longest} positions that "
                f"hf:{known.name} has learned.",
                f"Give {name}={longest} or less.",
            )


def _with_signature(
    build: Callable[..., Step],
    name: str,
    sizes: Mapping[str, int],
    absent: set[str],
    defaults: Mapping[str, object],
) -> None:
    """The sizes first, then the knobs that all known models share."""
    knobs = [
        one.replace(default=defaults.get(one.name, one.default))
        for one in inspect.signature(_train).parameters.values()
        if one.kind is one.KEYWORD_ONLY and one.name not in absent
    ]
    only = inspect.Parameter.KEYWORD_ONLY
    first = [inspect.Parameter(size, only, default=value) for size, value in sizes.items()]
    hints = {**dict.fromkeys(sizes, int), **typing.get_type_hints(_train)}
    build.__name__ = build.__qualname__ = name
    _sign(build, [*first, *knobs], hints)
