"""On a real GPU: a step as a CUDA graph, compiled, or in 8 bits learns as the plain one does."""

from __future__ import annotations

from typing import Any

import pytest

from vramcast.hardware import nvml
from vramcast_zoo import e10, gpt2

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not any("H200" in gpu.name for gpu in nvml.gpu_states()), reason="needs an NVIDIA H200"
    ),
]
BUILDS = {
    "gpt2": (
        gpt2.build,
        {"dim": 128, "depth": 2, "heads": 2, "vocabulary": 512, "batch_size": 4, "seq_len": 128},
    ),
    "e10": (
        e10.build,
        {"dim": 128, "depth": 2, "batch_size": 8, "seq_len": 64, "recurrence": "plain"},
    ),
}


def losses(name: str, **knobs: Any) -> list[float]:
    build, sizes = BUILDS[name]
    step = build(**{**sizes, "precision": "fp32", "lr": 1e-3, **knobs})
    return [step().item() for _ in range(8)]


@pytest.mark.parametrize("optimizer", ["adamw", "adamw-fused"])
@pytest.mark.parametrize("name", BUILDS)
def test_a_graph_repeats_the_step_with_new_data_and_new_weights(name: str, optimizer: str) -> None:
    plain, graph = (
        losses(name, optimizer=optimizer),
        losses(name, optimizer=optimizer, cuda_graphs=True),
    )
    assert len(set(graph)) == len(graph)
    assert graph == pytest.approx(plain, rel=1e-4)


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script_method:DeprecationWarning"
)  # torch.compile's own imports
@pytest.mark.parametrize(
    ("knobs", "tolerance"),
    [
        ({"precision": "amp-bf16"}, 0.02),
        ({"precision": "amp-fp16"}, 0.02),
        ({"precision": "amp-fp8"}, 0.05),
        ({"optimizer": "adamw-loop"}, 1e-4),
        ({"loss_chunks": 4}, 1e-4),
        ({"compile": True}, 1e-3),
    ],
    ids=str,
)
def test_other_ways_to_compute_the_step_give_about_the_same_losses(
    knobs: dict[str, Any], tolerance: float
) -> None:
    assert losses("gpt2", **knobs) == pytest.approx(losses("gpt2"), rel=tolerance)
