"""Records convolutions and products of many shapes on a GPU: seconds of their kernels alone.

    python benchmarks/step_time/recording/shapes.py OUT.jsonl SECONDS [WHICH]

It takes shapes in a random order until the seconds are over; WHICH says only those of groups and of
segmentation (`segmentation`), layers of networks in the settings that fewer of them have (channels
last, fp16, fp32 without TF32: `settings`), kinds of layers that fewer networks have (`seldom`), or
of medical volumes, films and very many small pictures (`volumes`). A line has everything that was
called and, for each direction, the median seconds of its kernels: of each (`seconds`), and less
where some ran side by side (`spans`).
"""

from __future__ import annotations

import bisect
import gzip
import json
import math
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

LAYERS = Path(__file__).parents[2] / "convolutions" / "layers.json.gz"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
DIRECTIONS = ("forward", "data_gradient", "weight_gradient")
REPEATED, AT_ONCE = 3, 24
WIDTHS_OF_GROUPS = (4, 4, 8, 8, 16, 16, 24, 24, 28, 32, 40, 48, 56, 64, 84, 112, 120, 168, 232)
MOST_ELEMENTS, MOST_FLOPS, LEAST_FLOPS = 1 << 29, 3e12, 1e8
HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
Case = dict[str, Any]


def of_networks(draw: random.Random) -> Case:
    """A layer that a network has, with a batch that keeps a GPU busy."""
    layer = draw.choice(of_networks.layers)
    settings = (("bf16", False), ("bf16", True), ("fp32", False), ("fp32", True), ("fp16", True))
    dtype, last = draw.choices(settings, (4, 3, 4, 2, 1))[0]
    batch = draw.choice((8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384))
    return {**layer, "batch": batch, "dtype": dtype, "last": last and len(layer["x"]) > 2}


def of_settings(draw: random.Random) -> Case:
    """Every network as often as the others, whatever number of layers it has."""
    layer = draw.choice(of_networks.by_network[draw.choice(list(of_networks.by_network))])
    settings = (
        *(("bf16", True, True), ("bf16", False, True), ("fp16", True, True), ("fp16", False, True)),
        *(("fp32", True, True), ("fp32", False, True), ("fp32", True, False)),
        ("fp32", False, False),
    )
    dtype, last, is_tf32 = draw.choices(settings, (5, 2, 2, 1, 5, 2, 3, 4))[0]
    batch = draw.choice((4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256))
    last = last and len(layer["x"]) > 2
    return {**layer, "batch": batch, "dtype": dtype, "last": last, "tf32": is_tf32}


def of_sound(draw: random.Random) -> Case:
    """In one dimension: dilated, strided, plain."""
    inside, outside = (draw.choice((1, 32, 64, 80, 128, 256, 512, 768)) for _ in range(2))
    length = draw.choice((500, 1500, 3000, 8000, 16000, 32000, 100_000))
    kernel = draw.choice((1, 2, 3, 3, 5, 7, 10))
    stride = draw.choice((1, 1, 1, 2, 5))
    dilation = draw.choice((1, 1, 2, 4, 8, 16, 64)) if stride == 1 and kernel > 1 else 1
    padding = dilation * (kernel - 1) // 2
    return _plain(draw, (inside, length), (outside, inside, kernel), stride, padding, dilation)


def of_volumes(draw: random.Random) -> Case:
    """In three dimensions: whole filters, and those of time and of pictures apart."""
    inside, outside = (draw.choice((3, 16, 32, 64, 96, 128, 192, 256, 480)) for _ in range(2))
    size, depth = draw.choice((7, 14, 28, 56, 64, 96, 112)), draw.choice((2, 4, 8, 16, 32, 64))
    kernels = ((3, 3, 3), (1, 3, 3), (3, 1, 1), (1, 1, 1), (1, 7, 7), (7, 1, 1), (2, 2, 2))
    kernel, stride = draw.choice(kernels), draw.choice((1, 1, 1, 2))
    padding = [n // 2 for n in kernel]
    return _plain(draw, (inside, depth, size, size), (outside, inside, *kernel), stride, padding, 1)


def of_positions(draw: random.Random) -> Case:
    """Long filters in groups, as what listens to speech has them, over few moments."""
    groups, channels = 16, draw.choice((48, 48, 64, 80))
    length, kernel = draw.choice((50, 149, 249, 399, 449, 499, 599, 749, 999)), 128
    width = groups * channels
    case = _plain(draw, (width, length), (width, channels, kernel), 1, kernel // 2, 1)
    return case | {"groups": groups, "batch": draw.choice((1, 2, 4, 8, 12, 16, 32))}


def of_dilations(draw: random.Random) -> Case:
    """Of pictures: dilated, as of segmentation, and long filters in one direction."""
    inside, outside = (draw.choice((32, 64, 128, 192, 256, 512, 1024)) for _ in range(2))
    size = draw.choice((14, 17, 28, 33, 35, 60, 65, 96, 128))
    kernel, dilation = draw.choice(((3, 3), (3, 3), (1, 7), (7, 1), (1, 3), (3, 1), (5, 5))), 1
    if kernel == (3, 3):
        dilation = draw.choice((2, 4, 12, 24))
    padding = [dilation * (n // 2) for n in kernel]
    return _plain(draw, (inside, size, size), (outside, inside, *kernel), 1, padding, dilation)


def of_groups(draw: random.Random) -> Case:
    """Of pictures: channels in groups, as ResNeXt and RegNet have them."""
    groups, channels = draw.choice((2, 4, 6, 8, 12, 16, 20, 32)), draw.choice(WIDTHS_OF_GROUPS)
    size, stride = draw.choice((7, 14, 14, 28, 28, 56, 56, 112)), draw.choice((1, 1, 1, 2))
    kernel = draw.choice((3, 3, 3, 5))
    width = groups * channels
    case = _plain(draw, (width, size, size), (width, channels, kernel, kernel), stride, 1, 1)
    dtype, last = draw.choices(
        (("bf16", True), ("fp32", True), ("bf16", False), ("fp32", False), ("fp16", True)),
        (4, 3, 2, 2, 1),
    )[0]
    more = {"padding": [kernel // 2] * 2, "dtype": dtype, "last": last, "groups": groups}
    return case | more | {"batch": draw.choice((8, 16, 32, 64, 96, 128, 192, 256))}


def of_segmentation(draw: random.Random) -> Case:
    """Dilated, as the last stages of a ResNet and the heads of DeepLab and FCN have them."""
    wide = ((128, 128), (256, 256), (512, 512), (1024, 256), (2048, 256), (2048, 512), (320, 256))
    inside, outside = draw.choice(wide)
    size = draw.choice((24, 28, 32, 33, 40, 41, 48, 60, 64, 65, 66, 80, 97, 129))
    dilation = draw.choice((1, 2, 2, 2, 4, 4, 6, 12, 18, 24, 36))
    case = _plain(draw, (inside, size, size), (outside, inside, 3, 3), 1, dilation, dilation)
    kinds = (("bf16", False), ("fp32", False), ("bf16", True), ("fp32", True))
    dtype, last = draw.choices(kinds, (4, 3, 2, 2))[0]
    return case | {"dtype": dtype, "last": last, "batch": draw.choice((2, 4, 6, 8, 12, 16, 24, 32))}


def _plain(
    draw: random.Random, x: tuple[int, ...], weight: tuple[int, ...], stride: Any, pad: Any, d: int
) -> Case:
    dims = len(x) - 1
    dtype, last = draw.choice((("fp32", False), ("fp32", False), ("bf16", False), ("bf16", True)))
    return {
        "x": list(x),
        "weight": list(weight),
        "stride": [stride] * dims,
        "padding": pad if isinstance(pad, list) else [pad] * dims,
        "dilation": [d] * dims,
        "transposed": False,
        "output_padding": [0] * dims,
        "groups": 1,
        "batch": draw.choice((4, 8, 16, 32, 64, 128)),
        "dtype": dtype,
        "last": last and dims > 1,
    }


def of_any_precision(draw: random.Random, case: Case) -> Case:
    """fp32 without TF32 is slow and less common."""
    kinds = ("bf16", "fp16", "fp32", "plain fp32")
    dtype = draw.choices(kinds, (4, 2, 3, 1))[0]
    last = draw.random() < 0.4 and len(case["x"]) > 2
    return case | {"dtype": dtype.split()[-1], "last": last, "tf32": dtype != "plain fp32"}


def of_large_volumes(draw: random.Random) -> Case:
    """Of medical pictures and films: filters of 5 x 5 x 5 too, strides, few channels."""
    inside, outside = (draw.choice((1, 4, 16, 16, 24, 32, 32, 48, 64, 96, 128)) for _ in range(2))
    outside = draw.choice((inside, inside, outside))
    size = draw.choice((8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128))
    side, stride = draw.choice(((5, 1), (5, 1), (3, 1), (3, 1), (3, 2), (1, 1), (1, 2), (2, 2)))
    case = _plain(draw, (inside, *[size] * 3), (outside, inside, *[side] * 3), stride, side // 2, 1)
    if side == 2:
        case["padding"] = [0] * 3
    return of_any_precision(draw, case) | {"batch": draw.choice((1, 2, 2, 4, 4, 8, 16, 32))}


def of_latent_films(draw: random.Random) -> Case:
    """Of autoencoders of films: wide, with filters of 3 x 3 x 3 over few frames."""
    inside = draw.choice((96, 128, 192, 256, 384, 512))
    outside, depth = draw.choice((inside, inside, 2 * inside)), draw.choice((3, 5, 7, 9, 17))
    size = draw.choice((16, 32, 32, 64, 128))
    kernel = draw.choice(((3, 3, 3), (3, 3, 3), (1, 3, 3), (3, 1, 1), (1, 1, 1)))
    padding = [n // 2 for n in kernel]
    case = _plain(draw, (inside, depth, size, size), (outside, inside, *kernel), 1, padding, 1)
    return of_any_precision(draw, case) | {"batch": draw.choice((1, 1, 2, 4))}


def of_speech(draw: random.Random) -> Case:
    """Long filters in groups as of_positions has them, in all precisions and with other numbers of
    groups, and a filter for each channel of a sequence."""
    if draw.random() < 0.4:
        width, length = draw.choice((256, 384, 512, 768, 1024, 1536)), draw.choice((100, 249, 500))
        length, kernel = draw.choice((length, 1000, 2048, 4096)), draw.choice((3, 4, 7, 9, 15, 31))
        dilation = draw.choice((1, 1, 1, 2, 8)) if kernel < 9 else 1
        pad = dilation * (kernel // 2)
        case = _plain(draw, (width, length), (width, 1, kernel), 1, pad, dilation)
        case["groups"] = width
    else:
        groups, kernel = draw.choice(((16, 128), (16, 128), (16, 128), (16, 95), (8, 31), (4, 41)))
        channels = draw.choice((16, 32, 48, 48, 64, 64, 80))
        length = draw.choice((49, 99, 149, 249, 499, 749, 1499))
        case = _plain(
            draw, (groups * channels, length), (groups * channels, channels, kernel), 1, 0, 1
        )
        case |= {"groups": groups, "padding": [kernel // 2]}
    return of_any_precision(draw, case) | {"batch": draw.choice((1, 2, 4, 8, 16, 24, 32, 64))}


def of_waves(draw: random.Random) -> Case:
    """Of vocoders and codecs: dilated, and transposed to longer sounds."""
    width = draw.choice((16, 32, 64, 128, 256, 512))
    length = draw.choice((256, 1024, 2048, 8192, 16_384, 32_768))
    batch = draw.choice((4, 8, 16, 32))
    if draw.random() < 0.35:
        stride = draw.choice((2, 2, 4, 5, 8))
        kernel = 2 * stride
        case = _plain(draw, (width, length), (width, max(8, width // 2), kernel), stride, 0, 1)
        case |= {"transposed": True, "padding": [(kernel - stride) // 2]}
    else:
        kernel, dilation = draw.choice((3, 3, 5, 7, 11)), draw.choice((1, 1, 3, 5, 9, 27))
        pad = dilation * (kernel // 2)
        case = _plain(draw, (width, length), (width, width, kernel), 1, pad, dilation)
    return of_any_precision(draw, case) | {"batch": batch}


def of_channels(draw: random.Random) -> Case:
    """A filter for each channel, of networks with large ones."""
    width = draw.choice((48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024, 1536))
    size, kernel = draw.choice((7, 8, 14, 16, 28, 32, 56, 64, 112)), draw.choice((3, 5, 7, 7, 9))
    kernel = draw.choice((kernel, kernel, kernel, 11, 13, 31))
    stride, dilation = draw.choice((1, 1, 1, 1, 2)), draw.choice((1, 1, 1, 1, 1, 2, 3))
    pad = dilation * (kernel // 2)
    case = _plain(draw, (width, size, size), (width, 1, kernel, kernel), stride, pad, dilation)
    case = of_any_precision(draw, case) | {"groups": width}
    return case | {"batch": draw.choice((8, 16, 32, 64, 96, 128, 256))}


def of_samples(draw: random.Random) -> Case:
    """A group for each sample, as where each has filters of its own."""
    samples, width = draw.choice((4, 8, 16, 32)), draw.choice((32, 64, 128, 256, 512))
    size, kernel = draw.choice((4, 8, 16, 32, 64, 128)), draw.choice((1, 3, 3, 3))
    outside = draw.choice((width, width, 3 if kernel == 1 else width // 2))
    sizes = (samples * outside, width, kernel, kernel)
    case = _plain(draw, (samples * width, size, size), sizes, 1, kernel // 2, 1)
    return of_any_precision(draw, case) | {"groups": samples, "batch": 1}


def of_enlarging(draw: random.Random) -> Case:
    """Transposed, of pictures and volumes."""
    dims, inside = draw.choice((2, 2, 3)), draw.choice((16, 32, 64, 128, 256, 512))
    outside = draw.choice((inside // 2, inside, 3))
    size = draw.choice((4, 8, 16, 28, 32, 56, 64, 128) if dims == 2 else (4, 8, 12, 16, 24, 32, 48))
    kernel, stride, pad = draw.choice(((2, 2, 0), (2, 2, 0), (4, 2, 1), (3, 2, 1), (4, 4, 0)))
    sizes = (inside, outside, *[kernel] * dims)
    case = _plain(draw, (inside, *[size] * dims), sizes, stride, pad, 1)
    case |= {"transposed": True, "output_padding": [int(kernel == 3)] * dims}
    batches = (4, 8, 16, 32, 64, 128) if dims == 2 else (1, 2, 4, 8)
    return of_any_precision(draw, case) | {"batch": draw.choice(batches)}


def of_organs(draw: random.Random) -> Case:
    """Of networks of medical volumes: a U-Net's stages, of which the first has the largest."""
    width = draw.choice((16, 24, 30, 32, 32, 48, 64))
    stage = draw.choice((0, 0, 1, 1, 2, 2, 3, 4))
    own = min(width << stage, 320 if width == 32 else 512)
    size = draw.choice((64, 80, 96, 96, 112, 128, 128, 160)) >> stage
    sides = [size, size, max(4, size // draw.choice((1, 1, 1, 2)))]
    outside, side, stride = draw.choice(
        ((own, 3, 1), (own, 3, 1), (own, 3, 1), (2 * own, 3, 2), (2 * own, 3, 1), (own, 1, 1))
    )
    inside = draw.choice((own, own, own, 2 * own, 1 if stage == 0 else own))
    if draw.random() < 0.08:
        outside, side, stride = draw.choice((2, 3, 4, 14)), 1, 1
    case = _plain(draw, (inside, *sides), (outside, inside, *[side] * 3), stride, side // 2, 1)
    return of_16_bits(draw, case) | {"batch": draw.choice((1, 1, 2, 2, 3, 4, 8))}


def of_films(draw: random.Random) -> Case:
    """Of networks of films (R3D, I3D, R(2+1)D, SlowFast, X3D, C3D) and of their autoencoders."""
    stage = draw.choice((0, 0, 1, 1, 2, 2, 3))
    inside = draw.choice((64, 64, 80, 96, 128)) << stage
    size, frames = draw.choice((56, 64, 64, 80)) >> stage, draw.choice((4, 8, 8, 16, 16, 32))
    kernel = draw.choice(((3, 3, 3), (3, 3, 3), (3, 3, 3), (1, 3, 3), (3, 1, 1), (1, 1, 1)))
    stride: Any = draw.choice((1, 1, 1, 1, [1, 2, 2], 2))
    outside = draw.choice((inside, inside, inside, 2 * inside, 4 * inside, inside // 4))
    if draw.random() < 0.12:  # a network's first layer
        inside, size, outside = 3, 2 * draw.choice((56, 64, 112, 128)), draw.choice((24, 64, 128))
        kernel = draw.choice(((3, 7, 7), (3, 3, 3), (1, 7, 7), (7, 7, 7), (1, 3, 3)))
        stride = draw.choice(([1, 2, 2], 2, 1))
    pad = [n // 2 for n in kernel]
    sizes = (outside, inside, *kernel)
    case = _plain(draw, (inside, frames, size, size), sizes, 1, pad, 1)
    case["stride"] = stride if isinstance(stride, list) else [stride] * 3
    return of_16_bits(draw, case) | {"batch": draw.choice((1, 2, 4, 4, 8, 8, 16, 32))}


def of_16_bits(draw: random.Random, case: Case) -> Case:
    """Mostly; a quarter in TF32."""
    dtype, last = draw.choice(("bf16", "bf16", "fp16", "fp32")), draw.random() < 0.35
    return case | {"dtype": dtype, "last": last, "tf32": True}


def of_small_pictures(draw: random.Random) -> Case:
    """Very many, as games, digits and patches have them."""
    kinds = (
        *((3, 84, 32, 8, 4), (4, 84, 32, 8, 4), (1, 84, 16, 8, 4), (32, 20, 64, 4, 2)),
        *((64, 9, 64, 3, 1), (4, 84, 32, 3, 1), (3, 64, 32, 3, 2), (3, 64, 32, 4, 2)),
        *((32, 42, 64, 3, 1), (64, 21, 64, 3, 1), (32, 32, 32, 3, 1), (32, 31, 64, 4, 2)),
        *((3, 32, 32, 3, 1), (3, 32, 64, 3, 1), (64, 32, 64, 3, 1), (64, 16, 128, 3, 1)),
        *((128, 8, 128, 3, 1), (1, 28, 32, 3, 1), (1, 28, 64, 5, 1), (64, 14, 64, 3, 1)),
        *((1, 28, 6, 5, 1), (6, 12, 16, 5, 1), (3, 16, 32, 3, 1), (16, 84, 32, 3, 1)),
        *((3, 7, 32, 3, 1), (16, 11, 32, 3, 1), (32, 13, 64, 2, 1), (128, 14, 128, 1, 1)),
    )
    inside, size, outside, side, stride = draw.choice(kinds)
    outside = draw.choice((outside, outside, 2 * outside))
    pad = side // 2 if stride == 1 and draw.random() < 0.6 else 0
    case = _plain(draw, (inside, size, size), (outside, inside, side, side), stride, pad, 1)
    batch = draw.choice((512, 1024, 2048, 3000, 4096, 8192, 10_240, 16_384, 20_480, 32_768))
    return of_any_precision(draw, case) | {"batch": batch, "last": draw.random() < 0.2}


def of_any_groups(draw: random.Random) -> Case:
    """As of_groups, in fp32 and in fp16 too."""
    return of_any_precision(draw, of_groups(draw))


def of_any_dilation(draw: random.Random) -> Case:
    return of_any_precision(draw, draw.choice((of_segmentation, of_dilations))(draw))


def products(draw: random.Random) -> Case:
    rows = draw.choice((512, 2048, 4096, 8192, 12_288, 16_384, 32_768, 49_152, 98_304, 196_608))
    sizes = (256, 512, 768, 1024, 1536, 2048, 2560, 3072, 4096, 5632, 8192, 11_008, 16_384, 32_128)
    outside, inside = draw.choice(sizes), draw.choice(sizes[:-1])
    dtype = draw.choices(("bf16", "fp16", "tf32", "fp32"), (5, 1, 2, 2))[0]
    return {"product": [rows, outside, inside], "dtype": dtype}


def choose_tf32(case: Case) -> None:
    torch.backends.cuda.matmul.allow_tf32 = case["dtype"] == "tf32"
    torch.backends.cudnn.allow_tf32 = case.get("tf32", True)


def calls_of(case: Case) -> list[Callable[[], Any]]:
    """One for each direction."""
    choose_tf32(case)
    dtype = DTYPES.get(case["dtype"], torch.float32)
    if "product" in case:
        rows, outside, inside = case["product"]
        x, w, grad = (
            torch.randn(*sizes, device=DEVICE, dtype=dtype)
            for sizes in ((rows, inside), (outside, inside), (rows, outside))
        )
        return [lambda: x @ w.t(), lambda: grad @ w, lambda: grad.t() @ x]
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    x, w = (
        torch.randn(*sizes, device=DEVICE, dtype=dtype)
        for sizes in ((case["batch"], *case["x"]), case["weight"])
    )
    if case["last"]:
        x, w = (t.to(memory_format=layouts[t.dim()]) for t in (x, w))
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    more = [case[name] for name in names]
    y = torch.ops.aten.convolution(x, w, None, *more)
    case["y"] = list(y.shape)
    grad = torch.randn_like(y)
    back = torch.ops.aten.convolution_backward
    return [
        lambda: torch.ops.aten.convolution(x, w, None, *more),
        lambda: back(grad, x, w, None, *more, [True, False, False]),
        lambda: back(grad, x, w, None, *more, [False, True, False]),
    ]


def is_small_enough(case: Case) -> bool:
    if "product" in case:
        rows, outside, inside = case["product"]
        elements = max(rows * outside, rows * inside)
        flops = 2.0 * rows * outside * inside * (8 if case["dtype"] == "fp32" else 1)
        return elements < 2 * MOST_ELEMENTS and LEAST_FLOPS < flops < 4 * MOST_FLOPS
    strides = math.prod(case["stride"])
    positions = case["batch"] * math.prod(case["x"][1:]) / (1 if case["transposed"] else strides)
    filters = case["weight"][1] * case["groups"] if case["transposed"] else case["weight"][0]
    flops = 2.0 * positions * math.prod(case["weight"])
    elements = max(case["batch"] * math.prod(case["x"]), positions * filters)
    return 1 << 16 < elements < MOST_ELEMENTS and flops < MOST_FLOPS


def recorded(cases: list[Case]) -> Iterator[Case]:
    """What a GPU does not take is left out."""
    ready = []
    for case in cases:
        try:
            calls = calls_of(case)
            for call in calls:
                call()
            ready.append((case, calls))
        except RuntimeError as error:
            print(case, str(error)[:100], file=sys.stderr)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if HAS_GPU else [])]
    with profile(activities=activities) as recording:
        for number, (case, calls) in enumerate(ready):
            choose_tf32(case)
            for direction, call in zip(DIRECTIONS, calls):
                for _ in range(REPEATED):
                    with record_function(f"case {number} {direction}"):
                        call()
        if HAS_GPU:
            torch.cuda.synchronize()
    sums, spans = seconds_of(list(recording.profiler.kineto_results.events()))
    for number, (case, _) in enumerate(ready):
        for what, found in (("seconds", sums), ("spans", spans)):
            parts = {d: found.get(f"case {number} {d}", []) for d in DIRECTIONS}
            case |= {what: {d: statistics.median(s or [0.0]) for d, s in parts.items()}}
        yield case


def span_of(kernels: list[tuple[int, int]]) -> float:
    """In which any of them ran."""
    found, until = 0, 0
    for start, end in sorted(kernels):
        found += max(0, end - max(start, until))
        until = max(until, end)
    return found * 1e-9


def seconds_of(events: list[Any]) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Of the kernels that were launched in a part, by its name: their sum, and their span."""
    on_host = [e for e in events if e.device_type() == DeviceType.CPU]
    on_gpu = [e for e in events if e.device_type() != DeviceType.CPU and not e.is_user_annotation()]
    launches = {e.correlation_id(): e.start_ns() for e in on_host if e.name().startswith("cu")}
    parts = sorted((e.start_ns(), e.name()) for e in on_host if e.name().startswith("case "))
    starts = [start for start, _ in parts]
    kernels: list[list[tuple[int, int]]] = [[] for _ in parts]
    for event in on_gpu:
        at = launches.get(event.correlation_id())
        if at is not None:
            kernels[bisect.bisect_right(starts, at) - 1].append((event.start_ns(), event.end_ns()))
    sums: dict[str, list[float]] = defaultdict(list)
    spans: dict[str, list[float]] = defaultdict(list)
    for (_, name), own in zip(parts, kernels):
        sums[name].append(sum(end - start for start, end in own) * 1e-9)
        spans[name].append(span_of(own))
    return sums, spans


FAMILIES = (of_networks, of_sound, of_volumes, of_dilations, of_positions, products)
SHARES = (12, 2, 3, 2, 1, 3)
CHOSEN = {
    "segmentation": ((of_groups, of_segmentation), (3, 2)),
    "settings": ((of_settings, of_groups, of_segmentation), (8, 2, 1)),
    "volumes": (
        (of_organs, of_films, of_small_pictures, of_large_volumes, of_enlarging, of_settings),
        (6, 5, 5, 1, 1, 3),
    ),
    "seldom": (
        (
            *(of_large_volumes, of_latent_films, of_speech, of_waves, of_channels, of_samples),
            *(of_enlarging, of_any_groups, of_any_dilation, of_settings),
        ),
        (6, 2, 5, 5, 6, 2, 3, 3, 2, 4),
    ),
}


def main() -> None:
    out, most_seconds = Path(sys.argv[1]), float(sys.argv[2])
    families, shares = CHOSEN[sys.argv[3]] if len(sys.argv) > 3 else (FAMILIES, SHARES)
    with gzip.open(LAYERS, "rt") as file:
        of_networks.layers = json.load(file)["layers"]
    of_networks.by_network = defaultdict(list)
    for layer in of_networks.layers:
        if layer["network"] != "random":
            of_networks.by_network[layer["network"]].append(layer)
    started = time.monotonic()
    draw = random.Random(int(started))  # others in every call
    with open(out, "w") as file:
        while time.monotonic() - started < most_seconds:
            cases: list[Case] = []
            while len(cases) < (AT_ONCE if HAS_GPU else 5):
                case = draw.choices(families, shares)[0](draw)
                if is_small_enough(case):
                    cases.append(case)
            for line in recorded(cases):
                print(json.dumps(line), file=file, flush=True)


if __name__ == "__main__":
    main()
