"""Recorded convolutions, simulated: the same allocations and frees in the same order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vramcast.simulate.cudnn import library
from vramcast.simulate.cudnn.convolution import (
    DATA_GRADIENT,
    FORWARD,
    WEIGHT_GRADIENT,
)
from vramcast.simulate.kernels.convolution_workspace import (
    Layer,
    workspace_bytes,
)

HERE = Path(__file__).parent
EVERY = 130


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    program = [sys.executable, str(HERE / "simulate_convolutions.py"), str(EVERY)]
    # the model, which stands in where cuDNN is not installed
    environment = {**os.environ, library.SWITCH: "off"}
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("which", ["forward", "backward"])
def test_recorded_convolutions_are_simulated_to_the_byte(
    lines: list[dict[str, Any]], which: str
) -> None:
    """All but one: partial sums of two recorded layers can be equally near."""
    exact = [pair["simulated"][which] == pair["case"][which][1] for pair in lines[:-1]]
    assert len(exact) == 31
    assert sum(exact) >= len(exact) - 1


RESULT_BYTES = 8 * 64 * 32 * 32 * 4


def test_benchmark_tries_algorithms_in_the_first_call_and_then_empties_the_cache(
    lines: list[dict[str, Any]],
) -> None:
    found = lines[-1]
    result, tried, given_back, emptied, *kernel = found["tried"]
    assert (result, emptied) == (RESULT_BYTES, 0)
    assert given_back == -tried < -2 * RESULT_BYTES
    assert found["tried before"] == [result, *kernel] == found["plain"]


def test_what_was_chosen_without_benchmark_is_not_tried_again(lines: list[dict[str, Any]]) -> None:
    assert lines[-1]["chosen before"] == lines[-1]["plain"]


def test_without_tf32_it_is_another_convolution_to_cudnn(lines: list[dict[str, Any]]) -> None:
    assert 0 in lines[-1]["exact, tried"]


def test_without_cudnn_torchs_own_kernel_puts_the_patches_of_an_image_into_columns(
    lines: list[dict[str, Any]],
) -> None:
    columns = 64 * 9 * 32 * 32 * 4
    assert lines[-1]["without cuDNN"] == [RESULT_BYTES, columns, -columns]


def convolution(**options: Any) -> Layer:
    """A 3 x 3 layer in bf16 with channels first."""
    sizes: dict[str, Any] = {"x": (32, 64, 56, 56), "weight": (64, 64, 3, 3)}
    sizes |= {"y": (32, 64, 56, 56), "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1)}
    kind = {"dtype": "bf16", "tf32": False, "channels_last": False, "groups": 1}
    return Layer(**{**kind, **sizes, **options})


@pytest.mark.parametrize("which", [FORWARD, DATA_GRADIENT, WEIGHT_GRADIENT])
def test_with_channels_first_the_fast_kernels_copy_what_they_read_and_write(which: int) -> None:
    layer = convolution()
    copies_bytes = layer.copies_bytes("XYW")
    assert copies_bytes == 2 * (2 * 32 * 64 * 56 * 56 + 64 * 64 * 9)
    assert copies_bytes <= workspace_bytes(which, layer) <= copies_bytes + (4 << 20)
    assert workspace_bytes(which, convolution(channels_last=True)) <= 4 << 20


def test_channels_are_copied_in_whole_sixteen_bytes() -> None:
    layer = convolution(x=(32, 3, 56, 56), weight=(64, 3, 3, 3))
    assert layer.copies_bytes("XP") == 2 * 32 * 8 * 56 * 56
    assert layer.copies_bytes("WP") == 2 * 64 * 8 * 9


def test_a_tensor_of_more_than_two_to_the_31_elements_is_copied_in_parts_of_the_batch() -> None:
    """As recorded: 37 of 48 images have less."""
    shape = (48, 64, 96, 96, 96)
    layer = convolution(x=shape, y=(48, 64, 48, 48, 48), weight=(64, 64, 3, 3, 3))
    assert layer.copies_bytes("XYW") + 147 == 4714094739
