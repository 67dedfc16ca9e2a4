"""The optimizers of the zoo by name, and updates of weights during the backward pass."""

from __future__ import annotations

import importlib
from typing import Any, Literal

import torch
from torch import Tensor, nn

# "adamw": torch's own choice, on a GPU all weights at once; "-loop": one weight after the other;
# "-fused": in one kernel; "-8bit-": with states of 8 bits, from the package named
OptimizerName = Literal[
    "adamw",
    "adamw-loop",
    "adamw-fused",
    "adamw-8bit-bitsandbytes",
    "adamw-8bit-torchao",
    "sgd",
    "schedulefree",
]
WEIGHT_DECAY = 0.1
IMPLEMENTATIONS: dict[str, dict[str, Any]] = {
    "adamw": {},
    "adamw-loop": {"foreach": False},
    "adamw-fused": {"fused": True},
}
# name -> package to install, module, class
FROM_PACKAGES = {
    "adamw-8bit-bitsandbytes": ("bitsandbytes", "bitsandbytes.optim", "AdamW8bit"),
    "adamw-8bit-torchao": ("torchao", "torchao.optim", "AdamW8bit"),
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
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    return torch.optim.AdamW(
        parameters, lr=lr, weight_decay=WEIGHT_DECAY, capturable=in_a_graph, **IMPLEMENTATIONS[name]
    )


def _from_package(name: str, parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    package, module, kind = FROM_PACKAGES[name]
    try:
        make: Any = getattr(importlib.import_module(module), kind)
    except ModuleNotFoundError:
        raise ValueError(
            f"optimizer={name!r} needs the package {package}: pip install {package}"
        ) from None
    optimizer: torch.optim.Optimizer = make(parameters, lr=lr, weight_decay=WEIGHT_DECAY)
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
