"""How many blocks of scores a mask of FlexAttention leaves, from a few scores of each block.

The mask is a function of the program. It is called on the host, with what the tensors that it uses
are known to contain, so that nothing of it is seen in the simulated memory.
"""

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vramcast.simulate.device import Device

Mask = Callable[..., Tensor]
MOST_SCORES = 1 << 20


class NotKnown(Exception):
    """What the mask depends on is not known without a GPU."""


def num_blocks_left(
    mask: Mask, shape: tuple[int, ...], block: tuple[int, int], device: Device
) -> float:
    """Of one matrix, in the mean. The shape is batch, heads, queries and keys."""
    device.library.vramcast_enable(False)
    try:
        own = _on_host(mask, device, {})
        rows, columns = (_places(size, of) for size, of in zip(shape[2:], block, strict=True))
        matrices = [(b, h) for b in range(shape[0]) for h in range(shape[1])]
        most = max(1, MOST_SCORES // (rows.numel() * columns.numel()))
        chosen = matrices[:: max(1, len(matrices) // most)]
        left = [_num_left(own, b, h, rows, columns) for b, h in chosen]
        return sum(left) / len(left)
    finally:
        device.library.vramcast_enable(True)


def _places(size: int, block: int) -> Tensor:
    """By block: its first place, one in the middle, and its last."""
    first = torch.arange(0, size, block)
    inside = [torch.clamp(first + more, max=size - 1) for more in (0, block // 2, block - 1)]
    return torch.stack(inside, 1)


def _num_left(mask: Mask, batch: int, head: int, rows: Tensor, columns: Tensor) -> int:
    batch_of, head_of = torch.tensor(batch), torch.tensor(head)
    seen = mask(batch_of, head_of, rows.flatten()[:, None], columns.flatten()[None])
    seen = seen.expand(rows.numel(), columns.numel())
    blocks = seen.view(len(rows), rows.shape[1], len(columns), columns.shape[1])
    return int(blocks.any(3).any(1).sum())


def _on_host(value: Any, device: Device, made: dict[int, Any]) -> Any:
    """A copy of a function, with what it uses of the GPU on the host. `made` has the copies by the
    identity of the original, for functions that use each other."""
    if isinstance(value, Tensor) and value.is_cuda:
        return _contents(value, device)
    if isinstance(value, tuple | list):
        return type(value)(_on_host(each, device, made) for each in value)
    if not isinstance(value, types.FunctionType):
        return value
    if id(value) in made:
        return made[id(value)]
    of_module = dict(value.__globals__)
    cells = tuple(types.CellType() for _ in value.__closure__ or ())
    copy = types.FunctionType(value.__code__, of_module, value.__name__, None, cells)
    made[id(value)] = copy
    copy.__defaults__ = _on_host(value.__defaults__, device, made)
    for cell, original in zip(cells, value.__closure__ or (), strict=True):
        cell.cell_contents = _on_host(original.cell_contents, device, made)
    for name in {*value.__code__.co_names} & of_module.keys():
        of_module[name] = _on_host(of_module[name], device, made)
    return copy


def _contents(tensor: Tensor, device: Device) -> Tensor:
    host = torch.empty(tensor.shape, dtype=tensor.dtype)
    if not device.library.vramcast_copy_known(tensor._cdata, host.data_ptr()):
        raise NotKnown
    return host
