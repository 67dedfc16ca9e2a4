"""What a block of a fused kernel computes, and the notes that are taken of it."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]
SECTOR_BYTES = 32
LOADED, STORED, ADDED = "load", "store", "atomic_add"
# An operation by the name of its cost (costs.py).
PLAIN, WHOLE, DIVISION, WHOLE_DIVISION, CAST = "plain", "whole", "div", "whole_div", "cast"
REDUCTION, COLUMN_SUM = "reduction", "column_sum"  # along rows, across them


class Tensor(NamedTuple):
    elements: int
    item_bytes: int
    number: int  # the same for a tensor that is given twice

    @property
    def num_bytes(self) -> int:
        return self.elements * self.item_bytes


def distinct(numbers: Numbers) -> Numbers:
    """Each number once, in order: sooner than numpy.unique where they are in order already."""
    flat = numbers.ravel()
    if (flat[1:] < flat[:-1]).any():
        flat = np.sort(flat)
    is_first = np.ones(flat.size, bool)
    np.not_equal(flat[1:], flat[:-1], out=is_first[1:])
    return flat[is_first]


@dataclass(frozen=True)
class Access:
    tensor: Tensor
    places: Numbers  # in elements
    is_asked: Numbers  # what a mask leaves
    way: str
    share: float  # how often the block does it, of a loop of which a part was gone through
    loop: int  # the number of the block's loop, 0 outside of them
    address: tuple["Done", ...]  # what it was computed by
    most_width: int = 16  # of what a thread asks for at once, in elements
    own_width: int = 0  # neighbours that a thread has, which it may ask for one after the other

    @cached_property
    def sectors(self) -> Numbers:
        places = self.places if self.is_asked.all() else self.places[self.is_asked]
        return distinct(places * self.tensor.item_bytes // SECTOR_BYTES)


class Written(NamedTuple):
    access: Access
    numbers: Numbers
    is_sure: bool  # of these numbers


@dataclass(eq=False)
class Done:
    """Operations of a kind, or an access, and what was done before for it."""

    kind: str
    number: float
    causes: tuple["Done", ...]
    share: float  # how often, as of an access
    access: Access | None = None


class Notes:
    """Of one block: its operations, element by element, and its accesses to memory.

    A compiler leaves out what nothing uses: what leads to something written is counted.
    """

    def __init__(self) -> None:
        self.operations = defaultdict[str, float](float)
        self.accesses: list[Access] = []
        self.written: list[Written] = []
        self.reductions = 0
        self.repeated_reductions = 0.0  # in each round of its loops
        self.tensors = set[Tensor]()  # all that were named, used or not
        self.rounds = 0.0  # of its loops
        self.pipelined = 0.0  # those of loops with products, which read ahead
        self.depth = 0  # how many reads wait for each other, because one tells where the next is
        self.share = 1.0
        self.loops = 0
        self.is_shortened = False  # of some loop only a part was gone through
        self.language: Any = None  # whose functions values have as methods
        self.most_numbers = math.inf  # that a block may have in all
        self._num_numbers = 0
        self._done: list[Done] = []
        self._found: dict[Any, tuple[Any, Any]] = {}

    def did(self, kind: str, number: int, *given: Any) -> Done:
        """Operations on what is given."""
        self._has_numbers(number)
        times = number * self.share if number > 1 else 0.0
        done = Done(kind, times, causes_of(given), self.share)
        self._done.append(done)
        return done

    def once(self, key: Any, make: Callable[[], Any], *given: Any) -> Any:
        """A compiler does the same with the same only once. What is given is kept, and so its
        identity."""
        if key not in self._found:
            self._found[key] = make(), given
        return self._found[key][0]

    @contextmanager
    def round(self) -> Iterator[None]:
        """Of a loop: what it finds is found anew in the next one."""
        before = dict(self._found)
        yield
        self._found = before

    def _has_numbers(self, more: int) -> None:
        self._num_numbers += more
        if self._num_numbers > self.most_numbers:
            raise RuntimeError(f"a block has more than {self.most_numbers:,} numbers")

    def accessed(self, access: Access, *given: Any) -> Done:
        self._has_numbers(access.places.size)
        done = Done(access.way, 0.0, causes_of(given), self.share, access)
        self.tensors.add(access.tensor)
        self._done.append(done)
        return done

    @property
    def sure(self) -> list[Written]:
        """To tensors of which all that is written is known."""
        unsure = {each.access.tensor for each in self.written if not each.is_sure}
        return [each for each in self.written if each.access.tensor not in unsure]

    def count(self) -> None:
        """When the block has ended."""
        used = {done for done in self._done if done.access and done.kind != LOADED}
        for done in reversed(self._done):
            if done in used:
                used.update(done.causes)
        for done in filter(used.__contains__, self._done):
            if done.access:
                self.accesses.append(done.access)
            else:
                self.operations[done.kind] += done.number
                is_reduction = done.kind in (REDUCTION, COLUMN_SUM)
                self.reductions += is_reduction
                self.repeated_reductions += is_reduction * done.share
        self.depth = max(_depths(self._done, used).values(), default=0)


def _depths(every: list[Done], used: set[Done]) -> dict[Done, int]:
    depths: dict[Done, int] = {}
    for done in every:  # in order, so that causes come before
        before = max((depths.get(cause, 0) for cause in done.causes), default=0)
        depths[done] = before + (done.kind == LOADED and done in used)
    return depths


class Name(str):
    """A type of Triton's."""


class Values:
    """Numbers of a block's elements. Those that are not known are some number."""

    __array_priority__ = 1.0  # numpy leaves operators to this class

    def __init__(self, numbers: Any, notes: Notes, *causes: Done, is_known: bool = False) -> None:
        self.numbers, self.notes, self.causes = np.asarray(numbers), notes, causes
        self.is_known = is_known

    @property
    def shape(self) -> tuple[int, ...]:
        return self.numbers.shape

    @property
    def dtype(self) -> Name:
        return Name({"b": "int1", "i": "int64", "u": "uint32"}.get(self.numbers.dtype.kind, "fp32"))

    def with_numbers(self, operation: Callable[[Numbers], Any], *about: Any) -> Self:
        """Of the same numbers, or their opposites: no operation of its own."""
        make = lambda: type(self)(  # noqa: E731
            operation(self.numbers), self.notes, *self.causes, is_known=self.is_known
        )
        values: Self = self.notes.once((*about, id(self)), make, self)
        return values

    def combined(self, operation: Callable[..., Any], *others: Any, kind: str = PLAIN) -> Self:
        def make() -> Any:
            found = np.asarray(operation(self.numbers, *map(numbers_of, others)))
            is_whole = kind == PLAIN and self.numbers.dtype.kind in "iu"
            done = self.notes.did(WHOLE if is_whole else kind, found.size, self, *others)
            known = all(map(is_known, (self, *others)))
            return type(self)(found, self.notes, done, is_known=known)

        key = (operation, id(self), *map(identity_of, others))
        values: Self = self.notes.once(key, make, self, others)
        return values

    def to(self, dtype: Any, *_: Any, **__: Any) -> Self:
        return self.combined(_cast_to(str(dtype)), kind=CAST)

    cast = to

    def broadcast_to(self, *shape: Any) -> Self:
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
        whole = tuple(map(int, sizes))
        return self.with_numbers(lambda numbers: np.broadcast_to(numbers, whole), "shape", whole)

    def __getattr__(self, name: str) -> Any:
        """Functions of the language are methods, too."""
        if self.notes.language is None or name.startswith("__"):
            raise AttributeError(name)
        return partial(getattr(self.notes.language, name), self)

    def __getitem__(self, part: Any) -> Self:
        return self.with_numbers(lambda numbers: numbers[part], "part", str(part))

    def __floordiv__(self, other: Any) -> Self:
        return self.combined(_rounded_to_zero, other, kind=_cost_of_division(other))

    def __mod__(self, other: Any) -> Self:
        return self.combined(_remainder, other, kind=_cost_of_division(other))

    def floor_divided(self, other: Any) -> Self:
        return self.combined(_floor_divided, other, kind=_cost_of_division(other))

    def __truediv__(self, other: Any) -> Self:
        return self.combined(_divided, other, kind=DIVISION)

    def __rtruediv__(self, other: Any) -> Self:
        return type(self)(other, self.notes, is_known=True) / self

    def __invert__(self) -> Self:
        return self.combined(np.logical_not if self.dtype == "int1" else np.invert)

    def __neg__(self) -> Self:
        return self.with_numbers(np.negative, "negative")

    def __bool__(self) -> bool:
        return bool(self.numbers.flat[0])

    def __int__(self) -> int:
        return int(self.numbers.flat[0])

    def __float__(self) -> float:
        return float(self.numbers.flat[0])

    __index__ = __int__
    __hash__ = None  # type: ignore[assignment]


def _operator(operation: Callable[..., Any]) -> Callable[[Values, Any], Values]:
    return lambda one, other: one.combined(operation, other)


def _turned(operation: Callable[..., Any]) -> Callable[[Values, Any], Values]:
    def turned(numbers: Any, first: Any) -> Any:
        return operation(first, numbers)

    return lambda one, other: one.combined(turned, other)


_OPERATIONS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
for _name, _operation in _OPERATIONS.items():
    setattr(Values, f"__{_name}__", _operator(_operation))
    setattr(Values, f"__r{_name}__", _turned(_operation))


def numbers_of(value: Any) -> Any:
    return value.numbers if isinstance(value, Values) else value


def is_known(value: Any) -> bool:
    return not isinstance(value, Values) or value.is_known


def causes_of(given: Iterable[Any]) -> tuple[Done, ...]:
    """Of values, addresses, and lists of them."""
    found: list[Done] = []
    for each in given:
        if isinstance(each, Address):
            each = each.at
        if isinstance(each, Values):
            found.extend(each.causes)
        elif isinstance(each, list | tuple):
            found.extend(causes_of(each))
    return tuple(found)


def identity_of(value: Any) -> Any:
    """The same for the same values."""
    return id(value) if isinstance(value, Values) else (type(value), str(value))


@cache
def _cast_to(name: str) -> Callable[[Numbers], Numbers]:
    if name == "int1":
        return lambda numbers: numbers.astype(bool)
    if "int" in name:
        return lambda numbers: np.nan_to_num(numbers).astype(np.int64).astype(name).astype(np.int64)
    return lambda numbers: numbers.astype(np.float64)


def _divisor(by: Any) -> Any:
    return np.where(np.asarray(by) == 0, 1, by)


def _divided(numbers: Any, by: Any) -> Any:
    return np.divide(numbers, _divisor(by))


def _floor_divided(numbers: Any, by: Any) -> Any:
    return np.floor_divide(numbers, _divisor(by))


def _remainder(numbers: Any, by: Any) -> Any:
    """As Triton has it, with the sign of what is divided."""
    return np.fmod(numbers, _divisor(by))


def _rounded_to_zero(numbers: Any, by: Any) -> Any:
    """As Triton divides whole numbers."""
    is_any_negative = np.less(numbers, 0).any()
    return _floor_divided(numbers - _remainder(numbers, by) if is_any_negative else numbers, by)


def _cost_of_division(divisor: Any) -> str:
    """Powers of two are shifts."""
    number = numbers_of(divisor)
    is_shift = np.ndim(number) == 0 and int(number) & (int(number) - 1) == 0
    return PLAIN if is_shift else WHOLE_DIVISION


class Address:
    """Places in a tensor."""

    def __init__(self, tensor: Tensor, at: Any = 0) -> None:
        self.tensor, self.at = tensor, at

    def __add__(self, more: Any) -> "Address":
        return Address(self.tensor, more + self.at)

    __radd__ = __add__

    def __sub__(self, less: Any) -> "Address":
        return Address(self.tensor, self.at - less)

    def to(self, *_: Any, **__: Any) -> "Address":
        return self

    def __getitem__(self, part: Any) -> "Address":
        return Address(self.tensor, self.at[part])

    @property
    def dtype(self) -> "Address":
        """As that of what it points to."""
        return self

    type = dtype

    @property
    def element_ty(self) -> Name:
        return Name({1: "int8", 2: "bfloat16", 4: "float32"}.get(self.tensor.item_bytes, "int64"))
