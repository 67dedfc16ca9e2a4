"""Stands in for Triton's language: a block of a kernel that Inductor wrote runs on the host.

Addresses and masks are computed as on a GPU. Numbers that the kernel would read are made up where
its tensors' contents are not known.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vramcast.simulate.fused.values import (
    ADDED,
    COLUMN_SUM,
    LOADED,
    PLAIN,
    REDUCTION,
    STORED,
    Access,
    Address,
    Done,
    Name,
    Notes,
    Numbers,
    Values,
    Written,
    causes_of,
    is_known,
    numbers_of,
)

if TYPE_CHECKING:  # a launch has this language
    from vramcast.simulate.fused.launch import Launch

MOST_ROUNDS = 2  # of a loop
ORDERED = 8192  # a table of at most so many whole numbers is taken to count up
SPREADING = 2_654_435_761  # times a place, a number that looks like any other
TYPES: tuple[str, ...] = ("float64", "float32", "float16", "bfloat16", "float8e4nv", "float8e5")
TYPES += ("int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
# Functions of each element, by the name of their cost.
SLOW = {"exp2": "exp", "log": "exp", "log2": "exp", "cos": "sin", "sqrt_rn": "sqrt"}
SLOW |= {"randn": "rand", "randint64": "rand"}
SLOW |= {n: n for n in ("exp", "erf", "tanh", "sin", "sqrt", "rsqrt", "pow", "sigmoid", "rand")}
SLOW |= {"log1p": "exp1", "expm1": "exp1"}
REDUCTIONS = {"sum": np.sum, "prod": np.prod, "any": np.any, "max2": np.max, "min2": np.min}
REDUCTIONS |= {"max": np.max, "min": np.min, "argmax": np.argmax, "argmin": np.argmin}
WITH_INDEX = ("max_with_index", "min_with_index")


class Whole(int):
    """A number that all threads of a block have."""

    def to(self, *_: Any) -> "Whole":
        return self


class Language:
    """`tl`, `libdevice`, `tl_math` and `triton_helpers` in one."""

    constexpr = object

    def __init__(self, notes: Notes, block: Sequence[int], launch: "Launch") -> None:
        self.notes, self._block, self._launch = notes, block, launch
        self._random = np.random.default_rng(0)

    def __getattr__(self, name: str) -> Any:
        if name in TYPES:
            return Name(name)
        if name in SLOW:
            return self._of_each(SLOW[name], name)
        if name in REDUCTIONS:
            return partial(self._reduced, function=REDUCTIONS[name])
        if name in WITH_INDEX:
            return lambda values, places, along: (self._reduced(values, along),) * 2
        if name.startswith("__"):
            raise AttributeError(name)
        return self._of_each(PLAIN, name)

    def _of_each(self, kind: str, name: str) -> Callable[..., Any]:
        """numpy's function of that name, where it has one; else some number."""
        function = getattr(np, name, None)

        def call(*given: Any, **named: Any) -> Any:
            given = given or tuple(named.values())
            values = [each for each in given if isinstance(each, Values)]
            if not values:
                return given[0] if given else None
            if isinstance(function, np.ufunc) and function.nin == len(given):
                return self._values(given[0]).combined(function, *given[1:], kind=kind)
            numbers = np.broadcast_arrays(*(each.numbers for each in values))[0]
            found = self._random.random(numbers.shape) if kind == "rand" else numbers
            return Values(found, self.notes, self.notes.did(kind, numbers.size, values))

        return call

    # Blocks, ranges, tensors of numbers

    def program_id(self, axis: int) -> Any:
        return Whole(self._block[axis])

    def num_programs(self, axis: int) -> Any:
        return self._launch.grid[axis]

    def arange(self, start: int, end: int) -> Values:
        return self._made(("arange", start, end), lambda: np.arange(start, end))

    def range(self, first: Any, end: Any, step: Any = 1, **_: Any) -> Iterator[int]:
        """A few of a loop's rounds, which stand for all of them."""
        first, end, step = int(first), int(end), int(step)
        number = max(0, -(-(end - first) // step))
        taken, before = min(number, MOST_ROUNDS), self.notes.share
        self.notes.rounds += number * before
        self.notes.loops += 1
        self.notes.is_shortened |= taken < number
        for turn in range(taken):
            self.notes.share = before * number / taken
            with self.notes.round():
                yield Whole(first + step * (turn * number // taken))
        self.notes.share = before

    static_range = range

    def full(self, shape: Sequence[Any], value: Any, dtype: Any = "float32") -> Values:
        name = str(dtype)
        made = bool(value) if name == "int1" else int(value) if "int" in name else float(value)
        sides = tuple(map(int, shape))
        return self._made(("full", sides, type(made), made), lambda: np.full(sides, made))

    def _made(self, key: Any, numbers: Callable[[], Numbers]) -> Values:
        values: Values = self.notes.once(key, lambda: Values(numbers(), self.notes, is_known=True))
        return values

    def zeros(self, shape: Sequence[Any], dtype: Any = "float32") -> Values:
        return self.full(shape, 0, dtype)

    def broadcast_to(self, input: Any, *shape: Any) -> Values:
        return self._values(input).broadcast_to(*shape)

    def where(self, condition: Any, x: Any, y: Any) -> Values:
        return self._values(condition).combined(np.where, x, y)

    def _values(self, given: Any) -> Values:
        return given if isinstance(given, Values) else Values(given, self.notes, is_known=True)

    # Functions of several tensors

    def maximum(self, x: Any, y: Any, *_: Any, **__: Any) -> Values:
        return self._values(x).combined(np.maximum, y)

    def minimum(self, x: Any, y: Any, *_: Any, **__: Any) -> Values:
        return self._values(x).combined(np.minimum, y)

    def minimum_with_index(self, best: Values, places: Values, new: Values, at: Values) -> Any:
        is_better = new.combined(np.less, best)
        return self.where(is_better, new, best), self.where(is_better, at, places)

    maximum_with_index = minimum_with_index

    def div_floor_integer(self, one: Any, other: Any) -> Any:
        return self._values(one).floor_divided(other)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return x * y + z

    def reduce(self, values: Any, along: Any, *_: Any, **__: Any) -> Any:
        if isinstance(values, tuple):
            return tuple(self._reduced(each, along) for each in values)
        return self._reduced(values, along)

    def _reduced(
        self, values: Values, along: Any = None, *_: Any, function: Any = None, **__: Any
    ) -> Values:
        numbers, axis = values.numbers, None if along is None else int(along)
        kind = COLUMN_SUM if axis == 0 < numbers.ndim - 1 else REDUCTION
        done = self.notes.did(kind, numbers.size, values)
        if axis is not None and axis >= numbers.ndim:
            axis = None
        if function and values.is_known:
            return Values(function(numbers, axis), self.notes, done, is_known=True)
        found = numbers.flat[0] if axis is None else numbers.take(0, axis)
        return Values(found, self.notes, done)

    def select_one(self, values: Values, mask: Any, dim: Any, keep_dims: bool = False) -> Values:
        kept = values.numbers.take([0], int(dim))
        found = kept if keep_dims else kept.take(0, int(dim))
        return Values(found, self.notes, *values.causes)

    def associative_scan(self, every: Sequence[Values], *_: Any, **__: Any) -> Any:
        return tuple(self._with(values, "scan", every) for values in every)

    def _with(self, values: Values, kind: str, *given: Any) -> Values:
        """The same numbers, after an operation on what is given."""
        done = self.notes.did(kind, values.numbers.size, *given)
        return Values(values.numbers, self.notes, done)

    def online_softmax_combine(self, most: Values, total: Values, new: Values, *_: Any) -> Any:
        largest = most.combined(np.maximum, new)
        return largest, self._with(new, "online_softmax", largest, total, new)

    def online_softmax_reduce(self, most: Values, total: Values, along: Any, *_: Any) -> Any:
        return self._reduced(most, along), self._reduced(total, along)

    def welford_reduce(
        self, new: Values, mean: Values, squares: Values, weight: Values, _: Any
    ) -> Any:
        return self._welford(mean, squares, weight, new)

    def welford_combine(self, mean: Values, squares: Values, weight: Values, *more: Any) -> Any:
        return self._welford(mean, squares, weight, *more)

    def _welford(self, *given: Values) -> Any:
        done = self.notes.did("welford", given[0].numbers.size, *given)
        return tuple(Values(each.numbers, self.notes, done) for each in given[:3])

    def welford(self, mean: Values, squares: Values, weight: Values, along: Any) -> Any:
        return tuple(self._reduced(each, along) for each in (mean, squares, weight))

    # Memory

    def load(
        self, pointer: Address, mask: Any = None, other: Any = 0, *_: Any, **__: Any
    ) -> Values:
        access, done = self._accessed(pointer, mask, LOADED)
        table = self._launch.tables.get(pointer.tensor.number)
        if table is None:
            found = self._made_up(access)
        else:
            inside = access.places % table.size
            found = np.where(access.is_asked, table[inside], numbers_of(other))
        known = table is not None and all(map(is_known, (pointer.at, mask)))
        at = found if np.ndim(numbers_of(pointer.at)) else found[0]
        return Values(at, self.notes, done, is_known=known)

    def store(self, pointer: Address, value: Any, mask: Any = None, *_: Any, **__: Any) -> None:
        access = self._accessed(pointer, mask, STORED, value)[0]
        numbers = np.broadcast_to(numbers_of(value), access.places.shape)
        is_sure = all(map(is_known, (pointer.at, value, mask)))
        self.notes.written.append(Written(access, numbers, is_sure))

    def atomic_add(self, pointer: Address, val: Any, mask: Any = None, *_: Any, **__: Any) -> Any:
        access = self._accessed(pointer, mask, ADDED, val)[0]
        self.notes.written.append(Written(access, access.places, is_sure=False))
        return val

    def _accessed(self, address: Address, mask: Any, way: str, *given: Any) -> tuple[Access, Done]:
        places = np.asarray(numbers_of(address.at)).astype(np.int64)
        elements = max(1, address.tensor.elements)
        is_asked = True if mask is None else numbers_of(mask)
        places, is_asked = np.broadcast_arrays(np.atleast_1d(places), is_asked)
        is_outside = is_asked & ((places < 0) | (places >= elements))
        if is_outside.any():  # of a number that was made up
            places = np.where(is_outside, places % elements, places)
        share, loop, causes = self.notes.share, self.notes.loops, causes_of((address,))
        found = Access(address.tensor, places, is_asked, way, share, loop, causes)
        return found, self.notes.accessed(found, address, mask, *given)

    def _made_up(self, access: Access) -> Numbers:
        """Tables of whole numbers have 8 bytes each, truths one."""
        tensor, places = access.tensor, access.places
        if tensor.item_bytes == 1:
            return self._random.integers(0, 2, places.shape).astype(bool)
        if tensor.item_bytes < 8:
            return self._random.uniform(-1, 1, places.shape)
        if tensor.elements <= ORDERED:
            return places
        return places * SPREADING % self._launch.most_elements
