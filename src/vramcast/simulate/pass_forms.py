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
    block: int  # the allocation that holds it, counted from the first of the pass
    dtype: torch.dtype
    num_dims: int
    # of a pass that is made again
    size: Sequence[int] = ()
    stride: Sequence[int] = ()
    offset: int = 0


def given(arguments: Any, options: Any) -> tuple[State, tuple[int, ...], list[Any]] | None:
    """What a pass depends on, the sizes in its arguments, and their leaves. None if a part is
    unknown."""
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return None
    if torch._C._functorch.peek_interpreter_stack():  # its tensors have no storages
        return None
    leaves, form = flat((arguments, options))
    described = [_described(leaf) for leaf in leaves]
    if None in described:
        return None
    modes = torch.is_autocast_enabled("cuda"), torch.is_inference_mode_enabled()
    numbers = tuple(number for leaf in leaves for number in _sizes(leaf))
    return (*modes, form, *described), numbers, leaves


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


def _described(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        is_known = leaf.is_cuda and type(leaf) in (Tensor, torch.nn.Parameter)
        return (leaf.dtype, leaf.ndim, leaf.numel() > 0) if is_known else None
    if type(leaf) is int:
        return int
    return (type(leaf), leaf) if isinstance(leaf, PLAIN) else None


def _sizes(leaf: Any) -> Sequence[int]:
    """The sizes and strides of a tensor. In a dimension of size 1 the stride means nothing."""
    if not isinstance(leaf, Tensor):
        return (leaf,) if type(leaf) is int else ()
    strides = zip(leaf.shape, leaf.stride(), strict=True)
    return (*leaf.shape, *(step * (size > 1) for size, step in strides))


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
    if type(leaf) is int:
        numbers.append(leaf)
        return int
    if not isinstance(leaf, Tensor):
        return (leaf,) if isinstance(leaf, PLAIN) else None
    if type(leaf) is not Tensor or not leaf.is_cuda or torch.ops.vramcast.values(leaf) is not None:
        return None
    if id(leaf) in given:
        return given.index(id(leaf))
    numbers += (*leaf.shape, *leaf.stride(), int(leaf.storage_offset()))
    (number,) = device.block_ids([leaf.untyped_storage().data_ptr()])
    return Result(number - first, leaf.dtype, leaf.ndim)


def now(one: Any, numbers: Iterator[int]) -> Any:
    """The description of a result with its sizes, which are the next of these numbers."""
    if one is int:
        return (next(numbers),)
    if not isinstance(one, Result):
        return one
    size, stride = ([next(numbers) for _ in range(one.num_dims)] for _ in range(2))
    return one._replace(size=size, stride=stride, offset=next(numbers))


def empty(num_bytes: int, result: Result | None) -> Tensor:
    """A new block of memory: the result itself, where it lies in all of it."""
    dtype = result.dtype if result else torch.uint8
    if result and not result.offset:
        steps = zip(result.size, result.stride, strict=True)
        last = sum((size - 1) * stride for size, stride in steps)
        if num_bytes == (last + 1) * dtype.itemsize and all(result.size):
            return torch.empty_strided(result.size, result.stride, dtype=dtype, device="cuda")
    return torch.empty(num_bytes // dtype.itemsize, dtype=dtype, device="cuda")


def again(one: Any, made: dict[int, Tensor], given: Sequence[Any]) -> Any:
    if isinstance(one, int):
        return given[one]
    if not isinstance(one, Result):
        return one[0]
    tensor = made[one.block]
    if [*tensor.shape] == one.size and [*tensor.stride()] == one.stride:
        return tensor
    return tensor.as_strided(one.size, one.stride, one.offset)
