"""Programs that compile CUDA kernels of their own run without nvcc and without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast
from vramcast.errors import WorkloadError
from vramcast.processes.progress import Progress

PROGRAM = Path(__file__).parent / "small" / "extension" / "train.py"


def predict(path: Path) -> tuple[vramcast.Prediction, list[str]]:
    printed: list[str] = []

    def listen(progress: Progress) -> None:
        printed.append(progress.line or "")

    return vramcast.predict(["python", str(path)], gpu="h200", progress=listen), printed


@pytest.mark.usefixtures("workspaces_of_torch_2_11")
def test_the_host_code_runs_and_allocates_what_it_does_on_a_gpu() -> None:
    """As measured on an H200 with nvcc (torch 2.11.0+cu130, 2026-11-18), predicted before."""
    found, printed = predict(PROGRAM)
    assert "132 multiprocessors" in printed
    assert (found.peak_allocated_bytes, found.peak_reserved_bytes) == (83_919_872, 90_177_536)


def test_what_cannot_be_compiled_is_said_with_the_compilers_own_words(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.read_text())
    (tmp_path / "kernels.cu").write_text('#include "of_another_library.h"')
    expected = "host code of the CUDA extension 'own_kernels'.*error: of_another_library.h"
    with pytest.raises(WorkloadError, match=expected):
        predict(tmp_path / "train.py")
