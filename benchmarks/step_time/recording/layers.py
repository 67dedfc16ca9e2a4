"""Records convolutions as layers have them where shapes.py has few: a network's first layers, one
filter for each channel, groups, patches, sound, small pictures, films.

    python benchmarks/step_time/recording/layers.py OUT.jsonl SECONDS [SECONDS_OF_BENCHMARK]

LAYERS_FILE of the environment may name a further file of layers of networks, and WHICH=rarer or
WHICH="in time" draws layers that were known badly in November 2026. Batches are drawn so that
tensors have 1 to 400 million elements. In the last seconds cudnn.benchmark is on, for other layers:
their lines say `benchmark`. A line is one of shapes.py, and names the longest kernel of each
direction.
"""

from __future__ import annotations

import bisect
import gzip
import json
import math
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from shapes import DIRECTIONS, HAS_GPU, LAYERS, Case, calls_of, choose_tf32, span_of
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

MOST_TOGETHER, MOST_ELEMENTS_TOGETHER = 96, 1 << 33
LOG_OF_ELEMENTS = (20.0, 28.6)
MOST_FLOPS = {"bf16": 2e12, "fp16": 2e12, "tf32": 1e12, "fp32": 2e11}
REPEATED, LONG_SECONDS = 3, 0.05
BATCHES = sorted(
    {m << s for s in range(12) for m in (1, 2, 3, 5, 7)} | {25, 50, 100, 200, 400, 1000}
)
CHANNELS = (8, 16, 24, 32, 40, 48, 64, 72, 80, 96, 112, 120, 128, 144, 160, 192, 200, 240, 256, 288)
CHANNELS += (320, 336, 384, 448, 480, 512, 576, 640, 672, 768, 960, 1024, 1152, 1280, 1536, 2048)
SIZES = (7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160)


def layer(
    x: Sequence[int],
    weight: Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | None = None,
    dilation: int = 1,
    groups: int = 1,
) -> Case:
    """Without a padding, one that keeps the size."""
    dims = len(x) - 1
    if padding is None:
        padding = [dilation * (side - 1) // 2 for side in weight[2:]]
    return {
        "x": list(x),
        "weight": list(weight),
        "stride": [stride] * dims if isinstance(stride, int) else list(stride),
        "padding": [padding] * dims if isinstance(padding, int) else list(padding),
        "dilation": [dilation] * dims,
        "transposed": False,
        "output_padding": [0] * dims,
        "groups": groups,
    }


def of_networks(draw: random.Random) -> Case:
    by_network = of_networks.by_network
    return dict(draw.choice(by_network[draw.choice(sorted(by_network))]))


def first_of_pictures(draw: random.Random) -> Case:
    inside = draw.choice((1, 1, 2, 3, 3, 3, 3, 3, 4, 4, 5, 6, 8, 9, 12))
    outside = draw.choice((8, 12, 16, 16, 20, 24, 32, 32, 36, 40, 48, 64, 64, 64, 80, 96, 128, 192))
    kernel, stride = draw.choice(
        (
            *((3, 1), (3, 1), (3, 1), (3, 2), (3, 2), (3, 2), (7, 2), (7, 2), (7, 4), (7, 1)),
            *((5, 1), (5, 2), (6, 2), (6, 2), (4, 2), (4, 1), (8, 4), (8, 2), (11, 4), (9, 1)),
            *((9, 4), (2, 1), (1, 1), (10, 5), (12, 4), (16, 8), (5, 3), (6, 3), (15, 1), (16, 4)),
        )
    )
    sizes = (28, 32, 40, 48, 64, 84, 96, 112, 128, 160, 192, 224, 224, 224, 256, 256, 288, 299, 320)
    size = draw.choice((*sizes, 384, 416, 448, 512, 512, 600, 640, 640))
    wide = draw.choice((size, size, size, size, 2 * size, max(16, size // 2)))
    padding = draw.choice((kernel // 2, kernel // 2, kernel // 2, 0, (kernel - 1) // 2))
    return layer((inside, size, wide), (outside, inside, kernel, kernel), stride, padding)


def first_of_sound(draw: random.Random) -> Case:
    inside = draw.choice((1, 1, 1, 1, 2, 3, 4, 6, 12))
    outside = draw.choice((16, 32, 64, 64, 128, 256, 512, 512, 768))
    length = draw.choice((500, 1000, 2000, 4096, 8000, 16_000, 32_000, 48_000, 80_000, 160_000))
    kernel, stride = draw.choice(
        ((10, 5), (10, 5), (16, 8), (20, 10), (25, 1), (7, 1), (7, 2), (3, 1), (15, 5), (40, 20))
        + ((80, 4), (80, 16), (5, 1), (400, 160), (16, 2), (64, 8), (8, 4))
    )
    return layer((inside, length), (outside, inside, kernel), stride, draw.choice((0, kernel // 2)))


def first_of_volumes(draw: random.Random) -> Case:
    inside, outside = draw.choice((1, 1, 2, 3, 3, 3, 4)), draw.choice((8, 16, 24, 32, 48, 64, 96))
    kernels = (
        (3, 7, 7),
        (5, 7, 7),
        (1, 7, 7),
        (7, 7, 7),
        (1, 3, 3),
        (3, 3, 3),
        (3, 3, 3),
        (3, 5, 5),
    )
    kernel = draw.choice((*kernels, (5, 5, 5), (2, 2, 2), (1, 1, 1), (3, 1, 1)))
    stride = draw.choice(((1, 1, 1), (1, 2, 2), (1, 2, 2), (2, 2, 2), (1, 4, 4)))
    size = draw.choice((32, 48, 64, 96, 112, 128, 160, 182, 224, 256))
    frames = draw.choice((4, 8, 8, 16, 16, 32, 64, size if size < 200 else 32))
    return layer((inside, frames, size, size), (outside, inside, *kernel), stride)


def of_patches(draw: random.Random) -> Case:
    inside = draw.choice((1, 3, 3, 3, 3, 4, 16, 64, 96, 128, 192, 256, 384, 512))
    side = draw.choice((2, 2, 3, 4, 4, 7, 8, 14, 16, 16, 32)) if inside < 16 else 2
    outside = draw.choice((64, 96, 128, 192, 256, 384, 512, 768, 768, 1024, 1152, 1280))
    size = side * draw.choice((7, 8, 14, 16, 16, 24, 28, 32) if side > 4 else (14, 28, 32, 56, 64))
    if inside < 16 and draw.random() < 0.2:
        deep = draw.choice((1, 2, 2, 4))
        x, sides = (inside, deep * draw.choice((4, 8, 16)), size, size), (deep, side, side)
        return layer(x, (outside, inside, *sides), sides, 0)
    return layer((inside, size, size), (outside, inside, side, side), side, 0)


def of_channels(draw: random.Random) -> Case:
    """A filter for each channel, now and then two or four."""
    width, size = draw.choice(CHANNELS), draw.choice(SIZES)
    side = draw.choice((3, 3, 3, 3, 5, 5, 5, 7, 7, 7, 9, 11, 13, 15, 21, 27, 31))
    sides = draw.choice(((side, side),) * 7 + ((1, side), (side, 1), (3, side)))
    stride, dilation = draw.choice((1, 1, 1, 1, 2, 2, 4)), draw.choice((1,) * 9 + (2, 3, 5))
    more = draw.choice((1,) * 9 + (2, 4))
    weight = (more * width, 1, *sides)
    return layer((width, size, size), weight, stride, None, 1 if side > 9 else dilation, width)


def of_lines_of_channels(draw: random.Random) -> Case:
    width = draw.choice((64, 128, 192, 256, 384, 512, 512, 768, 1024, 1280, 1536, 2048, 3072, 5120))
    length = draw.choice((49, 100, 196, 249, 300, 400, 500, 599, 1000, 1500, 2048, 4096, 8192))
    side, dilation = draw.choice((2, 3, 3, 4, 4, 5, 7, 9, 15, 17, 31, 31, 33)), 1
    if side < 6 and draw.random() < 0.3:
        dilation = draw.choice((2, 4, 8, 16, 64, 128))
    padding = draw.choice((dilation * (side - 1) // 2, dilation * (side - 1)))
    return layer((width, length), (width, 1, side), 1, padding, dilation, width)


def of_volumes_of_channels(draw: random.Random) -> Case:
    width, size = draw.choice(CHANNELS[2:18]), draw.choice((7, 8, 14, 16, 28, 32, 56))
    sides = draw.choice(
        ((3, 3, 3), (3, 3, 3), (5, 5, 5), (1, 3, 3), (3, 1, 1), (5, 1, 1), (7, 7, 7))
    )
    x = (width, draw.choice((4, 8, 16, 32)), size, size)
    return layer(x, (width, 1, *sides), draw.choice((1, 1, (1, 2, 2), 2)), None, 1, width)


def of_groups(draw: random.Random) -> Case:
    groups = draw.choice((2, 2, 3, 4, 4, 6, 8, 8, 10, 12, 16, 16, 20, 24, 32, 32, 48, 64, 84))
    own = draw.choice((2, 4, 4, 8, 8, 12, 16, 16, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128))
    size, side = draw.choice(SIZES), draw.choice((1, 1, 3, 3, 3, 3, 3, 5, 7, 9))
    outside = draw.choice((own, own, own, own, 2 * own, max(1, own // 2)))
    weight = (groups * outside, own, side, side)
    return layer((groups * own, size, size), weight, draw.choice((1, 1, 1, 2)), None, 1, groups)


def of_long_groups(draw: random.Random) -> Case:
    """As what listens to speech tells positions by."""
    groups = draw.choice((2, 4, 8, 16, 16, 16, 16, 32))
    own = draw.choice((8, 16, 24, 32, 48, 48, 64, 64, 80, 128))
    side = draw.choice((3, 5, 7, 9, 15, 19, 25, 31, 41, 64, 95, 128, 128, 128))
    length = draw.choice((49, 99, 149, 199, 249, 299, 399, 499, 599, 749, 999, 1499, 3000))
    return layer((groups * own, length), (groups * own, own, side), 1, side // 2, 1, groups)


def of_sound(draw: random.Random) -> Case:
    inside, outside = (draw.choice(CHANNELS[1:]) for _ in range(2))
    outside = draw.choice((inside, inside, outside, 2 * inside, 4 * inside))
    length = draw.choice((50, 100, 187, 300, 500, 799, 1000, 1500, 2000, 3000, 4000, 6399, 8000))
    length = draw.choice((length, length, 12_799, 16_000, 32_000, 64_000))
    side, stride = draw.choice((1, 1, 2, 3, 3, 3, 4, 5, 5, 7, 9, 11, 15, 19, 25)), 1
    dilation = draw.choice((1, 1, 1, 2, 3, 4, 5, 9, 16, 27, 64)) if side > 1 else 1
    if dilation == 1:
        stride = draw.choice((1, 1, 2, 2, 4, 5, 8)) if side > 1 else draw.choice((1, 1, 1, 1, 2))
    padding = draw.choice((dilation * (side - 1) // 2, 0 if stride > 1 else dilation * (side - 1)))
    return layer((inside, length), (outside, inside, side), stride, padding, dilation)


def of_pictures(draw: random.Random) -> Case:
    """Any size and width."""
    inside, outside = (draw.choice(CHANNELS) + draw.choice((0,) * 9 + (1, 2, 4)) for _ in range(2))
    outside = draw.choice((inside, inside, outside, 2 * inside, 4 * inside, max(8, inside // 4)))
    size, side = draw.choice((*SIZES, 9, 11, 21, 31, 42, 84, 224)), draw.choice((1, 1, 3, 3, 3, 5))
    sides = draw.choice(((side, side),) * 8 + ((1, 3), (3, 1), (1, 7), (7, 1), (2, 2), (4, 4)))
    wide = draw.choice((size, size, size, 2 * size, size // 2 + 1))
    return layer((inside, size, wide), (outside, inside, *sides), draw.choice((1, 1, 1, 2)))


def of_small_pictures(draw: random.Random) -> Case:
    width = draw.choice((16, 32, 32, 48, 64, 64, 64, 64, 96, 128, 160, 192, 256, 320, 512))
    outside = draw.choice((width, width, width, 2 * width))
    size = draw.choice((4, 5, 7, 8, 10, 12, 14, 16, 20, 21, 28, 32, 40, 42, 84))
    weight = (outside, width, 3, 3)
    return layer((width, size, size), weight, draw.choice((1, 1, 1, 2)), draw.choice((1, 1, 1, 0)))


def of_films(draw: random.Random) -> Case:
    inside = draw.choice((8, 16, 24, 32, 64, 64, 96, 128, 192, 256, 432, 512, 1024))
    outside = draw.choice((inside, inside, 2 * inside, 4 * inside, max(8, inside // 4)))
    kernels = (
        (1, 3, 3),
        (1, 3, 3),
        (3, 3, 3),
        (3, 1, 1),
        (3, 1, 1),
        (5, 1, 1),
        (7, 1, 1),
        (1, 1, 1),
    )
    kernel = draw.choice((*kernels, (1, 1, 1), (4, 4, 4), (3, 3, 1), (2, 2, 2)))
    x = (
        inside,
        draw.choice((1, 2, 4, 4, 8, 8, 16, 32)),
        *[draw.choice((7, 8, 14, 16, 28, 32, 56, 64))] * 2,
    )
    stride = draw.choice((1, 1, 1, 1, (1, 2, 2), 2, (4, 1, 1), (8, 1, 1)))
    return layer(x, (outside, inside, *kernel), stride)


def of_enlarging(draw: random.Random) -> Case:
    """Transposed, in all dimensions; some have groups."""
    dims, inside = draw.choice((1, 2, 2, 2, 3)), draw.choice((8, 16, 32, 64, 100, 128, 256, 512))
    outside = draw.choice((max(1, inside // 2), inside, inside, 3, 1))
    sizes = {
        1: (32, 128, 500, 2048, 8192),
        2: (1, 4, 7, 8, 14, 16, 32, 56, 64),
        3: (4, 8, 16, 32, 48),
    }
    kinds = (
        (2, 2, 0),
        (4, 2, 1),
        (4, 2, 1),
        (3, 2, 1),
        (4, 4, 0),
        (8, 4, 2),
        (16, 8, 4),
        (4, 1, 0),
    )
    side, stride, padding = draw.choice(kinds if dims < 3 else kinds[:4])
    groups = draw.choice((1,) * 9 + (inside,))
    weight = (inside, 1 if groups > 1 else outside, *[side] * dims)
    x = (inside, *[draw.choice(sizes[dims])] * dims)
    found = layer(x, weight, stride, padding, 1, groups)
    return found | {"transposed": True, "output_padding": [int(side == 3)] * dims}


def of_fewer_positions(draw: random.Random) -> Case:
    """A filter for each channel, or two or four, that makes pictures smaller."""
    width, size = draw.choice(CHANNELS), draw.choice(SIZES)
    side, more = draw.choice((3, 3, 3, 5, 5, 7, 9)), draw.choice((1, 1, 1, 2, 2, 4))
    return layer((width, size, size), (more * width, 1, side, side), 2, None, 1, width)


def of_short_lines(draw: random.Random) -> Case:
    """As what plans a robot's moves."""
    inside, outside = (draw.choice((64, 128, 256, 256, 512, 1024, 2048)) for _ in range(2))
    length, side = draw.choice((2, 4, 4, 8, 8, 16, 16, 32, 64)), draw.choice((1, 1, 3, 3, 5, 5))
    return layer((inside, length), (outside, inside, side), draw.choice((1, 1, 1, 2)))


def of_points(draw: random.Random) -> Case:
    """Each position for itself."""
    inside = draw.choice(CHANNELS)
    outside = draw.choice((inside, 2 * inside, 4 * inside, 6 * inside, max(8, inside // 4)))
    size = draw.choice((4, *SIZES))
    return layer((inside, size, size), (outside, inside, 1, 1), draw.choice((1, 1, 1, 1, 2)))


def of_volumes_enlarged(draw: random.Random) -> Case:
    """Transposed, or made smaller, with a filter for each channel."""
    width, size = draw.choice((32, 64, 96, 128, 256)), draw.choice((8, 14, 16, 28, 32, 56))
    side = draw.choice((2, 3, 3, 5, 5))
    case = layer((width, *[size] * 3), (width, 1, *[side] * 3), 2, None, 1, width)
    if draw.random() < 0.5:
        case |= {"transposed": True, "output_padding": [0 if side == 2 else 1] * 3}
    return case


FAMILIES: dict[Callable[[random.Random], Case], int] = {
    of_networks: 45,
    first_of_pictures: 12,
    first_of_sound: 4,
    first_of_volumes: 5,
    of_patches: 4,
    of_channels: 14,
    of_lines_of_channels: 4,
    of_volumes_of_channels: 2,
    of_groups: 5,
    of_long_groups: 4,
    of_sound: 6,
    of_pictures: 10,
    of_small_pictures: 5,
    of_films: 6,
    of_enlarging: 4,
}

RARER: dict[Callable[[random.Random], Case], int] = {
    of_fewer_positions: 30,
    of_channels: 10,
    of_short_lines: 25,
    of_points: 30,
    of_groups: 12,
    of_volumes_enlarged: 6,
    of_volumes_of_channels: 4,
    of_networks: 40,
}

IN_TIME: dict[Callable[[random.Random], Case], int] = {
    of_films: 40,
    of_volumes_of_channels: 12,
    of_lines_of_channels: 14,
    first_of_sound: 10,
    of_sound: 12,
    first_of_volumes: 6,
    of_points: 10,
    of_networks: 40,
}
CHOSEN = {"rarer": RARER, "in time": IN_TIME}


def elements_of(case: Case) -> tuple[float, float]:
    """Of a sample's input and result; the second for the flops."""
    x, weight = case["x"], case["weight"]
    lists = zip(
        x[1:], weight[2:], *(case[n] for n in ("stride", "padding", "dilation")), strict=True
    )
    if case["transposed"]:
        positions = math.prod((n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in lists)
        return math.prod(x), positions * weight[1] * case["groups"]
    positions = math.prod(max(0, (n + 2 * p - d * (k - 1) - 1) // s + 1) for n, k, s, p, d in lists)
    return math.prod(x), positions * weight[0]


def with_settings(draw: random.Random, case: Case) -> Case | None:
    """In a precision and layout and with a batch that a GPU takes."""
    dtype = draw.choices(("bf16", "fp16", "tf32", "fp32"), (45, 20, 28, 7))[0]
    x, y = elements_of(case)
    if y <= 0:
        return None
    logarithm = draw.uniform(*LOG_OF_ELEMENTS)
    wanted = 2**logarithm / max(x, y)
    batch = min(BATCHES, key=lambda number: abs(math.log(number / wanted)))
    small = x if case["transposed"] else y
    flops = 2.0 * batch * small * math.prod(case["weight"][1:])
    if batch * max(x, y) > 1.3 * 2 ** LOG_OF_ELEMENTS[1] or flops > MOST_FLOPS[dtype]:
        return None
    last = len(case["x"]) > 2 and draw.random() < 0.38
    settings = {"dtype": dtype.replace("tf32", "fp32"), "last": last, "tf32": dtype != "fp32"}
    return case | settings | {"batch": batch}


def recorded(cases: list[Case]) -> Iterator[Case]:
    """What a GPU does not take is left out."""
    ready: list[tuple[Case, list[Callable[[], Any]], int]] = []
    for case in cases:
        try:
            calls = calls_of(case)
            started = time.monotonic()
            for call in calls:
                call()
            if HAS_GPU:
                torch.cuda.synchronize()
            is_long = time.monotonic() - started > LONG_SECONDS
            ready.append((case, calls, 2 if is_long else REPEATED))
        except RuntimeError as error:
            print(case, str(error)[:100], file=sys.stderr)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if HAS_GPU else [])]
    with profile(activities=activities) as recording:
        for number, (case, calls, often) in enumerate(ready):
            choose_tf32(case)
            for direction, call in zip(DIRECTIONS, calls, strict=True):
                for _ in range(often):
                    with record_function(f"case {number} {direction}"):
                        call()
        if HAS_GPU:
            torch.cuda.synchronize()
    found = kernels_of(list(recording.profiler.kineto_results.events()))
    for number, (case, _, _) in enumerate(ready):
        for what in ("seconds", "spans", "longest"):
            case[what] = {}
        for direction in DIRECTIONS:
            runs = found.get(f"case {number} {direction}", [])
            sums = [sum(end - start for start, end, _ in run) * 1e-9 for run in runs]
            spans = [span_of([kernel[:2] for kernel in run]) for run in runs]
            names = [max(run, key=lambda kernel: kernel[1] - kernel[0])[2] for run in runs if run]
            for what, numbers in (("seconds", sums), ("spans", spans)):
                case[what][direction] = float(f"{statistics.median(numbers or [0.0]):.4g}")
            case["longest"][direction] = names[-1][:90] if names else ""
        yield case


def kernels_of(events: list[Any]) -> dict[str, list[list[tuple[int, int, str]]]]:
    """Start, end and name of the kernels of each run of a part, by the part's name."""
    on_host = [e for e in events if e.device_type() == DeviceType.CPU]
    on_gpu = [e for e in events if e.device_type() != DeviceType.CPU and not e.is_user_annotation()]
    launches = {e.correlation_id(): e.start_ns() for e in on_host if e.name().startswith("cu")}
    parts = sorted((e.start_ns(), e.name()) for e in on_host if e.name().startswith("case "))
    starts = [start for start, _ in parts]
    kernels: list[list[tuple[int, int, str]]] = [[] for _ in parts]
    for event in on_gpu:
        at = launches.get(event.correlation_id())
        if at is not None and starts and at >= starts[0]:
            own = kernels[bisect.bisect_right(starts, at) - 1]
            own.append((event.start_ns(), event.end_ns(), event.name()))
    found = defaultdict(list)
    for (_, name), own in zip(parts, kernels, strict=True):
        found[name].append(own)
    return found


def read_layers() -> None:
    of_networks.by_network = defaultdict(list)
    for path in (LAYERS, os.environ.get("LAYERS_FILE")):
        if path:
            with gzip.open(path, "rt") as file:
                for each in json.load(file)["layers"]:
                    if each["network"] != "random":
                        of_networks.by_network[each["network"]].append(each)


def drawn(draw: random.Random) -> list[Case]:
    cases: list[Case] = []
    families = CHOSEN.get(os.environ.get("WHICH", ""), FAMILIES)
    elements = 0.0
    while len(cases) < (MOST_TOGETHER if HAS_GPU else 4) and elements < MOST_ELEMENTS_TOGETHER:
        case = draw.choices(tuple(families), tuple(families.values()))[0](draw)
        found = with_settings(draw, case)
        if found is not None:
            cases.append(found)
            elements += found["batch"] * sum(elements_of(found)) * (1 + ("32" in found["dtype"]))
    return cases


def main() -> None:
    out, most_seconds = Path(sys.argv[1]), float(sys.argv[2])
    seconds_of_benchmark = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    read_layers()
    started = time.monotonic()
    draw = random.Random(int(os.environ.get("SEED", "18")))
    with open(out, "w") as file:
        while (now := time.monotonic() - started) < most_seconds + seconds_of_benchmark:
            is_tried = torch.backends.cudnn.benchmark = now > most_seconds
            for line in recorded(drawn(draw)[: 8 if is_tried else None]):
                print(json.dumps(line | ({"benchmark": True} if is_tried else {})), file=file)
            file.flush()
            if HAS_GPU:
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
