"""What a fused kernel moves besides its tensors' bytes, from how its source walks through memory.

Memory is moved in sectors of 32 bytes. A reduction that reads some tensors along its rows and
others across them uses sectors in parts: twice the bytes say its time, as recorded on an H200. One
whose rows are short runs, as those of a group of few channels with channels last, moves whole
sectors for them.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

SECTOR_BYTES = 32
ACCESS = re.compile(r"tl\.(?:load|store)\((\w+) \+ \((.*?)\), ")
BETWEEN_TERMS = re.compile(r" \+ (?![^()]*\))")
TERM = re.compile(r"(?:\(?(-?\d+)\)?\*)?([a-z]\w*)")
RANGE = re.compile(r"(r0_\d+) = \(r0_index % (\d+)\)")


class Accesses(NamedTuple):
    is_mixed: bool  # some tensors are read along rows, others across them
    runs: dict[str, int]  # by tensor: the elements that follow each other in memory

    def more_bytes(self, num_bytes: float, tensor_of: Callable[[str], tuple[int, int]]) -> int:
        """Besides the kernel's `num_bytes`. A tensor has some elements of some size."""
        more = num_bytes if self.is_mixed else 0.0
        for name, run in self.runs.items():
            number, size = tensor_of(name)
            more += number * max(0, SECTOR_BYTES // run - size)
        return int(more)


@cache
def accesses_of(source: str) -> Accesses:
    ranges = dict(RANGE.findall(source))
    steps, runs = set[int](), dict[str, int]()
    for name, index in ACCESS.findall(source):
        terms = map(TERM.fullmatch, BETWEEN_TERMS.split(index))
        strides = {term[2]: abs(int(term[1] or 1)) for term in terms if term}
        inner = {variable: stride for variable, stride in strides.items() if variable[:2] == "r0"}
        if not inner or len(inner) == len(strides):  # one element for each row, or one row for all
            continue
        nearest = min(inner, key=lambda variable: inner[variable])
        steps.add(inner[nearest])
        if len(inner) > 1 and inner[nearest] == 1 and nearest in ranges:
            runs[name] = int(ranges[nearest])
    return Accesses(len(steps) > 1 and 1 in steps, runs)
