"""Seconds of a convolution: the least that its arithmetic and bytes can take, times a factor.

cuDNN's choice of kernels is not published, so the factor is fitted. Its logarithm is a sum over
features and, as in likeness.py, over recorded convolutions.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from vramcast.forecast.timing.likeness import likeness, table
from vramcast.forecast.timing.rates import peak_flops
from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import Convolution, OperatorWork

TABLE = "convolutions-sm_90-torch-2.11.npz"
FIXED_SECONDS = 3e-6
SMALL_SECONDS = 5e-6  # work that takes less does not fill the GPU
# With 16-bit numbers cuDNN may go through a large filter element by element.
LONG_FILTER, WHOLE_CHANNELS, FEW_SAMPLES = 64, 32, 3
ALIGNED = 8  # channels that the tensor cores take at once
COMMON = 3  # the first features, which say nothing about the kind of kernel
LIKE = 2.0  # a distance


def is_convolution(work: OperatorWork) -> bool:
    return work.flops > 0 and "conv" in work.operator and any(work.sizes)


def convolution_seconds(
    work: OperatorWork, gpu: Gpu, polynomials: Mapping[str, Sequence[float]]
) -> float:
    sizes = Convolution.unpacked(work.sizes)
    directions = directions_of(sizes)
    base = sum(least_seconds(work, gpu)) / len(directions)
    values = np.array(features(sizes, work, gpu))
    seconds = 0.0
    for direction in directions:
        name = f"{direction} {kind_of(sizes)}"
        low, high, *coefficients = polynomials[name]
        logarithm = values @ coefficients
        places, weights = (table(TABLE)[f"{name} {what}"] for what in ("places", "weights"))
        logarithm += likeness(values[None, COMMON:], places, LIKE)[0] @ weights
        seconds += FIXED_SECONDS + base * math.exp(min(high, max(low, float(logarithm))))
    return seconds


def groups_of(sizes: Convolution, work: OperatorWork) -> float:
    of_group = 2.0 * sizes.positions * sizes.filters * sizes.channels * sizes.kernel
    return max(1.0, work.flops / (of_group * len(directions_of(sizes))))


def directions_of(sizes: Convolution) -> list[str]:
    """What is computed. A transposed convolution computes the data gradient of a plain one, and the
    reverse."""
    wanted = {"data_gradient": sizes.of_data, "weight_gradient": sizes.of_weight}
    names = [name for name, is_wanted in wanted.items() if is_wanted] or ["forward"]
    turned = {"forward": "data_gradient", "data_gradient": "forward"}
    return [turned.get(name, name) for name in names] if sizes.is_transposed else names


def kind_of(sizes: Convolution) -> str:
    """The kind of kernel: dense, depthwise, or depthwise on volumes, for which torch has kernels of
    its own."""
    if sizes.channels > 1 or sizes.filters > 1:
        return "dense"
    return "volumes" if sizes.dims == 3 and not sizes.is_channels_last else "depthwise"


def least_seconds(work: OperatorWork, gpu: Gpu) -> tuple[float, float]:
    """The least seconds of the arithmetic, and of the bytes."""
    peak = peak_flops(gpu, work.precision)
    return work.flops / peak, work.num_bytes / gpu.bandwidth_bytes_per_second


def features(sizes: Convolution, work: OperatorWork, gpu: Gpu) -> list[float]:
    """The common features, then those that tell kernels apart, each scaled by how much it does."""
    arithmetic, memory = least_seconds(work, gpu)
    products = len(directions_of(sizes))
    smallness = math.log(1 + SMALL_SECONDS / (arithmetic + memory) * products)
    of_filter = sizes.filters * sizes.channels * sizes.kernel
    groups = groups_of(sizes, work)
    given = work.num_bytes / products / work.item_bytes / groups
    given = (given - of_filter - sizes.positions * sizes.filters) / sizes.channels
    is_long = work.item_bytes == 2 and groups > 1 and sizes.kernel >= LONG_FILTER
    channels = sizes.filters, sizes.channels
    # recorded: 14 times the least for groups of 48, 1.3 for 64
    is_fast = groups > 1 and not any(number & number - 1 for number in channels)
    kind = sizes.is_channels_last, sizes.is_transposed, sizes.is_dilated
    return [
        *(1.0, smallness, smallness**2),
        *(2.0 * flag for flag in (*kind, sizes.dims == 1, sizes.dims == 3)),
        *(1.5 * (number % ALIGNED == 0) for number in channels),
        *(0.5 * (number % WHOLE_CHANNELS == 0) for number in channels),
        3.0 * is_fast,
        3.0 * (is_long and sizes.channels % WHOLE_CHANNELS > 0),
        3.0 * (is_long and 0 < sizes.batch <= FEW_SAMPLES),
        *(float(sizes.channels < ALIGNED), float(sizes.kernel == 1)),
        0.7 * (sizes.positions // (sizes.batch or 1) % ALIGNED == 0),
        *(3.0 * (work.precision == name) for name in ("fp32", "tf32")),
        0.3 * (work.precision == "fp16"),
        *(0.7 * math.log(max(1, number) / 64) for number in channels),
        0.5 * math.log(max(1, sizes.positions) / 1e5),
        *(math.log(sizes.kernel), math.log(groups)),
        1.5 * math.log(max(1e-3, given / sizes.positions)),  # strides
        0.2 * math.log(sizes.batch or 16),
        0.5 * math.log(arithmetic / memory),
    ]
