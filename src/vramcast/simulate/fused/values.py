"""What a block of a fused kernel computes, and the notes that are taken of it."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]
SECTOR_BYTES = 32
LOADED, STORED, ADDED = "load", "store", "atomic_add"
# An operation by the name of its cost (costs.py).
PLAIN, DIVISION, WHOLE_DIVISION, CAST, REDUCTION = "plain", "div", "whole_div", "cast", "reduction"


class Tensor(NamedTuple):
    elements: int
    item_bytes: int
    number: int  # the same for a tensor that is given twice

    @property
    def num_bytes(self) -> int:
        return self.elements * self.item_bytes


@dataclass(frozen=True)
class Access:
    tensor: Tensor
    places: Numbers  # in elements
    is_asked: Numbers  # what a mask leaves
    way: str
    share: float  # how often the block does it, of a loop of which a part was gone through
    loop: int  # the number of the block's loop, 0 outside of them

    @cached_property
    def sectors(self) -> Numbers:
        places = self.places if self.is_asked.all() else self.places[self.is_asked]
        return np.unique(places * self.tensor.item_bytes // SECTOR_BYTES)


@dataclass(eq=False)
class Done:
    """Operations of a kind, or an access, and what was done before for it."""

    kind: str
    number: float
    causes: tuple["Done", ...]
    access: Access | None = None


class Notes:
    """Of one block: its operations, element by element, and its accesses to memory.

    A compiler leaves out what nothing uses: what leads to something written is counted.
    """

    def __init__(self) -> None:
        self.operations = defaultdict[str, float](float)
        self.accesses: list[Access] = []
        self.reductions = 0
        self.tensors = set[Tensor]()  # all that were named, used or not
        self.rounds = 0  # of its loops
        self.share = 1.0
        self.loops = 0
        self._done: list[Done] = []

    def did(self, kind: str, number: int, *given: Any) -> Done:
        """Operations on what is given."""
        done = Done(kind, number * self.share if number > 1 else 0.0, causes_of(given))
        self._done.append(done)
        return done

    def accessed(self, access: Access, *given: Any) -> Done:
        done = Done(access.way, 0.0, causes_of(given), access)
        self.tensors.add(access.tensor)
        self._done.append(done)
        return done

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
                self.reductions += done.kind == REDUCTION


class Name(str):
    """A type of Triton's."""


class Values:
    """Numbers of a block's elements. Those that are not known are some number."""

    __array_priority__ = 1.0  # numpy leaves operators to this class

    def __init__(self, numbers: Any, notes: Notes, *causes: Done) -> None:
        self.numbers, self.notes, self.causes = np.asarray(numbers), notes, causes

    @property
    def shape(self) -> tuple[int, ...]:
        return self.numbers.shape

    @property
    def dtype(self) -> Name:
        return Name({"b": "int1", "i": "int64", "u": "uint32"}.get(self.numbers.dtype.kind, "fp32"))

    def with_numbers(self, numbers: Any) -> Self:
        return type(self)(numbers, self.notes, *self.causes)

    def combined(self, operation: Callable[..., Any], *others: Any, kind: str = PLAIN) -> Self:
        with np.errstate(all="ignore"):
            found = np.asarray(operation(self.numbers, *map(numbers_of, others)))
        return type(self)(found, self.notes, self.notes.did(kind, found.size, self, *others))

    def to(self, dtype: Any, *_: Any, **__: Any) -> Self:
        name = str(dtype)
        if "int1" in name:
            return self.combined(lambda numbers: numbers.astype(bool), kind=CAST)
        if "int" in name:
            whole = lambda numbers: np.nan_to_num(numbers).astype(np.int64)  # noqa: E731
            return self.combined(whole, kind=CAST)
        return self.combined(lambda numbers: numbers.astype(np.float64), kind=CAST)

    def broadcast_to(self, *shape: Any) -> Self:
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
        return self.with_numbers(np.broadcast_to(self.numbers, tuple(map(int, sizes))))

    def __getitem__(self, part: Any) -> Self:
        return self.with_numbers(self.numbers[part])

    def __floordiv__(self, other: Any) -> Self:
        return self.combined(_divided(np.floor_divide), other, kind=_cost_of_division(other))

    def __mod__(self, other: Any) -> Self:
        return self.combined(_divided(np.mod), other, kind=_cost_of_division(other))

    def __truediv__(self, other: Any) -> Self:
        return self.combined(_divided(np.divide), other, kind=DIVISION)

    def __rtruediv__(self, other: Any) -> Self:
        return type(self)(other, self.notes) / self

    def __invert__(self) -> Self:
        return self.combined(np.logical_not if self.dtype == "int1" else np.invert)

    def __neg__(self) -> Self:
        return self.with_numbers(-self.numbers)

    def __bool__(self) -> bool:
        return bool(self.numbers.flat[0])

    def __int__(self) -> int:
        return int(self.numbers.flat[0])

    __index__ = __int__
    __hash__ = None  # type: ignore[assignment]


def _operator(operation: Callable[..., Any]) -> Callable[[Values, Any], Values]:
    return lambda one, other: one.combined(operation, other)


def _turned(operation: Callable[..., Any]) -> Callable[[Values, Any], Values]:
    return lambda one, other: one.combined(lambda numbers, first: operation(first, numbers), other)


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


def _divided(operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda numbers, by: operation(numbers, np.where(np.asarray(by) == 0, 1, by))


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

    def to(self, *_: Any, **__: Any) -> "Address":
        return self
