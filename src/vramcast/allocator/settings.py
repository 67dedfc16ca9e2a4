"""The settings of the allocator in PYTORCH_ALLOC_CONF, read by torch's own rules.

A setting that the model does not follow is refused: if it were ignored, predictions would be wrong.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from vramcast.errors import UsageError

VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")  # in the order torch reads them
MIB = 2**20
MIN_BLOCK_BYTES = 512
NUM_ROUNDUP_INTERVALS = 16  # 1 MiB, 2 MiB, ... 32 GiB and above
MIN_LARGE_SEGMENT_MB = 10  # must be larger, because requests below 10 MiB must fit into one segment

SUPPORTED = (
    "expandable_segments:True|False",
    "max_split_size_mb:N",
    "roundup_power2_divisions:N or [256:1,512:2,>:8]",
    "garbage_collection_threshold:0.8",
    "large_segment_size_mb:N",
    "max_non_split_rounding_mb:N",
    "backend:native",
)


@dataclass(frozen=True, kw_only=True)
class AllocatorSettings:
    expandable_segments: bool = False
    max_split_size_bytes: int | None = None
    # One number for each power-of-two interval from 1 MiB up. If it is 0 or 1, or if there are
    # none, sizes are rounded to 512 B.
    roundup_power2_divisions: tuple[int, ...] = ()
    garbage_collection_threshold: float = 0.0
    large_segment_bytes: int = 20 * MIB
    max_non_split_rounding_bytes: int = 20 * MIB

    def __post_init__(self) -> None:
        segment_mb = self.large_segment_bytes // MIB
        if self.large_segment_bytes <= MIN_LARGE_SEGMENT_MB * MIB:
            _refuse(f"large_segment_size_mb must be above {MIN_LARGE_SEGMENT_MB}, got {segment_mb}")
        # If it were less than one segment, a piece of a split segment could count as oversized and
        # be released while its neighbour is in use.
        for name, size_bytes in (
            ("max_split_size_mb", self.max_split_size_bytes),
            ("max_non_split_rounding_mb", self.max_non_split_rounding_bytes),
        ):
            if size_bytes is not None and size_bytes < self.large_segment_bytes:
                _refuse(
                    f"{name} must be at least {segment_mb} (one large segment), "
                    f"got {size_bytes // MIB}"
                )

    @classmethod
    def parse(cls, text: str) -> AllocatorSettings:
        """Reads `key:value,key:value`. As in torch, a key given twice takes its last value."""
        fields: dict[str, Any] = {}
        for key, value in _key_value_pairs(text):
            if key in _READERS:
                name, read = _READERS[key]
                fields[name] = read(key, value)
            elif key != "backend":
                _refuse(f"allocator setting {key!r} is not modelled (got {key}:{value})")
            elif value != "native":
                _refuse(f"allocator backend {value!r} is not modelled")
        # torch connects the two: unless both are given, the rounding follows the segment size.
        segment_bytes = fields.get("large_segment_bytes", cls.large_segment_bytes)
        fields.setdefault("max_non_split_rounding_bytes", segment_bytes)
        return cls(**fields)

    def rounded(self, num_bytes: int) -> int:
        """The size of the smallest block that serves a request of this size."""
        divisions = self.divisions_for(num_bytes)
        if divisions <= 1 or num_bytes <= MIN_BLOCK_BYTES * divisions:
            return max((num_bytes + MIN_BLOCK_BYTES - 1) & -MIN_BLOCK_BYTES, MIN_BLOCK_BYTES)
        step = (1 << (num_bytes.bit_length() - 1)) // divisions
        return -(-num_bytes // step) * step

    def divisions_for(self, num_bytes: int) -> int:
        """How many steps there are between the two powers of two around this size; 0 for plain
        rounding."""
        if not self.roundup_power2_divisions:
            return 0
        interval = num_bytes.bit_length() - MIB.bit_length()
        return self.roundup_power2_divisions[min(max(interval, 0), NUM_ROUNDUP_INTERVALS - 1)]


def _refuse(message: str) -> NoReturn:
    raise UsageError(message, "Supported allocator settings: " + ", ".join(SUPPORTED) + ".")


def _key_value_pairs(text: str) -> Iterator[tuple[str, str]]:
    # Commas separate settings, except those inside a list.
    for item in filter(None, re.split(r",(?![^\[]*\])", "".join(text.split()))):
        key, _, value = item.partition(":")
        if not (key and value):
            _refuse(f"allocator setting {item!r} is not of the form key:value")
        yield key, value


def _boolean(key: str, value: str) -> bool:
    if value not in ("True", "False"):
        _refuse(f"{key} must be True or False, got {value!r}")
    return value == "True"


def _whole_number(key: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        _refuse(f"{key} must be a whole number, got {value!r}")
    return int(value)


def _megabytes(key: str, value: str) -> int:
    return _whole_number(key, value) * MIB


def _open_fraction(key: str, value: str) -> float:
    with contextlib.suppress(ValueError):
        if 0.0 < float(value) < 1.0:
            return float(value)
    _refuse(f"{key} must be a number between 0 and 1, both excluded, got {value!r}")


def _is_power_of_2(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _divisions(key: str, value: str) -> tuple[int, ...]:
    if value.startswith("[") and value.endswith("]"):
        return _divisions_by_interval(key, value[1:-1])
    number = _whole_number(key, value)
    if not _is_power_of_2(number):
        _refuse(f"{key} must be a power of 2, got {value}")
    return (number,) * NUM_ROUNDUP_INTERVALS


def _divisions_by_interval(key: str, value: str) -> tuple[int, ...]:
    """`[256:1,512:2,>:8]`: 1 up to the interval from 256 MiB, 2 in that from 512 MiB, 8 above.

    As in torch, intervals between two named ones and the first one in `[>:8]` are not rounded.
    """
    divisions = [0] * NUM_ROUNDUP_INTERVALS
    last_index, is_first = 0, True
    for item in filter(None, value.split(",")):
        bound, colon, count_text = item.partition(":")
        count = _whole_number(key, count_text) if colon else -1
        if count != 0 and not _is_power_of_2(count):
            _refuse(f"{key} must list interval:power of 2 (or 0), got {item!r}")
        if bound == ">":
            divisions[last_index + 1 :] = [count] * (NUM_ROUNDUP_INTERVALS - last_index - 1)
            continue
        size_mb = _whole_number(key, bound)
        if not _is_power_of_2(size_mb):
            _refuse(f"{key} intervals must be powers of 2 in MB, got {bound!r}")
        index = min(size_mb.bit_length() - 1, NUM_ROUNDUP_INTERVALS - 1)
        if is_first:
            divisions[:index] = [count] * index
        divisions[index] = count
        last_index, is_first = index, False
    return tuple(divisions)


# The field for each setting, and the function that reads it.
_READERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "expandable_segments": ("expandable_segments", _boolean),
    "max_split_size_mb": ("max_split_size_bytes", _megabytes),
    "large_segment_size_mb": ("large_segment_bytes", _megabytes),
    "max_non_split_rounding_mb": ("max_non_split_rounding_bytes", _megabytes),
    "garbage_collection_threshold": ("garbage_collection_threshold", _open_fraction),
    "roundup_power2_divisions": ("roundup_power2_divisions", _divisions),
}


def from_environment() -> str:
    """The settings that torch would read from this process's environment."""
    return next((os.environ[name] for name in VARIABLES if os.environ.get(name)), "")
