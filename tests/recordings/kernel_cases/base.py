"""What cases are made of: random inputs, and a function with or without its backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Case = Callable[[], Callable[[], Any]]
CASES: dict[str, Case] = {}
bf16, f16, f32, i64 = torch.bfloat16, torch.float16, torch.float32, torch.int64


def rand(*shape: int, dtype: torch.dtype = f32, grad: bool = False) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=dtype).requires_grad_(grad)


def ints(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, device="cuda")


def add(name: str, case: Case) -> None:
    CASES[name] = case


def forward(name: str, function: Callable[..., Any], *makers: Callable[[], Any]) -> None:
    """The function alone."""

    def case() -> Callable[[], Any]:
        arguments = [make() for make in makers]
        return lambda: function(*arguments)

    add(name, case)


def both(name: str, function: Callable[..., torch.Tensor], *makers: Callable[[], Any]) -> None:
    """The function, then its backward pass with a gradient of ones."""

    def case() -> Callable[[], Any]:
        arguments = [make() for make in makers]
        leaves = [a for a in arguments if isinstance(a, torch.Tensor) and a.requires_grad]

        def run() -> None:
            out = function(*arguments)
            torch.autograd.grad(out, leaves, torch.ones_like(out))

        return run

    add(name, case)


def module(
    name: str,
    make: Callable[[], nn.Module],
    *makers: Callable[[], Any],
    amp: torch.dtype | None = None,
) -> None:
    """A module's forward and backward pass, gradients released afterwards."""

    def case() -> Callable[[], Any]:
        net = make().cuda()
        arguments = [m() for m in makers]

        def run() -> None:
            with torch.autocast("cuda", dtype=amp or bf16, enabled=amp is not None):
                out = net(*arguments)
            out = out[0] if isinstance(out, tuple) else out
            out.float().square().mean().backward()
            net.zero_grad(set_to_none=True)

        return run

    add(name, case)


def lazily(*shape: int, **options: Any) -> Callable[[], torch.Tensor]:
    return lambda: rand(*shape, **options)
