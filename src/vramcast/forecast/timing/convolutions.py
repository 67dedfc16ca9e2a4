"""Seconds of a convolution: what arithmetic and bytes take at least, times a factor.

cuDNN's choice among its kernels is not published. The factor's logarithm is a polynomial in the
logarithms of the sizes, one for each direction, fitted to recorded convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement, product

from vramcast.forecast.timing.rates import peak_flops
from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import Convolution, OperatorWork

FIXED_SECONDS = 3e-6
SMALL_SECONDS = 5e-6  # work that takes less does not fill the GPU
# In 16 bits cuDNN may take a long filter's elements one by one: 12.6 ms for 16 groups of 48
# channels, 2.5 of 64; gradients of batches up to 3 take 13 to 66 ms.
LONG_FILTER, FORWARD_SECONDS, GRADIENT_SECONDS = 64, 1.28e-7, (1.1e-7, 1.9e-10)
WHOLE_CHANNELS, FEW_SAMPLES = 32, 3
ALIGNED = 8  # channels that the tensor cores take at once


def is_convolution(work: OperatorWork) -> bool:
    return work.flops > 0 and "conv" in work.operator and any(work.sizes)


def convolution_seconds(
    work: OperatorWork, gpu: Gpu, polynomials: Mapping[str, Sequence[float]]
) -> float:
    sizes = Convolution.unpacked(work.sizes)
    directions = directions_of(sizes)
    base = base_seconds(work, gpu) / len(directions)
    values = features(sizes, work, gpu)
    seconds = 0.0
    for direction in directions:
        low, high, *coefficients = polynomials[f"{direction} {kind_of(sizes)}"]
        logarithm = sum(c * v for c, v in zip(coefficients, values, strict=True))
        seconds += FIXED_SECONDS + base * math.exp(min(high, max(low, logarithm)))
    return max(seconds, _one_by_one_seconds(sizes, work))


def _one_by_one_seconds(sizes: Convolution, work: OperatorWork) -> float:
    is_long = sizes.dims < 3 and sizes.kernel >= LONG_FILTER and sizes.channels > 1
    if not is_long or work.precision not in ("bf16", "fp16"):
        return 0.0
    products = len(directions_of(sizes))
    groups = work.flops / products
    groups /= 2 * sizes.positions * sizes.filters * sizes.channels * sizes.kernel
    elements = groups * sizes.channels * sizes.kernel if groups > 1 else 0.0
    if sizes.of_data and 0 < sizes.batch <= FEW_SAMPLES and sizes.channels > WHOLE_CHANNELS:
        each, of_position = GRADIENT_SECONDS
        return elements * (each + of_position * sizes.positions)
    is_forward = not sizes.of_data and not sizes.of_weight
    return FORWARD_SECONDS * elements if is_forward and sizes.channels % WHOLE_CHANNELS else 0.0


def directions_of(sizes: Convolution) -> list[str]:
    """A transposed convolution computes what is the data gradient of another one, and back."""
    wanted = {"data_gradient": sizes.of_data, "weight_gradient": sizes.of_weight}
    names = [name for name, is_wanted in wanted.items() if is_wanted] or ["forward"]
    turned = {"forward": "data_gradient", "data_gradient": "forward"}
    return [turned.get(name, name) for name in names] if sizes.is_transposed else names


def kind_of(sizes: Convolution) -> str:
    return "depthwise" if sizes.channels == 1 and sizes.filters == 1 else "dense"


def base_seconds(work: OperatorWork, gpu: Gpu) -> float:
    arithmetic = work.flops / peak_flops(gpu, work.precision)
    return arithmetic + work.num_bytes / gpu.bandwidth_bytes_per_second


def features(sizes: Convolution, work: OperatorWork, gpu: Gpu) -> list[float]:
    """One, flags, logarithms, and their products."""
    arithmetic = work.flops / peak_flops(gpu, work.precision)
    memory = work.num_bytes / gpu.bandwidth_bytes_per_second
    products = max(1, len(directions_of(sizes)))
    inner = sizes.channels * sizes.kernel
    groups = work.flops / (2 * products * sizes.positions * sizes.filters * inner)
    logarithms = [
        math.log(max(1, sizes.positions) / 1e5),
        math.log(max(1, sizes.filters) / 64),
        math.log(max(1, sizes.channels) / 64),
        math.log(sizes.kernel / 9),
        math.log(max(1.0, groups)),
        math.log(arithmetic / memory),
    ]
    flags = [
        sizes.is_channels_last,
        sizes.is_transposed,
        sizes.filters % ALIGNED == 0 and sizes.channels % ALIGNED == 0,
        sizes.channels < ALIGNED,
        sizes.kernel == 1,
        sizes.dims == 1,
        sizes.dims == 3,
        not sizes.is_channels_last and sizes.positions // (sizes.batch or 1) % ALIGNED > 0,
    ]
    smallness = math.log(1 + SMALL_SECONDS / (arithmetic + memory) * products)
    precisions = [work.precision == name for name in ("fp32", "tf32", "fp16")]
    return [
        1.0,
        *map(float, (*flags, *precisions)),
        *(smallness, smallness**2),
        *logarithms,
        *(a * b for a, b in combinations_with_replacement(logarithms, 2)),
        *(flag * value for flag, value in product((*flags, *precisions), logarithms)),
        *(float(flag and is_this) for flag, is_this in product(flags, precisions)),
    ]
