"""Steps that are nothing but one kind of call of Python into torch, again and again with small
tensors: what the host spends on it. record.py --step and simulated.py take them.

    python benchmarks/step_time/recording/record.py --out OUT --step .../host_pieces.py:NAME
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

Step = Callable[[], Any]
REPEATED = 400
WIDTH = 64


def _ones() -> torch.Tensor:
    return torch.ones(WIDTH, WIDTH, device="cuda")


def _again(call: Callable[[], Any]) -> Step:
    def step() -> None:
        for _ in range(REPEATED):
            call()

    return step


def plain() -> Step:
    """What all others are to be compared with."""
    x = _ones()
    return _again(lambda: x.add_(1.0))


def functions() -> Step:
    """Ten Python functions for each operator."""
    x = _ones()

    def deep(level: int) -> None:
        if level:
            deep(level - 1)
        else:
            x.add_(1.0)

    return _again(lambda: deep(9))


def synchronized() -> Step:
    x = _ones()

    def call() -> None:
        x.add_(1.0)
        torch.cuda.synchronize()

    return _again(call)


def read() -> Step:
    x = _ones()
    return _again(lambda: x.sum().item())


def foreign() -> Step:
    """A function of a compiled library with the arguments of an optimizer."""
    library = ctypes.CDLL(None)
    tensors = [_ones() for _ in range(6)]

    def call() -> None:
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
        numbers = [ctypes.c_float(0.5) for _ in range(12)]
        library.getpid(*pointers, *numbers, ctypes.c_int32(3))

    return _again(call)


@torch.library.custom_op("vramcast_pieces::scale_", mutates_args=("x",))
def scale_(x: torch.Tensor, factor: float) -> None:
    x.mul_(factor)


def custom_operator() -> Step:
    x = _ones()
    return _again(lambda: torch.ops.vramcast_pieces.scale_(x, 0.5))


_LIBRARY = torch.library.Library("vramcast_kernels", "DEF")
_LIBRARY.define("scale_(Tensor(a!) x, float factor) -> ()")


@torch.library.register_kernel("vramcast_kernels::scale_", "cuda")
def _(x: torch.Tensor, factor: float) -> None:
    x.mul_(factor)


def registered_kernel() -> Step:
    x = _ones()
    return _again(lambda: torch.ops.vramcast_kernels.scale_(x, 0.5))


class Wrapped(torch.Tensor):
    """As libraries that quantise have them: other tensors inside, all operators in Python."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device
        )

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        take = lambda t: t.inner if isinstance(t, Wrapped) else t  # noqa: E731
        found = func(*tree_map(take, args), **tree_map(take, kwargs or {}))
        return tree_map(lambda t: Wrapped(t) if isinstance(t, torch.Tensor) else t, found)


def wrapper() -> Step:
    x = Wrapped(_ones())
    return _again(lambda: x + 1.0)


class Named(torch.Tensor):
    """Only __torch_function__, torch's own."""


def function_subclass() -> Step:
    x = _ones().as_subclass(Named)
    return _again(lambda: x + 1.0)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2.0


def autograd_function() -> Step:
    x = _ones().requires_grad_()

    def call() -> None:
        y = x
        for _ in range(10):
            y = Doubled.apply(y)
        y.backward(x.detach())

    def step() -> None:
        for _ in range(REPEATED // 10):
            call()

    return step


def modules() -> Step:
    """Small layers, forward and backward, as a network has them."""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(40))).cuda()
    x = _ones()

    def step() -> None:
        for _ in range(REPEATED // 40):
            model(x).sum().backward()

    return step


def halve(part: torch.Tensor) -> None:
    part.grad.mul_(0.5)


def hooks() -> Step:
    """Every gradient passes a hook, as those that reduce or quantise gradients have them."""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(40))).cuda()
    for part in model.parameters():
        part.register_post_accumulate_grad_hook(halve)
    x = _ones()

    def step() -> None:
        for _ in range(REPEATED // 40):
            model(x).sum().backward()

    return step


def triton_kernel() -> Step:

    from triton_pieces import add_one

    x, y = _ones(), _ones()
    return _again(lambda: add_one[(4,)](x, y, x.stride(0), y.stride(0), x.numel(), 1.0, BLOCK=1024))


def compiled_function() -> Step:
    """Of one parameter, as optimizers of few bits compile their update."""
    compiled = torch.compile(lambda x, y: x.mul_(0.5).add_(y), fullgraph=True)
    x, y = _ones(), _ones()
    return _again(lambda: compiled(x, y))


def compiled_wrappers() -> Step:
    """The same with a subclass."""
    compiled = torch.compile(lambda x, y: x.copy_(y * 0.5), fullgraph=True)
    x, y = Both(_ones(), _ones()), _ones()
    return _again(lambda: compiled(x, y))


class Both(torch.Tensor):
    """Values and scales, which torch.compile takes apart."""

    @staticmethod
    def __new__(cls, values: torch.Tensor, scales: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, values.shape, dtype=values.dtype, device=values.device
        )

    def __init__(self, values: torch.Tensor, scales: torch.Tensor) -> None:
        self.values_, self.scales_ = values, scales

    def __tensor_flatten__(self) -> Any:
        return ["values_", "scales_"], []

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, _: Any, __: Any = None, ___: Any = None) -> Any:
        return cls(inner["values_"], inner["scales_"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.copy_.default:
            to, source = args
            to.values_.copy_(source / to.scales_)
            return to
        take = lambda t: t.values_ * t.scales_ if isinstance(t, Both) else t  # noqa: E731
        return func(*tree_map(take, args), **tree_map(take, kwargs or {}))
