"""An id for what was run, the same on every machine: a hash of the workload's name and knobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramcast.records.base import plain_value
from vramcast_zoo.document_004 import document_id, short_hash


def workload_id(workload: str, knobs: Mapping[str, Any]) -> str:
    """Where the knobs describe a workload of document 004, the id that it has there."""
    plain = {name: plain_value(value) for name, value in knobs.items()}
    return document_id(plain) or "wl_" + short_hash({"workload": workload, "knobs": plain})
