"""Triton's language for kernels that people have written: more than Inductor uses of it."""

import ast
import builtins
import inspect
import math
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from vramcast.simulate.fused.language import REDUCTIONS, SLOW, TYPES, Language
from vramcast.simulate.fused.values import Address, Name, Values

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
# Of a block. One that waits for another block, or for a number that is made up to change, would
# never end, and a loop that the compiler writes out may be long.
MOST_ROUNDS_RUN, MOST_NUMBERS = 1024, 1 << 25
MOST_OF_TENSOR = 1 << 20  # for Triton's compiler
COUNT_ROUND = "count_round of vramcast"
PLAIN_TYPES = (bool, int, float, str, type(None))


def plain_constant(given: Any) -> Any:
    """What a number, a text or a type is to a kernel: types are names. Nothing else is stood in
    for."""
    kind = type(given).__name__
    if kind == "constexpr":
        return plain_constant(given.value)
    if kind == "dtype":
        return Name(str(given))
    if isinstance(given, PLAIN_TYPES):
        return given
    raise TypeError(f"an argument of type {kind} is not stood in for")


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
        self.num_dots = self._num_rounds = 0
        self.notes.language, self.notes.most_numbers = self, MOST_NUMBERS

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

    def count_round(self) -> None:
        """Called in each round of each loop."""
        self._num_rounds += 1
        if self._num_rounds > MOST_ROUNDS_RUN:
            raise RuntimeError(f"a block runs more than {MOST_ROUNDS_RUN:,} rounds")

    def named(self, found: Any) -> Any:
        """A global of a kernel's module."""
        if isinstance(found, types.ModuleType):
            return self if found.__name__.partition(".")[0] == TRITON else found
        if type(found).__name__ in ("constexpr", "dtype"):
            return plain_constant(found)
        if getattr(found, "__module__", "").partition(".")[0] == TRITON:
            return getattr(self, found.__name__)
        if hasattr(found, "fn") and hasattr(found, "arg_names"):  # another function with @jit
            scope = self.scope_of(found)
            return lambda *arguments, **options: scope.call(arguments, options)
        return found

    def scope_of(self, function: Any) -> "Scope":
        if id(function) not in self._scopes:
            self._scopes[id(function)] = Scope(function, self)
        return self._scopes[id(function)]

    # Blocks and numbers

    def arange(self, start: int, end: int) -> Values:
        if end - start > MOST_OF_TENSOR:
            raise ValueError(f"Triton refuses tensors of more than {MOST_OF_TENSOR:,} numbers")
        return super().arange(start, end)

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

    def advance(self, base: Block, offsets: Sequence[Any]) -> Block:
        moved = [offset + more for offset, more in zip(base.offsets, offsets, strict=True)]
        return base._replace(offsets=moved)

    def load(
        self, pointer: Any, mask: Any = None, other: Any = 0, boundary_check: Any = (), **_: Any
    ) -> Values:
        if isinstance(pointer, Block):
            pointer, mask = self._places_of(pointer, boundary_check)
        return super().load(pointer, mask, 0 if other is None else other)

    def store(
        self, pointer: Any, value: Any, mask: Any = None, boundary_check: Any = (), **_: Any
    ) -> None:
        if isinstance(pointer, Block):
            pointer, mask = self._places_of(pointer, boundary_check)
        super().store(pointer, value, mask)

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

    def dot(self, input: Values, other: Values, acc: Any = None, *_: Any, **__: Any) -> Values:
        """What it finds is not computed."""
        rows, inner, columns = input.shape[-2], input.shape[-1], other.shape[-1]
        sides = (*input.shape[:-2], rows, columns)
        self.num_dots += 1
        done = self.notes.did("dot", math.prod(sides) * inner, input, other, acc)
        return Values(np.ones(sides), self.notes, done)

    def program_id(self, axis: int) -> Any:
        return self._values(self._block[axis])

    def num_programs(self, axis: int) -> Any:
        return self._values(self._launch.grid[axis])

    def cdiv(self, x: Any, div: Any) -> Any:
        return (x + div - 1) // div

    def expand_dims(self, input: Values, axis: int) -> Values:
        return input.with_numbers(lambda numbers: np.expand_dims(numbers, axis), "expand", axis)

    def trans(self, input: Values, *dims: Any) -> Values:
        """The last two dimensions, or in the order of `dims`."""
        if not dims:
            return input.with_numbers(lambda numbers: np.swapaxes(numbers, -1, -2), "trans")
        order = _numbers_in(dims)
        return input.with_numbers(lambda numbers: np.transpose(numbers, order), "trans", order)

    permute = trans

    def reshape(self, input: Values, *shape: Any, **_: Any) -> Values:
        whole = _numbers_in(shape)
        return input.with_numbers(lambda numbers: numbers.reshape(whole), "reshape", whole)

    def ravel(self, input: Values, *_: Any, **__: Any) -> Values:
        return self.reshape(input, input.numbers.size)

    def zeros_like(self, input: Values) -> Values:
        return self.full(input.shape, 0)

    def _along(
        self,
        function: Any,
        input: Values,
        axis: int | None = None,
        return_indices: bool = False,
        keep_dims: bool = False,
        **_: Any,
    ) -> Any:
        along = None if axis is None else int(axis) % input.numbers.ndim
        found = self._reduced(input, along, function=function)
        if keep_dims and along is not None:
            found = self.expand_dims(found, along)
        return (found, found) if return_indices else found

    def softmax(self, values: Values, *_: Any, **__: Any) -> Values:
        last = values.numbers.ndim - 1
        raised = self.exp(values - self.max(values, last, keep_dims=True))
        return raised / self.sum(raised, last, keep_dims=True)


def _numbers_in(given: Sequence[Any]) -> tuple[int, ...]:
    """Several numbers, or one list of them."""
    every = given[0] if isinstance(given[0], list | tuple) else given
    return tuple(map(int, every))


class Scope(dict[str, Any]):
    """What a function sees: its module's names, with Triton's own stood in for."""

    def __init__(self, function: Any, language: JitLanguage) -> None:
        super().__init__({COUNT_ROUND: language.count_round})
        self._function, self._language = function, language
        self._seen = inspect.getclosurevars(function.fn).nonlocals | function.fn.__globals__
        exec(_code_of(function.src, function.__name__), self)

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


class _CountedRounds(ast.NodeTransformer):
    """Calls count_round in each round of each loop."""

    def visit_For(self, loop: ast.For) -> ast.For:  # noqa: N802
        return self._counted(loop)

    def visit_While(self, loop: ast.While) -> ast.While:  # noqa: N802
        return self._counted(loop)

    def _counted(self, loop: Any) -> Any:
        self.generic_visit(loop)
        call = ast.Call(ast.Name(COUNT_ROUND, ast.Load()), [], [])
        loop.body.insert(0, ast.Expr(call))
        return loop


@cache
def _code_of(source: str, name: str) -> types.CodeType:
    with without_warnings():
        tree = ast.fix_missing_locations(_CountedRounds().visit(ast.parse(source)))
        return compile(tree, name, "exec", dont_inherit=True)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Python has warned of a kernel's text when it was imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
