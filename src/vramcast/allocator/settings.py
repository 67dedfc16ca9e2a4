"""What PYTORCH_ALLOC_CONF can say about the allocator, read with torch's own rules.

Only settings that change memory and that the model follows are accepted. Anything else is refused
by name: a setting silently ignored would make a prediction wrong without a word.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NoReturn

from vramcast.errors import UsageError

VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")  # in the order torch reads them
MIB = 2**20
MIN_BLOCK_BYTES = 512
NUM_ROUNDUP_INTERVALS = 16  # 1 MiB, 2 MiB, ... 32 GiB: the last one also covers everything above
MIN_LARGE_SEGMENT_MB = 10  # exclusive: requests below 10 MiB must fit into one

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
    roundup_power2_divisions: tuple[int, ...] = ()
    """Empty: round to 512 B.

    Else one number per power-of-two interval from 1 MiB up; 0 and 1 mean 512 B there.
    """
    garbage_collection_threshold: float = 0.0
    large_segment_bytes: int = 20 * MIB
    max_non_split_rounding_bytes: int = 20 * MIB

    def __post_init__(self) -> None:
        if len(self.roundup_power2_divisions) not in (0, NUM_ROUNDUP_INTERVALS):
            _refuse(
                f"roundup_power2_divisions needs {NUM_ROUNDUP_INTERVALS} numbers, got "
                f"{len(self.roundup_power2_divisions)}"
            )
        if self.large_segment_bytes <= MIN_LARGE_SEGMENT_MB * MIB:
            _refuse(
                f"large_segment_size_mb must be above {MIN_LARGE_SEGMENT_MB}, got "
                f"{self.large_segment_bytes // MIB}"
            )
        # Below one segment a piece of a split segment could count as oversized and be released
        # while its neighbour is in use.
        segment_mb = self.large_segment_bytes // MIB
        if (
            self.max_split_size_bytes is not None
            and self.max_split_size_bytes < self.large_segment_bytes
        ):
            _refuse(
                f"max_split_size_mb must be at least {segment_mb} (one large segment), got "
                f"{self.max_split_size_bytes // MIB}"
            )
        if self.max_non_split_rounding_bytes < self.large_segment_bytes:
            given_mb = self.max_non_split_rounding_bytes // MIB
            _refuse(
                f"max_non_split_rounding_mb must be at least {segment_mb} (one large segment), "
                f"got {given_mb}"
            )

    @property
    def depends_on_capacity(self) -> bool:
        """Whether a limit changes what happens before it is reached: growing a segment asks for
        more room than it takes, and garbage is collected at a fraction of what there is."""
        return self.expandable_segments or self.garbage_collection_threshold > 0

    @classmethod
    def parse(cls, text: str) -> AllocatorSettings:
        """Reads `key:value,key:value`. As in torch, a key given twice takes its last value."""
        fields: dict[str, bool | int | float | tuple[int, ...]] = {}
        for key, value in _key_value_pairs(text):
            if key == "backend":
                if value != "native":
                    _refuse(f"allocator backend {value!r} is not modelled")
            elif key == "expandable_segments":
                fields["expandable_segments"] = _boolean(key, value)
            elif key == "max_split_size_mb":
                fields["max_split_size_bytes"] = _whole_number(key, value) * MIB
            elif key == "large_segment_size_mb":
                fields["large_segment_bytes"] = _whole_number(key, value) * MIB
            elif key == "max_non_split_rounding_mb":
                fields["max_non_split_rounding_bytes"] = _whole_number(key, value) * MIB
            elif key == "garbage_collection_threshold":
                fields["garbage_collection_threshold"] = _open_fraction(key, value)
            elif key == "roundup_power2_divisions":
                fields["roundup_power2_divisions"] = _divisions(key, value)
            else:
                _refuse(f"allocator setting {key!r} is not modelled (got {key}:{value})")
        # torch ties the two: unless both are given, the rounding follows the segment size.
        fields.setdefault(
            "max_non_split_rounding_bytes",
            fields.get("large_segment_bytes", cls.large_segment_bytes),
        )
        return cls(**fields)  # type: ignore[arg-type]

    def rounded(self, num_bytes: int) -> int:
        """The smallest block that a request of this size is served with."""
        divisions = self.divisions_for(num_bytes)
        if divisions <= 1 or num_bytes <= MIN_BLOCK_BYTES * divisions:
            return max((num_bytes + MIN_BLOCK_BYTES - 1) & -MIN_BLOCK_BYTES, MIN_BLOCK_BYTES)
        step = (1 << (num_bytes.bit_length() - 1)) // divisions
        return -(-num_bytes // step) * step

    def divisions_for(self, num_bytes: int) -> int:
        """How many steps lie between two powers of two around this size; 0 where rounding is
        plain."""
        if not self.roundup_power2_divisions:
            return 0
        interval = num_bytes.bit_length() - MIB.bit_length()
        return self.roundup_power2_divisions[min(max(interval, 0), NUM_ROUNDUP_INTERVALS - 1)]


def _refuse(message: str) -> NoReturn:
    raise UsageError(message, "Supported allocator settings: " + ", ".join(SUPPORTED) + ".")


def _key_value_pairs(text: str) -> list[tuple[str, str]]:
    pairs = []
    for item in _split_outside_brackets("".join(text.split())):
        key, colon, value = item.partition(":")
        if not (key and colon and value):
            _refuse(f"allocator setting {item!r} is not of the form key:value")
        pairs.append((key, value))
    return pairs


def _split_outside_brackets(text: str) -> list[str]:
    """Commas separate settings, except those inside a list value."""
    items = [""]
    depth = 0
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            items.append("")
        else:
            items[-1] += character
    return [item for item in items if item]


def _boolean(key: str, value: str) -> bool:
    if value not in ("True", "False"):
        _refuse(f"{key} must be True or False, got {value!r}")
    return value == "True"


def _whole_number(key: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        _refuse(f"{key} must be a whole number, got {value!r}")
    return int(value)


def _open_fraction(key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        _refuse(f"{key} must be a number, got {value!r}")
    if not 0.0 < number < 1.0:
        _refuse(f"{key} must lie between 0 and 1, both excluded, got {value}")
    return number


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
    """`[256:1,512:2,>:8]`: 1 up to the interval that starts at 256 MiB, 2 in the one from 512 MiB,
    8 in all above.

    As in torch, intervals between two named ones are not rounded, and neither is the first one in
    `[>:8]`.
    """
    divisions = [0] * NUM_ROUNDUP_INTERVALS
    last_index = 0
    is_first = True
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
            is_first = False
        divisions[index] = count
        last_index = index
    return tuple(divisions)


def from_environment() -> str:
    """The settings torch would read from this process's environment."""
    return next((os.environ[name] for name in VARIABLES if os.environ.get(name)), "")
