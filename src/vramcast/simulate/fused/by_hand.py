"""Triton kernels that people have written: blocks of them run on the host, as those that
torch.compile writes do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from vramcast.hardware.gpus import Gpu
from vramcast.simulate.fused.contents import may_be_known, note, tables_of
from vramcast.simulate.fused.jit_language import JitLanguage
from vramcast.simulate.fused.launch import Kernel, Launch
from vramcast.simulate.fused.rules import BY_HAND
from vramcast.simulate.fused.values import Access, Address, Notes, Tensor, Values
from vramcast.simulate.fused.widths import fastest, width_along
from vramcast.simulate.fused.works import Work, cost_of, or_else, seconds_of, work_of_cost

NUM_WARPS = 4  # unless a launch says how many
MOST_AXES = 3
MULTIPLE = 16


class ByHand(Kernel):
    """`function` is what @triton.jit has made of a function."""

    rules = BY_HAND
    uses_all_tensors = False

    def __init__(self, function: Any) -> None:
        super().__init__(function.src, function.__name__, tuple(function.arg_names))
        self._function = function
        params = function.params
        self._defaults = {each.name: each.default for each in params if each.has_default}
        self.constants = frozenset(each.name for each in params if each.is_constexpr)
        self._works: dict[str, Work | None] = {}
        self._most_widths: dict[str, list[tuple[int, int]]] = {}

    @cached_property
    def digest(self) -> str:
        """Of its text, of the functions that it calls, and of the globals that these use."""
        return str(self._function.cache_key)

    def begin(self, notes: Notes, block: Sequence[int], launch: Launch) -> Callable[..., Any]:
        language = JitLanguage(notes, block, launch)
        scope = language.scope_of(self._function)
        return lambda *arguments: scope.call(arguments, {})

    def argument(self, name: str, value: Any, notes: Notes) -> Any:
        if isinstance(value, Tensor):
            return Address(value)
        if name in self.constants or not isinstance(value, int | float):
            return JitLanguage.constant(value)
        return Values(value, notes, is_known=True)

    def limited(self, launch: Launch, accesses: list[Access]) -> list[Access]:
        widths = self._widths(launch)
        if len(widths) != len(accesses):  # the block took another way
            return accesses
        return [
            replace(access, most_width=width, own_width=own)
            for access, (width, own) in zip(accesses, widths, strict=True)
        ]

    def _widths(self, launch: Launch) -> list[tuple[int, int]]:
        """How wide each access may be. Of a number that is not a multiple of 16 Triton's compiler
        takes nothing to be known: here such numbers are odd. Blocks that show it are at the end,
        where masks end, and at odd places, where rows begin."""
        key = repr((launch.given, launch.grid))
        if key not in self._most_widths:
            given = {
                name: number | 1 if name not in self.constants and _is_any(number) else number
                for name, number in launch.given.items()
            }
            twin = launch._replace(kernel=_Unlimited(self._function), given=given)
            last = [number - 1 for number in launch.grid]
            blocks = last, [min(end, end // 4 * 2 + 1) for end in last]
            runs = [
                [(_width_of(access), _width_of(_without_mask(access))) for access in found.accesses]
                for found in map(twin.run, blocks)
            ]
            self._most_widths[key] = [
                (min(one[0], other[0]), min(one[1], other[1]))
                for one, other in zip(*runs, strict=False)
            ]
        return self._most_widths[key]

    def elements(self, given: Mapping[str, Any]) -> Mapping[str, int]:
        """Names of arguments tell nothing of the axes."""
        return {}

    def work(
        self, grid: Any, arguments: Sequence[Any], options: Mapping[str, Any], gpu: Gpu
    ) -> Work | None:
        """None where blocks use something that is not stood in for."""
        given = {**self._defaults, **dict(zip(self.names, arguments, strict=False)), **options}
        sides = padded(grid(given) if callable(grid) else grid)
        told = _told({name: given[name] for name in self.names})
        tables = tables_of([given[name] for name in self.names], [*told.values()])
        num_warps = given.get("num_warps", NUM_WARPS)
        launch = Launch(self, told, sides, num_warps, tables=tables)
        key = repr((sorted(told.items()), sides, num_warps, tables.digest))
        if key not in self._works:
            self._works[key] = or_else(None, lambda: _work_of(launch, gpu))
        for name in self.changed & given.keys():
            if may_be_known(given[name]):
                note(given[name], None)
        return self._works[key]


def _width_of(access: Access) -> int:
    return width_along(fastest(access.places), access, {})


def _without_mask(access: Access) -> Access:
    return replace(access, is_asked=np.ones(access.places.shape, bool))


def padded(grid: Any) -> list[int]:
    """With a number of blocks for each axis."""
    sides = [*map(int, grid if isinstance(grid, Sequence) else (grid,))]
    return sides + [1] * (MOST_AXES - len(sides))


def _work_of(launch: Launch, gpu: Gpu) -> Work:
    """By its additions to shared places or by all else, whichever takes longer."""
    cost = cost_of(launch, gpu)
    works = work_of_cost(cost), work_of_cost(cost._replace(num_additions=0))
    return max(works, key=lambda work: seconds_of(work, gpu))


class _Unlimited(ByHand):
    def limited(self, launch: Launch, accesses: list[Access]) -> list[Access]:
        return accesses


def _is_any(number: Any) -> bool:
    """Whether Triton compiles for any number in its place: not for 1 and multiples of 16."""
    return type(number) is int and number != 1 and number % MULTIPLE > 0


def _told(given: Mapping[str, Any]) -> dict[str, Any]:
    numbers: dict[int, int] = {}
    return {
        name: Tensor(_extent(t), t.element_size(), numbers.setdefault(t.data_ptr(), len(numbers)))
        if isinstance(t, torch.Tensor)
        else t
        for name, t in given.items()
    }


def _extent(tensor: torch.Tensor) -> int:
    """From its first element to its last, with those between that are not its own."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * step for size, step in steps) if tensor.numel() else 0
