"""From the name of a known model to the function that builds a training step of it."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from vramcast_zoo.known import denoisers, huggingface, vision
from vramcast_zoo.known.adapters import Quantize, remarks_on_width
from vramcast_zoo.known.catalogue import PACKAGES, find
from vramcast_zoo.known.options import Options, Trained
from vramcast_zoo.known.tasks import TASKS, TaskName, sizes_of
from vramcast_zoo.optimizers import OptimizerName
from vramcast_zoo.parallel import Parallel, Spread
from vramcast_zoo.refusal import Refused, need
from vramcast_zoo.training import DEVICE, CompileMode, Step, put_signature, training_step

# "bf16": what is trained is in bf16 too; "amp-": what is trained stays fp32
KnownPrecision = Literal["fp32", "bf16", "amp-bf16", "amp-fp16"]
# of the weights; "": as the precision says
Dtype = Literal["", "fp32", "bf16", "fp16"]
Attention = Literal["", "sdpa", "eager", "flash_attention_2", "flex_attention"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Knobs that only some models have.
OF_TEXT = {"liger", "packing"}
OF_TRANSFORMERS = {"quantize", "prepare_kbit", "attention"}
# Where peft's examples for diffusers put adapters.
OF_ATTENTION = "to_k,to_q,to_v,to_out.0"


@dataclass(frozen=True)
class Source:
    """How a model is made, and with which sizes and knobs."""

    name: str
    task: str
    sizes: Mapping[str, int]
    make: Callable[[Options], Trained]
    absent: set[str] = field(default_factory=set)
    defaults: Mapping[str, object] = field(default_factory=dict)
    has_one_task: bool = False


def workload(text: str) -> Callable[..., Step]:
    """The function that builds a training step of a model such as "hf:gpt2"."""
    source, _, name = text.partition(":")
    if source not in PACKAGES:
        raise Refused(f"{text!r} names no known model.", "For example hf:gpt2 or timm:resnet50.")
    found = {"hf": _hf, "timm": _timm, "torchvision": _torchvision}[source](name)

    def build(**knobs: Any) -> Step:
        known = {one.name: one.default for one in inspect.signature(build).parameters.values()}
        every = {**known, **knobs}
        sizes = {size: every.pop(size) for size in found.sizes}
        return train(found, sizes, **every)

    _put_signature(build, found)
    return build


def _hf(name: str) -> Source:
    known = find(name)
    sizes, text = sizes_of(known.settings, known.task), f"hf:{known.name}"
    if known.task == "diffusion":
        return Source(
            text,
            known.task,
            sizes,
            lambda options: denoisers.build(known, options),
            OF_TEXT | OF_TRANSFORMERS,
            {"lora_targets": OF_ATTENTION},
            has_one_task=True,
        )
    return Source(
        text,
        known.task,
        sizes,
        lambda options: huggingface.build(known, options),
        set() if known.task == "causal" else OF_TEXT,
        {"precision": "bf16"} if known.task == "causal" else {},
    )


def _timm(name: str) -> Source:
    return _of_images(f"timm:{name}", vision.timm_image_size(name), vision.build_timm)


def _torchvision(name: str) -> Source:
    size = vision.torchvision_image_size(name)
    return _of_images(f"torchvision:{name}", size, vision.build_torchvision)


def _of_images(text: str, image_size: int, make: Callable[[str, Options], Trained]) -> Source:
    sizes, name = {**TASKS["image"].sizes, "image_size": image_size}, text.partition(":")[2]
    absent = OF_TEXT | OF_TRANSFORMERS
    return Source(
        text, "image", sizes, lambda options: make(name, options), absent, has_one_task=True
    )


def train(
    source: Source,
    sizes: Mapping[str, int],
    *,
    precision: KnownPrecision = "amp-bf16",
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
    prepare_kbit: bool = False,
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
    batch one after the other into one row. `prepare_kbit` calls peft's
    prepare_model_for_kbit_training: what is not quantized becomes fp32.
    """
    weights = _weights_dtype(precision, dtype, is_frozen=bool(lora))
    options = Options(
        task=task,
        sizes=sizes,
        weights=weights,
        inputs=torch.float32 if precision.startswith("amp-") else weights,
        attention=attention,
        quantize=quantize,
        prepare_kbit=prepare_kbit,
        checkpointing=checkpointing,
        liger=liger,
        packing=packing,
        lora=lora,
        lora_targets=lora_targets,
        lora_in_fp32=precision != "bf16",
        device=DEVICE,
        is_sharded=parallel == "fsdp2",
    )
    _check(source, options, accumulation, parallel)
    torch.manual_seed(seed)
    model: Any = source.make(options)
    if parallel:
        model = Spread(model, parallel, precision)
    step = training_step(
        model,
        model.random_batch,
        precision=precision,
        optimizer=optimizer,
        lr=lr,
        clip=0.0 if optimizer_in_backward else clip,
        accumulation=accumulation,
        compile=compile,
        compile_mode=compile_mode,
        optimizer_in_backward=optimizer_in_backward,
        device=DEVICE,
    )
    if quantize:
        setattr(step, "remarks", remarks_on_width(model))  # noqa: B010  a function, to mypy
    return step


def _weights_dtype(precision: KnownPrecision, dtype: Dtype, *, is_frozen: bool) -> torch.dtype:
    if dtype:
        return DTYPES[dtype]
    if precision == "amp-fp16" and is_frozen:
        return torch.float16
    if precision == "bf16" or (is_frozen and precision != "fp32"):
        return torch.bfloat16
    return torch.float32


def _check(source: Source, options: Options, accumulation: int, parallel: str) -> None:
    for name, value in {**options.sizes, "accumulation": accumulation}.items():
        if value < 1:
            raise Refused(f"{name}={value} must be at least 1.")
    if options.lora < 0:
        raise Refused(f"lora={options.lora} is no rank.", "Give 16, or 0 to train all weights.")
    if options.lora:
        need("peft", f"lora={options.lora}")
    if options.quantize and not options.lora:
        raise Refused(
            f"quantize={options.quantize} freezes the weights, and nothing is left to train.",
            "Add adapters, for example lora=16.",
        )
    if options.prepare_kbit and not options.quantize:
        raise Refused("prepare_kbit=true is for quantized weights.", "Give quantize=nf4 too.")
    if options.quantize and parallel == "fsdp2":
        raise Refused("parallel=fsdp2 does not spread weights of few bits.", "Give parallel=ddp.")
    # Networks for diffusion are diffusers' own, and have no other task.
    if options.task != source.task and (source.has_one_task or options.task == "diffusion"):
        raise Refused(
            f"{source.name} is not trained for task={options.task}.",
            f"Its {'only' if source.has_one_task else 'usual'} task is {source.task}.",
        )
    if missing := TASKS[options.task].sizes.keys() - options.sizes.keys():
        raise Refused(
            f"{source.name} is not trained for task={options.task}: it has no "
            f"{' or '.join(sorted(missing))}.",
            f"Its usual task is {source.task}.",
        )
    if options.packing and options.task != "causal":
        raise Refused(f"packing=true is for task=causal, not {options.task}.", "Leave it out.")


def _put_signature(build: Callable[..., Step], source: Source) -> None:
    """The sizes first, then the knobs that all known models share."""
    defaults = {**source.defaults, "task": source.task}
    knobs = [
        one.replace(default=defaults.get(one.name, one.default))
        for one in inspect.signature(train).parameters.values()
        if one.kind is one.KEYWORD_ONLY and one.name not in source.absent
    ]
    only = inspect.Parameter.KEYWORD_ONLY
    first = [inspect.Parameter(name, only, default=size) for name, size in source.sizes.items()]
    hints = {**typing.get_type_hints(train), **dict.fromkeys(source.sizes, int)}
    build.__name__ = build.__qualname__ = source.name
    put_signature(build, [*first, *knobs], hints)
