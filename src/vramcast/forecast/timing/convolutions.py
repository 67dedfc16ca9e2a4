"""Seconds of a convolution: the least that its arithmetic and bytes can take, times a factor.

cuDNN's choice of kernels is not published, so the factor is fitted. Its logarithm is a sum over
features and, as in likeness.py, over the recorded convolutions that are most alike.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vramcast.forecast.timing.likeness import likeness, recorded
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
NEAREST, LIKE, NOISE = 64, 1.0, 0.003  # how many, a distance, the variance of a logarithm
DEPTHS = {1: (), 2: (1,), 3: (1, 2, 3, 5, 7)}  # of filters, by dimensions


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
        logarithm = values @ coefficients + by_likeness(name, values[COMMON:])
        seconds += FIXED_SECONDS + base * math.exp(min(high, max(low, float(logarithm))))
    return seconds


def by_likeness(name: str, place: NDArray[Any]) -> float:
    """What the sum leaves, of the most similar recorded ones: a Gaussian process."""
    places, squares, left, scales = recorded_convolutions(name)
    place = place * scales
    # einsum, because BLAS would share these few numbers among threads that wait for each other
    nearest = np.argpartition(squares - 2 * np.einsum("ij,j->i", places, place), NEAREST)[:NEAREST]
    near = places[nearest]
    matrix = likeness(near, near, LIKE) + NOISE * np.eye(NEAREST)
    weights = np.linalg.solve(matrix, left[nearest])
    return float(likeness(place[None], near, LIKE)[0] @ weights)


@cache
def recorded_convolutions(name: str) -> tuple[NDArray[Any], ...]:
    """Their places, the squares of these, what the sum leaves, and how much each feature tells."""
    places, left, scales = (
        recorded(TABLE, f"{name} {what}") for what in ("places", "left", "scales")
    )
    places = np.ascontiguousarray(places.T) * scales
    return places, (places**2).sum(1), left, scales


def groups_of(sizes: Convolution, work: OperatorWork) -> float:
    return max(1.0, work.flops / (2.0 * math.prod(sizes[:4]) * len(directions_of(sizes))))


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
    if max(sizes.channels, sizes.filters) > 1:
        return "dense"
    return "volumes" if sizes.dims == 3 and not sizes.is_channels_last else "depthwise"


def least_seconds(work: OperatorWork, gpu: Gpu) -> tuple[float, float]:
    """The least seconds of the arithmetic, and of the bytes."""
    peak = peak_flops(gpu, work.precision)
    return work.flops / peak, work.num_bytes / gpu.bandwidth_bytes_per_second


def features(sizes: Convolution, work: OperatorWork, gpu: Gpu) -> list[float]:
    """The common features, then those that tell kernels apart."""
    arithmetic, memory = least_seconds(work, gpu)
    products = len(directions_of(sizes))
    smallness = math.log1p(SMALL_SECONDS / (arithmetic + memory) * products)
    positions, filters, channels, kernel = sizes[:4]
    batch, groups = sizes.batch or 16, groups_of(sizes, work)
    given = work.num_bytes / products / work.item_bytes / groups
    given = (given - filters * (channels * kernel + positions)) / channels
    is_long = work.item_bytes == 2 and groups > 1 and kernel >= LONG_FILTER
    own, both = (filters, channels), (round(filters * groups), round(channels * groups))
    # recorded: 14 times the least for groups of 48, 1.3 for 64
    is_fast = groups > 1 and not any(number & number - 1 for number in own)
    side, places = side_of(sizes), positions // batch
    flags = [
        *(sizes.is_channels_last, sizes.is_transposed, sizes.is_dilated, not sizes.is_padded),
        *(sizes.dims == 3, is_fast, is_long and channels % WHOLE_CHANNELS > 0),
        *(is_long and batch <= FEW_SAMPLES, channels < ALIGNED, kernel == 1),
        *(number % ALIGNED == 0 for number in (*own, places)),
        *(number % WHOLE_CHANNELS == 0 for number in own),
        *(work.precision == name for name in ("fp32", "tf32", "fp16")),
    ]
    numbers = *own, *both, groups, positions, places, batch, given / batch, kernel, side
    ratios = given / positions, side ** max(2, sizes.dims) / kernel, arithmetic / memory
    stride = sizes.stride or max(1, round(ratios[0] ** (1 / sizes.dims)))
    return [
        *map(float, (1, smallness, smallness**2, *flags)),
        # how often they can be halved
        *(math.log2(math.gcd(n, 128)) for n in (*own, *both, places, round(given / batch))),
        *(math.log(max(number, 1e-3)) for number in (*numbers, *ratios, stride)),
    ]


def side_of(sizes: Convolution) -> int:
    """The last side of a filter. Where it is not known: of a square or a cube, if it may be one."""
    for deep in DEPTHS[sizes.dims]:
        side = math.isqrt(sizes.kernel // deep)
        if side * side * deep == sizes.kernel:
            return sizes.side or side
    return sizes.side or sizes.kernel
