"""Describes the arguments and results of a forward pass, to compare them and make them again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as trees

from vramcast.simulate.device import Device

PLAIN = (int, float, str, type(None), torch.dtype, torch.device, torch.Size)
State = tuple[Any, ...]
Numbers = NDArray[np.int64]


class Result(NamedTuple):
    """A tensor, by the allocation that holds it, counted from the first of the pass."""

    block: int
    dtype_code: int
    num_dims: int
    numbers_at: int  # where its sizes, strides and offset are among the numbers of the pass


class Number(NamedTuple):
    numbers_at: int


def given(arguments: Any, options: Any) -> tuple[State, tuple[int, ...], list[Any]] | None:
    """What a pass depends on, the sizes in its arguments, and their leaves. None if a part is
    unknown."""
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return None
    if torch._C._functorch.peek_interpreter_stack():  # its tensors have no storages
        return None
    if torch.jit.is_tracing():  # it would trace our calls too
        return None
    leaves, form = flat((arguments, options))
    numbers = list[int]()
    described = [_described(leaf, numbers) for leaf in leaves]
    if None in described:
        return None
    has_graph, casts = torch.is_grad_enabled(), torch.is_autocast_enabled("cuda")
    # gradients of arguments may be wanted; weights that autocast keeps are part of a graph
    if has_graph and (casts or any(getattr(leaf, "requires_grad", False) for leaf in leaves)):
        return None
    modes = has_graph, casts, torch.is_inference_mode_enabled()
    return (*modes, form, *described), tuple(numbers), leaves


def flat(value: Any) -> tuple[list[Any], Any]:
    """Flattens a tree of containers, also into dataclasses, such as the cache of a sample."""
    found, form = trees.tree_flatten(value)
    leaves, forms = list[Any](), list[Any]()
    for leaf in found:
        if is_dataclass(type(leaf)) and hasattr(leaf, "__dict__"):
            inner, inner_form = flat(vars(leaf))
            leaves += inner
            forms.append((type(leaf), inner_form))
        else:
            leaves.append(leaf)
            forms.append(None)
    return leaves, (form, forms)


def unflat(leaves: Iterator[Any], form: Any) -> Any:
    tree, forms = form
    found = []
    for one in forms:
        if one is None:
            found.append(next(leaves))
            continue
        found.append(object.__new__(one[0]))
        vars(found[-1]).update(unflat(leaves, one[1]))
    return trees.tree_unflatten(found, tree)


def _described(leaf: Any, numbers: list[int]) -> Any:
    """Describes a leaf, but for its sizes and strides, which are added to the numbers. In a
    dimension of size 1 the stride means nothing."""
    if type(leaf) in (Tensor, torch.nn.Parameter) and leaf.layout is torch.strided:
        shape = leaf.shape
        numbers += shape
        numbers += [n * (size > 1) for size, n in zip(shape, leaf.stride(), strict=True)]
        return (leaf.dtype, len(shape), 0 not in shape) if leaf.is_cuda else None
    if type(leaf) is int:
        numbers.append(leaf)
        return int
    return (type(leaf), leaf) if isinstance(leaf, PLAIN) else None


class Parts:
    """All parts of a module, with a state that changes when something is put into them or a tensor
    is written."""

    def __init__(self, module: torch.nn.Module) -> None:
        parts = list(module.modules())
        self.has_hooks = any(part._forward_hooks or part._forward_pre_hooks for part in parts)
        self._own = dicts = [vars(part) for part in parts]
        values = [value for each in dicts for value in each.values()]
        held = [one for one in values if isinstance(one, dict | list | set)]
        self._containers = [*dicts, *held]
        self._tensors = [*module.parameters(), *module.buffers()]

    def state(self) -> State:
        own = [*map(id, chain.from_iterable(map(dict.values, self._own)))]
        return own, [*map(len, self._containers)], [one._version for one in self._tensors]


def random_numbers() -> Any:
    return torch.get_rng_state().numpy().tobytes(), random.getstate()


def result(device: Device, leaf: Any, first: int, given: Sequence[int], numbers: list[int]) -> Any:
    """A description from which `again` makes this result, or its index among the arguments. None if
    it cannot be described."""
    numbers_at = len(numbers)
    if type(leaf) is int:
        numbers.append(leaf)
        return Number(numbers_at)
    if not isinstance(leaf, Tensor):
        return (leaf,) if isinstance(leaf, PLAIN) else None
    if type(leaf) is not Tensor or not leaf.is_cuda or torch.ops.vramcast.values(leaf) is not None:
        return None
    if id(leaf) in given:
        return given.index(id(leaf))
    numbers += (*leaf.shape, *leaf.stride(), int(leaf.storage_offset()))
    (number,) = device.block_ids([leaf.untyped_storage().data_ptr()])
    code = torch.ops.vramcast.dtype_code(leaf)
    return Result(number - first, code, leaf.ndim, numbers_at)


def again(one: Any, made: Iterator[Tensor], numbers: Numbers, given: Sequence[Any]) -> Any:
    if isinstance(one, Result):
        return next(made)
    if isinstance(one, Number):
        return int(numbers[one.numbers_at])
    return given[one] if isinstance(one, int) else one[0]


def num_uses(leaves: Sequence[Any]) -> list[int]:
    """How many things hold each tensor."""
    return [leaf._use_count() for leaf in leaves if isinstance(leaf, Tensor)]


class Unused(torch.autograd.Function):
    """The graph of a pass that was not run, with what it keeps. Nobody is expected to go through
    it: if somebody does, the pass is run."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, made: list[Tensor], go: Any) -> Tensor:
        ctx.kept, ctx.go = made[1:], go
        return made[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        with torch.enable_grad():
            torch.autograd.backward([ctx.go()], gradients)
        return None, None, None
