"""Ids of document 004's workloads, so that runs of the zoo's od1 match the document's records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SCHEMA = "workload_schema_v1"
DTYPES = ("fp64", "fp32", "fp16", "bf16")
# What a field may be: one of these names, or a whole number from this on.
FIELDS: dict[str, dict[str, tuple[str, ...] | int]] = {
    "ant_spec": {
        "ring_len": 1,
        "slot_dim": 1,
        "ptr_dtype": DTYPES,
        "precision": (*DTYPES, "amp"),
    },
    "colony_spec": {
        "seq_len": 1,
        "synth_len": 1,
        "batch_size": 1,
        "ptr_update_every": 1,
        "state_loop_samples": 0,
    },
}
OD1_KNOBS = ("ring_len", "slot_dim", "precision", "seq_len", "batch_size")
# The schema's fp16 and bf16 are autocast over fp32 weights.
OD1_PRECISIONS = {"fp32": "fp32", "amp-fp16": "fp16", "amp-bf16": "bf16"}


def document_id(knobs: Mapping[str, Any]) -> str | None:
    """None where the knobs do not describe a workload of the document."""
    described = canonical(knobs)
    return None if described is None else f"wl_v1_{short_hash(described)}"


def canonical(knobs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The knobs as the schema writes them: its own, or od1's, which has fewer."""
    if all(name in knobs for name in OD1_KNOBS) and str(knobs["precision"]) in OD1_PRECISIONS:
        only_one = {"ptr_dtype": "fp64", "ptr_update_every": 1, "state_loop_samples": 0}
        precision = OD1_PRECISIONS[knobs["precision"]]
        knobs = {"synth_len": knobs["seq_len"], **only_one, **knobs, "precision": precision}
    parts = {part: {name: knobs.get(name) for name in allowed} for part, allowed in FIELDS.items()}
    for part, allowed in FIELDS.items():
        if not all(_is_one_of(parts[part][name], allowed[name]) for name in allowed):
            return None
    return {"schema_version": SCHEMA, **parts}


def _is_one_of(value: Any, allowed: tuple[str, ...] | int) -> bool:
    if isinstance(allowed, tuple):
        return value in allowed
    return type(value) is int and value >= allowed


def short_hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
