"""What the driver says is asked for without ever failing a command."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from vramcast.hardware import nvml


class NVMLError(Exception):
    pass


def driver(
    *, broken: str = "", processes: list[Any] | None = None, gpus: int = 2
) -> SimpleNamespace:
    """pynvml with two GPUs, of which the call `broken` fails for the second."""
    answers = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetCount": gpus,
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=100, used=40),
        "nvmlSystemGetCudaDriverVersion": 12080,
        "nvmlSystemGetDriverVersion": "570.1",
        "nvmlDeviceGetName": "H200",
        "nvmlDeviceGetEccMode": [1, 1],
        "nvmlDeviceGetHandleByUUID": 0,
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetComputeRunningProcesses": processes or [],
    }

    def call(name: str) -> Any:
        def answer(*arguments: Any) -> Any:
            if name == broken and arguments != (0,):
                raise NVMLError(name)
            return answers[name]

        return answer

    fake = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda index: f"GPU-{index + 1}",
        **{name: call(name) for name in answers},
    )
    return fake


@pytest.fixture(autouse=True)
def all_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_machine_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.gpu_states() == []
    assert nvml.UsedMemory().of_process("GPU-1") is None
    monkeypatch.setitem(sys.modules, "pynvml", driver(broken="nvmlInit"))
    assert nvml.gpu_states() == []


def test_gpus_are_told_in_text_and_a_lost_one_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    first, _ = nvml.gpu_states()
    assert (
        first.uuid,
        first.driver_version,
        first.cuda_version,
        first.driver_model,
        first.ecc,
    ) == (
        "GPU-1",
        "570.1",
        "12.8",
        "Linux",
        True,
    )
    monkeypatch.setitem(sys.modules, "pynvml", driver(broken="nvmlDeviceGetMemoryInfo"))
    assert nvml.gpu_states() == [first]
    monkeypatch.setitem(sys.modules, "pynvml", driver(broken="nvmlDeviceGetEccMode"))
    assert [state.ecc for state in nvml.gpu_states()] == [True, None]


def test_a_process_the_driver_does_not_list_is_answered_for_with_the_growth_of_the_whole_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def used(process_id: int, used_bytes: int | None) -> tuple[int, str] | None:
        listed = [SimpleNamespace(pid=process_id, usedGpuMemory=used_bytes)]
        monkeypatch.setitem(sys.modules, "pynvml", driver(processes=listed))
        memory = nvml.UsedMemory()
        memory.before["GPU-1"] = replace(memory.before["GPU-1"], used_bytes=15)
        assert memory.of_device("GPU-1") == 25
        return memory.of_process("GPU-1")

    assert used(os.getpid(), 30) == (30, "process")
    assert used(os.getpid(), None) == (25, "device"), "WDDM does not say how much"
    assert used(1, 30) == (25, "device")


def test_who_uses_a_gpu_is_told_as_far_as_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [
        SimpleNamespace(pid=os.getpid(), usedGpuMemory=30),
        SimpleNamespace(pid=2**30, usedGpuMemory=None),
    ]
    monkeypatch.setitem(sys.modules, "pynvml", driver(processes=listed, gpus=1))
    ours, gone = nvml.gpu_processes()
    assert (ours.gpu, ours.pid, ours.used_bytes) == (0, os.getpid(), 30) and ours.name
    assert (gone.name, gone.used_bytes) == ("", None)
    assert nvml.gpu_states()[0].capability == (9, 0)
    monkeypatch.setitem(
        sys.modules,
        "pynvml",
        driver(broken="nvmlDeviceGetComputeRunningProcesses", processes=listed),
    )
    assert {process.gpu for process in nvml.gpu_processes()} == {0}
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.gpu_processes() == []


@pytest.mark.parametrize(
    ("visible", "shown"),
    [
        (None, [1, 2, 3]),
        ("0,1,2", [1, 2, 3]),
        ("2, 0", [3, 1]),
        ("GPU-2", [2]),
        ("1,GPU-3", [2, 3]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1,7,0", [2]),
        ("MIG-5", [1, 2, 3]),
    ],
)
def test_only_gpus_that_cuda_programs_see_are_here(
    visible: str | None, shown: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        sys.modules,
        "pynvml",
        driver(gpus=3, processes=[SimpleNamespace(pid=2**30, usedGpuMemory=1)]),
    )
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [state.uuid for state in nvml.gpu_states()] == [f"GPU-{n}" for n in shown]
    assert [process.gpu for process in nvml.gpu_processes()] == list(range(len(shown)))
    assert nvml.gpu_here() == ("h200" if shown else None)
