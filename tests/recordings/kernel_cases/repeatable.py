"""Cases: deterministic algorithms, draws with replacement, and sparse tensors put in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from kernel_cases.base import CASES, Case, bf16, both, forward, ints, lazily


def _deterministic(case: Case) -> Case:
    """The same results every time. torch's own function would import Inductor, for seconds."""

    def again() -> Callable[[], Any]:
        run = case()

        def repeatable() -> Any:
            torch._C._set_deterministic_algorithms(True, warn_only=True)
            try:
                return run()
            finally:
                torch._C._set_deterministic_algorithms(False)

        return repeatable

    return again


def _zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device="cuda")


for dtype in (torch.float32, bf16):
    both(
        f"deterministic-index_add-{str(dtype)[6:]}",
        lambda x, i, d=dtype: _zeros(512, 64, dtype=d).index_add(0, i, x),
        lazily(4096, 64, grad=True, dtype=dtype),
        lambda: ints(512, 4096),
    )
both(
    "deterministic-index_add-columns",
    lambda x, i: _zeros(300, 512).index_add(1, i, x, alpha=2.0),
    lazily(300, 4096, grad=True),
    lambda: ints(512, 4096),
)
forward(
    "deterministic-index_add-in-place",
    lambda x, i, v: x.index_add_(0, i, v),
    lazily(700, 64),
    lambda: ints(700, 5000),
    lazily(5000, 64),
)
both(
    "deterministic-index_select",
    lambda x, i: x.index_select(0, i),
    lazily(900, 64, grad=True),
    lambda: ints(900, 3000),
)
both(
    "deterministic-gather",
    lambda x, i: x.gather(1, i),
    lazily(4096, 512, grad=True),
    lambda: ints(512, 4096, 8),
)
both(
    "deterministic-indexed", lambda x, i: x[i], lazily(900, 64, grad=True), lambda: ints(900, 3000)
)
forward(
    "deterministic-index_put",
    lambda x, i, v: x.index_put((i,), v),
    lazily(5000, 64),
    lambda: ints(5000, 4096),
    lazily(4096, 64),
)
forward(
    "deterministic-index_copy",
    lambda x, i, v: x.index_copy(0, i, v),
    lazily(500, 64),
    lambda: torch.arange(400, device="cuda"),
    lazily(400, 64),
)
forward(
    "deterministic-put_",
    lambda x, i, v: x.put_(i, v, accumulate=True),
    lazily(5000),
    lambda: ints(5000, 4096),
    lazily(4096),
)
both(
    "deterministic-scatter_add-line",
    lambda x, i: _zeros(512).scatter_add(0, i, x),
    lazily(4096, grad=True),
    lambda: ints(512, 4096),
)
forward(
    "deterministic-scatter",
    lambda x, i: _zeros(512, 64).scatter(0, i, x),
    lazily(400, 64),
    lambda: ints(512, 400, 64),
)
forward(
    "deterministic-scatter-number",
    lambda i: _zeros(512, 64).scatter(1, i, 1.0),
    lambda: ints(64, 512, 1),
)
both("deterministic-cumsum", lambda x: x.cumsum(1), lazily(512, 1000, grad=True))
both(
    "deterministic-embedding",
    lambda w, i: F.embedding(i, w),
    lazily(3000, 64, grad=True),
    lambda: ints(3000, 2048),
)
for mode in ("nearest", "bilinear"):
    both(
        f"deterministic-interpolate-{mode}",
        lambda x, m=mode: F.interpolate(x, scale_factor=2, mode=m),
        lazily(4, 16, 24, 24, grad=True),
    )
both(
    "deterministic-reflect",
    lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"),
    lazily(4, 16, 24, 24, grad=True),
)
both(
    "deterministic-adaptive",
    lambda x: F.adaptive_avg_pool2d(x, 5),
    lazily(4, 16, 24, 24, grad=True),
)
forward(
    "deterministic-bincount", lambda i: torch.bincount(i, minlength=600), lambda: ints(600, 4096)
)
for name in [name for name in CASES if name.startswith("deterministic-")]:
    CASES[name] = _deterministic(CASES[name])

# ---------------------------------------------------------------------- draws and sparse tensors
for shape, count in (((1000,), 20), ((64, 1000), 5), ((8, 5000), 7), ((300_000,), 20_480)):
    forward(
        f"replacement-{'x'.join(map(str, shape))}",
        lambda x, n=count: torch.multinomial(x, n, replacement=True),
        lambda shape=shape: torch.rand(shape, device="cuda"),
    )


def _sparse(n: int, width: int) -> torch.Tensor:
    places = torch.arange(n, device="cuda").flip(0)
    if width:
        return torch.sparse_coo_tensor(places[None], lazily(n, width)(), (n, width))
    return torch.sparse_coo_tensor(torch.stack([places, places]), lazily(n)(), (n, n))


for n, width in (
    (100, 8),
    (1000, 8),
    (4096, 64),
    (9000, 0),
    (30_000, 8),
    (100_000, 0),
    (700_000, 1),
):  # noqa: E501
    forward(f"coalesce-{n}", lambda x: x.coalesce(), lambda n=n, w=width: _sparse(n, w))
