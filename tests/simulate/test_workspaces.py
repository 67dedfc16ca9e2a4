"""Workspaces of cuBLAS and cuBLASLt, as each torch version takes them on each GPU."""

from __future__ import annotations

import pytest

from vramcast.errors import UsageError
from vramcast.simulate.workspaces import as_taken_by, gemm_workspaces

MIB = 1 << 20
SMALL = 8_519_680
HOPPER, BLACKWELL, THOR, ADA = (9, 0), (10, 0), (11, 0), (8, 9)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", *as_taken_by("2.11.0")):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("torch_version", "gpu", "expected"),
    [
        ("2.10.0", HOPPER, (32 * MIB, MIB, True)),
        ("2.11.0+cu130", ADA, (SMALL, MIB, True)),
        ("2.11.0", BLACKWELL, (SMALL, MIB, True)),
        ("2.12.1", BLACKWELL, (32 * MIB, 0, True)),
        ("2.13.0+cpu", HOPPER, (32 * MIB, 0, True)),
        ("2.13.0", THOR, (SMALL, 0, True)),
        ("2.14.1", THOR, (32 * MIB, 0, True)),
        ("2.15.0", HOPPER, (32 * MIB, MIB, False)),
        ("2.15.0", ADA, (SMALL, MIB, False)),
    ],
)
def test_how_large_they_are_and_whether_they_are_kept_depends_on_gpu_and_torch(
    torch_version: str, gpu: tuple[int, int], expected: tuple[int, int, bool]
) -> None:
    assert gemm_workspaces(gpu, None, torch_version) == expected


@pytest.mark.parametrize("older", ["2.11.0", "2.13.0"])
@pytest.mark.parametrize("newer", ["2.13.0", "2.15.0"])
def test_with_environment_variables_a_newer_torch_takes_them_like_an_older_one(
    older: str, newer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = gemm_workspaces(HOPPER, None, older)
    for name, value in as_taken_by(older).items():
        monkeypatch.setenv(name, value)
    assert gemm_workspaces(HOPPER, None, newer) == expected


def test_torchs_environment_variables_set_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8")
    monkeypatch.setenv("CUBLASLT_WORKSPACE_SIZE", "2048")
    assert gemm_workspaces(HOPPER, None, "2.15.0") == (SMALL, 2 * MIB, False)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "much")
    with pytest.raises(UsageError, match="'much', not pairs"):
        gemm_workspaces(HOPPER, None, "2.15.0")
