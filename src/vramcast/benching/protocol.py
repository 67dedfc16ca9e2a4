"""The conditions that every model of a comparison is trained under: a frozen value with a name, a version in that name, and a hash.

Two runs are comparable where their protocols have the same hash. The hash is of the values: a file that says what standard-1 says is
the same protocol under another name. What every protocol has in common belongs to FORMAT, which is hashed with them:

    tokens are bytes (256); a sample is a window of seq_len + 1 bytes at a random place of the data, the same for every model
    a step is: gradients to nothing, forward, backward, clip, update
    the loss is the mean cross entropy of the next byte, taken in float32. In bf16 a loss near 1.44 moves in steps of 0.0078, and the
    smallest gap in document 002's table is 0.004
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.records.bench import Protocol
from vramcast.records.store import read_text

VOCABULARY = 256
LARGEST = "largest"  # how a file says batch_size=None
OPTIMIZERS = ("adamw-schedulefree", "adamw")
PRECISIONS = ("bf16", "amp-bf16", "fp32")
MOST_STEPS = 10**9


def with_steps(protocol: Protocol, steps: int) -> Protocol:
    """The same with fewer or more steps: another protocol, and its name says so."""
    whole = _whole("steps", steps, 1, MOST_STEPS)
    name = f"{protocol.name}/{steps}-steps"
    return checked(replace(protocol, name=name, steps=whole, seconds=None))


def within_documents(protocol: Protocol) -> Protocol:
    if protocol.respect_documents:
        return protocol
    return replace(protocol, name=f"{protocol.name}/documents", respect_documents=True)


def checked(protocol: Protocol) -> Protocol:
    """What no field can say alone."""
    if (protocol.steps is None) == (protocol.seconds is None):
        raise UsageError(
            f"The protocol {protocol.name!r} has {'neither steps nor seconds' if protocol.steps is None else 'both steps and seconds'}.",
            "Give one of them: that is where training ends.",
        )
    if protocol.steps is not None and protocol.steps < protocol.last_steps:
        raise UsageError(
            f"The metric {protocol.metric} of the protocol {protocol.name!r} needs at least {protocol.last_steps} steps, not {protocol.steps}.",
            "Train for more steps, or give last_steps in a protocol file.",
        )
    return protocol


STANDARD_1 = Protocol(
    name="standard-1",
    batch_size=256,
    seq_len=512,
    steps=1000,
    seconds=None,
    optimizer="adamw-schedulefree",
    lr=3e-4,
    weight_decay=0.1,
    precision="bf16",
    clip=1.0,
    seed=42,
    last_steps=100,
    respect_documents=False,
)
TIMEBOX_1 = replace(STANDARD_1, name="timebox-1", batch_size=None, steps=None, seconds=600.0)
PROTOCOLS = {protocol.name: protocol for protocol in (STANDARD_1, TIMEBOX_1)}
NEWEST = {"standard": STANDARD_1, "timebox": TIMEBOX_1}


def find_protocol(text: str) -> Protocol:
    """By name (`standard` is the newest version of it), or from a TOML file."""
    known = {**PROTOCOLS, **NEWEST}
    if text in known:
        return known[text]
    if text.endswith(".toml") or "/" in text:
        return read_protocol(Path(text))
    raise UsageError(
        f"There is no protocol {text!r}.",
        f"Known: {', '.join(known)}; or give a file, for example --protocol mine.toml.",
    )


def read_protocol(path: Path) -> Protocol:
    """Fields that the file leaves out are standard-1's."""
    try:
        values = tomllib.loads(read_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise UsageError(
            f"The protocol {path} is not TOML: {problem}.",
            'Write lines such as name = "mine-1" and steps = 200.',
        ) from None
    try:
        return protocol_from(values)
    except UsageError as problem:
        raise UsageError(f"{path}: {problem.message}", problem.advice) from None


def protocol_from(values: Mapping[str, Any]) -> Protocol:
    names = [field.name for field in fields(Protocol)]
    unknown = next((name for name in values if name not in names), None)
    if unknown is not None:
        close = get_close_matches(unknown, names, n=1)
        hint = f"Did you mean {close[0]!r}? " if close else ""
        raise UsageError(
            f"A protocol has no field {unknown!r}.", f"{hint}Fields: {', '.join(names)}."
        )
    if "name" not in values:
        raise UsageError(
            "The protocol has no name.",
            'Give it one that says its version too, for example name = "mine-1".',
        )
    base = asdict(STANDARD_1)
    if "seconds" in values:
        base["steps"] = None
    given = {name: _field(name, values[name]) if name in values else base[name] for name in names}
    protocol = checked(Protocol(**given))
    if protocol.name in NEWEST or PROTOCOLS.get(protocol.name, protocol) != protocol:
        raise _wrong(
            "name",
            protocol.name,
            "is taken",
            'Choose one that says its version too, for example "mine-1".',
        )
    return protocol


def _field(name: str, value: Any) -> Any:
    if name == "batch_size" and value == LARGEST:
        return None
    if name == "name":
        return _name(value)
    if name in ("optimizer", "precision"):
        return _one_of(name, value, OPTIMIZERS if name == "optimizer" else PRECISIONS)
    if name == "respect_documents":
        if not isinstance(value, bool):
            raise _wrong(name, value, "is not true or false", "Write it without quotes.")
        return value
    if name in ("lr", "weight_decay", "clip", "seconds"):
        return _number(name, value, above_zero=name in ("lr", "seconds"))
    return _whole(
        name, value, 0 if name == "seed" else 1, 2**63 - 1 if name == "seed" else MOST_STEPS
    )


def _name(value: Any) -> str:
    if (
        not isinstance(value, str)
        or not value.strip()
        or not value.isprintable()
        or len(value) > 80
    ):
        raise _wrong(
            "name",
            value,
            "is no name",
            'Choose one that says its version too, for example "mine-1".',
        )
    return value


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise _wrong(name, value, "is not known", f"Choose one of: {', '.join(allowed)}.")
    return str(value)


def _number(name: str, value: Any, *, above_zero: bool) -> float:
    is_number = (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    )
    if not is_number or value < 0 or (above_zero and value == 0):
        least = "above zero" if above_zero else "of zero or more"
        raise _wrong(
            name,
            value,
            f"is not a number {least}",
            f"For example {name} = {getattr(STANDARD_1, name) or TIMEBOX_1.seconds}.",
        )
    return float(value)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        example = f"For example {name} = {getattr(STANDARD_1, name)}."
        also = f' Or batch_size = "{LARGEST}".' if name == "batch_size" else ""
        raise _wrong(name, value, f"is not a whole number from {least} to {most:,}", example + also)
    return value


def _wrong(name: str, value: Any, what: str, advice: str) -> UsageError:
    return UsageError(f"The protocol's {name} = {str(value)[:60]!r} {what}.", advice)
