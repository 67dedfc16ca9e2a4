"""Names for what was run, the same on every machine: a hash of the canonical description.

For workloads with the knobs of document 004's workload schema (a ring memory, "ant" and "colony") it is that schema's own id, so that
runs can be matched with its records; for all others a hash of the workload's name and knobs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SCHEMA = "workload_schema_v1"
ANT_FIELDS = ("ring_len", "slot_dim", "ptr_dtype", "precision")
COLONY_FIELDS = ("seq_len", "synth_len", "batch_size", "ptr_update_every", "state_loop_samples")

# the presets of document 004: (ant, colony)
OD1_PRESETS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "od1_canon_small": (
        {"ring_len": 2048, "slot_dim": 256, "ptr_dtype": "fp64", "precision": "fp32"},
        {"seq_len": 128, "synth_len": 128, "batch_size": 4, "ptr_update_every": 1, "state_loop_samples": 0},
    ),
    "od1_canon_real": (
        {"ring_len": 8192, "slot_dim": 576, "ptr_dtype": "fp64", "precision": "fp32"},
        {"seq_len": 256, "synth_len": 256, "batch_size": 16, "ptr_update_every": 1, "state_loop_samples": 0},
    ),
    "od1_canon_stress": (
        {"ring_len": 16384, "slot_dim": 768, "ptr_dtype": "fp64", "precision": "fp32"},
        {"seq_len": 256, "synth_len": 256, "batch_size": 16, "ptr_update_every": 1, "state_loop_samples": 0},
    ),
}


def workload_id(workload: str, knobs: Mapping[str, Any]) -> str:
    """For every workload; document 004's id where the knobs are those of its schema."""
    if all(name in knobs for name in (*ANT_FIELDS, *COLONY_FIELDS)):
        ant = {name: knobs[name] for name in ANT_FIELDS}
        # autocast names such as amp-fp16 are the schema's fp16
        ant["precision"] = str(ant["precision"]).removeprefix("amp-")
        return schema_id(ant, {name: knobs[name] for name in COLONY_FIELDS})
    return "wl_" + _short_hash({"workload": workload, "knobs": {key: _plain(value) for key, value in knobs.items()}})


def schema_id(ant: Mapping[str, Any], colony: Mapping[str, Any]) -> str:
    return "wl_v1_" + _short_hash(_canonical(ant, colony))


def combo_key(ant: Mapping[str, Any], colony: Mapping[str, Any]) -> str:
    """The same for all batch sizes."""
    return "combo_v1_" + _short_hash(_canonical(ant, {key: value for key, value in colony.items() if key != "batch_size"}))


def _canonical(ant: Mapping[str, Any], colony: Mapping[str, Any]) -> dict[str, Any]:
    return {"schema_version": SCHEMA, "ant_spec": dict(ant), "colony_spec": dict(colony)}


def _short_hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool | None) else str(value)
