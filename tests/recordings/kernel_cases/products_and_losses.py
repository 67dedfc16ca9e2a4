"""Cases: matrix products, losses, softmax and pointwise operators."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernel_cases.base import (
    bf16,
    both,
    f32,
    ints,
    lazily,
)

# -------------------------------------------------------------------------------- matrix products
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

# --------------------------------------------------------------------- losses, softmax, pointwise
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
