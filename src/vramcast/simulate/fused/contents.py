"""Numbers that a fused kernel writes, where they follow from what is known: whole ones, truths, and
few others. As those that eager steps compute (native/values.h), they may decide sizes and what a
program does next; also which places other kernels add to.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from vramcast.simulate.fused.described import extent_of
from vramcast.simulate.fused.launch import Launch, Tables, axis_of
from vramcast.simulate.fused.values import Numbers, Tensor, Written
from vramcast.simulate.kernels.registry import known, set_known

MOST_ELEMENTS, MOST_FLOATS = 1 << 21, 1 << 14


def may_be_known(given: Any) -> bool:
    if not isinstance(given, torch.Tensor) or not given.is_cuda:
        return False
    return given.numel() <= MOST_FLOATS or not (given.is_floating_point() or given.is_complex())


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether its numbers lie side by side, in any order of its dimensions."""
    return extent_of(tensor) == tensor.numel()


def tables_of(tensors: Sequence[torch.Tensor], described: Sequence[Tensor]) -> Tables:
    found = Tables()
    for tensor, as_described in zip(tensors, described, strict=True):
        if may_be_known(tensor) and tensor.numel() <= MOST_ELEMENTS and is_dense(tensor):
            values = known(tensor)
            if values is not None:
                wide = values.double() if values.is_floating_point() else values
                table = wide.as_strided((wide.numel(),), (1,)).numpy()
                before = found.get(as_described.number, ())  # of another view of it
                if table.size > np.size(before):
                    found[as_described.number] = table
    return found


def may_be_sure(launch: Launch) -> bool:
    """Whether the first block writes something that follows from what is known."""
    is_small = math.prod(launch.elements.values()) <= MOST_ELEMENTS
    return is_small and bool(launch.run([0] * len(launch.grid)).sure)


def written_by(launch: Launch) -> dict[Tensor, Numbers]:
    """The contents of tensors that are sure after the kernel, which runs as a single block."""
    sides = {name: launch.elements.get(axis_of(name), side) for name, side in launch.given.items()}
    notes = launch._replace(given=sides).run([0] * len(launch.grid))
    sure = defaultdict[Tensor, list[Written]](list)
    for each in [] if notes.is_shortened else notes.sure:
        sure[each.access.tensor].append(each)
    found = {tensor: _contents(tensor, parts) for tensor, parts in sure.items()}
    return {tensor: numbers for tensor, numbers in found.items() if numbers is not None}


def _contents(tensor: Tensor, parts: list[Written]) -> Numbers | None:
    """None where only a part of it was written."""
    kind = np.result_type(*(part.numbers for part in parts))
    numbers, is_written = np.zeros(tensor.elements, kind), np.zeros(tensor.elements, bool)
    for part in parts:
        is_asked = part.access.is_asked
        places = part.access.places[is_asked]
        numbers[places], is_written[places] = part.numbers[is_asked], True
    return numbers if is_written.all() else None


def note(tensor: torch.Tensor, numbers: Numbers | None) -> None:
    """Sets the contents of a tensor that a kernel has written to, or forgets them."""
    if numbers is None or not is_dense(tensor):
        torch.ops.vramcast.forget_values(tensor)
    else:
        set_known(
            tensor,
            torch.from_numpy(numbers).to(tensor.dtype).as_strided(tensor.shape, tensor.stride()),
        )
