"""cuDNN's own library is asked about convolutions, without a GPU, and agrees with an H200."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from vramcast.hardware.gpus import find_gpu
from vramcast.simulate.build import build
from vramcast.simulate.cudnn import library, plans
from vramcast.simulate.cudnn.convolution import (
    DATA_GRADIENT,
    FORWARD,
    WEIGHT_GRADIENT,
    Convolution,
)
from vramcast.simulate.cudnn.files import installed
from vramcast.simulate.cudnn.partial_sums import partial_sums_bytes
from vramcast.simulate.cudnn.transforms import transform_bytes

RECORDINGS = Path(__file__).parents[2] / "benchmarks" / "convolutions"
H200 = find_gpu("h200")
PASSES = ("forward", "data_gradient", "weight_gradient")
# counters that kernels keep beside their partial sums
COUNTERS_BYTES = 2048
EVERY = 17
SHAPES = ("x", "weight", "y", "stride", "padding")
KINDS = ("forward", "data", "weight")

asked = pytest.mark.skipif(installed() is None, reason="nvidia-cudnn-cu13 is not installed")


@pytest.fixture(autouse=True)
def substitute() -> None:
    """What stands for cuBLAS is compiled with the simulated GPU."""
    build()


def convolution(**changes: Any) -> Convolution:
    sizes: dict[str, Any] = {
        "dtype": "bf16",
        "tf32": False,
        "channels_last": False,
        "x": (32, 64, 56, 56),
        "weight": (64, 64, 3, 3),
        "y": (32, 64, 56, 56),
        "stride": (1, 1),
        "padding": (1, 1),
        "dilation": (1, 1),
        "groups": 1,
    }
    return Convolution(**{**sizes, **changes})


def recorded(name: str) -> list[dict[str, Any]]:
    with gzip.open(RECORDINGS / name, "rt") as file:
        return [line for line in map(json.loads, file) if "y" in line and "error" not in line]


def of_line(line: dict[str, Any]) -> Convolution:
    x, y = [line["batch"], *line["x"]], line["y"]
    names = ("weight", "stride", "padding", "dilation")
    lists = {name: tuple(line[name]) for name in names}
    first, second = (y, x) if line["transposed"] else (x, y)
    options = {name: line[name] for name in ("dtype", "tf32", "channels_last", "groups")}
    return Convolution(x=tuple(first), y=tuple(second), **lists, **options)


@asked
def test_cudnn_says_what_an_h200_took_for_layers_of_popular_networks() -> None:
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for line in recorded("h200-torch-2.11.jsonl.gz")[::EVERY]:
        c = of_line(line)
        # torch has kernels of its own where each channel is alone
        if c.groups > 1 or line["transposed"]:
            continue
        for which, name in enumerate(PASSES):
            said = plans.workspace_bytes(which, c, H200, deterministic=False)
            taken = sum(-size for size in line[name][1] if size < 0)
            if said is not None:
                total[name] += 1
                right[name] += abs(said - taken) <= COUNTERS_BYTES
    assert min(total.values()) > 30
    assert right["forward"] >= 0.93 * total["forward"]
    assert right["data_gradient"] >= 0.93 * total["data_gradient"]
    assert right["weight_gradient"] >= 0.85 * total["weight_gradient"]


@asked
def test_the_answer_depends_on_the_gpu() -> None:
    a100 = find_gpu("a100-80gb")
    answers = {
        gpu.name: plans.workspace_bytes(WEIGHT_GRADIENT, convolution(), gpu, deterministic=False)
        for gpu in (H200, a100)
    }
    assert None not in answers.values()
    assert answers["h200"] != answers["a100-80gb"]


@asked
@pytest.mark.parametrize(
    "sizes",
    [
        {"x": (8, 64, 14, 14), "weight": (128, 64, 1, 1), "y": (8, 128, 14, 14), "padding": (0, 0)},
        {"dtype": "fp32", "tf32": False},
        {"weight": (64, 1, 3, 3), "groups": 64},
    ],
    ids=["1 x 1, for cuBLAS", "exact products, by Winograd's algorithm", "depthwise"],
)
def test_what_cudnn_plans_on_a_gpu_only_is_left_to_the_model(sizes: dict[str, Any]) -> None:
    assert plans.workspace_bytes(FORWARD, convolution(**sizes), H200, deterministic=False) is None


def test_cudnn_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.SWITCH, "off")
    plans.workspace_bytes.cache_clear()
    assert plans.workspace_bytes(FORWARD, convolution(), H200, deterministic=False) is None
    assert plans.tried_bytes(FORWARD, convolution(), H200, deterministic=False) is None
    plans.workspace_bytes.cache_clear()
    plans.tried_bytes.cache_clear()


@asked
def test_what_cudnn_benchmark_tries_includes_the_kernel_that_would_be_chosen() -> None:
    tried = plans.tried_bytes(FORWARD, convolution(), H200, deterministic=False)
    chosen = plans.workspace_bytes(FORWARD, convolution(), H200, deterministic=False)
    assert tried and chosen in tried and max(tried) > 0


def test_fourier_transforms_take_what_was_recorded_when_they_were_tried() -> None:
    """Each first call under cudnn.benchmark takes the largest workspace, then empties the cache."""
    found = 0
    for line in recorded("tried-h200-torch-2.11.jsonl.gz"):
        if "benchmark" not in line or line["dtype"] != "fp32" or line["groups"] > 1:
            continue
        calls = line["benchmark"]
        events = [*calls["forward"]["first"], *calls["backward"]["first"]]
        taken = [events[i - 2] for i, size in enumerate(events) if size == 0]
        c = of_line(line)
        sizes = {size for which in range(len(PASSES)) for size in transform_bytes(which, c)}
        found += sum(size in sizes for size in taken)
    assert found == 6


def test_fourier_transforms_of_popular_networks_take_what_cudnn_planned_on_an_h200() -> None:
    with gzip.open(RECORDINGS / "transforms-h200-torch-2.11.jsonl.gz", "rt") as file:
        lines = [json.loads(line) for line in file]
    near = planned = wrongly_expected = 0
    for line in lines:
        shapes = {name: tuple(line[key]) for name, key in zip(SHAPES, "xwysp", strict=True)}
        c = convolution(dtype="fp32", tf32=True, channels_last=line["cl"], **shapes)
        expected = list(transform_bytes(KINDS.index(line["kind"]), c))
        if line["transform_bytes"] is None:
            wrongly_expected += bool(expected)
        else:
            planned += 1
            near += bool(expected) and abs(expected[0] / line["transform_bytes"] - 1) < 0.01
    assert (near, planned, wrongly_expected) == (217, 225, 12)


@pytest.mark.parametrize(
    ("weight", "depth_of_y", "knobs", "expected_bytes"),
    [
        # 2 x 9 tiles of 128 x 128; 117 blocks run at once in groups of three: 6 parts each
        ((256, 128, 3, 3), (128, 28, 28), {2: 0, 27: 1, 28: 3}, 108 * 65536 + 90 * 4 + 28),
        # 4 x 16 tiles of 256 x 128, twice on 132 units
        ((1024, 512, 2, 2), (512, 28, 28), {2: 3, 27: 1, 28: 2}, 128 * 131072 + 64 * 4 + 28),
        # too shallow to be split
        ((256, 128, 3, 3), (1, 14, 14), {2: 0, 27: 1, 28: 3}, 0),
    ],
)
def test_partial_sums_of_the_tiles_that_remain(
    weight: tuple[int, ...],
    depth_of_y: tuple[int, int, int],
    knobs: dict[int, int],
    expected_bytes: int,
) -> None:
    batch, *area = depth_of_y
    c = convolution(x=(batch, weight[1], *area), y=(batch, weight[0], *area), weight=weight)
    assert partial_sums_bytes(c, WEIGHT_GRADIENT, knobs, H200) == expected_bytes


def test_a_pass_is_a_matrix_product() -> None:
    c = convolution(x=(2, 3, 8, 8), weight=(5, 3, 3, 3), y=(2, 5, 8, 8))
    assert c.product_of(FORWARD) == (128, 5, 27)
    assert c.product_of(DATA_GRADIENT) == (128, 3, 45)
    assert c.product_of(WEIGHT_GRADIENT) == (5, 27, 128)
