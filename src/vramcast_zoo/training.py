"""The training step that every model of the zoo shares, and how a model becomes a workload.

A workload is a function whose keyword arguments are knobs; it builds everything on the GPU and returns `step`. The knobs of a zoo
workload are those of its model (`dim`, `depth`, ...) followed by those of `train` below.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from vramcast_zoo.language_model import check_length

Precision = Literal["fp32", "bf16", "amp-bf16", "amp-fp16"]  # "bf16": weights, gradients and optimizer state too; "amp-": weights stay fp32
OptimizerName = Literal["adamw", "adamw-fused", "sgd", "schedulefree"]
Step = Callable[[], Tensor]
DEVICE = "cuda"
WEIGHT_DECAY = 0.1


class Trainable(Protocol):
    """What `train` asks of a model."""

    longest: int | None  # the longest sequence it can take; None where there is no limit

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor: ...

    def random_batch(self, batch_size: int, seq_len: int, device: str) -> tuple[Tensor, Tensor]: ...

    def parameters(self) -> Iterable[nn.Parameter]: ...


def train(
    make_model: Callable[[], nn.Module],
    *,
    batch_size: int = 32,
    seq_len: int = 512,
    precision: Precision = "bf16",
    optimizer: OptimizerName = "adamw",
    lr: float = 3e-4,
    clip: float = 1.0,
    compile: bool = False,
    seed: int = 42,
) -> Step:
    """One training step on random data: memory and speed do not depend on what the data says. `clip=0` clips no gradients."""
    torch.manual_seed(seed)
    with torch.device(DEVICE):  # makes the weights on the GPU, not on the CPU first
        model = make_model()
    if precision == "bf16":
        model.to(torch.bfloat16)
    trainable = typing.cast(Trainable, model)
    check_length(seq_len, trainable.longest)
    return training_step(
        trainable,
        lambda: trainable.random_batch(batch_size, seq_len, DEVICE),
        precision=precision,
        optimizer=optimizer,
        lr=lr,
        clip=clip,
        compile=compile,
        device=DEVICE,
    )


def training_step(
    model: Trainable,
    next_batch: Callable[[], tuple[Tensor, Tensor]],
    *,
    precision: Precision,
    optimizer: OptimizerName,
    lr: float,
    clip: float,
    compile: bool = False,
    device: str = DEVICE,
) -> Step:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    update = make_optimizer(optimizer, trained, lr)
    loss_of = torch.compile(model.loss) if compile else model.loss
    # Gradients of half precision vanish below 6e-8 unless the loss is scaled up first.
    scaler = torch.amp.GradScaler(device, enabled=precision == "amp-fp16")

    def step() -> Tensor:
        update.zero_grad(set_to_none=True)
        with autocast(precision, device):
            loss = loss_of(*next_batch())
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(update)
            nn.utils.clip_grad_norm_(trained, clip)
        scaler.step(update)
        scaler.update()
        return loss.detach()

    return step


def autocast(precision: Precision, device: str) -> AbstractContextManager[Any]:
    if not precision.startswith("amp-"):
        return nullcontext()
    return torch.autocast(device, dtype=torch.float16 if precision == "amp-fp16" else torch.bfloat16)


def make_optimizer(name: OptimizerName, parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    if name == "schedulefree":
        return _schedulefree(parameters, lr)
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=WEIGHT_DECAY, fused=True if name == "adamw-fused" else None)


def _schedulefree(parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    try:
        import schedulefree  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise ValueError("optimizer='schedulefree' needs the package schedulefree: pip install schedulefree") from None
    optimizer: torch.optim.Optimizer = schedulefree.AdamWScheduleFree(parameters, lr=lr, weight_decay=WEIGHT_DECAY)
    optimizer.train()  # type: ignore[attr-defined]
    return optimizer


# ------------------------------------------------------------------------------------------------------ models as workloads
def workload(make_model: Callable[..., nn.Module], **defaults: object) -> Callable[..., Step]:
    """The function that builds a training step of `make_model`; its signature is that of `make_model` joined with `train`'s."""
    of_model = inspect.signature(make_model).parameters
    of_training = {name: p for name, p in inspect.signature(train).parameters.items() if p.kind is p.KEYWORD_ONLY}

    def build(**knobs: Any) -> Step:
        model_knobs = {name: value for name, value in knobs.items() if name in of_model}
        training_knobs = {name: value for name, value in knobs.items() if name in of_training}
        return train(lambda: make_model(**model_knobs), **training_knobs)

    signed = make_model.__init__ if isinstance(make_model, type) else make_model  # type: ignore[misc]
    hints = {**typing.get_type_hints(train), **typing.get_type_hints(signed)}
    _sign(build, [*of_model.values(), *of_training.values()], hints)
    return with_defaults(build, "build", defaults)


def with_defaults(build: Callable[..., Step], name: str, defaults: Mapping[str, object]) -> Callable[..., Step]:
    """The same workload under another name, with other defaults."""
    parameters = inspect.signature(build).parameters

    def named(**knobs: Any) -> Step:
        return build(**{**defaults, **knobs})

    unknown = defaults.keys() - parameters.keys()
    assert not unknown, f"{name} has no knobs {unknown}"
    named.__name__ = named.__qualname__ = name
    _sign(named, [p.replace(default=defaults.get(p.name, p.default)) for p in parameters.values()], build.__annotations__)
    return named


def _sign(function: Callable[..., Step], parameters: list[inspect.Parameter], hints: Mapping[str, Any]) -> None:
    # Annotations are given as types, not as text: whoever reads them need not know this module's names.
    typed = [p.replace(annotation=hints.get(p.name, p.annotation)) for p in parameters]
    function.__signature__ = inspect.Signature(typed)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in typed}
