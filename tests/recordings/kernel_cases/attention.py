"""Cases: attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from kernel_cases.base import (
    add,
    bf16,
    both,
    f16,
    f32,
    forward,
    lazily,
)

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
