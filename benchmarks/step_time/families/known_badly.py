"""Operators that steps of the last sets were off by, as workloads like those in strides.py: windows
of pictures, attention with few heads of keys, small products, norms with and without weights,
graphs, losses over many words, sorted and summed rows, optimizers of many small tensors.

Shapes are drawn at random as networks have them; `part` says which part of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from operators import BF16, FP16, FP32, both, normal, step_of
from strides import drawn, given
from torch.nn.attention import SDPBackend, sdpa_kernel

DTYPES = (BF16, BF16, FP32, FP16)


def windows(*, part: int = 0) -> Callable[[], Any]:
    """unfold and fold, resampling, pools of sequences and volumes."""

    def taken(draw: random.Random) -> None:
        channels, size = draw.choice((16, 32, 64, 96, 192, 384)), draw.choice((14, 28, 56, 64, 112))
        kernel, stride = draw.choice(((3, 1), (3, 2), (2, 2), (4, 4), (7, 4), (5, 1), (8, 8)))
        batch = int(10 ** draw.uniform(6, 7.9)) // (channels * size**2 * kernel**2 // stride**2)
        if not 1 <= batch <= 512:
            return
        dtype = draw.choice((BF16, FP32, FP32))
        x = normal(batch, channels, size, size, dtype=dtype)
        both(lambda x: F.unfold(x, kernel, padding=kernel // 2, stride=stride), x)
        y = F.unfold(x.detach(), kernel, padding=kernel // 2, stride=stride).requires_grad_()
        both(lambda y: F.fold(y, (size, size), kernel, padding=kernel // 2, stride=stride), y)

    def resampled(draw: random.Random) -> None:
        channels, size = draw.choice((3, 19, 64, 128, 256)), draw.choice((16, 28, 32, 64, 128))
        batch, scale = draw.choice((2, 4, 8, 16, 32)), draw.choice((2, 2, 4, 8))
        if not 1e6 < batch * channels * (size * scale) ** 2 < 1e8:
            return
        dtype, last = draw.choice((BF16, FP32)), draw.random() < 0.4
        x = torch.randn(batch, channels, size, size, device="cuda", dtype=dtype)
        x = (x.to(memory_format=torch.channels_last) if last else x).requires_grad_()
        for mode in ("nearest", "bilinear", "bicubic"):
            both(lambda x, m=mode: F.interpolate(x, scale_factor=scale, mode=m), x)
        wanted = (size * scale - 3, size * scale + 5)
        both(lambda x: F.interpolate(x, size=wanted, mode="bilinear", align_corners=True), x)
        both(lambda x: F.interpolate(x, size=(size // 2, size // 2), mode="area"), x)

    def of_lines(draw: random.Random) -> None:
        channels, length = draw.choice((64, 128, 256, 512)), draw.choice((256, 1024, 4096, 16_384))
        batch = draw.choice((4, 16, 64))
        if not 1e6 < batch * channels * length < 6e7:
            return
        x = normal(batch, channels, length, dtype=draw.choice((BF16, FP32)))
        both(lambda x: F.max_pool1d(x, 4), x)
        both(lambda x: F.avg_pool1d(x, 2), x)
        both(lambda x: F.interpolate(x, scale_factor=2), x)
        both(lambda x: F.interpolate(x, scale_factor=2, mode="linear"), x)
        both(lambda x: F.pad(x, (3, 3), mode="reflect"), x)
        both(lambda x: F.glu(x, 1), x)

    draw = random.Random(307 + part)
    cases = drawn(draw, 60, taken) + drawn(draw, 36, resampled) + drawn(draw, 16, of_lines)
    return step_of(cases)


def attention(*, part: int = 0) -> Callable[[], Any]:
    """By each of torch's kernels: heads 32 to 512 wide, fewer heads of keys, causal or not."""

    def case(draw: random.Random) -> None:
        width = draw.choice((32, 64, 64, 64, 72, 80, 96, 128, 128, 192, 256, 512))
        heads = draw.choice((1, 4, 8, 8, 12, 16, 16, 32))
        shared = draw.choice((1, 1, 2, 4, 8)) if heads % 8 == 0 else 1
        length = draw.choice((197, 256, 512, 577, 1024, 1024, 1370, 2048, 4096, 8192))
        keys = draw.choice((length, length, length, length, 77, 256))
        batch = int(10 ** draw.uniform(6, 7.4)) // (length * heads * width)
        if not 1 <= batch <= 256 or batch * heads * length * keys * width > 3e11:
            return
        dtype = draw.choice((BF16, BF16, BF16, FP16, FP32))
        q, k, v = (
            torch.randn(batch, n, number, width, device="cuda", dtype=dtype)
            .transpose(1, 2)
            .requires_grad_()
            for n, number in ((length, heads), (keys, heads // shared), (keys, heads // shared))
        )
        more: dict[str, Any] = {"enable_gqa": True} if shared > 1 else {}
        more["is_causal"] = keys == length and draw.random() < 0.5
        backends = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION]
        if shared == 1:
            backends.append(SDPBackend.EFFICIENT_ATTENTION)
        for backend in backends if dtype is not FP32 else backends[2:]:
            with sdpa_kernel(backend):
                try:
                    both(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **more), q, k, v)
                except RuntimeError:  # not every kernel takes every width
                    continue

    def by_hand(draw: random.Random) -> None:
        """Scores that are scaled, masked, put into fp32 and back around their softmax."""
        batch, heads = draw.choice((2, 4, 8, 16, 32)), draw.choice((4, 8, 12, 16))
        length, dtype = draw.choice((128, 197, 256, 512, 1024)), draw.choice((BF16, FP16, FP32))
        if not 2e6 < batch * heads * length**2 < 1.2e8:
            return
        scores = normal(batch, heads, length, length, dtype=dtype)
        mask = torch.zeros(batch, 1, length, length, device="cuda", dtype=dtype)
        both(lambda s: (s * 0.125 + mask).softmax(-1), scores)
        both(lambda s: s.float().softmax(-1).to(dtype), scores)
        both(lambda s: F.softmax(s, -1, dtype=FP32).to(dtype), scores)
        both(lambda s: F.dropout(s.softmax(-1), 0.1), scores)
        both(lambda s: s.masked_fill(mask > 0, -1e4), scores)
        both(lambda s: s.transpose(2, 3).contiguous().softmax(-1), scores)

    draw = random.Random(331 + part)
    return step_of(drawn(draw, 110, case) + drawn(draw, 30, by_hand))


def many_small(*, part: int = 0) -> Callable[[], Any]:
    """Many products of matrices that are 4 to 128 wide, of windows, of routed words."""

    def case(draw: random.Random) -> None:
        sizes = (4, 8, 9, 16, 16, 24, 32, 32, 48, 49, 64, 64, 96, 128)
        m, n, k = (draw.choice(sizes) for _ in "mnk")
        count = int(10 ** draw.uniform(5.7, 7.6)) // max(m * n, m * k, n * k)
        if not 16 <= count <= 400_000:
            return
        dtype = draw.choice((BF16, BF16, FP32, FP16))
        x = torch.randn(count, m, k, device="cuda", dtype=dtype)
        y = torch.randn(count, k, n, device="cuda", dtype=dtype)
        if draw.random() < 0.5:
            y = torch.randn(count, n, k, device="cuda", dtype=dtype).transpose(1, 2)
        both(torch.bmm, x.requires_grad_(), y.requires_grad_())

    def heads(draw: random.Random) -> None:
        """As attention of windows has them, out of one projection."""
        number, width = draw.choice((1, 2, 3, 4, 6, 8, 12)), draw.choice((16, 24, 32, 32, 48, 64))
        length = draw.choice((4, 9, 16, 32, 49, 64, 64, 98, 128, 144, 196, 256))
        batch = int(10 ** draw.uniform(6, 7.6)) // (number * length * max(length, width))
        if not 2 <= batch <= 60_000:
            return
        dtype = draw.choice((BF16, BF16, FP32))
        whole = torch.randn(batch, length, 3, number, width, device="cuda", dtype=dtype)
        q, k, v = (whole[:, :, i].transpose(1, 2).requires_grad_() for i in range(3))
        both(lambda q, k: q @ k.transpose(-2, -1), q, k)
        scores = normal(batch, number, length, length, dtype=dtype)
        both(torch.matmul, scores, v)

    draw = random.Random(353 + part)
    return step_of(drawn(draw, 120, case) + drawn(draw, 60, heads))


def normed(*, part: int = 0) -> Callable[[], Any]:
    """Rows of any width with and without weights, groups of channels."""

    def rows(draw: random.Random) -> None:
        width = draw.choice((32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1152, 2048, 4096))
        number = int(10 ** draw.uniform(5.8, 7.9)) // width
        dtype = draw.choice((BF16, FP32, FP32))
        x = normal(number, width, dtype=dtype)
        weight, bias = (normal(width, dtype=dtype) for _ in range(2))
        both(lambda x: F.layer_norm(x, (width,)), x)
        both(lambda x, w, b: F.layer_norm(x, (width,), w, b), x, weight, bias)
        both(lambda x, w: F.rms_norm(x, (width,), w), x, weight)
        both(lambda x: F.rms_norm(x, (width,)), x)
        both(lambda x: F.normalize(x, dim=-1), x)

    def heads(draw: random.Random) -> None:
        """Of queries, of which many rows are narrow."""
        batch, length = draw.choice((4, 16, 32)), draw.choice((256, 1024, 4096))
        number, width = draw.choice((8, 12, 16, 32)), draw.choice((32, 64, 80, 128))
        if not 1e6 < batch * length * number * width < 8e7:
            return
        x = normal(batch, length, number, width, dtype=draw.choice((BF16, FP32)))
        weight = normal(width, dtype=x.dtype)
        both(lambda x, w: F.rms_norm(x, (width,), w), x, weight)
        both(lambda x, w: F.layer_norm(x, (width,), w), x, weight)

    def groups(draw: random.Random) -> None:
        channels = draw.choice((32, 64, 96, 128, 192, 256, 320, 512, 640, 960, 1280))
        dims = draw.choice((1, 2, 2, 2, 3))
        side = {1: (256, 2048, 16_384), 2: (8, 16, 28, 32, 56, 64, 128), 3: (8, 16, 32, 64)}[dims]
        place = [draw.choice(side)] * dims
        batch = int(10 ** draw.uniform(6, 7.7)) // (channels * math.prod(place))
        if not 1 <= batch <= 256:
            return
        dtype = draw.choice((BF16, FP32, FP32, FP16))
        x = normal(batch, channels, *place, dtype=dtype)
        weight, bias = (normal(channels, dtype=dtype) for _ in range(2))
        number = draw.choice((1, 8, 32, 32))
        both(lambda x, w, b: F.group_norm(x, number, w, b), x, weight, bias)
        scale, shift = (normal(channels) for _ in range(2))
        both(lambda x, w, b: F.instance_norm(x, None, None, w, b), x, scale, shift)

    draw = random.Random(367 + part)
    return step_of(drawn(draw, 40, rows) + drawn(draw, 20, heads) + drawn(draw, 60, groups))


def graphs(*, part: int = 0) -> Callable[[], Any]:
    """Rows of nodes to edges and back, softmax over edges of a node, bags."""

    def case(draw: random.Random) -> None:
        nodes = int(10 ** draw.uniform(3.5, 5.3))
        edges = int(nodes * draw.choice((4, 8, 12, 20, 40)))
        width = draw.choice((1, 4, 8, 16, 32, 64, 128, 256))
        if not 1e5 < edges * width < 8e7:
            return
        dtype = draw.choice((FP32, FP32, BF16))
        x, e = normal(nodes, width, dtype=dtype), normal(edges, width, dtype=dtype)
        index = torch.randint(0, nodes, (edges,), device="cuda")
        wide = index[:, None].expand(edges, width)
        both(lambda x: x[index], x)
        both(lambda x: x.index_select(0, index), x)
        both(lambda e: e.new_zeros(nodes, width).index_add(0, index, e), e)
        both(lambda e: e.new_zeros(nodes, width).scatter_add(0, wide, e), e)
        none = e.detach().new_zeros(nodes, width)
        none.scatter_reduce(0, wide, e.detach(), "amax", include_self=False)
        near = index[: edges // 8 * 8].view(-1, 8)
        both(lambda x: x[near].mean(1), x)
        both(lambda x: x[near].amax(1), x)

    def bags(draw: random.Random) -> None:
        rows, width = int(10 ** draw.uniform(3, 6.3)), draw.choice((16, 32, 64, 128))
        batch, seen = draw.choice((2048, 8192, 32_768)), draw.choice((1, 5, 20, 50))
        index = torch.randint(0, rows, (batch, seen), device="cuda")
        mode = draw.choice(("sum", "mean"))
        both(lambda t: F.embedding_bag(index, t, mode=mode), normal(rows, width))
        both(lambda t: F.embedding(index, t), normal(rows, width))

    draw = random.Random(379 + part)
    return step_of(drawn(draw, 60, case) + drawn(draw, 24, bags))


def words(*, part: int = 0) -> Callable[[], Any]:
    """Losses over 30 to 250 thousand words, in fp32 and 16 bits; sampled, smoothed, ignored."""

    def case(draw: random.Random) -> None:
        number = draw.choice((30_522, 32_000, 50_257, 50_304, 64_000, 128_256, 151_936, 250_002))
        rows = draw.choice((256, 1024, 2048, 4096, 8192, 16_384))
        if not 2e7 < rows * number < 1.1e9:
            return
        dtype = draw.choice((BF16, FP32))
        x = given(rows, number, dtype=dtype).normal_().requires_grad_()
        labels = torch.randint(0, number, (rows,), device="cuda")
        both(lambda x: F.cross_entropy(x, labels), x)
        if dtype is BF16:
            both(lambda x: F.cross_entropy(x.float(), labels), x)
        both(lambda x: x.log_softmax(-1).gather(1, labels[:, None]), x)
        both(lambda x: F.cross_entropy(x, labels, label_smoothing=0.1), x)
        both(lambda x: x.logsumexp(-1), x)
        x.detach().argmax(-1)

    return step_of(drawn(random.Random(389 + part), 24, case))


def ordered(*, part: int = 0) -> Callable[[], Any]:
    """Sums so far, sorted rows, the largest of a row, flags."""

    def case(draw: random.Random) -> None:
        width = draw.choice((8, 16, 64, 64, 128, 256, 512, 1024, 2048, 4096, 16_384))
        rows = int(10 ** draw.uniform(5, 7.3)) // width
        if rows < 4:
            return
        dtype = draw.choice((FP32, FP32, BF16))
        x = normal(rows, width, dtype=dtype)
        both(lambda x: x.cumsum(-1), x)
        x.detach().sort(-1)
        x.detach().topk(draw.choice((1, 2, 2, 8)), -1)
        x.detach().argsort(-1)
        F.one_hot(torch.randint(0, 64, (rows,), device="cuda"), 64).cumsum(0)
        x.detach().flatten()[: 1 << 20].sort()
        x.detach().cumsum(0)
        both(lambda x: x.cumprod(-1), x)
        both(lambda x: x.logcumsumexp(-1), x)
        x.detach().max(-1), (x.detach() > 0).any(-1)

    return step_of(drawn(random.Random(401 + part), 44, case))


def pointwise(*, part: int = 0) -> Callable[[], Any]:
    """Activations and their gradients, dropout, losses of each element."""
    calls: list[Callable[..., torch.Tensor]] = [
        *(F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.silu, F.relu, F.mish, F.hardswish),
        *(F.softplus, F.elu, torch.tanh, torch.sigmoid, F.leaky_relu, torch.exp, torch.sin),
        *(lambda x: F.dropout(x, 0.1), lambda x: x * torch.sigmoid(1.702 * x), torch.square),
        *(lambda x: x.clamp(-1, 1), lambda x: x.abs(), lambda x: x.pow(3.0), F.logsigmoid),
        *(lambda x: F.relu(x).square(), lambda x: x.rsqrt(), F.hardsigmoid, F.softsign),
    ]
    losses: list[Callable[..., torch.Tensor]] = [
        *(F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.binary_cross_entropy_with_logits),
        F.huber_loss,
    ]

    def case(draw: random.Random) -> None:
        dtype, number = draw.choice(DTYPES), int(10 ** draw.uniform(5.7, 8))
        x = normal(number // 64, 64, dtype=dtype)
        for call in draw.sample(calls, 8):
            both(call, x)
        with torch.no_grad():
            wanted = torch.rand_like(x)
        loss = draw.choice(losses)
        both(lambda x: loss(x, wanted), x)

    return step_of(drawn(random.Random(419 + part), 48, case))


def updates(*, part: int = 0) -> Callable[[], Any]:
    """Optimizers of many small tensors, by lists or in one kernel; averages; clipped gradients."""
    draw = random.Random(431 + part)
    groups = []
    for _ in range(10):
        unit, number = draw.choice((64, 256, 768, 1024)), draw.choice((20, 60, 150, 300))
        dtype = draw.choice((FP32, FP32, BF16))
        kinds = ((unit,), (unit, unit), (4 * unit, unit), (unit, unit, 3, 3))
        sizes = [draw.choice(kinds if unit < 1000 else kinds[:3]) for _ in range(number)]
        if sum(map(math.prod, sizes)) > 3e8:
            continue
        own = [given(*size, dtype=dtype).zero_().requires_grad_() for size in sizes]
        for x in own:
            x.grad = torch.zeros_like(x)
        kinds_of = [
            torch.optim.AdamW(own, fused=True),
            torch.optim.AdamW(own),
            torch.optim.SGD(own, lr=0.1, momentum=0.9, weight_decay=1e-4),
            torch.optim.RMSprop(own),
            torch.optim.Adagrad(own),
            torch.optim.NAdam(own),
        ]
        groups.append((own, draw.sample(kinds_of, 3)))

    def case(own: list[torch.Tensor], optimizers: list[torch.optim.Optimizer]) -> None:
        torch.nn.utils.clip_grad_norm_(own, 1.0)
        for optimizer in optimizers:
            optimizer.step()
        values = [x.detach() for x in own]
        slow = [x.detach() for x in own]
        torch._foreach_lerp_(slow, values, 0.001)
        torch._foreach_mul_(slow, 0.999)
        torch._foreach_add_(slow, values, alpha=0.001)
        torch._foreach_zero_([x.grad for x in own])

    return step_of([lambda g=g: case(*g) for g in groups])


def bags(*, part: int = 0) -> Callable[[], Any]:
    """Embedding bags of any size, with and without weights of their own."""

    def case(draw: random.Random) -> None:
        rows, width = int(10 ** draw.uniform(3, 6.8)), draw.choice((8, 16, 32, 64, 96, 128, 256))
        batch = draw.choice((2048, 8192, 32_768, 65_536, 131_072, 262_144))
        seen = draw.choice((1, 3, 5, 10, 20, 50, 100))
        if rows * width > 3e8 or batch * seen > 8e6:
            return
        index = torch.randint(0, rows, (batch, seen), device="cuda")
        mode = draw.choice(("sum", "sum", "mean", "max"))
        both(lambda t: F.embedding_bag(index, t, mode=mode), normal(rows, width))

    return step_of(drawn(random.Random(f"bags {part}"), 40, case))
