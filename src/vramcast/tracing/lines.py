"""Reads the events of a trace's file as arrays: thousands of lines at a time, not one by one.

It reads only lines exactly as `files.to_json` writes them. Other files are read row by row, which
is slower and reports errors.
"""

from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.tracing.trace import Allocation, Allocations

CHUNK_BYTES = 8 << 20
# added after a chunk, so that looking ahead in a short line stays inside the array
PADDING = bytes(32)
LINE_END, FILE_END = b"],\n", b"]\n]}\n"
ALLOC, FREE, STEP, EMPTIED = b'["alloc", ', b'["free", ', b'["step", ', b'["empty_cache"],'
COMMA = b", "
MAX_DIGITS = 18
MAX_BYTES = 1 << 60
Numbers = NDArray[np.int64]
Text = NDArray[np.uint8]


class OtherForm(Exception):
    """The lines are not as vramcast writes them."""


class Events(NamedTuple):
    events: Numbers
    allocations: Allocations
    steps: list[int]


def read_events(
    file: IO[bytes], described: Callable[[bytes], Allocation], chunk_bytes: int = CHUNK_BYTES
) -> Events:
    """The events of a file. `described` reads the part of a line after the bytes, and raises
    ValueError if it cannot."""
    reader = _Reader(described)
    for chunk in _chunks(file, chunk_bytes):
        reader.read(chunk)
    return reader.found()


def _chunks(file: IO[bytes], chunk_bytes: int) -> Iterator[bytes]:
    """Chunks of whole lines. The last line also gets its comma."""
    rest = b""
    while block := file.read(chunk_bytes):
        rest += block
        end = rest.rfind(LINE_END) + len(LINE_END)
        if end >= len(LINE_END):
            yield rest[:end]
            rest = rest[end:]
    if not rest.endswith(FILE_END):
        raise OtherForm
    yield rest.removesuffix(FILE_END) + LINE_END


class _Reader:
    def __init__(self, described: Callable[[bytes], Allocation]) -> None:
        self._described = described
        self._number_of: dict[bytes, int] = {}
        self._descriptions: list[Allocation] = []
        self._events: list[Numbers] = []
        self._num_bytes: list[Numbers] = []
        self._description: list[NDArray[np.int32]] = []
        self._steps: list[int] = []

    def read(self, chunk: bytes) -> None:
        text = np.frombuffer(chunk + PADDING, np.uint8)
        ends = np.flatnonzero(text[: len(chunk)] == ord("\n"))
        starts = np.concatenate(([0], ends[:-1] + 1))
        ends -= len(LINE_END) - 1  # now at the closing bracket
        _require(text[ends] == ord("]"), text[ends + 1] == ord(","))
        events = np.full(len(starts), EMPTY_CACHE, np.int64)
        letter = text[starts + 2]
        is_alloc, is_free, is_step = (letter == ord(kind) for kind in "afs")
        events[is_alloc] = self._allocations(chunk, text, starts[is_alloc], ends[is_alloc])
        events[is_free] = -_only_number(text, starts[is_free], FREE, ends[is_free])
        self._steps += _only_number(text, starts[is_step], STEP, ends[is_step]).tolist()
        events[is_step] = 0
        _skip(text, starts[~(is_alloc | is_free | is_step)], EMPTIED)
        self._events.append(events)

    def _allocations(self, chunk: bytes, text: Text, starts: Numbers, ends: Numbers) -> Numbers:
        numbers, at = _numbers(text, _skip(text, starts, ALLOC))
        num_bytes, at = _numbers(text, _skip(text, at, COMMA))
        _require(num_bytes <= MAX_BYTES)
        known, first = self._number_of, _skip(text, at, COMMA).tolist()
        found = []
        for begin, end in zip(first, ends.tolist()):
            description = chunk[begin:end]
            number = known.get(description)
            found.append(self._new(description) if number is None else number)
        self._description.append(np.array(found, np.int32))
        self._num_bytes.append(num_bytes)
        return numbers

    def _new(self, description: bytes) -> int:
        try:
            self._descriptions.append(self._described(description))
        except ValueError:
            raise OtherForm from None
        return self._number_of.setdefault(description, len(self._number_of))

    def found(self) -> Events:
        events = np.concatenate(self._events)
        allocations = Allocations(
            np.concatenate(self._num_bytes), np.concatenate(self._description), self._descriptions
        )
        _check_order(events)
        return Events(events, allocations, self._steps)


def _check_order(events: Numbers) -> None:
    """Checks that allocations are numbered from 1, and that each is freed at most once, after it
    was made."""
    is_alloc, is_free = events > 0, (events < 0) & (events != EMPTY_CACHE)
    num_made = np.cumsum(is_alloc)
    _require(events[is_alloc] == num_made[is_alloc], -events[is_free] <= num_made[is_free])
    _require(np.bincount(-events[is_free], minlength=1) <= 1)


def _require(*conditions: NDArray[np.bool_]) -> None:
    if not all(condition.all() for condition in conditions):
        raise OtherForm


def _skip(text: Text, at: Numbers, word: bytes) -> Numbers:
    """The places after this word, which must be at all of these places."""
    for offset, letter in enumerate(word):
        _require(text[at + offset] == letter)
    return at + len(word)


def _numbers(text: Text, at: Numbers) -> tuple[Numbers, Numbers]:
    """The numbers at these places, and the places after them."""
    values, ends = np.zeros(len(at), np.int64), at.copy()
    for _ in range(MAX_DIGITS):
        digits = text[ends] - np.uint8(ord("0"))  # other characters give values above 9
        is_digit = digits < 10
        if not is_digit.any():
            break
        values = np.where(is_digit, values * 10 + digits, values)
        ends += is_digit
    num_digits = ends - at
    # JSON has no leading zeros
    _require(num_digits > 0, (text[at] != ord("0")) | (num_digits == 1))
    return values, ends


def _only_number(text: Text, starts: Numbers, word: bytes, line_ends: Numbers) -> Numbers:
    values, ends = _numbers(text, _skip(text, starts, word))
    _require(ends == line_ends)
    return values
