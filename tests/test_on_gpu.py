"""The same step predicted and run, where there is a GPU to run it on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import vramcast

ACCURACY = Path(__file__).parents[1] / "benchmarks" / "accuracy"
ROWS = {
    "gpt-tiny-fp32-B2-T128": ("models.py:gpt", {"vocabulary": 1000, "width": 128, "heads": 4, "depth": 3, "batch_size": 2, "seq_len": 128}),
    "gpt124m-amp-B8": ("models.py:gpt", {"autocast": "bf16"}),
}


def gpu_name() -> str:
    """Asked in a process of its own: this one must not touch CUDA."""
    code = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120).stdout.strip()


@pytest.mark.gpu
@pytest.mark.parametrize("row", ROWS)
def test_what_is_predicted_is_what_the_gpu_measures(row: str, tmp_path: Path) -> None:
    if "H200" not in gpu_name():
        pytest.skip("needs an NVIDIA H200; recorded results are tested in test_accuracy.py")
    subprocess.run([sys.executable, str(ACCURACY / "measure.py"), str(tmp_path), row], check=True, timeout=300)
    measured = json.loads((tmp_path / "h200.jsonl").read_text())
    workload, knobs = ROWS[row]
    prediction = vramcast.predict(str(ACCURACY / workload), gpu="h200", **knobs)
    assert prediction.peak_reserved_bytes == measured["peak_reserved_bytes"]
    assert prediction.peak_allocated_bytes == measured["peak_allocated_bytes"]
