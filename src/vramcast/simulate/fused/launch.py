"""A launch of a kernel, of which blocks run on the host."""

import builtins
import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from vramcast.simulate.fused.language import Language
from vramcast.simulate.fused.rules import OF_INDUCTOR
from vramcast.simulate.fused.values import Access, Address, Notes, Numbers, Tensor, Values

# Names of a block's sides end with the first, of arguments that say how long an axis is with the
# other.
BLOCK, LENGTH = "BLOCK", "numel"
WRITTEN_TO = re.compile(r"tl\.(?:store|atomic_add)\((\w+) ")


def axis_of(name: str) -> str:
    """Whose blocks have as many elements as this argument says."""
    return name.removesuffix(BLOCK).rstrip("_").lower() if name.endswith(BLOCK) else ""


class Kernel:
    """A Triton kernel. This class is for those that Inductor wrote."""

    rules = OF_INDUCTOR
    uses_all_tensors = True  # that it is given; where a block does not, it is several kernels

    def __init__(self, source: str, name: str, names: Sequence[str]) -> None:
        self._source, self.name, self.names = source, name, names
        self.changed = frozenset(WRITTEN_TO.findall(source))

    @cached_property
    def digest(self) -> str:
        text = repr((self._source, self.name, tuple(self.names)))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _code(self) -> Any:
        return compile(self._source, self.name, "exec")

    def begin(self, notes: Notes, block: Sequence[int], launch: "Launch") -> Callable[..., Any]:
        """The function of one block."""
        scope = _Scope(Language(notes, block, launch))
        exec(self._code, scope)
        function: Callable[..., Any] = scope[self.name]
        return function

    def limited(self, launch: "Launch", accesses: list[Access]) -> list[Access]:
        """With what its compiler knows of how wide they may be."""
        return accesses

    def argument(self, name: str, value: Any, notes: Notes) -> Any:
        if isinstance(value, Tensor):
            return Address(value)
        # sizes of blocks are Python's numbers
        return value if name.isupper() else Values(value, notes, is_known=True)

    def elements(self, given: Mapping[str, Any]) -> Mapping[str, int]:
        """By axis."""
        lengths = {name: number for name, number in given.items() if name.endswith(LENGTH)}
        return {name.removesuffix(LENGTH).rstrip("_"): n for name, n in lengths.items()}


class Tables(dict[int, Numbers]):
    """Contents of tensors that are known, by the tensor's number."""

    @cached_property
    def digest(self) -> str:
        digest = hashlib.sha256()
        for number, table in sorted(self.items()):
            digest.update(repr((number, table.dtype, table.size)).encode())
            digest.update(table.tobytes())
        return digest.hexdigest()


class Launch(NamedTuple):
    """A kernel with what it is given: its arguments by name, and how many blocks each axis has. It
    reads and writes some tensors, those in `changed`."""

    kernel: Kernel
    given: Mapping[str, Any]
    grid: Sequence[int]
    num_warps: int
    changed: Collection[str] = ()
    tables: Tables = Tables()  # noqa: RUF012

    def run(self, block: Sequence[int]) -> Notes:
        """Of one block."""
        notes, kernel = Notes(), self.kernel
        function = kernel.begin(notes, block, self)
        arguments = [kernel.argument(name, self.given[name], notes) for name in kernel.names]
        with np.errstate(all="ignore"):  # of numbers that were made up
            function(*arguments)
        notes.count()
        notes.accesses = kernel.limited(self, notes.accesses)
        return notes

    @property
    def elements(self) -> Mapping[str, int]:
        return self.kernel.elements(self.given)

    @property
    def most_elements(self) -> int:
        """Of a tensor."""
        return max((each.elements for each in _tensors_in(*self.given.values())), default=1)

    @property
    def bytes_of_tensors(self) -> float:
        """Each read once, and written where it is changed."""
        tensors = {name: each for name, each in self.given.items() if isinstance(each, Tensor)}
        changed = {each for name, each in tensors.items() if name in self.changed}
        return float(sum(tensor.num_bytes for tensor in (*{*tensors.values()}, *changed)))


def _tensors_in(*given: Any) -> Iterator[Tensor]:
    for each in given:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, tuple):
            yield from _tensors_in(*each)


class _Scope(dict[str, Any]):
    """Helpers that a kernel combines numbers with are not called, so that any name will do."""

    def __init__(self, language: Language) -> None:
        super().__init__(tl=language, libdevice=language, tl_math=language, triton_helpers=language)

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, None)
