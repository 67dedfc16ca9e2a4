"""Cases: reductions and normalisation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from kernel_cases.base import (
    bf16,
    both,
    f16,
    f32,
    forward,
    lazily,
    module,
    rand,
)

# ------------------------------------------------------------------------------------- reductions
for dtype, tag in ((f32, "f32"), (bf16, "bf16"), (f16, "f16")):
    for rows, columns in (
        (8192, 768),
        (131072, 640),
        (4096, 50304),
        (512, 1000),
        (16384, 33),
        (100, 7),
    ):
        forward(
            f"sum0-{tag}-{rows}x{columns}", lambda x: x.sum(0), lazily(rows, columns, dtype=dtype)
        )
        forward(
            f"sum1-{tag}-{rows}x{columns}", lambda x: x.sum(1), lazily(rows, columns, dtype=dtype)
        )
        forward(
            f"sum-{tag}-{rows}x{columns}", lambda x: x.sum(), lazily(rows, columns, dtype=dtype)
        )
for tag, reduce in {
    "mean": lambda x: x.mean(),
    "mean0": lambda x: x.mean(0),
    "max": lambda x: x.max(),
    "max0": lambda x: x.max(0),
    "amax0": lambda x: x.amax(0),
    "argmax0": lambda x: x.argmax(0),
    "argmax": lambda x: x.argmax(),
    "norm": lambda x: x.norm(),
    "norm0": lambda x: torch.linalg.vector_norm(x, dim=0),
    "var": lambda x: x.var(),
    "var0": lambda x: x.var(0),
    "std0": lambda x: x.std(0),
    "var_mean0": lambda x: torch.var_mean(x, 0),
    "prod0": lambda x: x.prod(0),
    "logsumexp0": lambda x: x.logsumexp(0),
    "any": lambda x: (x > 0).any(),
    "all0": lambda x: (x > 0).all(0),
    "boolsum": lambda x: (x > 0).sum(),
    "boolsum0": lambda x: (x > 0).sum(0),
    "boolmean": lambda x: (x > 0).float().mean(),
    "isfinite": lambda x: torch.isfinite(x).all(),
    "sum_f32": lambda x: x.sum(0, dtype=f32),
    "sum_mid": lambda x: x.view(64, 128, 768).sum(1),
    "sum_outer": lambda x: x.view(64, 128, 768).sum((0, 2)),
    "sum_expanded": lambda x: x[:, None].expand(-1, 4, -1).sum((0, 1)),
    "sum_transposed": lambda x: x.t().sum(0),
    "aminmax": lambda x: x.aminmax(),
    "count_nonzero": lambda x: torch.count_nonzero(x),
}.items():
    forward(f"{tag}-f32", reduce, lazily(8192, 768))
    forward(f"{tag}-bf16", reduce, lazily(8192, 768, dtype=bf16))

# ---------------------------------------------------------------------------------- normalisation
for dtype, tag in ((f32, "f32"), (bf16, "bf16")):
    for rows, columns in (
        (8192, 768),
        (131072, 640),
        (32768, 1024),
        (1024, 4096),
        (64, 256),
        (16384, 2560),
        (2048, 100),
    ):
        both(
            f"layer_norm-{tag}-{rows}x{columns}",
            lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b),
            lazily(rows, columns, dtype=dtype, grad=True),
            lazily(columns, dtype=dtype, grad=True),
            lazily(columns, dtype=dtype, grad=True),
        )
        both(
            f"rms_norm-{tag}-{rows}x{columns}",
            lambda x, w: F.rms_norm(x, (x.shape[-1],), w),
            lazily(rows, columns, dtype=dtype, grad=True),
            lazily(columns, dtype=dtype, grad=True),
        )
module(
    "layer_norm-amp",
    lambda: nn.LayerNorm(768),
    lazily(16, 512, 768, dtype=bf16, grad=True),
    amp=bf16,
)
module("group_norm", lambda: nn.GroupNorm(8, 64), lazily(16, 64, 32, 32, grad=True))
module(
    "group_norm-bf16",
    lambda: nn.GroupNorm(8, 64).bfloat16(),
    lazily(16, 64, 32, 32, dtype=bf16, grad=True),
)
module("batch_norm2d", lambda: nn.BatchNorm2d(64), lazily(32, 64, 56, 56, grad=True))
module("batch_norm2d-amp", lambda: nn.BatchNorm2d(64), lazily(32, 64, 56, 56, grad=True), amp=bf16)
module(
    "batch_norm2d-bf16",
    lambda: nn.BatchNorm2d(64).bfloat16(),
    lazily(32, 64, 56, 56, dtype=bf16, grad=True),
)
module(
    "batch_norm2d-channels_last",
    lambda: nn.BatchNorm2d(64),
    lambda: rand(32, 64, 56, 56).contiguous(memory_format=torch.channels_last).requires_grad_(),
)
module("batch_norm1d", lambda: nn.BatchNorm1d(512), lazily(4096, 512, grad=True))
module(
    "instance_norm", lambda: nn.InstanceNorm2d(64, affine=True), lazily(8, 64, 32, 32, grad=True)
)
