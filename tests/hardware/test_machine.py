"""`vramcast env`: what facts about a machine mean, asked without a GPU or torch in the process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from invented import H200, MACHINE

from vramcast.cli import env
from vramcast.errors import EnvironmentProblem
from vramcast.hardware import machine as machines
from vramcast.hardware.env import Check, Status, checks
from vramcast.hardware.machine import c_compiler, cxx_compiler, find_nvcc, is_wsl
from vramcast.records.machine import GpuProcess, Machine
from vramcast.simulate import build
from vramcast.units import GiB


def found(machine: Machine, name: str) -> Check:
    return next(check for check in checks(machine) if check.name == name)


def test_a_machine_that_is_ready_has_nothing_in_the_way() -> None:
    assert {check.status for check in checks(MACHINE)} == {Status.GOOD, Status.OPTIONAL}


@pytest.mark.parametrize(
    ("changes", "name", "status", "words"),
    [
        ({"gpus": []}, "GPU", Status.NOTICE, "without a GPU"),
        (
            {"torch_version": None, "torch_error": "ImportError: libcudart"},
            "torch",
            Status.PROBLEM,
            "libcudart",
        ),
        ({"torch_cuda": None}, "torch", Status.PROBLEM, "run steps on the CPU"),
        ({"cuda_available": False}, "CUDA in torch", Status.PROBLEM, "does not find it"),
        ({"torch_cuda": "14.0"}, "driver", Status.PROBLEM, "this driver does not know"),
        ({"capability": (7, 5)}, "compute capability", "good", "lacks TF32 and bfloat16 and FP8"),
        (
            {"architectures": ["sm_80", "sm_86"]},
            "torch's kernels",
            Status.PROBLEM,
            "not built for sm_90",
        ),
        (
            {"triton": None, "triton_error": "No module named 'triton'"},
            "Triton",
            Status.PROBLEM,
            "no torch.compile",
        ),
        ({"compiler": None}, "C compiler", Status.PROBLEM, "torch.compile and Triton fail"),
        ({"cxx_compiler": None}, "C++ compiler", Status.PROBLEM, "cannot build its simulated GPU"),
        (
            {"nvcc": "/mnt/c/nvcc", "nvcc_error": "it may not be executed (PermissionError)"},
            "nvcc",
            Status.PROBLEM,
            "finds this one and fails",
        ),
        (
            {"gpus": [replace(H200, used_bytes=30 * GiB)]},
            "free memory of GPU 0",
            Status.NOTICE,
            "may not fit here",
        ),
        (
            {"gpus": [replace(H200, used_bytes=30 * GiB)]},
            "processes on the GPU",
            Status.NOTICE,
            "in containers it does not",
        ),
        (
            {"processes": [GpuProcess(0, 17, "python", 3 * GiB)]},
            "process 17",
            Status.NOTICE,
            "uses the GPU",
        ),
        (
            {"allocator": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}},
            "PYTORCH_NO_CUDA_MEMORY_CACHING",
            Status.PROBLEM,
            "far slower",
        ),
        (
            {"allocator": {"PYTORCH_CUDA_ALLOC_CONF": "x"}},
            "PYTORCH_CUDA_ALLOC_CONF",
            Status.NOTICE,
            "older name",
        ),
        ({"is_wsl": True}, "WSL", Status.NOTICE, "paged to the host"),
        (
            {"gpus": [replace(H200, driver_model="WDDM")]},
            "driver model",
            Status.NOTICE,
            "does not fail but crawls",
        ),
        ({"packages": {"torchao": "0.18"}}, "torchao", "good", "can be tried"),
    ],
)
def test_what_facts_mean(changes: dict[str, object], name: str, status: str, words: str) -> None:
    check = found(replace(MACHINE, **changes), name)  # type: ignore[arg-type]
    assert check.status == status
    assert words in check.meaning
    assert check.advice or status == "good" or name.startswith("process ")


def test_kernels_of_the_same_major_version_or_to_be_compiled_will_do() -> None:
    for architectures in (["sm_90"], ["sm_80", "compute_80"], ["sm_86", "sm_90a"]):
        assert all(
            check.name != "torch's kernels"
            for check in checks(replace(MACHINE, architectures=architectures))
        )


def test_an_nvcc_that_may_not_be_executed_is_told_from_one_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "nvcc"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o644)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_nvcc() == (str(program), "it may not be executed (PermissionError)")
    program.chmod(0o755)
    assert find_nvcc() == (str(program), None)


def test_wsl_is_known_by_its_kernel() -> None:
    assert is_wsl("5.15.153.1-microsoft-standard-WSL2") and not is_wsl("6.8.0-generic")


def test_a_torch_that_cannot_be_imported_is_a_fact_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for code, error in (
        ("raise ImportError('libcudart.so.13')", "ImportError: libcudart.so.13"),
        ("import os; os.write(2, b'\\xff'); os._exit(3)", "\ufffd"),
        ("import os; os._exit(3)", "exit code 3"),
    ):
        (tmp_path / "torch.py").write_text(code)
        assert error in machines.ask_torch()["torch_error"]
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert "/nowhere/python" in machines.ask_torch()["torch_error"]


def test_the_command_looks_at_this_machine_and_imports_no_torch_itself() -> None:
    """In a process of its own: other tests have imported torch into this one."""
    code = (
        "import sys; from vramcast.cli import env; code = env.env(as_json=True); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr
    out = json.loads(done.stdout)
    assert {check["name"] for check in out["checks"]} >= {
        "torch",
        "Triton",
        "C compiler",
        "C++ compiler",
        "nvcc",
        "host",
    }
    assert out["facts"]["torch_version"]
    machine = Machine.from_dict(out["facts"])
    assert (out["facts"]["kind"], out["facts"]["version"]) == ("machine", 1)
    assert machine.to_dict() == out["facts"]
    assert done.returncode == (
        3 if any(check["status"] == "problem" for check in out["checks"]) else 0
    )


def test_the_command_shows_what_it_means_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vramcast.hardware.env.look", lambda: replace(MACHINE, compiler=None))
    assert env.env() == 3
    out = capsys.readouterr().out
    assert "✗ C compiler: missing" in out and "→ Install gcc or clang" in out


def test_what_is_not_installed_and_not_needed_has_no_tick(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vramcast.hardware.env.look", lambda: MACHINE)
    assert env.env() == 0
    out = capsys.readouterr().out
    for line in ("- bitsandbytes: not installed", "- torchao: not installed", "- nvcc: not found"):
        assert line in out


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Leaves these programs on the path, and no others."""

    def leave(*names: str) -> None:
        for name in names:
            program = tmp_path / name
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    return leave


def test_compilers_are_commands_and_the_device_is_built_with_the_one_that_env_shows(
    programs: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert (c_compiler(), cxx_compiler()) == (None, None)
    with pytest.raises(EnvironmentProblem, match=r"C\+\+ compiler"):
        build.compiler()
    programs("gcc")
    assert (c_compiler(), cxx_compiler()) == (["gcc"], None)
    programs("clang++", "ccache")
    assert build.compiler() == cxx_compiler() == ["clang++"]
    monkeypatch.setenv("CXX", "ccache clang++")
    monkeypatch.setenv("CC", "gcc -m64")
    assert build.compiler() == ["ccache", "clang++"]
    monkeypatch.setattr(machines, "ask_torch", dict)
    machine = machines.look()
    assert machine.compiler == f"{tmp_path}/gcc -m64"
    assert machine.cxx_compiler == f"{tmp_path}/ccache clang++"


@pytest.mark.parametrize("value", ["", "  ", "nowhere++", "g++ 'not closed"])
def test_a_variable_that_names_no_compiler_is_passed_over(
    value: str, programs: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    programs("g++")
    monkeypatch.setenv("CXX", value)
    assert cxx_compiler() == ["g++"]
