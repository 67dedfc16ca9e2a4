"""On a real GPU.

Whole models with the fused recurrences learn as with the plain ones, and take the memory that was
predicted.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import vramcast
from vramcast.hardware import nvml
from vramcast_zoo import e1, e5, e10
from vramcast_zoo.language_model import shifted

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not any("H200" in gpu.name for gpu in nvml.gpu_states()), reason="needs an NVIDIA H200"
    ),
]
SIZES = {"depth": 2, "batch_size": 48, "seq_len": 100}


@pytest.mark.parametrize("precision", ["bf16", "amp-bf16"])
@pytest.mark.parametrize(
    "name, sizes",
    [
        ("e1-50m", {"dim": 256}),
        ("e5-d1536-r270", {"dim": 320, "rank": 70}),
        ("e10-50m", {"dim": 192}),
    ],
)
def test_what_is_predicted_is_what_the_gpu_measures(
    name: str, sizes: dict[str, Any], precision: str
) -> None:
    knobs = {**SIZES, **sizes, "precision": precision}
    measured, prediction = (
        vramcast.probe(name, steps=4, **knobs),
        vramcast.predict(name, gpu="h200", **knobs),
    )
    assert measured.outcome == "ok"
    assert prediction.peak_reserved_bytes == measured.peak_reserved_bytes
    assert prediction.peak_allocated_bytes == measured.peak_allocated_bytes


@pytest.mark.parametrize(
    "make, sizes", [(e1.make_model, {}), (e5.make_model, {"rank": 40}), (e10.make_model, {})]
)
def test_a_models_gradients_do_not_depend_on_how_the_recurrence_is_computed(
    make: Any, sizes: dict[str, int]
) -> None:
    torch.manual_seed(0)
    with torch.device("cuda"):
        models = {
            kind: make(dim=192, depth=2, recurrence=kind, **sizes).bfloat16()
            for kind in ("plain", "fused")
        }
        batch = shifted(torch.randint(256, (37, 65)))
    models["fused"].load_state_dict(models["plain"].state_dict())
    for model in models.values():
        model.loss(*batch).backward()
    pairs = zip(models["plain"].named_parameters(), models["fused"].named_parameters(), strict=True)
    for (name, plain), (_, fused) in pairs:
        assert plain.grad is not None and fused.grad is not None
        difference = (plain.grad.float() - fused.grad.float()).norm() / plain.grad.float().norm()
        assert difference < 0.05, (
            f"{name}: {difference:.3f}"
        )  # two bfloat16 results, each rounded at every step
