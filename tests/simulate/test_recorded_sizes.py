"""What kernels take beside their results is what they took on an H200, to the byte."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import vramcast

RECORDED = Path(__file__).parents[2] / "benchmarks/libraries/sizes-h200-torch-2.11.jsonl.gz"
WORKLOAD = """
import json
import torch

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

def topk(case: str):
    case = json.loads(case)
    x = torch.empty(case["shape"], device="cuda", dtype=DTYPES[case["dtype"]])
    return lambda: x.topk(case["k"]).values

def batch_norm_channels_last(case: str):
    case = json.loads(case)
    layer = torch.nn.BatchNorm2d(case["shape"][1]).cuda()
    x = torch.empty(case["shape"], device="cuda", dtype=DTYPES[case["dtype"]])
    x = x.to(memory_format=torch.channels_last)
    return lambda: layer(x)
"""


def cases(name: str, count: int) -> list[dict[str, Any]]:
    with gzip.open(RECORDED, "rt") as file:
        found = [case for line in file if (case := json.loads(line))["name"] == name]
    return found[:: len(found) // count]


@pytest.mark.usefixtures("warm_simulations")
@pytest.mark.parametrize("name", ["topk", "batch_norm_channels_last"])
def test_kernels_take_what_they_took(name: str, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORKLOAD)
    for number, case in enumerate(cases(name, 6)):
        folder = tmp_path / str(number)
        given = json.dumps({key: case[key] for key in ("shape", "dtype", "k") if key in case})
        vramcast.predict(f"{tmp_path}/work.py:{name}", gpu="h200", trace=folder, case=given)
        rows = json.loads((folder / "trace.json").read_text())["events"]
        last = max(index for index, row in enumerate(rows) if row[0] == "step")
        taken = [row[2] for row in rows[last:] if row[0] == "alloc" and row[2]]
        assert taken == [size for size in case["forward"] if size > 0], case
