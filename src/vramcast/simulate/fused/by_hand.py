"""Triton kernels that people have written: blocks of them run on the host, as those that
torch.compile writes do."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from vramcast.hardware.gpus import Gpu
from vramcast.simulate.fused.jit_language import JitLanguage
from vramcast.simulate.fused.launch import Kernel, Launch
from vramcast.simulate.fused.values import Address, Notes, Tensor, Values
from vramcast.simulate.fused.works import Work, cost_of, or_else, work_of_cost

NUM_WARPS = 4  # unless a launch says how many
MOST_AXES = 3


class ByHand(Kernel):
    """`function` is what @triton.jit has made of a function."""

    uses_all_tensors = False

    def __init__(self, function: Any) -> None:
        super().__init__(function.src, function.__name__, tuple(function.arg_names))
        self._function = function
        params = function.params
        self._defaults = {each.name: each.default for each in params if each.has_default}
        self._constants = frozenset(each.name for each in params if each.is_constexpr)
        self._works: dict[Any, Work | None] = {}

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
        if name in self._constants or not isinstance(value, int | float):
            return JitLanguage.constant(value)
        return Values(value, notes, is_known=True)

    def elements(self, given: Mapping[str, Any]) -> Mapping[str, int]:
        """Names of arguments tell nothing of the axes."""
        return {}

    def work(
        self, grid: Any, arguments: Sequence[Any], options: Mapping[str, Any], gpu: Gpu
    ) -> Work | None:
        """None where blocks use something that is not stood in for."""
        given = {**self._defaults, **dict(zip(self.names, arguments, strict=False)), **options}
        sides = grid(given) if callable(grid) else grid
        sides = [*(sides if isinstance(sides, Sequence) else (sides,))]
        sides += [1] * (MOST_AXES - len(sides))
        told = _told({name: given[name] for name in self.names})
        launch = Launch(self, told, [int(n) for n in sides], given.get("num_warps", NUM_WARPS))
        key = repr((sorted(told.items()), sides, launch.num_warps))
        if key not in self._works:
            self._works[key] = or_else(None, lambda: work_of_cost(cost_of(launch, gpu)))
        return self._works[key]


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
