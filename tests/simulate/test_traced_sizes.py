"""Operators allocate what traces of an H200 have, in the same order (suite `wide`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vramcast

WORKLOAD = """
import torch
import torch.nn.functional as F

def wide_heads():
    q, k, v = (torch.randn(8, 1, n, 512, device="cuda", dtype=torch.float16, requires_grad=True)
               for n in (256, 16384, 16384))
    grad = torch.randn(256, 8, 1, 512, device="cuda", dtype=torch.float16).permute(1, 2, 0, 3)
    def step():
        F.scaled_dot_product_attention(q, k, v).backward(grad)
        q.grad = k.grad = v.grad = None
        return q
    return step

def sorted_column():
    x = torch.randn(200_000, 3, device="cuda")
    return lambda: x[:, 2].sort().values

def chosen():
    x = torch.arange(1_000_000, device="cuda") % 4 == 0
    return lambda: x.nonzero()

def added_up_row():
    x = torch.ones(1, 1024, dtype=torch.int64, device="cuda")
    return lambda: x.cumsum(-1)

def smoothed_crop():
    x = torch.randn(16, 3, 224, 224, device="cuda")
    return lambda: F.interpolate(x[..., :192, :192], (160, 160), mode="bicubic", antialias=True)

def deformed():
    from torchvision.ops import deform_conv2d
    x, weight = torch.randn(8, 64, 128, 128, device="cuda"), torch.randn(64, 64, 3, 3).cuda()
    offset, mask = torch.randn(8, 27, 128, 128, device="cuda").split([18, 9], 1)
    return lambda: deform_conv2d(x, offset, weight, torch.zeros(64).cuda(), padding=1,
                                 mask=mask.contiguous())
"""
TAKEN = {
    # the gradient as rows, gradients of q, k and v, sums of rows, and parts of those of k and v
    "wide_heads": (
        "_scaled_dot_product_efficient_attention_backward",
        [2097152, 2097152, 134217728, 134217728, 8192, 56625152],
    ),
    "sorted_column": ("sort", [800000, 1600000, 800000, 1600000, 2447615]),
    "chosen": ("nonzero", [4, 21503, 2000000, 2815]),
    "added_up_row": ("cumsum", [8192, 1279]),
    "smoothed_crop": ("_upsample_bicubic2d_aa", [4915200, 7077888]),
    # offsets, the result, its rows, what the filters see, and the result with its bias
    "deformed": ("deform_conv2d", [9437184, 33554432, 33554432, 301989888, 33554432]),
}


@pytest.mark.usefixtures("warm_simulations")
@pytest.mark.parametrize("name", TAKEN)
def test_operators_take_what_they_took(name: str, tmp_path: Path) -> None:
    if name == "deformed":
        pytest.importorskip("torchvision")
    (tmp_path / "work.py").write_text(WORKLOAD)
    vramcast.predict(f"{tmp_path}/work.py:{name}", gpu="h200", trace=tmp_path / "run")
    rows = json.loads((tmp_path / "run" / "trace.json").read_text())["events"]
    last = max(index for index, row in enumerate(rows) if row[0] == "step")
    operator, sizes = TAKEN[name]
    made = [row for row in rows[last:] if row[0] == "alloc" and row[3].endswith(f"::{operator}")]
    assert [row[2] for row in made] == sizes
