"""Code written for a GPU runs on the CPU and gives what the same code written for the CPU gives."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from vramcast.probing.cuda_on_cpu import cuda_means_cpu, on_cpu
from vramcast.probing.on_cpu import TensorMemory

SOURCE = Path(__file__).with_name("devices.py").read_text()
STEPS = 3


def load(device: str) -> ModuleType:
    module = ModuleType(f"devices_{device}")
    text = SOURCE.replace('DEVICE = "cuda"', f'DEVICE = "{device}"', 1)
    exec(compile(text, "devices.py", "exec"), module.__dict__)
    return module


FOR_CUDA, FOR_CPU = load("cuda"), load("cpu")
PARTS = ("model", "training", "autocast", "scaled", "checkpointed", "WithBuffers")
WORKLOADS = [
    name
    for name, value in vars(FOR_CUDA).items()
    if callable(value)
    and name not in PARTS
    and (getattr(value, "__module__", "").startswith("devices") or hasattr(value, "func"))
]


def losses(workload: Any) -> list[float]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates what people still write
        try:
            step = workload()
            return [float(step()) for _ in range(STEPS)]
        finally:
            torch.set_default_device(None)


def test_the_workloads_are_found() -> None:
    assert len(WORKLOADS) >= 20
    assert {"plain", "autocast_bf16", "checkpoint_old", "questions", "schedule_free"} <= set(
        WORKLOADS
    )


@pytest.mark.parametrize("name", WORKLOADS)
def test_losses_are_those_of_the_same_code_for_the_cpu(name: str) -> None:
    expected = losses(getattr(FOR_CPU, name))
    with cuda_means_cpu(), TensorMemory():
        assert losses(getattr(FOR_CUDA, name)) == expected
    assert len(set(expected)) == STEPS, "it learns, or the comparison says nothing"


def test_everything_is_as_it_was_afterwards() -> None:
    names = [(torch.cuda, name) for name in ("is_available", "synchronize", "Event", "Stream")]
    names += [
        (torch, "Generator"),
        (torch, "set_default_device"),
        (torch.amp.GradScaler, "__init__"),
        (torch.autocast, "__init__"),
    ]
    before = [getattr(*name) for name in names]
    with pytest.raises(KeyError), cuda_means_cpu():
        raise KeyError
    assert [getattr(*name) for name in names] == before


@pytest.mark.parametrize(
    "device", ["cuda", "cuda:1", torch.device("cuda"), torch.device("cuda", 3), 0]
)
def test_whatever_names_a_gpu_becomes_the_cpu(device: Any) -> None:
    assert on_cpu(device) == torch.device("cpu")


@pytest.mark.parametrize(
    "device", ["cpu", "meta", torch.device("meta"), None, torch.float32, "cudalike", True]
)
def test_everything_else_stays(device: Any) -> None:
    assert on_cpu(device) is device


def test_a_compiled_model_runs_too() -> None:
    with cuda_means_cpu():
        doubled = torch.compile(lambda x: x * 2 + 1, backend="aot_eager")
        assert doubled(torch.ones(3, device="cuda")).tolist() == [3.0] * 3
