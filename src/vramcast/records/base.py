"""How records are written as JSON and read back strictly.

Reading checks every field against its annotation, so code that gets a record can trust its types.

To change a kind of record, add a field with a default: older files are still read. Where that is
not possible, raise its `VERSION` and convert older data in `upgraded`.
"""

import contextlib
import math
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform

import msgspec

from vramcast.errors import UsageError
from vramcast.records.store import read_file
from vramcast.text import printable

# Numbers in a record stay in a range in which sums and ratios of them are finite.
Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
SignedBytes = Annotated[int, msgspec.Meta(ge=-(1 << 60), le=1 << 60)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=1 << 60)]
Number = Annotated[float, msgspec.Meta(ge=-1e100, le=1e100)]
AboveZero = Annotated[float, msgspec.Meta(gt=0, le=1e12)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
MAX_INT = (1 << 63) - 1
KnobValue = bool | Annotated[int, msgspec.Meta(ge=-MAX_INT, le=MAX_INT)] | float | str | None
Knobs = dict[str, KnobValue]

MAKE_AGAIN = "It was cut short, edited or made by another program: make it again."
MAX_VALUE_CHARACTERS = 60

R = TypeVar("R", bound="Record")
T = TypeVar("T")

# msgspec stores information about a class in the class, at first incomplete: if two threads
# converted to the same class for the first time, one would crash the process.
_converting = threading.Lock()
os.register_at_fork(after_in_child=_converting._at_fork_reinit)  # type: ignore[attr-defined]


class Contradiction(ValueError):
    """Fields that contradict each other; the text names one."""


def require(is_sound: bool, problem: str) -> None:
    if not is_sound:
        raise Contradiction(problem)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
@dataclass(frozen=True, kw_only=True)
class Part:
    """Every subclass is a frozen dataclass, made with keyword arguments."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


class Record(Part):
    KIND: ClassVar[str]
    VERSION: ClassVar[int] = 1
    VERSION_WHERE_MISSING: ClassVar[int | None]

    def __init_subclass__(cls, *, kind: str, version_where_missing: int | None = None) -> None:
        super().__init_subclass__()
        cls.KIND, cls.VERSION_WHERE_MISSING = kind, version_where_missing

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON values. Numbers that are not finite are left to `to_json`."""
        plain = msgspec.to_builtins(self, enc_hook=plain_value)
        return {**plain, "kind": self.KIND, "version": self.VERSION}

    def to_json(self) -> str:
        """The record as one line of JSON. NaN and infinity, which JSON does not have, become
        null."""
        return msgspec.json.format(msgspec.json.encode(self.to_dict()), indent=0).decode()

    @classmethod
    def from_json(cls: type[R], text: str | bytes, where: str = "This record") -> R:
        return cls.from_dict(parse_json(text, where), where)

    @classmethod
    def from_dict(cls: type[R], data: Any, where: str = "This record") -> R:
        if not isinstance(data, dict):
            raise UsageError(f"{where} is not a JSON object but {type(data).__name__}.", MAKE_AGAIN)
        _check_head(cls, data, where)
        record = convert(cls.upgraded(data), cls, where)
        try:
            record.check()
        except Contradiction as problem:
            raise UsageError(f"{where}: {problem}.", MAKE_AGAIN) from None
        return record

    @classmethod
    def from_file(cls: type[R], path: Path) -> R:
        return cls.from_json(read_file(path), str(path))

    @classmethod
    def upgraded(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Data of an older version, or in the form that JSON needs, converted to this version."""
        return data

    def check(self) -> None:
        """Checks what types cannot express."""


def plain_value(value: Any) -> KnobValue:
    """The value as JSON has it: numpy's numbers as numbers, infinity and objects as text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) <= MAX_INT else hex(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    return str(value)


def parse_json(text: str | bytes, where: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as problem:
        raise UsageError(f"{where} is not JSON: {problem}.", MAKE_AGAIN) from None


def typed(data: Any, kind: Any) -> Any:
    """The data as this type. Raises msgspec's errors. Unknown fields are ignored: a later version
    may have more."""
    with _converting:
        return msgspec.convert(data, kind)


def convert(data: Any, kind: type[T], where: str) -> T:
    try:
        found: T = typed(data, kind)
        return found
    except (msgspec.ValidationError, RecursionError, UnicodeError) as problem:
        raise UsageError(f"{where}: {_explained(str(problem), data)}.", MAKE_AGAIN) from None


def _check_head(kind: type[Record], data: Mapping[str, Any], where: str) -> None:
    """Checks kind, source and version. Records from before there were kinds are recognised by
    `source`."""
    found = data.get("kind", kind.KIND)
    if found != kind.KIND:
        what = f"{where} is a {shortened(found)}, not a {kind.KIND}."
        raise UsageError(what, f"Give a {kind.KIND}.")
    source = getattr(kind, "source", None)
    found = data.get("source", source)
    if source is not None and found != source:
        what = f"{where} was {shortened(found)}, not {source}."
        raise UsageError(what, f"Give a {kind.KIND}.")
    version = data.get("version", kind.VERSION_WHERE_MISSING)
    if type(version) is not int or not 1 <= version <= kind.VERSION:
        raise UsageError(
            f"{where} is a {kind.KIND} of version {shortened(version)}; "
            f"this vramcast reads versions up to {kind.VERSION}.",
            "Make it again, or use the vramcast that made it.",
        )


def _explained(problem: str, data: Any) -> str:
    """msgspec's message, with the value that was found."""
    message, _, path = problem.partition(" - at `")
    message = re.sub(r"Object missing required field `(\w+)`", r"it lacks \1", message)
    path = path.rstrip("`")
    if path.startswith("key` in `"):
        return f"a key of {path.rpartition('`$.')[2]} is wrong: {message}"
    path = path.removeprefix("$").lstrip(".")
    if not path:
        return message
    # msgspec writes [...] where it does not know the key
    with contextlib.suppress(LookupError, TypeError, ValueError):
        for part in re.findall(r"[^.\[\]]+", path):
            data = data[int(part)] if part.isdigit() else data[part]
        message += f", found {shortened(data)}"
    return f"{path}: {message}"


def shortened(value: Any) -> str:
    """A value from a file, on one line and without control characters."""
    text = " ".join(printable(repr(value)).split())
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}…"
