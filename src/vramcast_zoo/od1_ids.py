"""Workload ids of document 004: a hash of what is run, so that two measurements can be told to be of the same thing. No torch.

A workload has an ant (the model) and a colony (the run). Names and notes do not count.
"""

from __future__ import annotations

import hashlib
import json

PRESETS = {  # ring_len, slot_dim; seq_len, batch_size
    "small": (2048, 256, 128, 4),
    "real": (8192, 576, 256, 16),
    "stress": (16384, 768, 256, 16),
}


def workload_id(*, ring_len: int, slot_dim: int, precision: str, seq_len: int, batch_size: int) -> str:
    spec = {
        "schema_version": "workload_schema_v1",
        "ant_spec": {"ring_len": ring_len, "slot_dim": slot_dim, "ptr_dtype": "fp64", "precision": precision},
        "colony_spec": {
            "seq_len": seq_len,
            "synth_len": seq_len,
            "batch_size": batch_size,
            "ptr_update_every": 1,
            "state_loop_samples": 0,
        },
    }
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return f"wl_v1_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def preset_id(ant: str, colony: str | None = None, *, precision: str = "fp32", batch_size: int | None = None) -> str:
    """The id of a preset, or of one preset's model in another's run, as the document's table combines them."""
    ring_len, slot_dim, _, _ = PRESETS[ant]
    _, _, seq_len, batch = PRESETS[colony or ant]
    return workload_id(ring_len=ring_len, slot_dim=slot_dim, precision=precision, seq_len=seq_len, batch_size=batch_size or batch)
