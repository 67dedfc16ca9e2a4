"""Names for what was run, the same on every machine: a hash of the canonical description.

For workloads with the knobs of document 004's workload schema (a ring memory, "ant" and "colony"), as the zoo's od1 has them, it is that
schema's own id, so that runs can be matched with its records; for all others a hash of the workload's name and knobs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from vramcast.errors import UsageError

SCHEMA = "workload_schema_v1"
DTYPES = ("fp64", "fp32", "fp16", "bf16")
# what a field may be: one of these names, or a whole number from this on
ANT_FIELDS: dict[str, tuple[str, ...] | int] = {
    "ring_len": 1,
    "slot_dim": 1,
    "ptr_dtype": DTYPES,
    "precision": (*DTYPES, "amp"),
}
COLONY_FIELDS: dict[str, tuple[str, ...] | int] = {
    **dict.fromkeys(("seq_len", "synth_len", "batch_size", "ptr_update_every"), 1),
    "state_loop_samples": 0,
}
COMMENTS = ("name", "notes")  # allowed, and no part of the id
OD1_KNOBS = ("ring_len", "slot_dim", "precision", "seq_len", "batch_size")
OD1_PRECISIONS = {
    "fp32": "fp32",
    "amp-fp16": "fp16",
    "amp-bf16": "bf16",
}  # the schema's fp16 and bf16 are autocast over fp32 weights


def workload_id(workload: str, knobs: Mapping[str, Any]) -> str:
    """For every workload; document 004's id where the knobs describe one of its workloads."""
    specification = _schema_knobs(knobs)
    if specification is not None:
        return schema_id(*specification)
    return "wl_" + _short_hash(
        {"workload": workload, "knobs": {key: _plain(value) for key, value in knobs.items()}}
    )


def schema_id(ant: Mapping[str, Any], colony: Mapping[str, Any]) -> str:
    return "wl_v1_" + _short_hash(_canonical(ant, colony))


def _schema_knobs(knobs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """(ant, colony) where the knobs are the schema's, or those of the zoo's od1, which leaves out what it has only one of."""
    described = dict(knobs)
    if all(name in knobs for name in OD1_KNOBS) and str(knobs["precision"]) in OD1_PRECISIONS:
        fixed = {
            "ptr_dtype": "fp64",
            "synth_len": knobs["seq_len"],
            "ptr_update_every": 1,
            "state_loop_samples": 0,
        }
        described = {**fixed, **knobs, "precision": OD1_PRECISIONS[knobs["precision"]]}
    ant = {name: described[name] for name in ANT_FIELDS if name in described}
    colony = {name: described[name] for name in COLONY_FIELDS if name in described}
    try:
        _canonical(ant, colony)
    except UsageError:  # text where a number belongs, a precision the schema does not have: not one of its workloads
        return None
    return ant, colony


def _canonical(ant: Mapping[str, Any], colony: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA,
        "ant_spec": _checked("ant_spec", ant, ANT_FIELDS),
        "colony_spec": _checked("colony_spec", colony, COLONY_FIELDS),
    }


def _checked(
    where: str, given: Mapping[str, Any], fields: Mapping[str, tuple[str, ...] | int]
) -> dict[str, Any]:
    """Strict: an id for a description with a typing error in it would name something nobody ran."""
    described = {name: value for name, value in given.items() if name not in COMMENTS}
    if set(described) != set(fields):
        odd = ", ".join(sorted(set(described) ^ set(fields)))
        raise UsageError(
            f"{where} of {SCHEMA} has other fields than these: {odd}.",
            f"Give exactly {', '.join(fields)}.",
        )
    for name, allowed in fields.items():
        value = described[name]
        fits = (
            value in allowed
            if isinstance(allowed, tuple)
            else type(value) is int and value >= allowed
        )
        if not fits:
            wanted = (
                f"one of {', '.join(allowed)}"
                if isinstance(allowed, tuple)
                else f"a whole number from {allowed} on"
            )
            raise UsageError(f"{name} in {where} is {value!r}.", f"Give {wanted}.")
    return described


def _short_hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool | None) else str(value)
