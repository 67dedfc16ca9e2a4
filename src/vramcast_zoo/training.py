"""The training step that every model of the zoo shares, and how a model becomes a workload.

A workload is a function whose keyword arguments are knobs; it builds everything on the GPU and
returns `step`. The knobs of a zoo workload are those of its model (`dim`, `depth`, ...) followed by
those of `train` below.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from vramcast_zoo.fp8 import multiply_in_fp8
from vramcast_zoo.graphs import captured
from vramcast_zoo.language_model import check_length
from vramcast_zoo.optimizers import OptimizerName, make_optimizer, update_in_backward
from vramcast_zoo.parallel import Parallel, Spread
from vramcast_zoo.refusal import Refused

# "bf16": weights, gradients and optimizer state too; "amp-": weights stay fp32; "amp-fp8": products
# inside the blocks in 8 bits
Precision = Literal["fp32", "bf16", "amp-bf16", "amp-fp16", "amp-fp8"]
CompileMode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
Step = Callable[[], Tensor]
DEVICE = "cuda"


class Trainable(Protocol):
    """What `train` asks of a model."""

    longest: int | None  # the longest sequence it can take; None where there is no limit

    def loss(self, *batch: Tensor) -> Tensor: ...

    def random_batch(self, batch_size: int, seq_len: int, device: str) -> tuple[Tensor, ...]: ...

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
    compile_mode: CompileMode = "default",
    compile_dynamic: bool | None = None,
    cuda_graphs: bool = False,
    optimizer_in_backward: bool = False,
    parallel: Parallel = "",
    seed: int = 42,
) -> Step:
    """One training step on random data: memory and speed do not depend on what the data says.

    `clip=0` clips no gradients.

    `cuda_graphs` captures the whole step in a graph. `optimizer_in_backward` updates a weight when
    its gradient is there, and cannot clip: the norm is that of all gradients. `parallel` spreads
    the model over the GPUs of torchrun's processes, see parallel.py.
    """
    torch.manual_seed(seed)
    with torch.device(DEVICE):  # makes the weights on the GPU, not on the CPU first
        model = make_model()
    if precision == "bf16":
        model.to(torch.bfloat16)
    if precision == "amp-fp8":
        multiply_in_fp8(model)
    trainable = typing.cast(Trainable, model)
    if parallel:
        if cuda_graphs or optimizer_in_backward:
            raise Refused(
                f"parallel={parallel!r} cannot be had with cuda_graphs or optimizer_in_backward. "
                "Leave them out."
            )
        trainable = Spread(model, parallel, precision)
    check_length(seq_len, trainable.longest)
    return training_step(
        trainable,
        lambda: trainable.random_batch(batch_size, seq_len, DEVICE),
        precision=precision,
        optimizer=optimizer,
        lr=lr,
        clip=clip,
        compile=compile,
        compile_mode=compile_mode,
        compile_dynamic=compile_dynamic,
        cuda_graphs=cuda_graphs,
        optimizer_in_backward=optimizer_in_backward,
        device=DEVICE,
    )


def training_step(
    model: Trainable,
    next_batch: Callable[[], tuple[Tensor, ...]],
    *,
    precision: Precision,
    optimizer: OptimizerName,
    lr: float,
    clip: float,
    accumulation: int = 1,
    compile: bool = False,
    compile_mode: CompileMode = "default",
    compile_dynamic: bool | None = None,
    cuda_graphs: bool = False,
    optimizer_in_backward: bool = False,
    device: str = DEVICE,
) -> Step:
    """`accumulation` batches make one update."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loss_of = (
        torch.compile(model.loss, mode=compile_mode, dynamic=compile_dynamic)
        if compile
        else model.loss
    )

    def loss_of_next() -> Tensor:
        with autocast(precision, device):
            return loss_of(*next_batch())

    if optimizer_in_backward:
        _check_in_backward(precision, clip, cuda_graphs)
        update_in_backward(optimizer, trained, lr)
        return _backward_only(loss_of_next)
    if cuda_graphs and getattr(model, "stochastic_depth", False):
        raise Refused(
            "cuda_graphs=True repeats one step: stochastic_depth would leave out the same blocks "
            "for ever. Give one of the two."
        )
    update = make_optimizer(optimizer, trained, lr, in_a_graph=cuda_graphs)
    # Gradients of half precision vanish below 6e-8 unless the loss is scaled up first.
    scaler = torch.amp.GradScaler(device, enabled=precision == "amp-fp16")

    def step() -> Tensor:
        update.zero_grad(set_to_none=True)
        for _ in range(accumulation):
            loss = loss_of_next() / accumulation if accumulation > 1 else loss_of_next()
            scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(update)
            nn.utils.clip_grad_norm_(trained, clip)
        scaler.step(update)
        scaler.update()
        return loss.detach() * accumulation if accumulation > 1 else loss.detach()

    return captured(step, typing.cast(nn.Module, model)) if cuda_graphs else step


def _backward_only(loss_of_next: Callable[[], Tensor]) -> Step:
    def step() -> Tensor:
        loss = loss_of_next()
        loss.backward()
        return loss.detach()

    return step


def _check_in_backward(precision: Precision, clip: float, cuda_graphs: bool) -> None:
    for given, knob, instead in (
        (
            clip,
            f"clip={clip:g}: the norm of all gradients is known only after the backward pass",
            "clip=0",
        ),
        (
            precision == "amp-fp16",
            "precision='amp-fp16': a scaled loss is judged by all gradients",
            "another precision",
        ),
        (
            cuda_graphs,
            "cuda_graphs=True: every weight's optimizer counts its steps on the host",
            "cuda_graphs=False",
        ),
    ):
        if given:
            raise Refused(f"optimizer_in_backward=True cannot be had with {knob}. Give {instead}.")


def autocast(precision: Precision, device: str) -> AbstractContextManager[Any]:
    if not precision.startswith("amp-"):
        return nullcontext()
    return torch.autocast(
        device, dtype=torch.float16 if precision == "amp-fp16" else torch.bfloat16
    )


# ---------------------------------------------------------------------------- models as workloads
def workload(make_model: Callable[..., nn.Module], **defaults: object) -> Callable[..., Step]:
    """The function that builds a training step of `make_model`.

    Its signature is that of `make_model` joined with `train`'s.
    """
    of_model = inspect.signature(make_model).parameters
    of_training = {
        name: p
        for name, p in inspect.signature(train).parameters.items()
        if p.kind is p.KEYWORD_ONLY
    }

    def build(**knobs: Any) -> Step:
        model_knobs = {name: value for name, value in knobs.items() if name in of_model}
        training_knobs = {name: value for name, value in knobs.items() if name in of_training}
        return train(lambda: make_model(**model_knobs), **training_knobs)

    is_class = isinstance(make_model, type)
    signed = make_model.__init__ if is_class else make_model  # type: ignore[misc]
    hints = {**typing.get_type_hints(train), **typing.get_type_hints(signed)}
    put_signature(build, [*of_model.values(), *of_training.values()], hints)
    return with_defaults(build, "build", defaults)


def with_defaults(
    build: Callable[..., Step], name: str, defaults: Mapping[str, object]
) -> Callable[..., Step]:
    """The same workload under another name, with other defaults."""
    parameters = inspect.signature(build).parameters

    def named(**knobs: Any) -> Step:
        return build(**{**defaults, **knobs})

    unknown = defaults.keys() - parameters.keys()
    assert not unknown, f"{name} has no knobs {unknown}"
    named.__name__ = named.__qualname__ = name
    put_signature(
        named,
        [p.replace(default=defaults.get(p.name, p.default)) for p in parameters.values()],
        build.__annotations__,
    )
    return named


def put_signature(
    function: Callable[..., Step], parameters: list[inspect.Parameter], hints: Mapping[str, Any]
) -> None:
    # Annotations are given as types, not as text: whoever reads them need not know this module's
    # names.
    typed = [p.replace(annotation=hints.get(p.name, p.annotation)) for p in parameters]
    function.__signature__ = inspect.Signature(typed)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in typed}
