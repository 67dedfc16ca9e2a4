"""What a fused kernel moves besides its tensors' bytes, from how its source walks through memory.

Memory is moved in sectors of 32 bytes. A reduction that reads some tensors along its rows and
others across them uses sectors in parts: twice the bytes say its time, as recorded on an H200. One
whose rows are short runs, as those of a group of few channels with channels last, moves whole
sectors for them. Rows that other numbers name are read each time they are named, unless the cache
holds the tensor.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

SECTOR_BYTES = 32
# The share of the cache that such a tensor has. All else streams through it: four kernels that read
# rows of 115 MB took as long as without a cache.
OF_CACHE = 0.25
ACCESS = re.compile(r"tl\.(load|store|atomic_add)\((\w+) \+ \((.*?)\), ")
BETWEEN_TERMS = re.compile(r" \+ (?![^()]*\))")
TERM = re.compile(r"(?:\(?(-?\d+)\)?\*)?([a-z]\w*)")
RANGE = re.compile(r"(r0_\d+|x\d+) = \((?:r0_|x)index % (\d+)\)")
WHOLE_RANGE = re.compile(r"\b(x\d+) = xindex$", re.MULTILINE)
LENGTH = "xnumel"  # the argument that says how long it is
NAMED = re.compile(r"\btmp\d+\b")  # what was read
SPREAD = re.compile(r"tl\.broadcast_to\((.*?), \[.*?\]\)")


class Accesses(NamedTuple):
    is_mixed: bool  # some tensors are read along rows, others across them
    runs: dict[str, int]  # by tensor: the elements that follow each other in memory
    gathered: frozenset[str] = frozenset()  # tensors whose elements others name
    # of tensors that others add to: how many additions are to neighbours, or which argument says so
    added_runs: Mapping[str, int | str] = MappingProxyType({})

    def more_bytes(
        self,
        num_bytes: float,
        tensor_of: Callable[[str], tuple[int, int]],
        turns: int | None = None,
        cache_bytes: int = 0,
    ) -> int:
        """Besides the kernel's `num_bytes`. A tensor has some elements of some size; `turns` is how
        many elements a kernel goes through."""
        more = num_bytes if self.is_mixed else 0.0
        for name, run in self.runs.items():
            number, size = tensor_of(name)
            more += number * max(0, SECTOR_BYTES // run - size)
        passes = dict.fromkeys(self.gathered, 1) | dict.fromkeys(self.added_runs, 2)
        for name, often in passes.items():
            number, size = tensor_of(name)
            missed = max(0.0, 1 - OF_CACHE * cache_bytes / max(1, number * size))
            more += often * max(0, (turns or 0) - number) * size * missed
        return int(more)


@cache
def accesses_of(source: str) -> Accesses:
    ranges = dict(RANGE.findall(source))
    whole_ranges = set(WHOLE_RANGE.findall(source))
    steps, runs, gathered = set[int](), dict[str, int](), set[str]()
    added_runs: dict[str, int | str] = {}
    for way, name, index in ACCESS.findall(SPREAD.sub(r"\1", source)):
        terms = map(TERM.fullmatch, BETWEEN_TERMS.split(index))
        strides = {term[2]: abs(int(term[1] or 1)) for term in terms if term}
        if way == "load" and NAMED.search(index):
            gathered.add(name)
        if way == "atomic_add":
            nearest = next((v for v, stride in strides.items() if stride == 1), "")
            added_runs[name] = LENGTH if nearest in whole_ranges else int(ranges.get(nearest, 1))
            continue
        inner = {variable: stride for variable, stride in strides.items() if variable[:2] == "r0"}
        if not inner or len(inner) == len(strides):  # one element for each row, or one row for all
            continue
        nearest = min(inner, key=lambda variable: inner[variable])
        steps.add(inner[nearest])
        if len(inner) > 1 and inner[nearest] == 1 and nearest in ranges:
            runs[name] = int(ranges[nearest])
    is_mixed = len(steps) > 1 and 1 in steps
    return Accesses(is_mixed, runs, frozenset(gathered), added_runs)
