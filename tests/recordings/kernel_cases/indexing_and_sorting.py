"""Cases: embedding, indexing, scatter, sort and scan."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernel_cases.base import (
    bf16,
    both,
    forward,
    ints,
    lazily,
)

# ---------------------------------------------------------------------- embedding, index, scatter
for vocabulary, n, width in (
    (50304, 8192, 768),
    (256, 131072, 640),
    (256, 32768, 1024),
    (1024, 1024, 768),
    (32000, 2048, 512),
    (512, 100, 64),
):
    both(
        f"embedding-f32-{vocabulary}x{width}-{n}",
        lambda w, i: F.embedding(i, w),
        lazily(vocabulary, width, grad=True),
        lambda n=n, v=vocabulary: ints(v, n),
    )
    both(
        f"embedding-bf16-{vocabulary}x{width}-{n}",
        lambda w, i: F.embedding(i, w),
        lazily(vocabulary, width, dtype=bf16, grad=True),
        lambda n=n, v=vocabulary: ints(v, n),
    )
both(
    "embedding-padding",
    lambda w, i: F.embedding(i, w, padding_idx=0),
    lazily(32000, 512, grad=True),
    lambda: ints(32000, 4, 512),
)
for n in (1000, 4096, 100000):
    both(f"index-{n}", lambda x, i: x[i], lazily(5000, 64, grad=True), lambda n=n: ints(5000, n))
    both(
        f"index_select-{n}",
        lambda x, i: x.index_select(0, i),
        lazily(5000, 64, grad=True),
        lambda n=n: ints(5000, n),
    )
both(
    "index-bf16",
    lambda x, i: x[i],
    lazily(5000, 64, dtype=bf16, grad=True),
    lambda: ints(5000, 4096),
)
both("index-2d", lambda x, i: x[i, i], lazily(500, 500, grad=True), lambda: ints(500, 4096))
both("index-middle", lambda x, i: x[:, i], lazily(64, 500, 32, grad=True), lambda: ints(500, 300))
both(
    "mask-select",
    lambda x, m: x[m],
    lazily(4096, 64, grad=True),
    lambda: torch.arange(4096, device="cuda") % 3 == 0,
)
both(
    "gather", lambda x, i: x.gather(1, i), lazily(4096, 512, grad=True), lambda: ints(512, 4096, 8)
)
both(
    "scatter_add",
    lambda x, i: torch.zeros(512, 64, device="cuda").scatter_add(0, i, x),
    lazily(4096, 64, grad=True),
    lambda: ints(512, 4096, 64),
)
both(
    "index_add",
    lambda x, i: torch.zeros(512, 64, device="cuda").index_add(0, i, x),
    lazily(4096, 64, grad=True),
    lambda: ints(512, 4096),
)
both(
    "where",
    lambda x, m: torch.where(m, x, 0.0),
    lazily(4096, 512, grad=True),
    lambda: ints(2, 4096, 512).bool(),
)
both(
    "masked_fill",
    lambda x, m: x.masked_fill(m, -1e9),
    lazily(4096, 512, grad=True),
    lambda: ints(2, 4096, 512).bool(),
)
forward(
    "index_put",
    lambda x, i, v: x.index_put((i,), v),
    lazily(5000, 64),
    lambda: ints(5000, 4096),
    lazily(4096, 64),
)
forward(
    "index_put-accumulate",
    lambda x, i, v: x.index_put((i,), v, accumulate=True),
    lazily(5000, 64),
    lambda: ints(5000, 4096),
    lazily(4096, 64),
)
forward("nonzero", lambda m: m.nonzero(), lambda: torch.arange(40960, device="cuda") % 4 == 0)
forward(
    "nonzero-2d",
    lambda m: m.nonzero(),
    lambda: (torch.arange(40960, device="cuda") % 4 == 0).view(640, 64),
)
forward(
    "where-index",
    lambda m: torch.where(m),
    lambda: (torch.arange(40960, device="cuda") % 4 == 0).view(640, 64),
)
forward(
    "masked_select",
    torch.masked_select,
    lazily(4096),
    lambda: torch.arange(4096, device="cuda") % 3 == 0,
)

# ---------------------------------------------------------------------------------- sort and scan
for n, k in ((512, 8), (8192, 64), (1000000, 16), (50304, 50)):
    forward(f"topk-{n}", lambda x, k=k: x.topk(k), lazily(16 if n < 10**6 else 1, n))
    forward(f"sort-{n}", lambda x: x.sort(), lazily(16 if n < 10**6 else 1, n))
forward("topk-experts", lambda x: x.topk(2, dim=-1), lazily(8192, 8))
forward("topk-experts-bf16", lambda x: x.topk(2, dim=-1), lazily(8192, 8, dtype=bf16))
forward("sort-ints", lambda x: x.sort(), lambda: ints(8, 16384))
forward("sort-ints-stable", lambda x: x.sort(stable=True), lambda: ints(8, 16384))
forward("argsort-ints", lambda x: x.argsort(), lambda: ints(8, 4096))
forward("argsort-wide", lambda x: x.argsort(-1), lazily(64, 5000))
both("cumsum-1d", lambda x: x.cumsum(0), lazily(100000, grad=True))
both("cumsum-2d", lambda x: x.cumsum(1), lazily(512, 1000, grad=True))
both("cumsum-0", lambda x: x.cumsum(0), lazily(512, 1000, grad=True))
both("cumprod", lambda x: x.cumprod(1), lazily(512, 100, grad=True))
forward("cumsum-ints", lambda x: x.cumsum(0), lambda: ints(2, 8192, 8))
forward("cumsum-ints-1d", lambda x: x.cumsum(0), lambda: ints(2, 8192))
forward("unique", lambda x: x.unique(), lambda: ints(50, 4096))
forward("bincount", lambda x: torch.bincount(x, minlength=8), lambda: ints(8, 4096))
forward("histc", lambda x: torch.histc(x.float(), bins=8, min=0, max=7), lambda: ints(8, 4096))
forward("one_hot", lambda x: F.one_hot(x, 8), lambda: ints(8, 4096))
forward("randperm", lambda: torch.randperm(10000, device="cuda"))
forward("randperm-large", lambda: torch.randperm(200000, device="cuda"))
forward(
    "multinomial", lambda x: torch.multinomial(x, 1), lambda: torch.rand(64, 1000, device="cuda")
)
forward(
    "repeat_interleave",
    lambda x, n: x.repeat_interleave(n, 0),
    lazily(128, 64),
    lambda: torch.arange(128, device="cuda") % 4,
)
