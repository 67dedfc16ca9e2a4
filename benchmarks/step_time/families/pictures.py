"""Operators of images as workloads, like those in operators.py: pooling, resampling, detection,
depthwise and grouped convolutions, norms of volumes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from layers import each
from operators import BF16, FP16, FP32, MOST_BYTES, Case, both, normal, step_of


def images() -> Callable[[], Any]:
    """Pooling, upsampling, shuffling and padding of images, and Fourier transforms."""

    def case(batch: int, channels: int, size: int, dtype: torch.dtype) -> None:
        x = normal(batch, channels, size, size, dtype=dtype)
        both(lambda x: F.max_pool2d(x, 2), x)
        both(lambda x: F.max_pool2d(x, 3, 2, 1), x)
        both(lambda x: F.avg_pool2d(x, 2), x)
        both(lambda x: F.avg_pool2d(x, 3, 1, 1), x)
        both(lambda x: F.adaptive_avg_pool2d(x, 1), x)
        both(lambda x: F.adaptive_avg_pool2d(x, 4), x)
        both(lambda x: F.adaptive_max_pool2d(x, 4), x)
        both(lambda x: F.interpolate(x, scale_factor=2), x)
        both(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), x)
        both(lambda x: F.interpolate(x, size=size // 2, mode="bilinear", antialias=True), x)
        both(lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"), x)
        both(lambda x: F.pixel_shuffle(x, 2), x)
        both(lambda x: F.pixel_unshuffle(x, 2), x)
        both(lambda x: F.unfold(x, 3, padding=1), x)
        both(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), x)
        both(lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"), x)
        grid = torch.rand(batch, size, size, 2, device="cuda", dtype=dtype) * 2 - 1
        both(lambda x, g: F.grid_sample(x, g, align_corners=False), x, grid.requires_grad_())
        if dtype == FP32:
            both(lambda x: torch.fft.irfft2(torch.fft.rfft2(x)), x)
            torch.fft.fft(x.detach())
            torch.stft(x.detach().view(batch * channels, -1), 64, return_complex=True)
        last = x.detach().to(memory_format=torch.channels_last).requires_grad_()
        both(lambda x: F.max_pool2d(x, 3, 2, 1), last)
        both(lambda x: F.adaptive_avg_pool2d(x, 1), last)
        both(lambda x: F.interpolate(x, scale_factor=2), last)

    def volume(batch: int, channels: int, size: int, dtype: torch.dtype) -> None:
        x = normal(batch, channels, size, size, size, dtype=dtype)
        both(lambda x: F.max_pool3d(x, 2), x)
        both(lambda x: F.avg_pool3d(x, 2), x)
        both(lambda x: F.adaptive_avg_pool3d(x, 1), x)
        both(lambda x: F.interpolate(x, scale_factor=2), x)
        both(lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), x)

    cases: list[Case] = [
        lambda s=s: case(*s)
        for s in product((2, 32), (4, 64, 256), (16, 56, 128), (FP32, BF16))
        if s[0] * s[1] * s[2] ** 2 * 16 <= 2 * MOST_BYTES
    ]
    cases += [lambda s=s: volume(*s) for s in product((2,), (8, 32), (16, 48), (FP32, BF16))]
    return step_of(cases)


def detection() -> Callable[[], Any]:
    from torchvision.ops import nms, roi_align

    def case(boxes: int, channels: int, size: int, wanted: int) -> None:
        corners = torch.rand(boxes, 2, device="cuda") * size * 0.7
        box = torch.cat([corners, corners + 4 + torch.rand(boxes, 2, device="cuda") * size / 4], 1)
        nms(box, torch.rand(boxes, device="cuda"), 0.7)
        x = normal(2, channels, size, size)
        number = torch.randint(0, 2, (boxes, 1), device="cuda").float()
        rois = torch.cat([number, box], 1)[:1024]
        both(lambda x: roi_align(x, rois, wanted, 1.0, 2), x)

    sizes = product((100, 1000, 4000), (64, 256), (25, 100), (7, 14))
    return step_of(lambda s=s: case(*s) for s in sizes)


def norms_of_volumes() -> Callable[[], Any]:
    """Batch norm of five and three dimensions, in fp32 and with 16 bits beside fp32 weights."""

    def case(shape: tuple[int, ...], dtype: torch.dtype, is_last: bool) -> None:
        x = normal(*shape, dtype=dtype)
        if is_last:
            layout = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
            x = x.detach().to(memory_format=layout).requires_grad_()
        channels = shape[1]
        scale, shift = (normal(channels) for _ in range(2))
        mean, variance = (torch.ones(channels, device="cuda") for _ in range(2))
        both(lambda x, w, b: F.batch_norm(x, mean, variance, w, b, True), x, scale, shift)
        both(lambda x: F.instance_norm(x), x)
        weight, bias = (normal(channels, dtype=dtype) for _ in range(2))
        both(lambda x, w, b: F.group_norm(x, max(1, channels // 8), w, b), x, weight, bias)

    shapes: list[tuple[int, ...]] = [
        (batch, channels, depth, size, size)
        for batch, channels, depth, size in product((2, 8), (16, 64, 256), (4, 16), (14, 56))
        if batch * channels * depth * size * size * 4 <= MOST_BYTES
    ]
    shapes += [(32, 64, 200), (64, 256, 1000), (16, 512, 100)]
    cases = [(shape, dtype, False) for shape in shapes for dtype in (FP32, BF16)]
    cases += [(shape, BF16, True) for shape in shapes[::3] if len(shape) == 5]
    cases += [
        ((batch, channels, size, size), dtype, True)
        for batch, channels, size in ((32, 64, 56), (64, 256, 28), (128, 512, 7), (16, 32, 112))
        for dtype in (FP32, BF16)
    ]
    return step_of(lambda c=c: case(*c) for c in cases)


def depthwise(*, count: int = 90) -> Callable[[], Any]:
    """With one filter a channel, of mobile networks, and grouped ones; of sequences too."""
    draw = random.Random(23)
    cases: list[Case] = []
    while len(cases) < count:
        batch, channels = draw.choice((4, 16, 32, 64, 128)), draw.choice((32, 96, 192, 384, 768))
        dtype, is_last = draw.choice((FP32, BF16, BF16, FP16)), draw.random() < 0.3
        kernel, stride = draw.choice((3, 3, 5, 7)), draw.choice((1, 1, 2))
        per_group = draw.choice((1, 1, 1, 8, 32))
        if len(cases) % 5 == 4:  # of sequences
            shape: tuple[int, ...] = (batch, channels, draw.choice((100, 400, 2048)))
            kernel, stride, is_last = draw.choice((4, 15, 31)), 1, False
        else:
            size = draw.choice((7, 14, 28, 56, 112))
            shape = (batch, channels, size, size)
        if math.prod(shape) * 4 > MOST_BYTES or channels % per_group:
            continue
        dims = len(shape) - 2
        call = {1: F.conv1d, 2: F.conv2d}[dims]
        layout = torch.channels_last if is_last else torch.contiguous_format

        def case(
            shape: tuple[int, ...] = shape,
            weight: tuple[int, ...] = (channels, per_group, *[kernel] * dims),
            dtype: torch.dtype = dtype,
            call: Callable[..., torch.Tensor] = call,
            layout: torch.memory_format = layout,
            more: tuple[int, int, int, int] = (stride, kernel // 2, 1, channels // per_group),
        ) -> None:
            x = torch.randn(*shape, device="cuda", dtype=dtype).to(memory_format=layout)
            w = torch.randn(*weight, device="cuda", dtype=dtype).to(memory_format=layout)
            inputs = x.requires_grad_(), w.requires_grad_()
            each(lambda x, w: call(x, w, None, *more), *inputs)

        cases.append(case)
    return step_of(cases)


def resampled_last() -> Callable[[], Any]:
    """Images whose channels are neighbours in memory: resampling, pooling, norms, padding."""

    def case(batch: int, channels: int, size: int, dtype: torch.dtype) -> None:
        x = normal(batch, channels, size, size, dtype=dtype).detach()
        x = x.to(memory_format=torch.channels_last).requires_grad_()
        for scale in (2, 4, 0.5):
            both(lambda x, s=scale: F.interpolate(x, scale_factor=s, mode="bilinear"), x)
        both(lambda x: F.interpolate(x, size=size + 9, mode="bilinear", align_corners=True), x)
        both(lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), x)
        both(lambda x: F.interpolate(x, scale_factor=2), x)
        both(lambda x: F.max_pool2d(x, 2), x)
        both(lambda x: F.max_pool2d(x, 3, 1, 1), x)
        both(lambda x: F.avg_pool2d(x, 2), x)
        both(lambda x: F.avg_pool2d(x, 3, 1, 1), x)
        both(lambda x: F.adaptive_avg_pool2d(x, 7), x)
        both(lambda x: F.pad(x, (1, 1, 1, 1)), x)
        both(lambda x: F.dropout2d(x, 0.1), x)
        both(lambda x: torch.cat([x, x], 1), x)
        weight, bias = normal(channels), normal(channels)
        both(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, weight, bias)
        weight, bias = (normal(channels, dtype=dtype) for _ in range(2))
        both(lambda x, w, b: F.group_norm(x, 4, w, b), x, weight, bias)
        scale = normal(batch, channels, 1, 1, dtype=dtype)
        both(torch.mul, x, scale)
        both(lambda x: x.mean((2, 3)), x)

    return step_of(
        lambda s=s: case(*s)
        for s in product((2, 16, 96), (16, 64, 256), (14, 56, 120), (FP32, BF16))
        if math.prod(s[:3]) * s[2] * 4 <= MOST_BYTES
    )


def pooled() -> Callable[[], Any]:
    """Of large images: what squeezes, pools and joins channels."""

    def case(batch: int, channels: int, size: int, dtype: torch.dtype) -> None:
        x = normal(batch, channels, size, size, dtype=dtype)
        for kernel, stride, padding in ((2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 1, 1)):
            more = (kernel, stride, padding)
            both(lambda x, more=more: F.max_pool2d(x, *more), x)
            both(lambda x, more=more: F.max_pool2d(x, *more, ceil_mode=True), x)
            both(lambda x, more=more: F.avg_pool2d(x, *more), x)
        both(lambda x: F.relu(x), x)
        both(lambda x: torch.cat([x, x], 1), x)
        both(lambda x: F.dropout(x, 0.5), x)
        both(lambda x: F.adaptive_avg_pool2d(x, 1), x)
        x.detach().sum((0, 2, 3))

    return step_of(
        lambda s=s: case(*s)
        for s in product((8, 48, 128), (32, 96, 256), (13, 27, 55, 112), (FP32, BF16))
        if math.prod(s[:3]) * s[2] * 4 <= MOST_BYTES
    )


def enlarged(*, size: int) -> Callable[[], Any]:
    """Resampled by many factors: gradients of several pixels are added to one."""
    most = MOST_BYTES // (16 if size >= 8 else 64 if size > 1 else 512)  # additions to one are slow

    def cases(batch: int, channels: int, dtype: torch.dtype) -> Iterator[Case]:
        x = normal(batch, channels, size, size, dtype=dtype)
        last = x.detach().to(memory_format=torch.channels_last).requires_grad_()
        for wanted, given in product((14, 32, 60, 120, 240), (x, last)):
            if batch * channels * wanted**2 > most or wanted <= size:
                continue
            for mode in ("bilinear", "nearest", "bicubic"):
                resample = partial(F.interpolate, size=(wanted, wanted), mode=mode)
                yield partial(both, resample, given)

    sizes = product((4, 16), (20, 128, 256), (FP32, BF16))
    return step_of(case for s in sizes for case in cases(*s))


def norms_of_networks() -> Callable[[], Any]:
    """Batch norm as networks of images have it: both layouts, all precisions."""
    draw = random.Random(20261118)
    sizes = (7, 7, 14, 14, 16, 28, 28, 32, 33, 50, 56, 56, 60, 65, 112, 128, 150)
    widths = (16, 24, 32, 48, 64, 64, 96, 128, 192, 256, 320, 440, 512, 912)
    batches = (4, 8, 12, 16, 24, 32, 64, 96, 128, 192, 256)

    def case(batch: int, channels: int, size: int, dtype: torch.dtype, is_last: bool) -> None:
        x = normal(batch, channels, size, size, dtype=dtype)
        if is_last:
            x = x.detach().to(memory_format=torch.channels_last).requires_grad_()
        scale, shift = (normal(channels) for _ in range(2))
        mean, variance = (torch.ones(channels, device="cuda") for _ in range(2))
        both(lambda x, w, b: F.batch_norm(x, mean, variance, w, b, True), x, scale, shift)

    cases: list[Case] = []
    while len(cases) < 400:
        batch, channels, size = map(draw.choice, (batches, widths, sizes))
        channels *= draw.choice((1, 2, 4)) if size < 30 else 1
        more = draw.choice((BF16, BF16, FP16, FP32)), draw.random() < 0.4
        if 2e5 < batch * channels * size**2 < 1e8:
            cases.append(lambda s=(batch, channels, size, *more): case(*s))
    return step_of(cases)
