"""Convolutions as workloads, like those in operators.py: small ones, of networks, of volumes."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from operators import BF16, FP16, FP32, MOST_BYTES, Case, normal, step_of

LAYERS = Path(__file__).parents[2] / "convolutions" / "h200-torch-2.11.jsonl.gz"


def each(call: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    """Forward, and the gradient of each input by itself."""
    y = call(*inputs)
    for x in inputs:
        torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)


def convolutions() -> Callable[[], torch.Tensor]:
    """Small ones: strided, transposed and plain, as of GANs, autoencoders and policies."""
    draw = random.Random(16)
    cases: list[Case] = []
    for number in range(260):
        batch = draw.choice((1, 4, 16, 32, 64, 128))
        inside, outside = (draw.choice((3, 32, 64, 128, 256, 512)) for _ in range(2))
        size = draw.choice((4, 8, 16, 32, 64, 128))
        if batch * max(inside, outside) * size * size * 4 > MOST_BYTES:
            continue
        kernel, stride, padding = draw.choice(
            ((4, 2, 1), (4, 2, 1), (3, 2, 1), (3, 1, 1), (1, 1, 0), (5, 2, 2), (2, 2, 0), (7, 2, 3))
        )
        dtype = draw.choice((FP32, FP32, FP32, BF16))
        is_transposed, is_last = number % 5 < 2 and stride == 2, number % 7 == 0

        def case(
            x_sizes: tuple[int, ...] = (batch, inside, size, size),
            w_sizes: tuple[int, ...] = (inside, outside, kernel, kernel)
            if is_transposed
            else (outside, inside, kernel, kernel),
            call: Callable[..., torch.Tensor] = F.conv_transpose2d if is_transposed else F.conv2d,
            dtype: torch.dtype = dtype,
            stride: int = stride,
            padding: int = padding,
            layout: torch.memory_format = torch.channels_last
            if is_last
            else torch.contiguous_format,
        ) -> None:
            x = torch.randn(*x_sizes, device="cuda", dtype=dtype).to(memory_format=layout)
            weight = torch.randn(*w_sizes, device="cuda", dtype=dtype).to(memory_format=layout)
            inputs = x.requires_grad_(), weight.requires_grad_()
            each(lambda x, w: call(x, w, None, stride, padding), *inputs)

        cases.append(case)
    return step_of(cases)


def layers(*, start: int = 0, count: int = 90) -> Callable[[], torch.Tensor]:
    """Convolutions of known networks, from those that benchmarks/convolutions has recorded."""
    with gzip.open(LAYERS, "rt") as file:
        lines = [json.loads(line) for line in file]
    # without TF32 a convolution in fp32 is rare
    usable = [r for r in lines if "seconds" in r and (r["tf32"] or r["dtype"] != "fp32")]
    random.Random(2).shuffle(usable)

    def case(r: dict[str, Any]) -> None:
        dims, dtype = len(r["weight"]) - 2, {"fp32": FP32, "bf16": BF16, "fp16": FP16}[r["dtype"]]
        layouts = {2: torch.channels_last, 3: torch.channels_last_3d}
        layout = layouts.get(dims) if r["channels_last"] else torch.contiguous_format
        x = torch.randn(r["batch"], *r["x"], device="cuda", dtype=dtype).to(memory_format=layout)
        w = torch.randn(r["weight"], device="cuda", dtype=dtype).to(memory_format=layout)
        more = (r["output_padding"], r["groups"], r["dilation"])
        kind = f"conv_transpose{dims}d" if r["transposed"] else f"conv{dims}d"
        if not r["transposed"]:
            more = (r["dilation"], r["groups"])
        call = getattr(F, kind)
        inputs = x.requires_grad_(), w.requires_grad_()
        each(lambda x, w: call(x, w, None, r["stride"], r["padding"], *more), *inputs)

    return step_of(lambda r=r: case(r) for r in usable[start : start + count])


def volumes() -> Callable[[], torch.Tensor]:
    """Convolutions in three dimensions, of video and of medical images."""
    draw = random.Random(3)
    cases: list[Case] = []
    for number in range(110):
        batch, depth = draw.choice((1, 2, 4, 8)), draw.choice((4, 8, 16, 32, 64))
        size = draw.choice((7, 14, 16, 28, 32, 56, 64, 96))
        inside, outside = (draw.choice((1, 3, 16, 32, 64, 128, 256)) for _ in range(2))
        if batch * max(inside, outside) * depth * size * size * 4 > MOST_BYTES:
            continue
        kernel, stride, padding = draw.choice(
            ((3, 1, 1), (3, 1, 1), (3, 2, 1), (1, 1, 0), (1, 2, 0), (2, 2, 0))
        )
        dtype = draw.choice((FP32, BF16, FP16))
        is_transposed = number % 6 == 0 and stride == 2
        call = F.conv_transpose3d if is_transposed else F.conv3d
        first, second = (inside, outside) if is_transposed else (outside, inside)

        def case(
            x: tuple[int, ...] = (batch, inside, depth, size, size),
            w: tuple[int, ...] = (first, second, kernel, kernel, kernel),
            call: Callable[..., torch.Tensor] = call,
            dtype: torch.dtype = dtype,
            more: tuple[int, int] = (stride, padding),
        ) -> None:
            inputs = normal(*x, dtype=dtype), normal(*w, dtype=dtype)
            each(lambda x, w: call(x, w, None, *more), *inputs)

        cases.append(case)
    return step_of(cases)


def of_network(
    *, name: str, batch: int, size: int = 224, dtype: str = "bf16", last: bool = False
) -> Callable[[], torch.Tensor]:
    """The convolutions of a network of torchvision, those that are alike once."""
    from torchvision import models

    is_video = name in models.list_models(models.video)
    parts = {"weights_backbone": None} if name in models.list_models(models.segmentation) else {}
    model = models.get_model(name, weights=None, **parts).to("meta")
    found: dict[tuple[Any, ...], None] = {}

    def see(layer: Any, inputs: tuple[torch.Tensor], _: torch.Tensor) -> None:
        more = (layer.stride, layer.padding, layer.dilation, layer.groups)
        found[tuple(inputs[0].shape), tuple(layer.weight.shape), *more] = None

    for layer in model.modules():
        if isinstance(layer, torch.nn.Conv2d | torch.nn.Conv3d):
            layer.register_forward_hook(see)
    sizes = (batch, 3, 16, size, size) if is_video else (batch, 3, size, size)
    model(torch.empty(sizes, device="meta"))
    return step_of_shapes(list(found), dtype, last)


def of_pyramid(
    *, width: int, batch: int, size: int, dtype: str = "bf16", last: bool = False
) -> Callable[[], torch.Tensor]:
    """Those of a U-Net: each level has twice the channels and half the size."""
    found = []
    for level in range(5):
        channels, side = width << level, size >> level
        given = (channels // 2, channels, 2 * channels) if level else (3, channels, 2 * channels)
        for inside, kernel in product(given, (1, 3)):
            weight = (channels, inside, kernel, kernel)
            found.append(((batch, inside, side, side), weight, 1, kernel // 2, 1, 1))
        found.append(((batch, channels, side, side), (channels, channels, 3, 3), 2, 1, 1, 1))
    return step_of_shapes(found, dtype, last)


def step_of_shapes(
    found: list[tuple[Any, ...]], dtype: str, last: bool
) -> Callable[[], torch.Tensor]:
    """Of (input, weight, stride, padding, dilation, groups)."""
    item = {"fp32": FP32, "bf16": BF16, "fp16": FP16}[dtype]

    def case(x: tuple[int, ...], w: tuple[int, ...], *more: Any) -> None:
        layouts = torch.channels_last_3d if len(x) == 5 else torch.channels_last
        layout = layouts if last else torch.contiguous_format
        inputs = [
            torch.randn(s, device="cuda", dtype=item).to(memory_format=layout) for s in (x, w)
        ]
        call = F.conv3d if len(x) == 5 else F.conv2d
        each(lambda x, w: call(x, w, None, *more), *(i.requires_grad_() for i in inputs))

    return step_of(lambda s=s: case(*s) for s in found)
