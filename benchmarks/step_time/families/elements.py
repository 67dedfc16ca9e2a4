"""Operators that operators.py leaves out, as workloads like those there: by elements, along rows,
and convolutions that are differentiated twice or done for several tasks at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import torch
import torch.nn.functional as F
from operators import BF16, FP32, Case, both, normal, step_of

UNARY = (
    *("round", "ceil", "trunc", "frac", "log", "log2", "log10", "exp2", "expm1", "tan", "asin"),
    *("atan", "sinh", "cosh", "asinh", "erfc", "erfinv", "lgamma", "digamma", "sgn", "isinf"),
    *("isfinite", "signbit", "deg2rad", "sinc", "logit", "i0", "nan_to_num"),
)
BINARY = (
    *("remainder", "fmod", "floor_divide", "minimum", "fmax", "pow", "hypot", "copysign"),
    *("logaddexp", "eq", "gt", "le", "ne", "xlogy"),
)
ACTIVATIONS = ("selu", "celu", "softsign", "tanhshrink", "hardshrink", "softshrink", "glu")
SIZES = (
    *product((256, 4096, 50_000), (16, 256), (FP32, BF16)),
    *((200_000, 128, FP32), (65_536, 512, BF16)),
)


def elementwise() -> Callable[[], torch.Tensor]:
    def cases(rows: int, width: int, dtype: torch.dtype) -> Iterator[Case]:
        x, y, z = (normal(rows, width, dtype=dtype) for _ in range(3))
        one, other = x.detach(), y.detach()
        for name in UNARY:
            yield lambda name=name: getattr(torch, name)(one)
        for name, second in product(BINARY, (other, other[:1], other[:, :1])):
            yield lambda name=name, second=second: getattr(torch, name)(one, second)
        for name in ACTIVATIONS:
            yield lambda name=name: both(getattr(F, name), x)
        yield lambda: both(lambda x, y: torch.lerp(x, y, 0.3), x, y)
        yield lambda: both(torch.lerp, x, y, z)
        yield lambda: one.clone().lerp_(other, 0.1)
        yield lambda: one.clone().addcmul_(one, other, value=0.5)
        yield lambda: one.clone().addcdiv_(one, other)
        for call in (torch.addcmul, torch.addcdiv):
            yield lambda call=call: both(call, x, y, z)
        number = (one > 0).long()
        for call in (torch.bitwise_and, torch.logical_and, torch.add, torch.remainder):
            yield lambda call=call: call(number, number)
        yield lambda: both(lambda x: x.clamp(min=0.1), x)
        yield lambda: both(lambda x: F.huber_loss(x, other), x)
        yield lambda: both(lambda x: F.l1_loss(x, other), x)
        yield lambda: both(lambda x: F.kl_div(x, other, reduction="batchmean"), x)
        yield lambda: both(lambda x: F.binary_cross_entropy(x.sigmoid(), other.sigmoid()), x)
        yield lambda: both(lambda x: F.rrelu(x, training=True), x)
        yield lambda: both(lambda x: x.tril(), x)
        yield lambda: both(lambda x: torch.stack([x, x], -1), x)
        yield lambda: torch.normal(one, one.abs())

    return step_of(case for sizes in SIZES for case in cases(*sizes))


def along_rows() -> Callable[[], torch.Tensor]:
    def cases(rows: int, width: int, dtype: torch.dtype) -> Iterator[Case]:
        x, y = (normal(rows, width, dtype=dtype) for _ in range(2))
        one, other = x.detach(), y.detach()
        yield lambda: both(lambda x, y: F.cosine_similarity(x, y, dim=-1), x, y)
        yield lambda: both(lambda x: x.std(-1), x)
        yield lambda: both(lambda x: x.prod(-1), x)
        yield lambda: both(lambda x: x.repeat_interleave(2, 0), x)
        yield lambda: one.cumprod(-1)
        yield lambda: one.logcumsumexp(-1)
        yield lambda: torch.searchsorted(other.sort(-1).values, one)
        yield lambda: torch.bucketize(one, one[0].sort().values)
        yield lambda: torch.multinomial(one.abs() + 0.1, 4)
        yield lambda: one.median(-1)
        yield lambda: one.kthvalue(1, -1)
        yield lambda: one.cummax(-1)

    return step_of(case for sizes in SIZES for case in cases(*sizes))


def heads() -> Callable[[], torch.Tensor]:
    """What attention does around its kernel: heads turned, halves joined, keys repeated."""

    def cases(
        batch: int, number: int, length: int, width: int, dtype: torch.dtype
    ) -> Iterator[Case]:
        x = torch.randn(batch, length, number, width, device="cuda", dtype=dtype)
        turned = x.transpose(1, 2)
        one, other = turned.contiguous().chunk(2, -1)
        yield turned.contiguous
        yield one.contiguous
        yield lambda: one.clone(memory_format=torch.contiguous_format)
        yield lambda: torch.cat([other, one], -1)
        yield lambda: torch.cat([one.contiguous(), other.contiguous()], -1)
        yield lambda: torch.cat([one[..., :8], one[..., 8:], other], -1)
        yield lambda: torch.cat([turned, turned], 2)
        yield lambda: torch.stack([one, other], -1)
        yield lambda: turned.repeat_interleave(2, 1)
        yield lambda: turned[:, :, None].expand(-1, -1, 2, -1, -1).reshape(batch, -1, length, width)
        yield lambda: turned.contiguous().transpose(1, 2).reshape(batch, length, -1)
        yield lambda: F.pad(one, (0, width - width // 2))
        yield lambda: x.new_zeros(x.shape)[..., : width // 2].copy_(x[..., width // 2 :])

    sizes = product((2, 8), (1, 8, 16), (512, 2048), (32, 64, 96, 128), (BF16, FP32))
    return step_of(case for s in sizes for case in cases(*s))


def twice() -> Callable[[], torch.Tensor]:
    """Convolutions whose gradients are differentiated: of GANs' penalties, of meta-learning."""

    def case(batch: int, inside: int, outside: int, size: int, kernel: int, stride: int) -> None:
        x, w = normal(batch, inside, size, size), normal(outside, inside, kernel, kernel)
        y = F.conv2d(x, w, None, stride, kernel // 2)
        of_x, of_w = torch.autograd.grad(y, (x, w), torch.ones_like(y), create_graph=True)
        for found in (of_x, of_w):
            ones = torch.ones_like(found)
            torch.autograd.grad(found, (x, w), ones, retain_graph=True, allow_unused=True)

    sizes = product((16, 64), (3, 32, 128), (32, 128), (16, 42, 84), (3, 4), (1, 2))
    return step_of(lambda s=s: case(*s) for n, s in enumerate(sizes) if n % 3 == 0)


def of_tasks() -> Callable[[], torch.Tensor]:
    """As vmap does them: each task its filters, as groups."""

    def case(tasks: int, batch: int, inside: int, outside: int, size: int) -> None:
        x = normal(batch, tasks * inside, size, size)
        w = normal(tasks * outside, inside, 3, 3)
        y = F.conv2d(x, w, None, 1, 1, 1, tasks)
        for wanted in (x, w):
            torch.autograd.grad(y, wanted, torch.ones_like(y), retain_graph=True)
        grads = torch.autograd.grad(y, (x, w), torch.ones_like(y), create_graph=True)
        for found in grads:
            ones = torch.ones_like(found)
            torch.autograd.grad(found, (x, w), ones, retain_graph=True, allow_unused=True)

    sizes = product((4, 16, 32), (5, 25), (3, 32, 64), (32, 64), (10, 21, 42, 84))
    return step_of(lambda s=s: case(*s) for n, s in enumerate(sizes) if n % 2 == 0)


def sound(dtype: torch.dtype, batch: int, length: int, *more: int) -> None:
    inside, outside, kernel, stride, groups = more
    x = normal(batch, inside, length, dtype=dtype)
    w = normal(outside, inside // groups, kernel, dtype=dtype)
    y = F.conv1d(x, w, None, stride, kernel // 2 if groups > 1 else 0, 1, groups)
    for wanted in (x, w):
        torch.autograd.grad(y, wanted, torch.ones_like(y), retain_graph=True)


def lines() -> Callable[[], torch.Tensor]:
    """Convolutions of sound: the first layers of wav2vec, and its long filters in groups."""

    long = product((FP32, BF16), (1, 2, 3, 4, 6, 8, 16), (99, 249, 399, 599, 749, 999))
    groups = ((768, 768, 128, 1, 16), (1024, 1024, 128, 1, 16), (512, 512, 95, 1, 16))
    cases = [(*s, *groups[n % 3]) for n, s in enumerate(long)]
    first = ((1, 512, 10, 5, 1), (512, 512, 3, 2, 1), (512, 512, 2, 2, 1))
    for dtype, batch, length in product((FP32, BF16), (2, 4, 12), (4, 8, 15)):
        for layer, down in zip(first, (1, 5, 80), strict=True):
            cases.append((dtype, batch, 16_000 * length // down, *layer))
    return step_of(lambda s=s: sound(*s) for s in cases)


def long_filters() -> Callable[[], torch.Tensor]:
    """Of usual lengths and batches, where cuDNN's choice jumps."""
    sizes = product((FP32, BF16), (2, 4, 8), (149, 249, 399, 499, 749), (768, 1024))
    return step_of(lambda s=s: sound(*s, s[-1], 128, 1, 16) for s in sizes)
