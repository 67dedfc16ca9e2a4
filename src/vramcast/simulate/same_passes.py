"""Forward passes of an evaluation that do the same are not run again and again.

After a few with tensors of the same shapes that changed nothing of the module, read nothing from
the GPU and did the same, those that follow only do that once more. Where the input grows, one
in some is run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from itertools import chain
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as trees

from vramcast.simulate.device import Device

FEWEST_ALIKE = 4
MOST_IN_VAIN = 12
# where the input grows, all of a short sample are run; odd, as kernels pad to multiples of 8
FEWEST_GROWING, RUN_ONE_IN = 32, 17
MOST_KINDS = 4
MOST_ALLOCATIONS = 1 << 40  # the numbers of other events are larger
NOTE = (
    "forward passes of an evaluation that did the same as those before were not run again: only "
    "their memory and time were taken"
)
GROWING = (
    f"of forward passes whose input grows, as for a sample, one in {RUN_ONE_IN} was run: the last "
    "may take a little more"
)
PLAIN = (int, float, str, type(None), torch.dtype, torch.device, torch.Size)
State = tuple[Any, ...]
Numbers = NDArray[np.int64]


class _Result(NamedTuple):
    block: int  # the allocation that has it, counted from the first of the pass
    dtype: torch.dtype
    num_dims: int


@dataclass
class _Pass:
    """What one did. Allocations are counted from its first."""

    same: State  # of all passes that are alike
    sizes: Sequence[int]  # of its allocations
    names: Sequence[int]
    work: bytes
    results: Sequence[Any]
    form: Any
    # of the cast weights that autocast keeps until it ends
    kept: frozenset[int]
    # when it made what is alive at its end
    made: Sequence[tuple[int, int]]
    # sizes, strides and offsets of its results, then the bytes of what it made
    numbers: Numbers
    num_events: int
    first_event: int
    first_allocation: int
    first_work: int
    num_work: int
    num_alike: int = 0
    growth: Any = None  # of the numbers, from one pass to the next

    def compare(self, last: _Pass, num_passes: int, grows: bool) -> None:
        if self.same != last.same:
            return
        if not grows and (self.work != last.work or self.sizes != last.sizes):
            return
        self.growth, rest = np.divmod(self.numbers - last.numbers, num_passes)
        if not rest.any() and (last.growth is None or np.array_equal(self.growth, last.growth)):
            self.num_alike = last.num_alike + 1


@dataclass(eq=False)
class _Known:
    """Of a module: its last passes of one kind, such as the blocks of a long sample."""

    form: State
    numbers: Numbers
    step: Numbers  # by which they grow
    num_passes: int = 0
    num_since: int = 0  # passes that were not run
    num_in_vain: int = 0
    is_old: bool = False
    is_odd: bool = False  # the last that was run
    last: _Pass | None = None
    parts: _Parts | None = None

    @property
    def grows(self) -> bool:
        return bool(self.step.any())


class SamePasses:
    def __init__(self, device: Device, note: Callable[[str], None]) -> None:
        self._device, self._note = device, note
        self._known: WeakKeyDictionary[torch.nn.Module, list[_Known]] = WeakKeyDictionary()
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
        given = None if torch.is_grad_enabled() else _given(arguments, options)
        if given is None:
            self._known.pop(module, None)
            return call(module, *arguments, **options)
        known = self._found(self._known.setdefault(module, []), *given)
        known.num_passes += 1
        if not known.is_old or known.grows and known.num_passes < FEWEST_GROWING:
            known.is_old = True
            return call(module, *arguments, **options)
        known.parts = parts = known.parts or _Parts(module)
        if known.num_in_vain > MOST_IN_VAIN or parts.has_hooks:  # who knows what hooks do
            return call(module, *arguments, **options)
        last, known.num_since = known.last, known.num_since + 1
        is_due = known.grows and known.num_since >= RUN_ONE_IN
        is_like = last and last.num_alike >= FEWEST_ALIKE and not is_due
        # while an input grows on, nobody changes the module
        if last and is_like and (known.grows or last.same[0] == parts.state()):
            self._note(GROWING if known.grows else NOTE)
            known.num_in_vain = 0
            return self._repeat(last, known.num_since)
        known.num_in_vain += 1
        return self._observe(known, parts, call, module, *arguments, **options)

    @staticmethod
    def _found(all_known: list[_Known], form: State, numbers: Numbers) -> _Known:
        """The one that goes on with these, or of a sample that begins. Last used last."""
        alike = [(known, numbers - known.numbers) for known in all_known if known.form == form]
        for found, step in alike:
            if np.array_equal(step, found.step):
                all_known.remove(found)
                break
        else:
            step = min((step for _, step in alike), key=_size, default=0 * numbers)
            num_passes = max((known.num_passes for known in all_known), default=0)
            found = _Known(form, numbers, step, num_passes)
        found.numbers = numbers
        all_known.append(found)
        del all_known[:-MOST_KINDS]
        return found

    def _observe(
        self,
        known: _Known,
        parts: _Parts,
        call: Callable[..., Any],
        module: Any,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        device, random_numbers, state = self._device, _random_numbers(), parts.state()
        given = [*map(id, _flat((arguments, options))[0])]
        last, num_passes = known.last, known.num_since
        known.last, known.num_since = None, 0
        num_reads = device.library.vramcast_num_host_reads
        num_before = num_reads()
        first_event = device.num("events")
        was_given_back = not last or not last.kept or last.kept <= self._freed_since(last)
        first_allocation, first_work = device.num("allocations"), device.num("work")
        result = call(module, *arguments, **options)
        is_same = num_reads() == num_before and _random_numbers() == random_numbers
        is_same = is_same and [*map(id, _flat((arguments, options))[0])] == given
        if not is_same or parts.state() != state:
            return result
        events = [_relative(event, first_allocation) for event in device.events(first_event)]
        work, allocations = device.work(first_work), device.allocations(first_allocation)
        leaves, form = _flat(result)
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
        sizes, names = (
            [getattr(one, name) for one in allocations] for name in ("num_bytes", "operator_name")
        )
        made = [(at, number) for at, number in enumerate(events) if number in alive]
        numbers: list[int] = []
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                numbers += (*leaf.shape, *leaf.stride(), int(leaf.storage_offset()))
            elif type(leaf) is int:
                numbers.append(leaf)
        numbers += [sizes[number - 1] for _, number in made]
        observed = _Pass(
            (state, events, names, [one.stream for one in allocations], results, form, kept),
            sizes,
            names,
            bytes(work),
            results,
            form,
            kept,
            made,
            np.array(numbers, np.int64),
            len(events),
            first_event,
            first_allocation,
            first_work,
            len(work),
        )
        if last and was_given_back:
            observed.compare(last, num_passes, known.grows)
        # kernels do not pad every eighth size
        is_known = last is not None and known.grows and last.num_alike >= FEWEST_ALIKE
        known.is_odd = is_known and not observed.num_alike and not known.is_odd
        known.last = observed
        if known.is_odd:
            known.last, known.num_since = last, num_passes
        return result

    def _freed_since(self, last: _Pass) -> set[int]:
        events = self._device.events(last.first_event + last.num_events)
        return {-event - last.first_allocation for event in events}

    def _repeat(self, last: _Pass, num_passes: int) -> Any:
        """Its results are made where it made them, so that all other memory is where it was."""
        library = self._device.library
        numbers = last.numbers + num_passes * last.growth
        num_sizes = len(numbers) - len(last.made)
        dtypes = {one.block: one.dtype for one in last.results if isinstance(one, _Result)}
        made: dict[int, Tensor] = {}
        begin = last.first_event
        for (at, number), num_bytes in zip(last.made, numbers[num_sizes:].tolist(), strict=True):
            library.vramcast_repeat_events(begin, last.first_event + at, begin == last.first_event)
            begin = last.first_event + at + 1
            dtype = dtypes.get(number, torch.uint8)
            made[number] = self._made(num_bytes, last.names[number - 1], dtype)
        end = last.first_event + last.num_events
        library.vramcast_repeat_events(begin, end, begin == last.first_event)
        library.vramcast_append_work(last.first_work, last.first_work + last.num_work)
        self._kept += [made[number] for number in last.kept]
        left = iter(numbers.tolist())
        return _unflat((_again(one, made, left) for one in last.results), last.form)

    def _made(self, num_bytes: int, name: int, dtype: torch.dtype) -> Tensor:
        library = self._device.library
        before = library.vramcast_begin_kernel(self._device.name(name).encode())
        try:
            return torch.empty(num_bytes // dtype.itemsize, dtype=dtype, device="cuda")
        finally:
            library.vramcast_end_kernel(before)


def _given(arguments: Any, options: Any) -> tuple[State, Numbers] | None:
    """What a pass depends on, and its sizes. None where that is not known."""
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return None
    if torch._C._functorch.peek_interpreter_stack():  # no storages
        return None
    leaves, form = _flat((arguments, options))
    described = [_described(leaf) for leaf in leaves]
    if None in described:
        return None
    modes = torch.is_autocast_enabled("cuda"), torch.is_inference_mode_enabled()
    numbers = [number for leaf in leaves for number in _sizes(leaf)]
    return (*modes, form, *described), np.array(numbers, np.int64)


def _flat(value: Any) -> tuple[list[Any], Any]:
    """Also what a dataclass holds, such as the cache of a sample."""
    found, form = trees.tree_flatten(value)
    leaves, forms = list[Any](), list[Any]()
    for leaf in found:
        if is_dataclass(type(leaf)) and hasattr(leaf, "__dict__"):
            inner, inner_form = _flat(vars(leaf))
            leaves += inner
            forms.append((type(leaf), inner_form))
        else:
            leaves.append(leaf)
            forms.append(None)
    return leaves, (form, forms)


def _unflat(leaves: Iterator[Any], form: Any) -> Any:
    tree, forms = form
    found = []
    for one in forms:
        if one is None:
            found.append(next(leaves))
            continue
        found.append(object.__new__(one[0]))
        vars(found[-1]).update(_unflat(leaves, one[1]))
    return trees.tree_unflatten(found, tree)


def _described(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        is_known = leaf.is_cuda and type(leaf) in (Tensor, torch.nn.Parameter)
        return (leaf.dtype, leaf.ndim, leaf.numel() > 0) if is_known else None
    if type(leaf) is int:
        return int
    return (type(leaf), leaf) if isinstance(leaf, PLAIN) else None


def _size(step: Numbers) -> int:
    return int(abs(step).sum())


def _sizes(leaf: Any) -> Sequence[int]:
    """The stride of a single one says nothing."""
    if not isinstance(leaf, Tensor):
        return (leaf,) if type(leaf) is int else ()
    strides = zip(leaf.shape, leaf.stride(), strict=True)
    return (*leaf.shape, *(step * (size > 1) for size, step in strides))


class _Parts:
    """Of a module: what changes with whatever is put into them, and with their tensors."""

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


def _random_numbers() -> Any:
    return torch.get_rng_state().numpy().tobytes(), random.getstate()


def _relative(event: int, first: int) -> int:
    """0 for what is no allocation of the pass, or its end."""
    number = abs(event) - first
    is_own = 0 < number < MOST_ALLOCATIONS
    return (number if event > 0 else -number) if is_own else 0


def _result(device: Device, leaf: Any, first: int) -> Any:
    if type(leaf) is int:
        return int
    if not isinstance(leaf, Tensor):
        return (leaf,) if isinstance(leaf, PLAIN) else None
    if type(leaf) is not Tensor or not leaf.is_cuda or torch.ops.vramcast.values(leaf) is not None:
        return None
    (number,) = device.block_ids([leaf.untyped_storage().data_ptr()])
    return _Result(number - first, leaf.dtype, leaf.ndim)


def _again(one: Any, made: dict[int, Tensor], numbers: Iterator[int]) -> Any:
    if one is int:
        return next(numbers)
    if not isinstance(one, _Result):
        return one[0]
    size, stride = ([next(numbers) for _ in range(one.num_dims)] for _ in range(2))
    return made[one.block].as_strided(size, stride, next(numbers))
