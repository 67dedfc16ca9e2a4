"""Fits how fast products, attention and kernels that move memory run. Used by fit.py."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
from fit_products import fit_single
from others import (
    Kernels,
    fit_attention,
    fit_recurrent,
    fit_reductions,
    tell_errors,
)
from scipy.optimize import least_squares
from steps import read_kernels

from vramcast.forecast.timing.convolutions import is_convolution
from vramcast.forecast.timing.kernels import (
    PRODUCTS,
    VECTOR,
    is_across,
    is_reduction_across,
    memory_seconds,
    overlapped_time,
)
from vramcast.forecast.timing.many_products import is_thin
from vramcast.forecast.timing.rates import peak_flops
from vramcast.forecast.timing.recurrent import RECURRENT
from vramcast.hardware.gpus import find_gpu
from vramcast.tracing.work import ACCESS_NAMES

H200 = find_gpu("h200")
SOFT = {"loss": "soft_l1", "f_scale": 0.1}
START_OF_VECTOR = (3e-6, 0.6, 2e-9)
SMALL_BYTES = 1e6
SIXTEEN_BITS = ("bf16", "fp16")
# What they move was counted in another way when kernels.jsonl.gz was recorded.
COUNTED_ANEW = ("aten::cat", "aten::index", "aten::_index_put", "aten::gather", "aten::scatter")
FEWEST_WITH_UNITS = 6
FASTEST = 2.0  # of the bandwidth, in the cache
# UpSampleBilinear2d.cu divides indices for each element where channels are neighbours in memory: 9
# ps of all four such kernels in the profile of unseen.py's segformer, whatever they read.
BY_ELEMENT = [2e-6, 0.8, 9.0e-12, 1e-20]
# Where they are not, what many pixels give to one is added one by one, seconds for each element and
# each of those that share its pixel: in fp32 0.65 and 0.69 ps in profiles of two deeplabs with 64
# and 256 of them (with 576 and 3,600 of one pixel 1.03 and 0.51), 0.76 of pictures.py:enlarged, and
# there 3.0 to 3.4 in bf16.
ADDED = {"fp32": 0.7e-12}
ADDED_IN_16_BITS = 3.0e-12
OTHERS = (
    *("alone.jsonl", "larger_kernels.jsonl.gz"),
    *("by_hand.jsonl", "hybrid_kernels.jsonl.gz"),
    *("newest_kernels.jsonl.gz", "fresh_kernels.jsonl.gz", "recent_kernels.jsonl.gz"),
    "norm_kernels.jsonl.gz",
)


def recorded() -> Kernels:
    """Of the families' products only those of vectors: no step has the other strange shapes."""
    families = [
        kernel
        for kernel in read_kernels("operators.jsonl.gz")
        if not is_convolution(kernel[0])
        and (kernel[0].operator not in PRODUCTS or is_thin(kernel[0]))
    ]
    others = [k for name in OTHERS for k in read_kernels(name)]
    return recorded_steps() + others + families


def recorded_steps() -> Kernels:
    kernels = read_kernels("kernels.jsonl.gz")
    return [kernel for kernel in kernels if not kernel[0].operator.startswith(COUNTED_ANEW)]


def fit_vectors(kernels: Kernels) -> list[float]:
    chosen = [
        (w, s)
        for w, s, _ in kernels
        if w.operator in PRODUCTS and w.flops > 0 and w.sizes[1] and is_thin(w)
    ]

    def errors(x: np.ndarray) -> np.ndarray:
        known = np.exp(x).tolist()
        return np.array([math.log(overlapped_time(w, H200, known).seconds / s) for w, s in chosen])

    found = least_squares(errors, np.log(START_OF_VECTOR), **SOFT)
    tell_errors(f"products of vectors, {len(chosen)} shapes", np.abs(found.fun))
    return [float(f"{value:.4g}") for value in np.exp(found.x)]


def fit_compute(chosen: Kernels, of_peak: float = 0.3) -> list[float]:
    """seconds = fixed + flops / (peak x a) + bytes / (bandwidth x b)."""
    flops = np.array([w.flops / peak_flops(H200, w.precision) for w, _, _ in chosen])
    moved = np.array([w.num_bytes / H200.bandwidth_bytes_per_second for w, _, _ in chosen])
    seconds = np.array([s for _, s, _ in chosen])
    if len(chosen) < 3:
        ratio = float(np.median(seconds / (flops / of_peak + moved + 5e-6)))
        return [5e-6 * ratio, of_peak / ratio, 1.0 / ratio]

    def errors(x: np.ndarray) -> np.ndarray:
        return np.log((x[0] + flops / x[1] + moved / x[2]) / seconds)

    found = least_squares(
        errors,
        [5e-6, of_peak, 0.5],
        bounds=([1e-6, 0.01, 0.02], [1e-4, 2.0, 50.0]),
        x_scale=[5e-6, 0.3, 0.5],
        **SOFT,
    )
    return [float(f"{value:.4g}") for value in found.x]


def fit_memory(chosen: Kernels, default: list[float] | None = None) -> list[float]:
    """seconds = fixed + bytes / (bandwidth x fraction).

    What was only seen small keeps the common fraction, and the other way round.
    """
    moved = np.array([w.num_bytes / H200.bandwidth_bytes_per_second for w, _, _ in chosen])
    seconds = np.array([s for _, s, _ in chosen])
    largest, smallest = (
        max(w.num_bytes for w, _, _ in chosen),
        min(w.num_bytes for w, _, _ in chosen),
    )
    if default is not None and largest < SMALL_BYTES:
        return [float(f"{max(5e-7, np.median(seconds - moved / default[1])):.4g}"), default[1]]
    if default is not None and smallest > largest / 4 and chosen[0][0].is_known:
        fraction = np.median(moved / np.maximum(seconds - default[0], 1e-7))
        return [default[0], float(f"{np.clip(fraction, 1e-5, FASTEST):.4g}")]
    weights = np.clip(np.sqrt(seconds / 2e-5), 0.5, 3.0)

    def errors(x: np.ndarray) -> np.ndarray:
        values = [memory_seconds(w, H200, x[:2].tolist()) for w, _, _ in chosen]
        return weights * np.log(np.array(values) / seconds)

    found = least_squares(
        errors, [2e-6, 0.6], bounds=([5e-7, 1e-5], [1e-3, FASTEST]), x_scale=[2e-6, 0.5], **SOFT
    )
    return [float(f"{value:.4g}") for value in found.x]


def fit_units(chosen: Kernels, known: list[float]) -> list[float]:
    """The rates of kernels.memory_seconds; long kernels count more."""
    if (
        sum(w.sizes[3] > 0 and w.operator != "aten::copy_" for w, _, _ in chosen)
        < FEWEST_WITH_UNITS
    ):
        return known
    seconds = np.array([s for _, s, _ in chosen])
    weights = np.clip(np.sqrt(seconds / 2e-5), 0.5, 3.0)

    def errors(x: np.ndarray) -> np.ndarray:
        values = [memory_seconds(w, H200, np.exp(x).tolist()) for w, _, _ in chosen]
        return weights * np.log(np.array(values) / seconds)

    tried = [
        least_squares(
            errors,
            np.log([known[0], min(known[1], 0.99 * FASTEST), per_unit, per_byte]),
            bounds=(-np.inf, [np.inf, math.log(FASTEST), np.inf, np.inf]),
            loss="soft_l1",
            f_scale=0.5,
        )
        for per_unit, per_byte in ((1e-10, 1e-11), (1e-9, 1e-10), (2e-8, 1e-9), (1e-11, 1e-7))
    ]
    best = min(tried, key=lambda found: found.cost)
    return [float(f"{value:.4g}") for value in np.exp(best.x)]


def _num_with_units(chosen: Kernels) -> int:
    return sum(w.sizes[3] > 0 and w.operator != "aten::copy_" for w, _, _ in chosen)


def _says_less(name: str, memory: dict[str, Kernels]) -> bool:
    """Of a precision too few have units; those of all precisions together do."""
    whole = memory.get(name.rpartition(" ")[0], [])
    return _num_with_units(memory[name]) < FEWEST_WITH_UNITS <= _num_with_units(whole)


def fit_device(kernels: Kernels) -> dict[str, object]:
    compute: dict[str, Kernels] = defaultdict(list)
    memory: dict[str, Kernels] = defaultdict(list)
    for kernel in kernels:
        work = kernel[0]
        if work.operator in PRODUCTS and work.flops > 0:
            continue
        if "efficient" in work.operator and work.precision in SIXTEEN_BITS:
            for precision in SIXTEEN_BITS:  # few were recorded in fp16, and as fast as in bf16
                compute[f"{work.operator} {precision}"].append(kernel)
        elif work.flops > 0:
            compute[f"{work.operator} {work.precision}"].append(kernel)
        elif not is_reduction_across(work):
            name = f"{work.operator} {ACCESS_NAMES[work.access]}"
            name += " across" if is_across(work) else ""
            if work.operator == "aten::copy_" and work.sizes[3]:
                name = "aten::copy_ transposed"
            memory[name].append(kernel)
            memory[f"{name} {work.precision}"].append(kernel)
    moving = [kernel for found in memory.values() for kernel in found if not kernel[0].sizes[3]]
    defaults = {
        name: fit_memory([k for k in moving if ACCESS_NAMES[k[0].access] == name])
        for name in ACCESS_NAMES[1:]
    }
    # of those that have no own: much faster than memory-efficient attention in 16 bits
    attention = [
        k
        for name, ks in compute.items()
        if "attention" in name and ("efficient" not in name or "fp32" in name)
        for k in ks
    ]
    return {
        "products": fit_single() | {VECTOR: fit_vectors(kernels)},
        "compute": {
            **{
                name: fit_compute(ks)
                for name, ks in sorted(compute.items())
                if not name.startswith((*RECURRENT, "aten::_scaled_dot_product"))
            },
            "attention": fit_compute(attention),
            **fit_attention(kernels),
            "other": fit_compute([k for ks in compute.values() for k in ks]),
        },
        "recurrent": fit_recurrent(kernels),
        "kernels": {
            **defaults,
            **{
                name: fit_units(ks, fit_memory(ks, defaults[ACCESS_NAMES[ks[0][0].access]]))
                for name, ks in sorted(memory.items())
                if not _says_less(name, memory)
            },
            **fit_reductions(kernels),
            "aten::upsample_bilinear2d strided across": BY_ELEMENT,
            "aten::upsample_bilinear2d_backward plain across": BY_ELEMENT,
            **{
                name: [*fit_memory(ks), ADDED.get(name.split()[-1], ADDED_IN_16_BITS), 1e-20]
                for name, ks in memory.items()
                if name.startswith("aten::upsample_bilinear2d_backward plain")
                and "across" not in name
            },
        },
    }
