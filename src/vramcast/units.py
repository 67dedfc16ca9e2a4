"""Sizes, counts and times: read from people, written for people."""

import math
import re
from itertools import pairwise

from vramcast.errors import UsageError

KiB = 2**10
MiB = 2**20
GiB = 2**30

# The largest number of steps, tokens and the like.
MAX_NUMBER = 10**12

_NUMBER = re.compile(r"([0-9]{1,24}(?:\.[0-9]{1,12})?)\s*([a-z]*)", re.IGNORECASE | re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?", re.ASCII)
_SUFFIXES: dict[str, int] = {"": 1, "b": 1} | {
    f"{letter}{end}": base**power
    for power, letter in enumerate("kmgtp", 1)
    for end, base in (("", 1024), ("ib", 1024), ("b", 1000))
}
_SIZE_ADVICE = (
    "Write a number above zero and a unit, for example {} 24GiB "
    "(also 512MiB, 80G, 24GB, or plain bytes)."
)

_DURATIONS = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_BYTE_UNITS = (
    *(("B", 1, 0), ("KiB", KiB, 1), ("MiB", MiB, 1)),
    *(("GiB", GiB, 2), ("TiB", 2**40, 2), ("PiB", 2**50, 2)),
)
_COUNT_UNITS = (("", 1, 0), ("K", 10**3, 1), ("M", 10**6, 1), ("B", 10**9, 2), ("T", 10**12, 2))


def parse_size(text: str, option: str = "--memory") -> int:
    """Bytes, rounded down, from "24GiB", "1.5 GiB", "80g" (GiB), "24GB" (10^9) or "512"."""
    advice = _SIZE_ADVICE.format(option)
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"not a memory size: {text!r}", advice)
    unit = _SUFFIXES.get(match[2].lower())
    if unit is None:
        raise UsageError(f"unknown unit {match[2]!r} in memory size {text!r}", advice)
    if unit == 1 and "." in match[1]:
        raise UsageError(f"memory size {text!r} is a fraction of bytes", advice)
    size = _times(match[1], unit)
    if size == 0:
        raise UsageError(f"memory size {text!r} is zero", advice)
    return size


def grown(size: int, growth: str) -> int:
    """The size after it grew by "2%" or by "500MiB"."""
    number, percent, rest = growth.strip().partition("%")
    if not percent:
        return size + parse_size(growth, "--fail-above")
    if rest or not _DECIMAL.fullmatch(number.strip()):
        raise UsageError(
            f"--fail-above {growth!r} is not a growth.",
            "Write for example --fail-above 2% or 500MiB.",
        )
    return size + _times(number.strip(), size, 100)


def _times(decimal: str, factor: int, divisor: int = 1) -> int:
    """The product of a decimal number and a factor, rounded down."""
    whole, _, digits = decimal.partition(".")
    return int(whole + digits) * factor // (divisor * int("1" + "0" * len(digits)))


def memory_in_bytes(memory: str | int | None, option: str = "--memory") -> int | None:
    """The bytes of a text with a unit, or of a number of bytes."""
    if memory is None:
        return None
    size = memory if type(memory) is int and memory > 0 else parse_size(str(memory), option)
    if not MiB <= size < 1 << 60:
        number = memory if size < MiB and str(memory).isdigit() else 24
        raise UsageError(
            f"{option} {memory} is {format_bytes(size)}: no GPU has that.",
            f"Write the unit too, for example {option} {number}GiB.",
        )
    return size


def parse_duration(text: str) -> float:
    """Seconds from "20min", "90s", "1.5h", "2d" or a plain number of seconds."""
    match = _NUMBER.fullmatch(text.strip().lower())
    if match is None or match[2] not in _DURATIONS or not float(match[1]) > 0:
        raise UsageError(
            f"not a time: {text!r}",
            "Write a number above zero and a unit, for example 20min (also 90s, 1.5h, 2d).",
        )
    return float(match[1]) * _DURATIONS[match[2]]


def check_timeout(seconds: float) -> None:
    # this also refuses NaN
    if not seconds > 0:
        raise UsageError(
            f"The time limit --timeout must be positive, not {seconds:g} s.",
            "For example --timeout 600.",
        )


def check_whole_number(option: str, value: object, example: int, least: int = 1) -> None:
    if type(value) is not int or not least <= value <= MAX_NUMBER:
        raise UsageError(
            f"{option} must be a whole number from {least} to {MAX_NUMBER:,}, "
            f"not {str(value)[:40]}.",
            f"For example {option} {example}.",
        )


def parse_count(text: str) -> int:
    """A number of parameters, as in "50M", "1.36B" or "390,974,976"."""
    match = _NUMBER.fullmatch(text.strip().lower().replace(",", "").replace("_", ""))
    count = round(float(match[1]) * _COUNTS.get(match[2], 0)) if match else 0
    if not 0 < count <= 10**15:
        raise UsageError(
            f"not a number of parameters: {text[:40]!r}",
            "Write for example --params 50M, 1.36B or 390974976.",
        )
    return count


def format_bytes(n: int) -> str:
    """A text such as "11.39 GiB", "512.0 KiB" or "0 B"."""
    return _scaled(n, _BYTE_UNITS)


def format_count(n: int) -> str:
    """A text such as "124.4 M", "1.36 B" (thousand millions) or "999"."""
    return _scaled(n, _COUNT_UNITS)


def format_percent(fraction: float) -> str:
    return f"{100 * fraction:.2g} %" if abs(fraction) < 0.1 else f"{100 * fraction:.0f} %"


def format_seconds(s: float) -> str:
    """A text such as "320 ms", "2.1 s" or "3 h 12 min"; "unknown" if it is not finite."""
    if not math.isfinite(s):
        return "unknown"
    return _duration(s) if s >= 0 else f"-{_duration(-s)}"


def format_days(s: float) -> str:
    """A text such as "4.67 days (4 d 16 h)"."""
    return f"{s / 86400:.2f} days ({format_seconds(s)})" if math.isfinite(s) else "unknown"


def _scaled(n: int, units: tuple[tuple[str, float, int], ...]) -> str:
    """The number in the smallest unit in which it is, rounded, less than one of the next unit."""
    return next(
        f"{n / unit:.{digits}f} {label}".rstrip()
        for (label, unit, digits), (_, next_unit, _) in pairwise((*units, ("", math.inf, 0)))
        if round(abs(n) / unit, digits) * unit < next_unit
    )


def _duration(s: float) -> str:
    if s == 0:
        return "0 s"
    if round(s * 1e6) < 1000:
        return f"{s * 1e6:.0f} µs"
    if round(s * 1e3) < 1000:
        return f"{s * 1e3:.0f} ms"
    if round(s, 1) < 60:
        return f"{s:.1f} s"
    if round(s) < 3600:
        minutes, seconds = divmod(round(s), 60)
        return f"{minutes} min {seconds} s"
    if round(s / 60) < 24 * 60:
        hours, minutes = divmod(round(s / 60), 60)
        return f"{hours} h {minutes} min"
    days, hours = divmod(round(s / 3600), 24)
    return f"{days} d {hours} h"


def parse_model_size(name: str, text: str) -> bool | int | float:
    """A size of a model, from the text on the command line."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text) if text.removeprefix("-").isdecimal() else float(text)
    except ValueError:
        raise UsageError(f"The size {name!r} is {text!r}, expected a number.") from None
