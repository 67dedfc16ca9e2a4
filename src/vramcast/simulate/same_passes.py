"""Forward passes of an evaluation that do the same are not run again and again.

After a few passes that changed nothing in the module, read nothing from the GPU and did the same,
further ones only repeat their events. Where the input grows, only one pass in several is run; the
sizes of the others are extrapolated from those.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from operator import gt, sub
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from vramcast.simulate import pass_forms as forms
from vramcast.simulate.device import Device
from vramcast.simulate.host_reads import HostReads
from vramcast.simulate.pass_forms import Numbers, Result, State

FEWEST_ALIKE = 4
MOST_IN_VAIN = 12
# where the input grows; odd, because kernels pad to multiples of 8
FEWEST_GROWING, RUN_ONE_IN, RUN_AT_LEAST_ONE_IN = 8, 17, 71
MOST_KINDS, MOST_PERIOD, MOST_SEEN = 4, 2, 256
MOST_ALLOCATIONS = 1 << 40  # the numbers of other events are larger
NOTE = (
    "forward passes of an evaluation that did the same as those before were not run again: only "
    "their memory and time were taken"
)
GROWING = (
    f"of forward passes whose input grows, as for a sample, one in {RUN_ONE_IN} or fewer were run: "
    "what the others take is estimated"
)


@dataclass
class _Pass:
    """What one forward pass did. Its allocations are numbered from its first."""

    same: State  # equal for all passes that are alike
    # sizes of its allocations; then sizes, strides and offsets of its results
    numbers: Numbers
    names: Sequence[int]
    work: bytes
    results: Sequence[Any]
    form: Any
    # numbers of the cast weights that autocast keeps until it ends
    kept: frozenset[int]
    # the event index and number of allocations that are alive at its end
    made: Sequence[tuple[int, int]]
    # these and its tensors, as native/repeating.h wants them
    left: tuple[list[int], list[int]]
    num_events: int
    num_work: int
    first_event: int
    first_allocation: int
    first_work: int
    num_alike: int = 0
    # the growth of `numbers` per pass, and the growth of that
    step: Any = 0
    bend: Any = 0
    is_exact: Any = True  # so far
    run_one_in: int = RUN_ONE_IN
    has_graph: Any = False
    grows_by: Any = ()  # how much the sizes in its arguments grow per pass

    def compare(self, last: _Pass, num_passes: int, grows: bool) -> None:
        if self.same != last.same:
            return
        if not grows and not self.is_like(last):
            return
        self.num_alike = last.num_alike + 1
        grown, expected = self.numbers - last.numbers, last.after(num_passes)
        if self.num_alike < 3:
            self.step, self.bend = grown, (grown - last.step if last.num_alike else 0 * grown)
            return
        self.is_exact = last.is_exact & (self.numbers == expected)
        must_be = [*(number - 1 for _, number in self.made)], slice(len(self.names), None)
        if not all(self.is_exact[places].all() for places in must_be):
            self.num_alike = 0
            return
        # padded sizes grow in steps
        stairs = grown // num_passes if num_passes >= RUN_ONE_IN else 0
        self.step = np.where(self.is_exact, last.step + num_passes * last.bend, stairs)
        self.bend = last.bend * self.is_exact
        is_near = abs(self.numbers - expected) <= RUN_ONE_IN * abs(self.step)
        if num_passes > 1 and is_near.all():
            self.run_one_in = min(2 * last.run_one_in + 1, RUN_AT_LEAST_ONE_IN)

    def is_like(self, other: _Pass) -> bool:
        mine, others = ((one.same, one.work, [*one.numbers]) for one in (self, other))
        return mine == others

    def after(self, num_passes: int) -> Numbers:
        more = self.step * num_passes + self.bend * (num_passes * (num_passes + 1) // 2)
        numbers: Numbers = np.maximum(self.numbers + more, 0)
        return numbers


@dataclass(eq=False)
class _Known:
    """The last passes of a module of one kind, such as the blocks of a long sample."""

    form: State
    numbers: Sequence[int]
    step: Sequence[int]  # how much they grow per pass
    num_passes: int = 0
    num_since: int = 0  # passes that were not run
    num_in_vain: int = 0
    is_old: bool = False
    is_odd: bool = False  # the last pass that was run did not fit the pattern
    period: int = 1  # only one in so many passes is of this kind, as where an odd length is padded
    last: _Pass | None = None
    earlier: _Pass | None = None  # the one before it, where passes make graphs

    @property
    def grows(self) -> bool:
        return any(self.step)

    def compare(self, observed: _Pass | None, was_given_back: bool) -> None:
        last, num_passes = self.last, self.num_since
        self.last, self.num_since = observed, 0
        if observed is None:
            return
        self.earlier = last
        if last and was_given_back:
            observed.compare(last, num_passes, self.grows)
        # at every eighth size kernels do not pad
        is_known = last and self.grows and last.num_alike >= FEWEST_ALIKE
        self.is_odd = bool(is_known and not observed.num_alike and not self.is_odd)
        if self.is_odd:
            self.last, self.num_since = last, num_passes

    def part(self) -> None:
        """Its passes are not alike: every second one may be."""
        self.step, self.period = tuple(2 * one for one in self.step), 2 * self.period
        self.last, self.num_since, self.num_in_vain = None, 0, 0


@dataclass(eq=False)
class _Module:
    num_backwards: int = 0  # of the program, until the last pass with gradients
    parts: forms.Parts | None = None
    kinds: list[_Known] = field(default_factory=list)
    # passes that were run, by the sizes in their arguments: a sample that is made in parts comes
    # back to them
    seen: dict[Any, Any] = field(default_factory=dict)
    num_verified: int = 0  # passes that did the same as one that was seen before

    def add(self, numbers: Sequence[int], observed: _Pass | None) -> None:
        if before := self.seen.get(numbers):
            is_like = bool(observed and before.is_like(observed))
            self.num_verified = is_like * (self.num_verified + 1)
        if len(self.seen) < MOST_SEEN or numbers in self.seen:
            self.seen[numbers] = None if observed and observed.kept else observed


class SamePasses:
    def __init__(self, device: Device, note: Callable[[str], None], reads: HostReads) -> None:
        self._device, self._note, self._reads = device, note, reads
        self._known: WeakKeyDictionary[torch.nn.Module, _Module] = WeakKeyDictionary()
        self._kept: list[Tensor] = []  # cast weights, which autocast keeps
        self._anchor = torch.empty(0, requires_grad=True)  # what is made of it has a graph

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
        given = forms.given(arguments, options)
        go = functools.partial(call, module, *arguments, **options)
        if given is None:
            self._known.pop(module, None)
            return go()
        form, numbers, leaves = given
        own = self._known.setdefault(module, _Module())
        num_backwards = self._reads.num_backward_passes
        if torch.is_grad_enabled() and own.num_backwards != num_backwards:
            # its gradients may be wanted
            own = self._known[module] = _Module(num_backwards)
        known = self._found(own.kinds, form, numbers)
        known.num_passes += 1
        is_early = not known.is_old or known.grows and known.num_passes < FEWEST_GROWING
        known.is_old = True
        if known.num_passes == 1:  # it may make parts of the module
            return go()
        own.parts = parts = own.parts or forms.Parts(module)
        seen = own.num_verified >= FEWEST_ALIKE and own.seen.get(numbers)
        if seen and seen.same[:2] == (form, parts.state()):
            known.last, known.num_since = (seen if seen.grows_by == known.step else None), 0
            return self._repeat(known, seen, leaves, go)
        if known.num_in_vain > MOST_IN_VAIN and known.grows and known.period < MOST_PERIOD:
            known.part()
        if parts.has_hooks or known.num_in_vain > MOST_IN_VAIN:  # hooks may do anything
            return go()
        last, known.num_since = known.last, known.num_since + 1
        is_like = last and last.num_alike >= FEWEST_ALIKE
        is_due = last and known.grows and known.num_since >= last.run_one_in
        # while an input keeps growing, nobody changes the module
        if last and is_like and not is_due and (known.grows or last.same[1] == parts.state()):
            return self._repeat(known, last, leaves, go)
        known.num_in_vain += not is_early
        # in a loop that makes a sample, the graph of the last pass is still there
        kept_by = known.earlier if last and last.has_graph else last
        was_given_back = not kept_by or self._has_freed_kept(kept_by)
        result, observed = self._observed(parts, known, go, leaves)
        own.add(numbers, observed)
        known.compare(None if is_early else observed, was_given_back)
        return result

    @staticmethod
    def _found(all_known: list[_Known], form: State, numbers: Sequence[int]) -> _Known:
        """The kind of passes that these sizes continue, or a new kind. The last used is the last in
        the list."""
        alike = [
            (known, tuple(map(sub, numbers, known.numbers)))
            for known in all_known
            if known.form == form
        ]
        for found, step in alike:
            if step == found.step:
                all_known.remove(found)
                break
        else:
            num_passes = max((known.num_passes for known in all_known), default=0)
            found = _Known(form, numbers, (0,) * len(numbers), num_passes)
            if alike:
                near, found.step = min(alike, key=lambda one: _size(one[1]))
                if near.period > 1 and _size(found.step) < _size(near.step):
                    found.step, found.period = near.step, near.period
        found.numbers = numbers
        all_known.append(found)
        del all_known[:-MOST_KINDS]
        return found

    def _observed(
        self, parts: forms.Parts, known: _Known, go: Any, leaves: Sequence[Any]
    ) -> tuple[Any, _Pass | None]:
        device, random_numbers, state = self._device, forms.random_numbers(), parts.state()
        given, uses = [*map(id, leaves)], forms.num_uses(leaves)
        num_reads = device.library.vramcast_num_host_reads
        num_before = num_reads()
        first = device.num("events"), device.num("allocations"), device.num("work")
        result = go()
        is_same = num_reads() == num_before and forms.random_numbers() == random_numbers
        is_same = is_same and [*map(id, forms.flat((go.args[1:], go.keywords))[0])] == given
        if torch.is_grad_enabled():
            # only a graph that holds all arguments can be made again
            is_same &= all(map(gt, forms.num_uses(leaves), uses)) and bool(
                getattr(result, "grad_fn", None)
            )
        if not is_same or parts.state() != state:
            return result, None
        observed = self._pass(result, (known.form, state), given, *first)
        if observed:
            observed.grows_by, observed.has_graph = known.step, torch.is_grad_enabled()
        return result, observed

    def _pass(self, result: Any, state: State, given: Sequence[int], *first: int) -> _Pass | None:
        """Describes the pass. None where it cannot be repeated."""
        device, (first_event, first_allocation, first_work) = self._device, first
        events = [_relative(event, first_allocation) for event in device.events(first_event)]
        work, allocations = device.work(first_work), device.allocations(first_allocation)
        leaves, form = forms.flat(result)
        numbers = [one.num_bytes for one in allocations]
        results = [forms.result(device, leaf, first_allocation, given, numbers) for leaf in leaves]
        if 0 in events or None in results:
            return None
        alive = {number for number in set(events) if number > 0} - {-number for number in events}
        tensors = [one for one in results if isinstance(one, Result)]
        returned = {one.block for one in tensors}
        kept = frozenset(alive - returned)
        has_views = len({one[:2] for one in tensors}) > len(returned)
        # autocast keeps weights, a graph keeps what its backward pass needs
        is_unknown = kept and not (torch.is_autocast_enabled("cuda") or torch.is_grad_enabled())
        if not returned <= alive or has_views or is_unknown:
            return None
        names = [one.operator_name for one in allocations]
        made = [(at, number) for at, number in enumerate(events) if number in alive]
        return _Pass(
            (*state, events, names, [one.stream for one in allocations], results, form, kept),
            np.array(numbers, np.int64),
            names,
            bytes(work),
            results,
            form,
            kept,
            made,
            ([*chain(*made)], [*chain(*tensors)]),
            len(events),
            len(work),
            *first,
        )

    def _has_freed_kept(self, last: _Pass) -> bool:
        events = last.kept and self._device.events(last.first_event + last.num_events)
        return last.kept <= {-event - last.first_allocation for event in events}

    def _repeat(self, known: _Known, last: _Pass, given: Sequence[Any], go: Any) -> Any:
        """Repeats the events of a pass. Its results are allocated at the same place in them, so
        that all other memory is laid out as before."""
        self._note(GROWING if known.grows and known.num_since else NOTE)
        known.num_in_vain = 0
        numbers = last.after(known.num_since)
        of_pass = last.first_event, last.num_events, last.first_allocation
        made = torch.ops.vramcast.repeat_pass.default(numbers.ctypes.data, *of_pass, *last.left)
        self._device.library.vramcast_append_work(last.first_work, last.first_work + last.num_work)
        if last.has_graph:
            return forms.Unused.apply(self._anchor, made, go)
        left = iter(made)
        leaves = [forms.again(one, left, numbers, given) for one in last.results]
        self._kept += left
        return forms.unflat(iter(leaves), last.form)


def _size(step: Sequence[int]) -> int:
    return sum(map(abs, step))


def _relative(event: int, first: int) -> int:
    """The event with its allocation numbered within the pass. 0 for events that concern no
    allocation of the pass."""
    number = abs(event) - first
    is_own = 0 < number < MOST_ALLOCATIONS
    return (number if event > 0 else -number) if is_own else 0
