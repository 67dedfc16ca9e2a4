"""Triton kernels that people have written: blocks of them run on the host, as those that
torch.compile writes do."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from vramcast.hardware.gpus import Gpu
from vramcast.simulate.fused.contents import may_be_known, note, tables_of
from vramcast.simulate.fused.described import Describer, extent_of
from vramcast.simulate.fused.jit_language import JitLanguage, plain_constant, without_warnings
from vramcast.simulate.fused.kept import kept
from vramcast.simulate.fused.launch import Kernel, Launch
from vramcast.simulate.fused.rules import BY_HAND
from vramcast.simulate.fused.values import LOADED, Access, Address, Notes, Tensor, Values
from vramcast.simulate.fused.widths import fastest, width_along
from vramcast.simulate.fused.works import (
    Work,
    cost_of,
    seconds_of,
    unless_it_fails,
    work_of_cost,
)
from vramcast.simulate.kernels.work import DTYPE_NUMBERS, FOUR

NUM_WARPS = 4  # unless a launch says how many
MOST_AXES = 3
MULTIPLE = 16
NO_BLOCK: Work = (DTYPE_NUMBERS[torch.float32], 0.0, 0.0, FOUR(0, 0, 0, 0))


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
        self._most_widths: dict[str, list[tuple[int, int]]] = {}
        # by what is given: the work, and the numbers of the tensors that are written
        self._known: dict[str, tuple[Work | None, frozenset[int] | None]] = {}

    @cached_property
    def digest(self) -> str:
        """Of its text, of the functions that it calls, and of the globals that these use."""
        with without_warnings():
            key = str(self._function.cache_key)
        # Triton's key has only those globals that are tl.constexpr objects
        used = getattr(self._function, "used_global_vals", {})
        values = sorted((name, repr(value)) for (name, _), (value, *_) in used.items())
        return hashlib.sha256(repr((key, values)).encode()).hexdigest()

    def begin(self, notes: Notes, block: Sequence[int], launch: Launch) -> Callable[..., Any]:
        language = JitLanguage(notes, block, launch)
        scope = language.scope_of(self._function)
        return lambda *arguments: scope.call(arguments, {})

    def argument(self, name: str, value: Any, notes: Notes) -> Any:
        if isinstance(value, Tensor):
            return Address(value)
        if isinstance(value, tuple):
            return tuple(self.argument(name, each, notes) for each in value)
        if name in self.constants or not isinstance(value, int | float):
            return value
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
                name: number | 1 if name not in self.constants and _may_be_odd(number) else number
                for name, number in launch.given.items()
            }
            with_odd_numbers = launch._replace(kernel=_Unlimited(self._function), given=given)
            last = [number - 1 for number in launch.grid]
            blocks = last, [min(end, end // 4 * 2 + 1) for end in last]
            runs = [
                [(_width_of(access), _width_of(_without_mask(access))) for access in found.accesses]
                for found in map(with_odd_numbers.run, blocks)
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
        if min(sides) < 1:
            return NO_BLOCK
        describer = Describer(extent_of, plain_constant)
        described = {name: describer.describe(given[name]) for name in self.names}
        num_warps = given.get("num_warps", NUM_WARPS)
        key = repr((sorted(described.items()), sides, num_warps))
        if key not in self._known:
            tables = tables_of(describer.tensors, describer.described)
            launch = Launch(self, described, sides, num_warps, tables=tables)
            self._known[key] = unless_it_fails((None, None), lambda: _work_and_written(launch, gpu))
        work, written = self._known[key]
        for tensor, as_described in zip(describer.tensors, describer.described, strict=True):
            is_written = written is None or as_described.number in written
            if is_written and may_be_known(tensor):
                note(tensor, None)
        return work


def _width_of(access: Access) -> int:
    return width_along(fastest(access.places), access, {})


def _without_mask(access: Access) -> Access:
    return replace(access, is_asked=np.ones(access.places.shape, bool))


def padded(grid: Any) -> list[int]:
    """With a number of blocks for each axis."""
    sides = [*map(int, grid if isinstance(grid, Sequence) else (grid,))]
    return sides + [1] * (MOST_AXES - len(sides))


def _work_and_written(launch: Launch, gpu: Gpu) -> tuple[Work, frozenset[int]]:
    work = _work_of(launch, gpu)
    (mask,) = kept("written", launch, gpu, lambda: [sum(1 << n for n in set(_written_in(launch)))])
    return work, frozenset(n for n in range(mask.bit_length()) if mask >> n & 1)


def _written_in(launch: Launch) -> Iterator[int]:
    """The numbers of the tensors that the first or the last block writes to."""
    for block in ([0] * len(launch.grid), [number - 1 for number in launch.grid]):
        for access in launch.run(block).accesses:
            if access.way != LOADED:
                yield access.tensor.number


def _work_of(launch: Launch, gpu: Gpu) -> Work:
    """By its additions to shared places or by all else, whichever takes longer."""
    cost = cost_of(launch, gpu)
    works = work_of_cost(cost), work_of_cost(cost._replace(num_additions=0))
    return max(works, key=lambda work: seconds_of(work, gpu))


class _Unlimited(ByHand):
    def limited(self, launch: Launch, accesses: list[Access]) -> list[Access]:
        return accesses


def _may_be_odd(number: Any) -> bool:
    """Whether Triton compiles for any number in its place: not for 1 and multiples of 16."""
    return type(number) is int and number != 1 and number % MULTIPLE > 0
