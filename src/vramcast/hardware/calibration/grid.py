"""The convolutions a calibration measures when none are asked for: layers of common networks."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from vramcast.hardware.calibration.table import convolution_key

FILE = Path(__file__).with_name("layers.toml")


def convolutions() -> Iterator[str]:
    """Keys of all layers of the file, in every batch size, precision and layout."""
    grid = tomllib.loads(FILE.read_text())
    for batch, dtype, channels_last, layer in product(
        grid["batch_sizes"], grid["precisions"], (False, True), grid["layers"]
    ):
        channels_in, size, channels_out, kernel, stride, padding = layer
        yield convolution_key(
            dtype=dtype,
            channels_last=channels_last,
            x=(batch, channels_in, size, size),
            weight=(channels_out, channels_in, kernel, kernel),
            stride=(stride, stride),
            padding=(padding, padding),
            dilation=(1, 1),
            groups=1,
        )
