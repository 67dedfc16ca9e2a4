"""Records convolutions and products of many shapes on a GPU: seconds of their kernels alone.

    python benchmarks/step_time/recording/shapes.py OUT.jsonl SECONDS [segmentation|settings]

It takes shapes in a random order until the seconds are over, or only those of groups and of
segmentation, or layers of networks in the settings that fewer of them have: channels last, fp16,
fp32 without TF32. A line has everything that was called
and, for each direction, the median seconds of its kernels. shapes_joined.py makes lines for fit.py.
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
MOST_ELEMENTS, MOST_FLOPS, LEAST_FLOPS = 1 << 28, 3e12, 1e8
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
    found = seconds_of(list(recording.profiler.kineto_results.events()))
    for number, (case, _) in enumerate(ready):
        parts = {d: found.get(f"case {number} {d}", []) for d in DIRECTIONS}
        yield case | {"seconds": {d: statistics.median(s or [0.0]) for d, s in parts.items()}}


def seconds_of(events: list[Any]) -> dict[str, list[float]]:
    """Of the kernels that were launched in a part, by its name."""
    on_host = [e for e in events if e.device_type() == DeviceType.CPU]
    on_gpu = [e for e in events if e.device_type() != DeviceType.CPU and not e.is_user_annotation()]
    launches = {e.correlation_id(): e.start_ns() for e in on_host if e.name().startswith("cu")}
    parts = sorted((e.start_ns(), e.name()) for e in on_host if e.name().startswith("case "))
    starts, sums = [start for start, _ in parts], [0.0] * len(parts)
    for event in on_gpu:
        at = launches.get(event.correlation_id())
        if at is not None:
            sums[bisect.bisect_right(starts, at) - 1] += event.duration_ns() * 1e-9
    found: dict[str, list[float]] = {}
    for (_, name), seconds in zip(parts, sums):
        found.setdefault(name, []).append(seconds)
    return found


FAMILIES = (of_networks, of_sound, of_volumes, of_dilations, of_positions, products)
SHARES = (12, 2, 3, 2, 1, 3)
CHOSEN = {
    "segmentation": ((of_groups, of_segmentation), (3, 2)),
    "settings": ((of_settings, of_groups, of_segmentation), (8, 2, 1)),
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
