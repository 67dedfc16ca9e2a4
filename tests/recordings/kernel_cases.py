"""One small case per CUDA kernel that allocates more than its result, run for real by record_kernels.py and simulated by the tests.

A case is a function that prepares its inputs and returns a callable; what the callable allocates and frees is the record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Case = Callable[[], Callable[[], Any]]
CASES: dict[str, Case] = {}
bf16, f16, f32, i64 = torch.bfloat16, torch.float16, torch.float32, torch.int64


def rand(*shape: int, dtype: torch.dtype = f32, grad: bool = False) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=dtype).requires_grad_(grad)


def ints(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, device="cuda")


def add(name: str, case: Case) -> None:
    CASES[name] = case


def forward(name: str, function: Callable[..., Any], *makers: Callable[[], Any]) -> None:
    """The function alone."""

    def case() -> Callable[[], Any]:
        arguments = [make() for make in makers]
        return lambda: function(*arguments)

    add(name, case)


def both(name: str, function: Callable[..., torch.Tensor], *makers: Callable[[], Any]) -> None:
    """The function, then its backward pass with a gradient of ones."""

    def case() -> Callable[[], Any]:
        arguments = [make() for make in makers]
        leaves = [a for a in arguments if isinstance(a, torch.Tensor) and a.requires_grad]

        def run() -> None:
            out = function(*arguments)
            torch.autograd.grad(out, leaves, torch.ones_like(out))

        return run

    add(name, case)


def module(
    name: str,
    make: Callable[[], nn.Module],
    *makers: Callable[[], Any],
    amp: torch.dtype | None = None,
) -> None:
    """A module's forward and backward pass, gradients released afterwards."""

    def case() -> Callable[[], Any]:
        net = make().cuda()
        arguments = [m() for m in makers]

        def run() -> None:
            with torch.autocast("cuda", dtype=amp or bf16, enabled=amp is not None):
                out = net(*arguments)
            out = out[0] if isinstance(out, tuple) else out
            out.float().square().mean().backward()
            net.zero_grad(set_to_none=True)

        return run

    add(name, case)


def lazily(*shape: int, **options: Any) -> Callable[[], torch.Tensor]:
    return lambda: rand(*shape, **options)


# ------------------------------------------------------------------------------------------------------------- reductions
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

# ----------------------------------------------------------------------------------------------------------- normalisation
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

# --------------------------------------------------------------------------------------------------------------- attention
SHAPES = {
    "B8H12T1024D64": (8, 12, 1024, 64),
    "B2H4T256D64": (2, 4, 256, 64),
    "B1H2T2048D128": (1, 2, 2048, 128),
    "B4H8T1000D80": (4, 8, 1000, 80),
    "B16H12T512D96": (16, 12, 512, 96),
    "B2H8T300D256": (2, 8, 300, 256),
    "B2H4T64D20": (2, 4, 64, 20),
    "B64H12T197D64": (64, 12, 197, 64),
}
for shape_tag, (b, h, t, d) in SHAPES.items():
    for dtype, tag in ((f32, "f32"), (bf16, "bf16"), (f16, "f16")):
        for mode in ("causal", "full", "mask", "boolmask", "dropout", "gradmask"):
            if tag == "f16" and mode not in ("causal", "mask"):
                continue

            def attention_case(
                b: int = b,
                h: int = h,
                t: int = t,
                d: int = d,
                dtype: torch.dtype = dtype,
                mode: str = mode,
            ) -> Callable[[], Any]:
                # laid out as a fused projection leaves them, as most models do
                qkv = torch.randn(b, t, 3, h, d, device="cuda", dtype=dtype, requires_grad=True)
                mask = None
                if mode in ("mask", "gradmask"):
                    mask = torch.zeros(
                        1, 1, t, t, device="cuda", dtype=dtype, requires_grad=mode == "gradmask"
                    )
                if mode == "boolmask":
                    mask = torch.ones(b, 1, t, t, device="cuda", dtype=torch.bool)

                def run() -> None:
                    q, k, v = qkv.permute(2, 0, 3, 1, 4)
                    out = F.scaled_dot_product_attention(
                        q,
                        k,
                        v,
                        attn_mask=mask,
                        is_causal=mode == "causal",
                        dropout_p=0.1 if mode == "dropout" else 0.0,
                    )
                    leaves = [qkv] + ([mask] if mask is not None and mask.requires_grad else [])
                    torch.autograd.grad(out, leaves, torch.ones_like(out))

                return run

            add(f"sdpa-{mode}-{tag}-{shape_tag}", attention_case)
for tag, (heads, groups, t, d) in {"gqa": (16, 4, 1024, 64), "gqa128": (16, 8, 512, 128)}.items():
    for dtype, name in ((bf16, "bf16"), (f32, "f32")):
        for causal in (True, False):
            both(
                f"sdpa-{tag}-{name}-{'causal' if causal else 'full'}",
                lambda q, k, v, causal=causal: F.scaled_dot_product_attention(
                    q, k, v, is_causal=causal, enable_gqa=True
                ),
                lazily(4, heads, t, d, dtype=dtype, grad=True),
                lazily(4, groups, t, d, dtype=dtype, grad=True),
                lazily(4, groups, t, d, dtype=dtype, grad=True),
            )
both(
    "sdpa-cross-bf16",
    F.scaled_dot_product_attention,
    *(lazily(4, 8, n, 64, dtype=bf16, grad=True) for n in (512, 300, 300)),
)
both(
    "sdpa-cross-f32",
    F.scaled_dot_product_attention,
    *(lazily(4, 8, n, 64, grad=True) for n in (512, 300, 300)),
)
both(
    "sdpa-f64",
    F.scaled_dot_product_attention,
    *(lazily(2, 4, 128, 64, dtype=torch.float64, grad=True) for _ in range(3)),
)
forward(
    "sdpa-nograd-bf16",
    F.scaled_dot_product_attention,
    *(lazily(4, 8, 512, 64, dtype=bf16) for _ in range(3)),
)
forward(
    "sdpa-nograd-f32", F.scaled_dot_product_attention, *(lazily(4, 8, 512, 64) for _ in range(3))
)


def cudnn_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.CUDNN_ATTENTION]):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


both(
    "sdpa-cudnn-bf16",
    cudnn_attention,
    *(lazily(8, 12, 1024, 64, dtype=bf16, grad=True) for _ in range(3)),
)
both(
    "sdpa-cudnn-bf16-128",
    cudnn_attention,
    *(lazily(2, 8, 512, 128, dtype=bf16, grad=True) for _ in range(3)),
)

BACKENDS = {
    "flash": torch.nn.attention.SDPBackend.FLASH_ATTENTION,
    "efficient": torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION,
    "math": torch.nn.attention.SDPBackend.MATH,
}
for backend_tag, backend in BACKENDS.items():
    for shape_tag in (
        "B8H12T1024D64",
        "B2H4T256D64",
        "B1H2T2048D128",
        "B4H8T1000D80",
        "B2H8T300D256",
        "B64H12T197D64",
    ):

        def forced_case(
            backend: Any = backend, sizes: tuple[int, ...] = SHAPES[shape_tag]
        ) -> Callable[[], Any]:
            b, h, t, d = sizes
            qkv = torch.randn(b, t, 3, h, d, device="cuda", dtype=bf16, requires_grad=True)

            def run() -> None:
                q, k, v = qkv.permute(2, 0, 3, 1, 4)
                with torch.nn.attention.sdpa_kernel([backend]):
                    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                torch.autograd.grad(out, [qkv], torch.ones_like(out))

            return run

        add(f"sdpa-{backend_tag}-{shape_tag}", forced_case)


def flash_gqa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    with torch.nn.attention.sdpa_kernel([BACKENDS["flash"]]):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


both(
    "sdpa-flash-gqa",
    flash_gqa,
    lazily(4, 16, 1024, 64, dtype=bf16, grad=True),
    *(lazily(4, 4, 1024, 64, dtype=bf16, grad=True) for _ in range(2)),
)

# ------------------------------------------------------------------------------------------------- embedding, index, scatter
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

# ------------------------------------------------------------------------------------------------------------ sort and scan
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

# ----------------------------------------------------------------------------------------------------------- matrix products
for dtype, tag in ((f32, "f32"), (bf16, "bf16")):
    both(
        f"linear-{tag}",
        F.linear,
        lazily(8, 512, 768, dtype=dtype, grad=True),
        lazily(3072, 768, dtype=dtype, grad=True),
        lazily(3072, dtype=dtype, grad=True),
    )
    both(
        f"linear-nobias-{tag}",
        F.linear,
        lazily(8, 512, 768, dtype=dtype, grad=True),
        lazily(3072, 768, dtype=dtype, grad=True),
    )
    both(
        f"linear-row-{tag}",
        F.linear,
        lazily(1, 768, dtype=dtype, grad=True),
        lazily(64, 768, dtype=dtype, grad=True),
        lazily(64, dtype=dtype, grad=True),
    )
    both(
        f"linear-one-{tag}",
        F.linear,
        lazily(512, 768, dtype=dtype, grad=True),
        lazily(1, 768, dtype=dtype, grad=True),
        lazily(1, dtype=dtype, grad=True),
    )
    both(
        f"linear-noncontiguous-{tag}",
        lambda x, w, b: F.linear(x.transpose(0, 1), w, b),
        lazily(8, 512, 768, dtype=dtype, grad=True),
        lazily(64, 768, dtype=dtype, grad=True),
        lazily(64, dtype=dtype, grad=True),
    )
    both(
        f"bmm-{tag}",
        torch.bmm,
        lazily(64, 512, 64, dtype=dtype, grad=True),
        lazily(64, 64, 512, dtype=dtype, grad=True),
    )
    both(
        f"matmul4d-{tag}",
        lambda q, k: q @ k.transpose(-1, -2),
        lazily(4, 8, 256, 64, dtype=dtype, grad=True),
        lazily(4, 8, 256, 64, dtype=dtype, grad=True),
    )
    both(
        f"matmul-broadcast-{tag}",
        torch.matmul,
        lazily(4, 8, 256, 64, dtype=dtype, grad=True),
        lazily(64, 32, dtype=dtype, grad=True),
    )
    both(
        f"matmul-strided-{tag}",
        lambda x, w: x[:, ::2] @ w,
        lazily(256, 128, dtype=dtype, grad=True),
        lazily(64, 32, dtype=dtype, grad=True),
    )
    both(
        f"matmul-expanded-{tag}",
        lambda x, w: x @ w.expand(16, -1, -1),
        lazily(16, 128, 64, dtype=dtype, grad=True),
        lazily(1, 64, 32, dtype=dtype, grad=True),
    )
    both(
        f"einsum-{tag}",
        lambda x, y: torch.einsum("bthd,bshd->bhts", x, y),
        lazily(4, 128, 8, 64, dtype=dtype, grad=True),
        lazily(4, 128, 8, 64, dtype=dtype, grad=True),
    )
    both(
        f"mv-{tag}",
        torch.mv,
        lazily(512, 768, dtype=dtype, grad=True),
        lazily(768, dtype=dtype, grad=True),
    )
    both(
        f"dot-{tag}",
        torch.dot,
        lazily(7680, dtype=dtype, grad=True),
        lazily(7680, dtype=dtype, grad=True),
    )
    both(
        f"baddbmm-{tag}",
        torch.baddbmm,
        lazily(16, 128, 32, dtype=dtype, grad=True),
        lazily(16, 128, 64, dtype=dtype, grad=True),
        lazily(16, 64, 32, dtype=dtype, grad=True),
    )
both(
    "bilinear",
    F.bilinear,
    lazily(512, 64, grad=True),
    lazily(512, 32, grad=True),
    lazily(16, 64, 32, grad=True),
    lazily(16, grad=True),
)
both(
    "grouped_mm",
    lambda x, w, o: torch._grouped_mm(x, w, offs=o),
    lazily(2048, 512, dtype=bf16, grad=True),
    lazily(8, 512, 1024, dtype=bf16, grad=True),
    lambda: torch.arange(256, 2049, 256, device="cuda", dtype=torch.int32),
)

# ------------------------------------------------------------------------------------------------- losses, softmax, pointwise
for dtype, tag in ((f32, "f32"), (bf16, "bf16")):
    both(
        f"cross_entropy-{tag}",
        lambda x, y: F.cross_entropy(x, y),
        lazily(4096, 32000, dtype=dtype, grad=True),
        lambda: ints(32000, 4096),
    )
    both(
        f"cross_entropy-smooth-{tag}",
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
        lazily(1024, 1000, dtype=dtype, grad=True),
        lambda: ints(1000, 1024),
    )
    both(
        f"cross_entropy-weight-{tag}",
        lambda x, y, w: F.cross_entropy(x, y, weight=w),
        lazily(1024, 1000, dtype=dtype, grad=True),
        lambda: ints(1000, 1024),
        lazily(1000, dtype=dtype),
    )
    both(
        f"cross_entropy-spatial-{tag}",
        lambda x, y: F.cross_entropy(x, y),
        lazily(8, 20, 64, 64, dtype=dtype, grad=True),
        lambda: ints(20, 8, 64, 64),
    )
    both(f"softmax-{tag}", lambda x: x.softmax(-1), lazily(64, 512, 512, dtype=dtype, grad=True))
    both(f"softmax-0-{tag}", lambda x: x.softmax(0), lazily(64, 512, 512, dtype=dtype, grad=True))
    both(f"gelu-{tag}", F.gelu, lazily(4096, 3072, dtype=dtype, grad=True))
    both(f"silu-{tag}", F.silu, lazily(4096, 3072, dtype=dtype, grad=True))
    both(f"glu-{tag}", F.glu, lazily(4096, 3072, dtype=dtype, grad=True))
    both(f"dropout-{tag}", lambda x: F.dropout(x, 0.1), lazily(4096, 768, dtype=dtype, grad=True))
    both(
        f"prelu-{tag}",
        F.prelu,
        lazily(4096, 768, dtype=dtype, grad=True),
        lazily(768, dtype=dtype, grad=True),
    )
    both(
        f"mse-{tag}",
        F.mse_loss,
        lazily(4096, 768, dtype=dtype, grad=True),
        lazily(4096, 768, dtype=dtype),
    )
    both(
        f"bce-{tag}",
        F.binary_cross_entropy_with_logits,
        lazily(4096, 10, dtype=dtype, grad=True),
        lambda dtype=dtype: torch.rand(4096, 10, device="cuda", dtype=dtype),
    )
    both(
        f"kl-{tag}",
        lambda x, y: F.kl_div(x.log_softmax(-1), y, reduction="batchmean"),
        lazily(512, 1000, dtype=dtype, grad=True),
        lambda dtype=dtype: torch.rand(512, 1000, device="cuda", dtype=dtype),
    )
    both(
        f"cat-{tag}",
        lambda *xs: torch.cat(xs, 1),
        *(lazily(64, 32, 64, dtype=dtype, grad=True) for _ in range(12)),
    )
    both(
        f"stack-{tag}",
        lambda *xs: torch.stack(xs, 1),
        *(lazily(64, 64, dtype=dtype, grad=True) for _ in range(200)),
    )
    both(f"roll-{tag}", lambda x: x.roll(1, 0), lazily(4096, 64, dtype=dtype, grad=True))
    both(f"tril-{tag}", lambda x: x.tril(), lazily(512, 512, dtype=dtype, grad=True))
    both(f"pow-{tag}", lambda x: x.pow(2), lazily(4096, 64, dtype=dtype, grad=True))
    both(f"std-{tag}", lambda x: x.std(-1), lazily(4096, 64, dtype=dtype, grad=True))
    both(
        f"broadcast-add-{tag}",
        torch.add,
        lazily(4096, 64, dtype=dtype, grad=True),
        lazily(64, dtype=dtype, grad=True),
    )
    both(
        f"broadcast-mul-{tag}",
        torch.mul,
        lazily(4096, 640, dtype=dtype, grad=True),
        lazily(4096, 1, dtype=dtype, grad=True),
    )
    both(f"pad-{tag}", lambda x: F.pad(x, (1, 1)), lazily(4096, 64, dtype=dtype, grad=True))
    both(
        f"reflect-pad-{tag}",
        lambda x: F.pad(x, (1, 1), mode="reflect"),
        lazily(64, 16, 64, dtype=dtype, grad=True),
    )
both("fft", lambda x: torch.fft.rfft(x).abs(), lazily(64, 16, 1024, grad=True))
both(
    "ctc",
    lambda x, y: F.ctc_loss(x.log_softmax(-1), y, torch.full((16,), 50), torch.full((16,), 10)),
    lazily(50, 16, 20, grad=True),
    lambda: ints(19, 16, 10) + 1,
)

# ------------------------------------------------------------------------------------------ convolution, pooling, recurrence
for tag, (make, shape) in {
    "conv1d": (lambda: nn.Conv1d(64, 128, 5, padding=2), (16, 64, 1000)),
    "conv1d-depthwise": (lambda: nn.Conv1d(512, 512, 4, groups=512, padding=3), (4, 512, 128)),
    "conv2d-3x3": (lambda: nn.Conv2d(64, 128, 3, padding=1), (32, 64, 56, 56)),
    "conv2d-1x1": (lambda: nn.Conv2d(256, 64, 1, bias=False), (32, 256, 56, 56)),
    "conv2d-7x7": (lambda: nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), (32, 3, 224, 224)),
    "conv2d-patch16": (lambda: nn.Conv2d(3, 768, 16, stride=16), (64, 3, 224, 224)),
    "conv2d-depthwise": (lambda: nn.Conv2d(96, 96, 7, padding=3, groups=96), (32, 96, 56, 56)),
    "conv3d": (lambda: nn.Conv3d(3, 32, 3, padding=1), (2, 3, 8, 64, 64)),
    "convtranspose2d": (lambda: nn.ConvTranspose2d(64, 32, 2, stride=2), (8, 64, 32, 32)),
}.items():
    for dtype, name in ((f32, "f32"), (bf16, "bf16")):
        module(
            f"{tag}-{name}",
            lambda make=make, dtype=dtype: make().to(dtype),
            lazily(*shape, dtype=dtype, grad=True),
        )
    module(f"{tag}-amp", make, lazily(*shape, grad=True), amp=bf16)
module(
    "conv2d-channels_last",
    lambda: nn.Conv2d(64, 128, 3, padding=1).to(memory_format=torch.channels_last),
    lambda: rand(32, 64, 56, 56).contiguous(memory_format=torch.channels_last).requires_grad_(),
)
for tag, (make, shape) in {
    "rnn-wide-input": (lambda: nn.RNN(512, 256), (40, 24, 512)),
    "gru-wide-input": (lambda: nn.GRU(768, 384, num_layers=2), (64, 16, 768)),
    "lstm-wide-input": (lambda: nn.LSTM(1024, 512, bidirectional=True), (64, 16, 1024)),
    "lstm-h192": (lambda: nn.LSTM(192, 192), (50, 20, 192)),
    "gru-h160": (lambda: nn.GRU(160, 160, num_layers=2), (50, 20, 160)),
    "rnn-h320": (lambda: nn.RNN(320, 320), (110, 48, 320)),
    "lstm-dropout3": (lambda: nn.LSTM(256, 256, num_layers=3, dropout=0.2), (64, 40, 256)),
    "gru-dropout-bi": (
        lambda: nn.GRU(256, 256, num_layers=2, dropout=0.2, bidirectional=True),
        (64, 40, 256),
    ),
}.items():
    for dtype, name in ((f32, "f32"), (bf16, "bf16"), (f16, "f16")):
        module(
            f"{tag}-{name}",
            lambda make=make, dtype=dtype: make().to(dtype),
            lazily(*shape, dtype=dtype, grad=True),
        )
for tag, make in {
    "gru_cell": lambda: nn.GRUCell(256, 512),
    "lstm_cell": lambda: nn.LSTMCell(256, 512),
    "rnn_cell": lambda: nn.RNNCell(256, 512),
}.items():
    module(f"{tag}-f32", make, lazily(32, 256, grad=True))
    module(
        f"{tag}-bf16", lambda make=make: make().bfloat16(), lazily(32, 256, dtype=bf16, grad=True)
    )
    module(f"{tag}-amp", make, lazily(32, 256, grad=True), amp=bf16)
for tag, make_rnn in {
    "lstm": lambda: nn.LSTM(256, 512, batch_first=True),
    "lstm-2": lambda: nn.LSTM(256, 512, num_layers=2, dropout=0.1),
    "lstm-bi": lambda: nn.LSTM(256, 512, bidirectional=True),
    "gru": lambda: nn.GRU(256, 512, batch_first=True),
    "rnn": lambda: nn.RNN(256, 512),
}.items():
    module(f"{tag}-f32", make_rnn, lazily(64, 100, 256, grad=True))
    module(
        f"{tag}-bf16",
        lambda make_rnn=make_rnn: make_rnn().bfloat16(),
        lazily(64, 100, 256, dtype=bf16, grad=True),
    )
    module(f"{tag}-amp", make_rnn, lazily(64, 100, 256, grad=True), amp=bf16)
    module(f"{tag}-small", make_rnn, lazily(8, 32, 256, grad=True))
module("max_pool2d", lambda: nn.MaxPool2d(3, 2, 1), lazily(32, 64, 112, 112, grad=True))
module("avg_pool2d", lambda: nn.AvgPool2d(2), lazily(32, 64, 56, 56, grad=True))
module("adaptive_avg_pool2d", lambda: nn.AdaptiveAvgPool2d(1), lazily(32, 512, 7, 7, grad=True))
module("upsample", lambda: nn.Upsample(scale_factor=2), lazily(8, 64, 32, 32, grad=True))
module(
    "upsample-bilinear",
    lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    lazily(8, 64, 32, 32, grad=True),
)
module(
    "transformer-layer",
    lambda: nn.TransformerEncoderLayer(256, 8, batch_first=True),
    lazily(16, 128, 256, grad=True),
)
module(
    "multihead-attention",
    lambda: nn.MultiheadAttention(256, 8, batch_first=True),
    *(lazily(16, 128, 256, grad=True) for _ in range(3)),
)


# -------------------------------------------------------------------------------------------------------------- optimizers
def optimizer_case(
    make: Callable[[list[torch.Tensor]], torch.optim.Optimizer], dtype: torch.dtype = f32
) -> Case:
    def case() -> Callable[[], Any]:
        parameters = [
            rand(*shape, dtype=dtype, grad=True)
            for shape in [(1000, 512), (512,), (512, 512), (3, 3, 64, 64), ()] * 6
        ]
        for p in parameters:
            p.grad = torch.randn_like(p)
        optimizer = make(parameters)

        def run() -> None:
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()

        return run

    return case


for dtype, tag in ((f32, "f32"), (bf16, "bf16")):
    for implementation in ("foreach", "fused", "loop"):
        options = {
            "foreach": {"foreach": True},
            "fused": {"fused": True},
            "loop": {"foreach": False},
        }[implementation]
        for kind in (
            "SGD",
            "Adam",
            "AdamW",
            "Adagrad",
            "NAdam",
            "RAdam",
            "RMSprop",
            "Adamax",
            "Adadelta",
            "ASGD",
        ):
            if implementation == "fused" and kind not in ("SGD", "Adam", "AdamW", "Adagrad"):
                continue
            extra = {"momentum": 0.9} if kind == "SGD" else {}
            add(
                f"{kind.lower()}-{implementation}-{tag}",
                optimizer_case(
                    lambda ps, kind=kind, o={**options, **extra}: getattr(torch.optim, kind)(
                        ps, lr=1e-3, **o
                    ),
                    dtype,
                ),
            )
    add(f"adafactor-{tag}", optimizer_case(lambda ps: torch.optim.Adafactor(ps), dtype))
    add(f"adam-amsgrad-{tag}", optimizer_case(lambda ps: torch.optim.Adam(ps, amsgrad=True), dtype))
    add(
        f"adamw-capturable-{tag}",
        optimizer_case(lambda ps: torch.optim.AdamW(ps, capturable=True), dtype),
    )
    add(
        f"adamw-maximize-{tag}",
        optimizer_case(lambda ps: torch.optim.AdamW(ps, maximize=True), dtype),
    )
    add(
        f"sgd-nesterov-{tag}",
        optimizer_case(
            lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
            dtype,
        ),
    )


def muon() -> Callable[[], Any]:
    parameters = [rand(512, 256, grad=True) for _ in range(4)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.Muon(parameters)
    return optimizer.step


if hasattr(torch.optim, "Muon"):
    add("muon", muon)


def host_copies() -> Callable[[], Any]:
    host, gpu = torch.randn(256, 256), rand(256, 256)

    def run() -> None:
        _ = (
            host.cuda(),
            host.to("cuda", bf16),
            host.t().cuda(),
            gpu.cpu(),
            gpu.to("cpu", bf16),
            gpu.t().cpu(),
        )
        gpu.copy_(host.t())
        gpu.t().copy_(host.double())
        _ = (
            torch.tensor([1.0, 2.0], device="cuda"),
            torch.tensor(3, device="cuda"),
            torch.arange(100).cuda(non_blocking=True),
        )

    return run


add("host-copies", host_copies)
