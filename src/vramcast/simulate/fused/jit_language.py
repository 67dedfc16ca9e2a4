"""Triton's language for kernels that people have written: more than Inductor uses of it."""

import builtins
import inspect
import math
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from vramcast.simulate.fused.language import REDUCTIONS, SLOW, TYPES, Language
from vramcast.simulate.fused.values import Access, Address, Done, Name, Values

TRITON = "triton"
# These say something to the compiler, and return what they are given.
HINTS = ("multiple_of", "max_contiguous", "max_constancy", "assume")
SILENT = ("static_assert", "static_print", "device_print", "device_assert", "debug_barrier")
SCANS = ("cumsum", "cumprod", "associative_scan")
# Functions of each element that numpy has under no such name, or has as no function of each.
PLAIN_FUNCTIONS = ("cast", "clamp", "round", "umulhi", "finitef")
ALIASES = {"fdiv": "divide", "div_rn": "divide", "abs": "absolute", "view": "reshape"}
# What Triton knows of Python's own functions. No other is run.
BUILTINS: tuple[str, ...] = (
    "abs",
    "bool",
    "enumerate",
    "float",
    "getattr",
    "hasattr",
    "int",
    "isinstance",
    "len",
)
BUILTINS += ("list", "max", "min", "reversed", "slice", "str", "sum", "tuple", "type", "zip")
MOST_ACCESSES = 4096  # of a block: one that waits for another block would never end


class Block(NamedTuple):
    """What `make_block_ptr` makes: a part of a tensor with several dimensions."""

    base: Address
    shape: Sequence[Any]
    strides: Sequence[Any]
    offsets: Sequence[Any]
    sides: Sequence[int]


class JitLanguage(Language):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.math = self.extra = self.cuda = self.libdevice = self.language = self
        self._scopes: dict[int, Scope] = {}
        self.num_dots = self.num_accesses = 0

    def __getattr__(self, name: str) -> Any:
        if name in ALIASES:
            return getattr(self, ALIASES[name])
        if name in HINTS:
            return lambda given, *_, **__: given
        if name in SILENT:
            return lambda *_, **__: None
        if name in REDUCTIONS:
            return partial(self._along, REDUCTIONS[name])
        if name in SCANS:
            return lambda values, *_, **__: self._with(values, "scan", values)
        is_known = name in SLOW or name in TYPES or name in PLAIN_FUNCTIONS
        if is_known or isinstance(getattr(np, name, None), np.ufunc):
            return super().__getattr__(name)
        raise AttributeError(f"{name} of Triton's language is not stood in for")

    @staticmethod
    def constant(value: Any) -> Any:
        """As the language has it: types are names."""
        kind = type(value).__name__
        if kind == "constexpr":
            return JitLanguage.constant(value.value)
        return Name(str(value)) if kind == "dtype" else value

    def named(self, found: Any) -> Any:
        """A global of a kernel's module."""
        if isinstance(found, types.ModuleType):
            return self if found.__name__.partition(".")[0] == TRITON else found
        if getattr(found, "__module__", "").partition(".")[0] == TRITON:
            constant = self.constant(found)
            return getattr(self, found.__name__) if constant is found else constant
        if hasattr(found, "fn") and hasattr(found, "arg_names"):  # another function with @jit
            scope = self.scope_of(found)
            return lambda *arguments, **options: scope.call(arguments, options)
        return found

    def scope_of(self, function: Any) -> "Scope":
        if id(function) not in self._scopes:
            self._scopes[id(function)] = Scope(function, self)
        return self._scopes[id(function)]

    # Blocks and numbers

    def range(self, first: Any, end: Any = None, step: Any = 1, **_: Any) -> Iterator[Any]:
        first, end = (0, first) if end is None else (first, end)
        before, times = self.num_dots, self.notes.share
        for turn in super().range(first, end, step):
            yield self._values(turn)
        if self.num_dots > before:
            self.notes.pipelined += times * len(builtins.range(int(first), int(end), int(step)))

    def static_range(self, first: Any, end: Any = None, step: Any = 1, **_: Any) -> Iterator[int]:
        """Rounds that the compiler writes out, so that none waits for the one before."""
        first, end = (0, first) if end is None else (first, end)
        return iter(builtins.range(int(first), int(end), int(step)))

    def make_block_ptr(
        self,
        base: Address,
        shape: Any,
        strides: Any,
        offsets: Any,
        block_shape: Any,
        order: Any = (),
    ) -> Block:
        return Block(base, shape, strides, offsets, [int(side) for side in block_shape])

    def advance(self, block: Block, by: Sequence[Any]) -> Block:
        moved = [offset + more for offset, more in zip(block.offsets, by, strict=True)]
        return block._replace(offsets=moved)

    def load(
        self, address: Any, mask: Any = None, other: Any = 0, boundary_check: Any = (), **_: Any
    ) -> Values:
        if isinstance(address, Block):
            address, mask = self._places_of(address, boundary_check)
        return super().load(address, mask, 0 if other is None else other)

    def store(
        self, address: Any, value: Any, mask: Any = None, boundary_check: Any = (), **_: Any
    ) -> None:
        if isinstance(address, Block):
            address, mask = self._places_of(address, boundary_check)
        super().store(address, value, mask)

    def _places_of(self, block: Block, checked: Sequence[int]) -> tuple[Address, Any]:
        address, mask, last = block.base, None, len(block.sides) - 1
        for axis, side in enumerate(block.sides):
            at = self.arange(0, side) + block.offsets[axis]
            at = at[
                tuple(slice(None) if each == axis else None for each in builtins.range(last + 1))
            ]
            address = address + at * block.strides[axis]
            if axis in checked:
                is_inside = (at >= 0) & (at < block.shape[axis])
                mask = is_inside if mask is None else mask & is_inside
        return address, mask

    def _accessed(self, *given: Any) -> tuple[Access, Done]:
        self.num_accesses += 1
        if self.num_accesses > MOST_ACCESSES:
            raise RecursionError(f"a block has more than {MOST_ACCESSES:,} reads and writes")
        return super()._accessed(*given)

    def dot(self, one: Values, other: Values, acc: Any = None, *_: Any, **__: Any) -> Values:
        """What it finds is not computed."""
        rows, inner, columns = one.shape[-2], one.shape[-1], other.shape[-1]
        sides = (*one.shape[:-2], rows, columns)
        self.num_dots += 1
        done = self.notes.did("dot", math.prod(sides) * inner, one, other, acc)
        return Values(np.ones(sides), self.notes, done)

    def program_id(self, axis: int) -> Any:
        return self._values(self._block[axis])

    def num_programs(self, axis: int) -> Any:
        return self._values(self._launch.grid[axis])

    def cdiv(self, number: Any, by: Any) -> Any:
        return (number + by - 1) // by

    def expand_dims(self, values: Values, axis: int) -> Values:
        return values.with_numbers(lambda numbers: np.expand_dims(numbers, axis), "expand", axis)

    def trans(self, values: Values, *_: Any) -> Values:
        return values.with_numbers(np.transpose, "trans")

    def reshape(self, values: Values, *shape: Any, **_: Any) -> Values:
        sides = shape[0] if isinstance(shape[0], list | tuple) else shape
        whole = tuple(map(int, sides))
        return values.with_numbers(lambda numbers: numbers.reshape(whole), "reshape", whole)

    def zeros_like(self, values: Values) -> Values:
        return self.full(values.shape, 0)

    def _along(
        self,
        function: Any,
        values: Values,
        axis: int | None = None,
        return_indices: bool = False,
        keep_dims: bool = False,
        **_: Any,
    ) -> Any:
        along = None if axis is None else int(axis) % values.numbers.ndim
        found = self._reduced(values, along, function=function)
        if keep_dims and along is not None:
            found = self.expand_dims(found, along)
        return (found, found) if return_indices else found

    def softmax(self, values: Values, *_: Any, **__: Any) -> Values:
        last = values.numbers.ndim - 1
        raised = self.exp(values - self.max(values, last, keep_dims=True))
        return raised / self.sum(raised, last, keep_dims=True)


class Scope(dict[str, Any]):
    """What a function sees: its module's names, with Triton's own stood in for."""

    def __init__(self, function: Any, language: JitLanguage) -> None:
        super().__init__()
        self._function, self._language = function, language
        self._seen = inspect.getclosurevars(function.fn).nonlocals | function.fn.__globals__
        exec(_code_of(function), self)

    def call(self, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        return self[self._function.__name__](*arguments, **options)

    def __missing__(self, name: str) -> Any:
        if name == "range":
            return self._language.range
        if name == "print":
            return self._language.device_print
        found = self._seen.get(name)
        if found is None:
            return getattr(builtins, name) if name in BUILTINS else None
        return self._language.named(found)


_codes: dict[str, types.CodeType] = {}


def _code_of(function: Any) -> types.CodeType:
    source: str = function.src
    if source not in _codes:
        _codes[source] = compile(source, function.__name__, "exec", dont_inherit=True)
    return _codes[source]
