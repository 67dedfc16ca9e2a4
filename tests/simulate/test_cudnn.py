"""cuDNN's own library is asked about convolutions, without a GPU, and agrees with an H200."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from vramcast.hardware.gpus import find_gpu
from vramcast.records.answers import Answers
from vramcast.simulate.build import build
from vramcast.simulate.cudnn import gpu_only, kept, library, plans
from vramcast.simulate.cudnn.convolution import (
    DATA_GRADIENT,
    FORWARD,
    WEIGHT_GRADIENT,
    Convolution,
)
from vramcast.simulate.cudnn.files import installed
from vramcast.simulate.cudnn.partial_sums import sums_bytes
from vramcast.simulate.cudnn.refusals import Refusal, _parsed
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
as_recorded = pytest.mark.usefixtures("recorded_version")


@pytest.fixture(autouse=True)
def substitute(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands for cuBLAS is compiled with the simulated GPU; cuDNN is opened after that. No
    answer is one that was kept."""
    build()
    monkeypatch.setattr(Answers, "_read", lambda _: {})
    kept.answers_of.cache_clear()


@pytest.fixture
def recorded_version(substitute: None) -> None:
    if (library.version() or 0) // 100 not in (919, 920):
        pytest.skip("the recordings are of cuDNN 9.19: 9.24 and 9.26 choose other kernels")


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


@pytest.mark.long
@as_recorded
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
    assert right["forward"] >= 0.97 * total["forward"]
    assert right["data_gradient"] >= 0.97 * total["data_gradient"]
    assert right["weight_gradient"] >= 0.97 * total["weight_gradient"]


@asked
def test_the_answer_depends_on_the_gpu() -> None:
    a100 = find_gpu("a100-80gb")
    answers = {
        gpu.name: plans.workspace_bytes(WEIGHT_GRADIENT, convolution(), gpu, deterministic=False)
        for gpu in (H200, a100)
    }
    assert None not in answers.values()
    assert answers["h200"] != answers["a100-80gb"]


FORMS = (
    *(("fp32", True, False), ("bf16", False, False), ("fp16", False, False)),
    *(("fp32", True, True), ("bf16", False, True), ("fp16", False, True)),
    *(("fp32", False, False), ("fp32", False, True)),
)


def planned(name: str, layers_name: str) -> list[tuple[int, Convolution, int]]:
    """The pass, the convolution, and the workspace that cuDNN planned on an H200."""
    with gzip.open(RECORDINGS / layers_name, "rt") as file:
        layers = json.load(file)["layers"]
    with gzip.open(RECORDINGS / name, "rt", newline="") as file:
        lines = [line for line in csv.reader(file) if line[7]]
    found = []
    for layer, batch, form, which, *_, num_bytes in (line[:8] for line in lines):
        if not layers[int(layer)]["transposed"]:
            c = of_layer(layers[int(layer)], int(batch), *FORMS[int(form)])
            found.append((int(which), c, int(num_bytes)))
    return found


def of_layer(
    layer: dict[str, Any], batch: int, dtype: str, tf32: bool, channels_last: bool
) -> Convolution:
    names = ("weight", "stride", "padding", "dilation")
    lists = {name: tuple(layer[name]) for name in names}
    x, numbers = (batch, *layer["x"]), [lists[name] for name in names]
    sizes = zip(x[2:], numbers[0][2:], *numbers[1:], strict=True)
    area = [(size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, s, p, d in sizes]
    y = (batch, numbers[0][0], *area)
    form = {"dtype": dtype, "tf32": tf32, "channels_last": channels_last}
    return Convolution(x=x, y=y, groups=layer["groups"], **lists, **form)


@as_recorded
@pytest.mark.parametrize(
    ("name", "layers", "every"),
    [
        ("plans-h200-torch-2.11.csv.gz", "layers.json.gz", 101),
        # recorded after the rules were made
        ("plans-of-rows-h200-torch-2.11.csv.gz", "layers-of-rows.json.gz", 11),
    ],
)
def test_cudnn_says_without_a_gpu_what_it_planned_on_an_h200(
    name: str, layers: str, every: int
) -> None:
    lines = planned(name, layers)[::every]
    errors = [
        said - num_bytes
        for which, c, num_bytes in lines
        if (said := plans.workspace_bytes(which, c, H200, deterministic=False)) is not None
    ]
    assert len(errors) > 0.95 * len(lines) > 100
    assert sum(error == 0 for error in errors) > 0.8 * len(lines)
    assert sum(abs(error) <= 512 for error in errors) > 0.94 * len(errors)
    assert sum(abs(error) < 1 << 20 for error in errors) > 0.98 * len(errors)


@asked
def test_how_far_cublas_splits_a_product_is_left_to_the_model() -> None:
    sizes: Any = {"weight": (128, 64, 1, 1), "y": (32, 128, 56, 56), "padding": (0, 0)}
    c = convolution(channels_last=True, **sizes)
    assert plans.workspace_bytes(FORWARD, c, H200, deterministic=False) == 0
    assert plans.workspace_bytes(WEIGHT_GRADIENT, c, H200, deterministic=False) is None


@asked
def test_a_forked_process_reads_its_own_refusals() -> None:
    c = convolution(x=(8, 64, 56, 56), weight=(64, 1, 3, 3), y=(8, 64, 56, 56), groups=64)
    before = plans.chosen_bytes.__wrapped__(FORWARD, c, H200, False)
    child = os.fork()
    if not child:
        same = all(
            plans.chosen_bytes.__wrapped__(FORWARD, c, H200, False) == before for _ in range(20)
        )
        os._exit(0 if same else 1)
    for _ in range(20):
        assert plans.chosen_bytes.__wrapped__(FORWARD, c, H200, False) == before
    assert os.waitpid(child, 0)[1] == 0


def test_the_log_names_what_was_refused_and_why() -> None:
    text = """I! CuDNN (v91900 56) function support_checks() called:
i!     engineConfig: type=json; val={"engineId":62,"smVersion":900,"knobChoices":{}};
i!     Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: status
i!     engineConfig: type=json; val={"engineId":5,"smVersion":900,"knobChoices":{}};
i!     Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: rtc[i]->loadDLL()
i! Time: 2026-11-16T16:01:01
"""
    assert list(_parsed(text)) == [Refusal(62, ("status",)), Refusal(5, ("rtc[i]->loadDLL()",))]


@asked
def test_the_settings_of_the_log_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    assert library.version() is not None
    assert "CUDNN_LOGDEST_DBG" not in os.environ


def test_cudnn_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.SWITCH, "off")
    plans.chosen_bytes.cache_clear()
    assert plans.workspace_bytes(FORWARD, convolution(), H200, deterministic=False) is None
    assert plans.tried_bytes(FORWARD, convolution(), H200, deterministic=False) is None
    plans.chosen_bytes.cache_clear()
    plans.tried_bytes.cache_clear()


@asked
def test_what_cudnn_benchmark_tries_includes_the_kernel_that_would_be_chosen() -> None:
    tried = plans.tried_bytes(FORWARD, convolution(), H200, deterministic=False)
    chosen = plans.workspace_bytes(FORWARD, convolution(), H200, deterministic=False)
    assert tried and chosen in tried and max(tried) > 0


@asked
def test_a_kernel_of_unknown_size_does_not_hide_the_next_that_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: Any = {"weight": (128, 64, 1, 1), "y": (32, 128, 56, 56), "padding": (0, 0)}
    c = convolution(dtype="fp32", tf32=True, channels_last=True, **sizes)
    cublas, fourier = Refusal(62, ()), Refusal(18, ())
    monkeypatch.setattr(plans, "_all_answers", lambda *_: ([], [cublas, fourier]))
    tried = plans.tried_bytes.__wrapped__(WEIGHT_GRADIENT, c, H200, False)
    assert set(tried) == {next(transform_bytes(WEIGHT_GRADIENT, c))}


def test_a_filter_of_one_point_is_transformed_only_where_all_kernels_are_tried() -> None:
    # of torchvision's lraspp_mobilenet_v3_large in an evaluation, on an H200
    sizes: Any = {"x": (1, 960, 33, 44), "weight": (128, 960, 1, 1), "y": (1, 128, 33, 44)}
    layer = convolution(dtype="fp32", channels_last=False, padding=(0, 0), **sizes)
    fourier = Refusal(3, ())
    assert gpu_only.workspace_bytes(FORWARD, fourier, layer, is_tried=True) == 4_185_292_800
    assert gpu_only.workspace_bytes(FORWARD, fourier, layer) is None


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
    ("which", "sizes", "knobs", "expected_bytes"),
    [
        # 18 tiles of 256 x 128 on 132 units: 7 parts each; 4 + 2 + 1 pairs to be added up
        (
            WEIGHT_GRADIENT,
            {"x": (256, 256, 14, 14), "weight": (256, 256, 3, 3), "y": (256, 256, 14, 14)},
            {2: 3, 25: 0, 27: 1, 28: 2},
            7 * 18 * 256 * 128 * 4 + 7 * 18 * 4 + 159,
        ),
        # 72 tiles in groups of eight, more than half of 120: none is split
        (
            FORWARD,
            {"x": (32, 160, 23, 23), "weight": (480, 160, 3, 3), "y": (32, 480, 12, 12)},
            {2: 18, 25: 0, 27: 8, 28: 1},
            0,
        ),
        # many tiles, which are handed out one by one; 16 remain of them, 7 parts each
        (
            DATA_GRADIENT,
            {"x": (256, 32, 111, 111), "weight": (32, 32, 3, 3), "y": (256, 32, 109, 109)},
            {2: 1, 25: 1, 27: 8, 28: 1},
            131,
        ),
    ],
)
def test_partial_sums_of_the_tiles_that_remain(
    which: int, sizes: dict[str, Any], knobs: dict[int, int], expected_bytes: int
) -> None:
    assert sums_bytes(convolution(**sizes), which, knobs, H200) == expected_bytes


@pytest.mark.parametrize(
    ("x", "features", "side", "channels_last", "recorded"),
    [
        ((4, 72, 5, 5), 72, 5, False, 5_061_888),
        ((8, 112, 33, 33), 112, 5, False, 47_244_288),
        ((32, 36, 7, 7), 757, 5, False, 35_576_528),
        ((64, 5, 2, 2), 5, 3, True, 106_912),
    ],
)
def test_a_weight_gradient_by_winograd_takes_what_an_h200_planned(
    x: tuple[int, ...], features: int, side: int, channels_last: bool, recorded: int
) -> None:
    layer = convolution(
        dtype="fp32",
        channels_last=channels_last,
        x=x,
        weight=(features, x[1], side, side),
        y=(x[0], features, *x[2:]),
        padding=(side // 2, side // 2),
    )
    assert gpu_only.workspace_bytes(WEIGHT_GRADIENT, Refusal(17, ()), layer) == recorded
