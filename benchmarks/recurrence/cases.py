"""The cases that are compared, by name: a recurrence, and one way to compute it.

Torch is not imported here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

BATCH, LENGTH = 256, 512
MODELS = ("e1-50m", "e5-d1536-r270", "e10-50m", "mamba2-50m")

MAMBA2 = {"heads": 21, "head_dim": 64, "state": 64}  # of mamba2-50m


@dataclass(frozen=True)
class Case:
    name: str
    recurrence: str  # elman, low-rank, ema, scan, product or model
    way: str  # plain, fused, cudnn, graph-torch, graph-steps, fla; of a model its knob `recurrence`
    sizes: dict[str, int] = field(default_factory=dict)
    plan: dict[str, Any] | None = (
        None  # of the fused way: vramcast_zoo.launch.Plan instead of the one it would choose
    )
    model: str = ""


def _elman(name: str, way: str, width: int = 768, **plan: Any) -> Case:
    return Case(name, "elman", way, {"width": width}, plan or None)


def _plan(
    rows: int, columns: int, chunk: int, *, variant: str = "slices", **more: Any
) -> dict[str, Any]:
    return {"variant": variant, "rows": rows, "columns": columns, "chunk": chunk, **more}


# The questions first; then tiles, to see which choice was wrong.
RECURRENCES = (
    _elman("elman-fused", "fused"),
    _elman("elman-plain", "plain"),
    _elman("elman-cudnn", "cudnn"),
    Case("product-alone", "product", "one product", {"width": 768}),
    Case("low-rank-fused", "low-rank", "fused", {"width": 1536, "rank": 270}),
    Case("low-rank-plain", "low-rank", "plain", {"width": 1536, "rank": 270}),
    Case("ema-fused", "ema", "fused", {"width": 960, "banks": 4}),
    Case("ema-plain", "ema", "plain", {"width": 960, "banks": 4}),
    Case("scan-fused", "scan", "fused", MAMBA2),
    Case("scan-fla", "scan", "fla", MAMBA2),
    Case("scan-plain", "scan", "plain", MAMBA2),
    _elman("elman-rows", "fused", **_plan(16, 64, 128, variant="rows")),
    _elman("elman-steps", "fused", **_plan(32, 64, 128, variant="steps")),
    _elman("elman-graph-of-steps", "graph-steps", **_plan(32, 64, 128, variant="steps")),
    _elman("elman-graph-of-torch", "graph-torch"),
    _elman("elman-8-warps", "fused", **_plan(32, 64, 128, warps=8)),
    _elman("elman-16x128", "fused", **_plan(16, 128, 128)),
    _elman("elman-64x64", "fused", **_plan(64, 64, 128)),
    _elman("elman-960-fused", "fused", 960),
    _elman("elman-1536-fused", "fused", 1536),
    _elman("elman-1536-32x128", "fused", 1536, **_plan(32, 128, 128, stages=3)),
)
WHOLE_MODELS = tuple(Case(f"model-{name}", "model", "auto", model=name) for name in MODELS)
PLAIN_MODELS = tuple(
    Case(f"model-{name}-plain", "model", "plain", model=name) for name in MODELS[:3]
)
ALL = {case.name: case for case in (*RECURRENCES, *WHOLE_MODELS, *PLAIN_MODELS)}
