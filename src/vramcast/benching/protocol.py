"""Protocols: the fixed conditions that every model of a comparison is trained under.

Runs are comparable if their protocols have the same hash. It covers the values, not the name, and
the version of what all protocols have in common (records.bench.FORMAT; docs/commands/bench.md lists
it).
"""

import json
import typing
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from vramcast.errors import UsageError
from vramcast.records.base import shortened, typed
from vramcast.records.bench import OptimizerName, Precision, Protocol
from vramcast.records.store import read_toml
from vramcast.text import did_you_mean

VOCABULARY = 256
LARGEST = "largest"  # in a file this means batch_size=None
MAX_NAME_CHARACTERS = 80
FIELDS = typing.get_type_hints(Protocol, include_extras=True)
STANDARD_1 = Protocol(
    name="standard-1",
    batch_size=256,
    seq_len=512,
    steps=1000,
    seconds=None,
    optimizer=OptimizerName.ADAMW_SCHEDULEFREE,
    lr=3e-4,
    weight_decay=0.1,
    precision=Precision.BF16,
    clip=1.0,
    seed=42,
    last_steps=100,
    respect_documents=False,
)
TIMEBOX_1 = replace(STANDARD_1, name="timebox-1", batch_size=None, steps=None, seconds=600.0)
# A name without a version means the newest.
PROTOCOLS = {
    "standard": STANDARD_1,
    "standard-1": STANDARD_1,
    "timebox": TIMEBOX_1,
    "timebox-1": TIMEBOX_1,
}


def with_steps(protocol: Protocol, steps: int) -> Protocol:
    """The protocol with another number of steps. It is another protocol, and its name says so."""
    name = f"{protocol.name}/{steps}-steps"
    return checked(replace(protocol, name=name, steps=_field("steps", steps), seconds=None))


def within_documents(protocol: Protocol) -> Protocol:
    return replace(protocol, name=f"{protocol.name}/documents", respect_documents=True)


def checked(protocol: Protocol) -> Protocol:
    if (protocol.steps is None) == (protocol.seconds is None):
        given = "neither steps nor seconds" if protocol.steps is None else "both steps and seconds"
        raise UsageError(
            f"The protocol {protocol.name!r} has {given}.",
            "Give one of them: that is where training ends.",
        )
    if protocol.steps is not None and protocol.steps < protocol.last_steps:
        raise UsageError(
            f"The metric {protocol.metric} of the protocol {protocol.name!r} needs at least "
            f"{protocol.last_steps} steps, not {protocol.steps}.",
            "Train for more steps, or give last_steps in a protocol file.",
        )
    return protocol


def find_protocol(text: str) -> Protocol:
    if text in PROTOCOLS:
        return PROTOCOLS[text]
    if text.endswith(".toml") or "/" in text:
        return read_protocol(Path(text))
    raise UsageError(
        f"There is no protocol {text!r}.",
        f"Known: {', '.join(PROTOCOLS)}; or give a file, for example --protocol mine.toml.",
    )


def read_protocol(path: Path) -> Protocol:
    """The protocol in a file. Fields that the file leaves out are those of standard-1."""
    advice = 'Write lines such as name = "mine-1" and steps = 200.'
    values = read_toml(path, "The protocol", advice)
    try:
        return protocol_from(values)
    except UsageError as problem:
        raise UsageError(f"{path}: {problem.message}", problem.advice) from None


def protocol_from(values: Mapping[str, Any]) -> Protocol:
    given = {name: _field(name, value) for name, value in values.items()}
    base = replace(STANDARD_1, steps=None) if "seconds" in values else STANDARD_1
    protocol = checked(replace(base, **given))
    name = protocol.name
    if "name" not in values:
        problem = "The protocol has no name."
    elif not name.strip() or not name.isprintable() or len(name) > MAX_NAME_CHARACTERS:
        problem = f"The protocol's name = {shortened(name)} is no name."
    elif PROTOCOLS.get(name, protocol) != protocol:
        problem = f"The protocol's name = {name!r} is taken."
    else:
        return protocol
    raise UsageError(problem, 'Choose one with its version, for example name = "mine-1".')


def _field(name: str, value: Any) -> Any:
    if name not in FIELDS:
        advice = f"{did_you_mean(name, FIELDS)}Fields: {', '.join(FIELDS)}."
        raise UsageError(f"A protocol has no field {name!r}.", advice)
    if name == "batch_size" and value == LARGEST:
        return None
    try:
        return typed(value, FIELDS[name])
    except msgspec.ValidationError as problem:
        example = getattr(TIMEBOX_1 if name == "seconds" else STANDARD_1, name)
        advice = f"For example {name} = {json.dumps(example)}."
        if name in ("optimizer", "precision"):
            advice = f"Choose one of: {', '.join(FIELDS[name])}."
        if name == "batch_size":
            advice += f' Or batch_size = "{LARGEST}".'
        raise UsageError(
            f"The protocol's {name} = {shortened(value)} cannot be used: {problem}.", advice
        ) from None
