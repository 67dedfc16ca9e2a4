"""The optimizers of the zoo by name, and updates of weights during the backward pass."""

from __future__ import annotations

import importlib
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from vramcast_zoo.refusal import Refused

# "adamw": torch's own choice, on a GPU all weights at once; "-loop": one weight after the other;
# "-fused": in one kernel; "-8bit-": with states of 8 bits, from the package named; "-paged": with
# states that move to the host's memory when the GPU's is full
OptimizerName = Literal[
    "adamw",
    "adamw-loop",
    "adamw-fused",
    "adamw-8bit",
    "adamw-8bit-bitsandbytes",
    "adamw-8bit-torchao",
    "adamw-4bit-torchao",
    "adamw-paged",
    "adamw-8bit-paged",
    "lion-8bit",
    "sgd",
    "sgd-8bit",
    "adafactor",
    "muon",
    "schedulefree",
]
WEIGHT_DECAY = 0.1
MOMENTUM = 0.9
# Longer ones are embeddings and heads, which Muon is not for.
LONGEST_FOR_MUON = 20_000
IMPLEMENTATIONS: dict[str, dict[str, Any]] = {
    "adamw": {},
    "adamw-loop": {"foreach": False},
    "adamw-fused": {"fused": True},
}
# name -> package to install, module, class
FROM_PACKAGES = {
    "adamw-8bit": ("bitsandbytes", "bitsandbytes.optim", "AdamW8bit"),
    "adamw-8bit-bitsandbytes": ("bitsandbytes", "bitsandbytes.optim", "AdamW8bit"),
    "adamw-8bit-torchao": ("torchao", "torchao.optim", "AdamW8bit"),
    "adamw-4bit-torchao": ("torchao", "torchao.optim", "AdamW4bit"),
    "adamw-paged": ("bitsandbytes", "bitsandbytes.optim", "PagedAdamW"),
    "adamw-8bit-paged": ("bitsandbytes", "bitsandbytes.optim", "PagedAdamW8bit"),
    "lion-8bit": ("bitsandbytes", "bitsandbytes.optim", "Lion8bit"),
    "sgd-8bit": ("bitsandbytes", "bitsandbytes.optim", "SGD8bit"),
    "schedulefree": ("schedulefree", "schedulefree", "AdamWScheduleFree"),
}


def make_optimizer(
    name: OptimizerName, parameters: list[nn.Parameter], lr: float, *, in_a_graph: bool = False
) -> torch.optim.Optimizer:
    """With `in_a_graph` its step is captured in a CUDA graph.

    Whatever it counts must then be counted on the GPU.
    """
    if name in FROM_PACKAGES:
        if in_a_graph:
            raise ValueError(
                f"optimizer={name!r} counts steps on the host, which a CUDA graph does not repeat: "
                "take adamw or adamw-fused"
            )
        return _from_package(name, parameters, lr)
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM)
    if name == "adafactor":
        return torch.optim.Adafactor(parameters, lr=lr)
    if name == "muon":
        return cast(torch.optim.Optimizer, MuonAndAdamW(parameters, lr))
    return torch.optim.AdamW(
        parameters, lr=lr, weight_decay=WEIGHT_DECAY, capturable=in_a_graph, **IMPLEMENTATIONS[name]
    )


class MuonAndAdamW:
    """Muon for matrices, AdamW for all else: embeddings, heads, norms and biases."""

    def __init__(self, parameters: list[nn.Parameter], lr: float) -> None:
        matrices = [p for p in parameters if p.dim() == 2 and max(p.shape) < LONGEST_FOR_MUON]
        chosen = set(map(id, matrices))
        others = [p for p in parameters if id(p) not in chosen]
        self._parts: list[torch.optim.Optimizer] = []
        if matrices:
            self._parts.append(torch.optim.Muon(matrices, lr=lr, weight_decay=WEIGHT_DECAY))
        if others:
            self._parts.append(torch.optim.AdamW(others, lr=lr, weight_decay=WEIGHT_DECAY))

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for part in self._parts for group in part.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self._parts:
            part.zero_grad(set_to_none)

    def step(self) -> None:
        for part in self._parts:
            part.step()


def _from_package(name: str, parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    package, module, kind = FROM_PACKAGES[name]
    try:
        make: Any = getattr(importlib.import_module(module), kind)
    except ModuleNotFoundError:
        raise Refused(
            f"optimizer={name} needs the package {package}, which is not installed.",
            f"pip install {package}",
        ) from None
    options = {"momentum": MOMENTUM} if name == "sgd-8bit" else {}
    optimizer: torch.optim.Optimizer = make(parameters, lr=lr, weight_decay=WEIGHT_DECAY, **options)
    if name == "schedulefree":
        optimizer.train()  # type: ignore[attr-defined]
    return optimizer


def update_in_backward(name: OptimizerName, parameters: list[nn.Parameter], lr: float) -> None:
    """Every weight has an optimizer of its own, called when its gradient is complete.

    Then the gradient is let go.

    So the gradients of all weights are never there together.
    """

    def watch(parameter: nn.Parameter) -> None:
        optimizer = make_optimizer(name, [parameter], lr)

        def update(_: Tensor) -> None:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        parameter.register_post_accumulate_grad_hook(update)

    for parameter in parameters:
        watch(parameter)
