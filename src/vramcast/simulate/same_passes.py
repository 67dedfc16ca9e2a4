"""Forward passes of an evaluation that do the same again and again are not run again and again.

A program may evaluate in hundreds of passes. After a few with tensors of the same shapes that
changed nothing of the module, read nothing from the GPU and did the same, those that follow only do
that once more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as trees

from vramcast.simulate.device import Device

# passes that are alike before one is not run
FEWEST_ALIKE = 4
# and so many are looked at
MOST_IN_VAIN = 12
MOST_ALLOCATIONS = 1 << 40  # the numbers of other events are larger
NOTE = (
    "forward passes of an evaluation that did the same as those before were not run again: only "
    "their memory and time were taken"
)
PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.Size)
State = tuple[Any, ...]


class _Result(NamedTuple):
    """A tensor that a pass returns."""

    block: int  # the allocation that has it, counted from the first of the pass
    size: Sequence[int]
    stride: Sequence[int]
    offset: int
    dtype: torch.dtype


@dataclass
class _Pass:
    """What one did. Allocations are counted from its first."""

    state: State
    events: Sequence[int]
    allocations: Sequence[tuple[int, int, int]]
    work: bytes
    results: Sequence[Any]
    form: Any
    # of the cast weights that autocast keeps until it ends
    kept: frozenset[int]
    # when it made what is alive at its end
    made: Sequence[tuple[int, int]]
    first_event: int
    first_allocation: int
    first_work: int
    num_work: int
    num_alike: int = 0

    def does_the_same(self, other: _Pass) -> bool:
        names = ("state", "events", "allocations", "work", "results", "form", "kept")
        return all(getattr(self, name) == getattr(other, name) for name in names)


class SamePasses:
    def __init__(self, device: Device, note: Callable[[str], None]) -> None:
        self._device, self._note = device, note
        self._given: State | None = None
        self._last: _Pass | None = None
        self._parts: _Parts | None = None
        self._num_in_vain = 0
        self._kept: list[Tensor] = []  # by autocast

    @contextmanager
    def repeating(self) -> Iterator[None]:
        clear = torch.clear_autocast_cache

        def clear_autocast_cache() -> None:
            self._kept.clear()
            clear()

        torch.clear_autocast_cache = clear_autocast_cache
        try:
            yield
        finally:
            torch.clear_autocast_cache = clear

    def run(self, call: Callable[..., Any], module: Any, *arguments: Any, **options: Any) -> Any:
        given = None if torch.is_grad_enabled() else _given(module, arguments, options)
        if given is None or given != self._given:
            self._given, self._last, self._parts, self._num_in_vain = given, None, None, 0
            return call(module, *arguments, **options)
        self._parts = parts = self._parts or _Parts(module)
        if self._num_in_vain > MOST_IN_VAIN or parts.has_hooks:  # who knows what hooks do
            return call(module, *arguments, **options)
        last, state = self._last, parts.state()
        if last and last.num_alike >= FEWEST_ALIKE and last.state == state:
            self._note(NOTE)
            self._num_in_vain = 0
            return self._repeat(last)
        self._num_in_vain += 1
        return self._observe(last, parts, call, module, *arguments, **options)

    def _observe(
        self,
        last: _Pass | None,
        parts: _Parts,
        call: Callable[..., Any],
        module: Any,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        device, numbers, state = self._device, _random_numbers(), parts.state()
        num_reads = device.library.vramcast_num_host_reads
        num_before = num_reads()
        first_event = device.num("events")
        was_given_back = last is not None and last.kept <= self._freed_since(last)
        first_allocation, first_work = device.num_allocations(), device.num("work")
        result = call(module, *arguments, **options)
        self._last = None
        is_same = num_reads() == num_before and _random_numbers() == numbers
        if not is_same or parts.state() != state:
            return result
        events = [_relative(event, first_allocation) for event in device.events(first_event)]
        work, allocations = device.work(first_work), device.allocations(first_allocation)
        leaves, form = trees.tree_flatten(result)
        results = [_result(device, leaf, first_allocation) for leaf in leaves]
        if 0 in events or None in results:
            return result
        alive = {number for number in set(events) if number > 0} - {-number for number in events}
        tensors = [one for one in results if isinstance(one, _Result)]
        returned = {one.block for one in tensors}
        kept = frozenset(alive - returned)
        has_views = len({(one.block, one.dtype) for one in tensors}) > len(returned)
        is_unknown = kept and not torch.is_autocast_enabled("cuda")
        if not returned <= alive or has_views or is_unknown:
            return result
        sizes = [(one.num_bytes, one.operator_name, one.stream) for one in allocations]
        made = [(at, number) for at, number in enumerate(events) if number in alive]
        found = _Pass(
            state,
            events,
            sizes,
            bytes(work),
            results,
            form,
            kept,
            made,
            first_event,
            first_allocation,
            first_work,
            len(work),
        )
        if last and was_given_back and last.does_the_same(found):
            found.num_alike = last.num_alike + 1
        self._last = found
        return result

    def _freed_since(self, last: _Pass) -> set[int]:
        events = self._device.events(last.first_event + len(last.events))
        return {-event - last.first_allocation for event in events}

    def _repeat(self, last: _Pass) -> Any:
        """Its results are made where it made them, so that all other memory is where it was."""
        library = self._device.library
        made: dict[int, Tensor] = {}
        begin = last.first_event
        wanted = {one.block: one for one in last.results if isinstance(one, _Result)}
        for at, number in last.made:
            library.vramcast_repeat_events(begin, last.first_event + at, begin == last.first_event)
            begin = last.first_event + at + 1
            num_bytes, name, _ = last.allocations[number - 1]
            made[number] = self._made(num_bytes, name, wanted.get(number))
        end = last.first_event + len(last.events)
        library.vramcast_repeat_events(begin, end, begin == last.first_event)
        library.vramcast_append_work(last.first_work, last.first_work + last.num_work)
        self._kept += [made[number] for number in last.kept]
        return trees.tree_unflatten([_again(one, made) for one in last.results], last.form)

    def _made(self, num_bytes: int, name: int, result: _Result | None) -> Tensor:
        library, dtype = self._device.library, result.dtype if result else torch.uint8
        before = library.vramcast_begin_kernel(self._device.name(name).encode())
        try:
            return torch.empty(num_bytes // dtype.itemsize, dtype=dtype, device="cuda")
        finally:
            library.vramcast_end_kernel(before)


def _given(module: torch.nn.Module, arguments: Any, options: Any) -> State | None:
    """What a pass depends on. None where that is not known."""
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return None
    leaves = trees.tree_leaves((arguments, options))
    described = [_described(leaf) for leaf in leaves]
    modes = torch.is_autocast_enabled("cuda"), torch.is_inference_mode_enabled()
    return None if None in described else (id(module), *modes, *described)


def _described(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        is_known = leaf.is_cuda and type(leaf) in (Tensor, torch.nn.Parameter)
        steps = [step for size, step in zip(leaf.shape, leaf.stride(), strict=True) if size > 1]
        return (leaf.shape, steps, leaf.dtype) if is_known else None
    return (type(leaf), leaf) if isinstance(leaf, PLAIN) else None


class _Parts:
    """Of a module: what changes with whatever is put into one of them, and with their tensors."""

    def __init__(self, module: torch.nn.Module) -> None:
        parts = list(module.modules())
        self.has_hooks = any(part._forward_hooks or part._forward_pre_hooks for part in parts)
        self._dicts = [vars(part) for part in parts]
        values = [value for each in self._dicts for value in each.values()]
        self._containers = [one for one in values if isinstance(one, dict | list | set)]
        self._tensors = [*module.parameters(), *module.buffers()]

    def state(self) -> State:
        found = [tuple(map(id, each.values())) for each in self._dicts]
        sizes = [*map(len, self._containers)]
        return found, sizes, [(id(one), one._version) for one in self._tensors]


def _random_numbers() -> Any:
    return torch.get_rng_state().numpy().tobytes(), random.getstate()


def _relative(event: int, first: int) -> int:
    """0 for what is no allocation of the pass, or its end."""
    number = abs(event) - first
    is_own = 0 < number < MOST_ALLOCATIONS
    return (number if event > 0 else -number) if is_own else 0


def _result(device: Device, leaf: Any, first: int) -> Any:
    if not isinstance(leaf, Tensor):
        return (leaf,) if isinstance(leaf, PLAIN) else None
    if type(leaf) is not Tensor or not leaf.is_cuda or torch.ops.vramcast.values(leaf) is not None:
        return None
    (number,) = device.block_ids([leaf.untyped_storage().data_ptr()])
    return _Result(
        number - first, leaf.shape, leaf.stride(), int(leaf.storage_offset()), leaf.dtype
    )


def _again(one: Any, made: dict[int, Tensor]) -> Any:
    if not isinstance(one, _Result):
        return one[0]
    return made[one.block].as_strided(one.size, one.stride, one.offset)
