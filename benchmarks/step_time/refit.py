"""Fits what strides.py recorded, beside fit.py: pointwise operators that follow strides, reductions
of neighbours, recurrent networks, and what kernels of an operator took beside what its model says
(likeness.py).

    python benchmarks/step_time/refit.py [--hold-out | --likeness | --places | --products]

With --likeness only the last of these, with --places what families/sampled.py and joins.py recorded
too, with --products many products at once and the last. With --hold-out every fifth kernel is left
out of the others, and the errors on those are told, with those of the rates before. Else it writes
src/vramcast/forecast/timing/tables.
An operator has a table of likeness only where that makes the errors of those left out smaller.
Single products have none, as steps that were not fitted to got no better with one, and reductions
across rows have none, whose model is reductions.py's.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from many import BATCHED, EXTREMES, fit_many
from others import fit_recurrent
from scipy import linalg
from scipy.optimize import least_squares
from steps import HERE, read_kernels

from vramcast.forecast.timing.additions import ENLARGED, is_sum
from vramcast.forecast.timing.columns import COLUMNS, columns_seconds, is_columns
from vramcast.forecast.timing.convolutions import is_convolution
from vramcast.forecast.timing.kernels import (
    PRODUCTS,
    REDUCTION_INNER,
    STEP_BY_STEP,
    is_across,
    memory_seconds,
    modelled_time,
    seconds_by_channel,
    seconds_in_pieces,
)
from vramcast.forecast.timing.likeness import LIKE, features, likeness, name_of
from vramcast.forecast.timing.likeness import TABLE as TABLE_OF_LIKENESS
from vramcast.forecast.timing.norms import GROUPS, WEIGHTS, is_by_channel, key_of
from vramcast.forecast.timing.pieces import JOINED, name_of_pieces
from vramcast.forecast.timing.rates import TABLE, shipped
from vramcast.forecast.timing.recurrent import RECURRENT
from vramcast.forecast.timing.reductions import REDUCTIONS, inner_seconds, is_inner
from vramcast.forecast.timing.walks import WALK, is_walk, walk_seconds
from vramcast.hardware.gpus import Gpu, find_gpu
from vramcast.records.calibration import Rates
from vramcast.tracing.work import ACCESS_NAMES, DROPPED, GENERATED, OperatorWork

Kernels = list[tuple[OperatorWork, float]]
Model = Callable[[OperatorWork, Gpu, Sequence[float]], float]
TABLES = HERE.parents[1] / "src/vramcast/forecast/timing/tables"
H200 = find_gpu("h200")
RECORDED = (
    *("families_kernels.jsonl.gz", "mixed_kernels.jsonl.gz", "mixed_second_kernels.jsonl.gz"),
)
KNOWN_BADLY = "known_badly_kernels.jsonl.gz"
# Operators that get better with those: by a tenth or more where a quarter of them is left out, and
# no worse in kernels of steps that no table was made from (mixed_third, mixed_fifth, rarely).
_BETTER = (
    *("_fused_rms_norm", "_fused_rms_norm_backward", "_log_softmax", "abs", "amax", "argmax"),
    *("bmm", "col2im", "cudnn_batch_norm", "cumsum", "exp", "gather", "ge", "im2col", "index"),
    *("index_add", "index_select", "linalg_vector_norm", "log", "lt", "max", "native_dropout"),
    *("nll_loss_backward", "nll_loss_forward", "pow", "random", "relu", "scatter", "scatter_add"),
    *("sgn", "sigmoid", "silu_backward", "sort", "sum", "uniform", "zero"),
    *("_scaled_dot_product_flash_attention_backward", "cumsum across"),
)
BETTER_WITH_THEM = frozenset(f"aten::{name}" for name in _BETTER)
PLACES = "places_kernels.jsonl.gz"
# Likewise with these, and beside them all that nothing else was recorded of.
_BETTER_WITH_PLACES = (
    *("_softmax", "_softmax across", "_softmax_backward_data", "_softmax_backward_data across"),
    *("_log_softmax across", "_log_softmax_backward_data", "_log_softmax_backward_data across"),
    *("cumsum across", "native_group_norm", "native_batch_norm", "native_batch_norm across"),
    *("index", "index_add", "sum", "clamp", "flip", "uniform", "scatter_reduce"),
)
BETTER_WITH_PLACES = frozenset(f"aten::{name}" for name in _BETTER_WITH_PLACES)
MASKED_TOO = "masked_kernels.jsonl.gz"  # attention
EVALUATED = "evaluated_kernels.jsonl.gz"  # batch norms, which no other has
OFF = "off_kernels.jsonl.gz"
# Likewise with what families/off.py and more of the others recorded.
_BETTER_WITH_OFF = (
    *("_ctc_loss", "_ctc_loss_backward", "_fft_c2c"),
    *("_fft_c2r", "_fft_r2c", "_index_put_impl", "abs", "baddbmm", "bmm", "gather", "index"),
    *("index_add", "index_select", "scatter_add"),
    *("native_batch_norm_backward", "native_group_norm_backward"),
    *("native_layer_norm", "native_layer_norm_backward"),
    *("grid_sampler_2d", "grid_sampler_2d_backward", "grid_sampler_3d", "grid_sampler_3d_backward"),
    *(
        f"_scaled_dot_product_{kind}_attention{way}"
        for kind in ("cudnn", "efficient", "flash")
        for way in ("", "_backward")
    ),
)
# Steps that tell something of norms and recurrent layers that families do not.
OF_STEPS = tuple(
    f"{name}_kernels.jsonl.gz"
    for name in ("mixed_third", "mixed_fifth", "sixth", "seventh", "eighth")
)
BETTER_WITH_OFF = frozenset(f"aten::{name}" for name in _BETTER_WITH_OFF)
# What was simulated before it told the kind of join, windows, points and lengths.
_SIZES_ANEW = (
    *("cat", "max_pool", "avg_pool", "grid_sampler", "_fft_", "_adaptive_avg_pool"),
    *("upsample_", "_upsample_"),
)
SIZES_ANEW = tuple(f"aten::{name}" for name in _SIZES_ANEW)
ONLY_THERE = (*SIZES_ANEW, "aten::cudnn_grid")
BEFORE = (
    *("norm_kernels.jsonl.gz", "operators.jsonl.gz", "fresh_kernels.jsonl.gz"),
    *("newest_kernels.jsonl.gz", "larger_kernels.jsonl.gz", "recent_kernels.jsonl.gz"),
    "kernels.jsonl.gz",
)
# What was simulated before it had its sizes.
COUNTED_ANEW = ("aten::cat", "aten::copy_", "aten::index", "aten::_index_put", "aten::gather")
START_OF_WALK = (2e-6, 0.85, 2.3e-12, 2e-13, 1.5e-12, 4e-12, 0.8)
START_OF_COLUMNS = {COLUMNS[0]: (3e-6, 3e-12, 2e-7), COLUMNS[1]: (4e-6, 7e-12, 1.2e-11)}
START_OF_JOINED = (2e-6, 0.8, 2e-12, 1e-7, 1e-13)
START_OF_POINTS = (3e-6, 0.8, 5e-12, 2e-7)
START_OF_NORM, START_OF_GROUPS = (2e-6, 0.5, 7e-9, 1.5e-7), (5e-6, 0.5, 1e-9, 2e-8, 1e-9)
START_OF_INNER = (2e-6, 0.8, 2e-6, 2e-7, 2e-12, 1e-6)
NOISE = 0.03  # variance of a recorded logarithm
FEWEST, FEWEST_OF_OWN = 40, 20
START_OF_MEMORY, START_OF_STEPS = (2e-6, 0.6), (3e-6, 0.8, 1e-12, 1.5e-6)
BETTER = 0.9
# The median error goes from 10.6 to 7.4 %. Copies get better by as much where they are left out,
# but worse in steps (74 to 87 ms of errors in five sets).
USED_TOO = ("aten::cudnn_batch_norm",)
CELLS = "cells_kernels.jsonl.gz"
OF_RECURRENT = (*RECORDED, "rarely_kernels.jsonl.gz", OFF, OF_STEPS[-1], CELLS, EXTREMES)
USUAL_SECONDS, LONGEST = 2e-5, 2e-3


def recorded(names: Sequence[str]) -> Kernels:
    return [(w, s) for name in names for w, s, _ in read_kernels(name)]


def fit(chosen: Kernels, seconds_of: Model, start: Sequence[float]) -> list[float]:
    """Long kernels count more."""
    seconds = np.array([s for _, s in chosen])
    weights = np.clip(np.sqrt(seconds / USUAL_SECONDS), 0.3, 2.0)

    def errors(x: np.ndarray) -> np.ndarray:
        known = np.exp(x).tolist()
        return weights * np.log([seconds_of(w, H200, known) for w, _ in chosen] / seconds)

    found = least_squares(errors, np.log(start), loss="soft_l1", f_scale=0.1)
    return [float(f"{value:.4g}") for value in np.exp(found.x)]


def fitted(kernels: Kernels, rates: Rates) -> Rates:
    inner: dict[str, Kernels] = defaultdict(list)
    for kernel in kernels:
        if is_inner(kernel[0]):
            inner[f"{kernel[0].operator} inner"].append(kernel)
            inner[REDUCTION_INNER].append(kernel)
    more = {WALK: fit([k for k in kernels if is_walk(k[0])], walk_seconds, START_OF_WALK)}
    for name in COLUMNS:
        chosen = [k for k in kernels if k[0].operator == name and is_columns(k[0])]
        more[name] = fit(chosen, columns_seconds, START_OF_COLUMNS[name])
    for name, chosen in inner.items():
        if len(chosen) >= FEWEST:
            more[name] = fit(chosen, inner_seconds, START_OF_INNER)
    return replace(rates, kernels={**rates.kernels, **more})


def fitted_pieces(kernels: Kernels, rates: Rates) -> Rates:
    pieces: dict[str, Kernels] = defaultdict(list)
    for kernel in kernels:
        if name := name_of_pieces(kernel[0]):
            pieces[name].append(kernel)
    more = {
        name: fit(chosen, seconds_in_pieces, START_OF_JOINED if name in JOINED else START_OF_POINTS)
        for name, chosen in pieces.items()
    }
    for name, chosen in by_access(kernels).items():
        if name not in rates.kernels and len(chosen) >= FEWEST_OF_OWN:
            start = START_OF_STEPS if STEP_BY_STEP in name else START_OF_MEMORY
            more[name] = fit(chosen, memory_seconds, start)
    return replace(rates, kernels={**rates.kernels, **more})


def fitted_layers(rates: Rates) -> Rates:
    """cuDNN's batch norms and recurrent layers."""
    norms: dict[str, Kernels] = defaultdict(list)
    for kernel in recorded((*RECORDED, *BEFORE, KNOWN_BADLY, PLACES, OFF, *OF_STEPS, EXTREMES)):
        if is_by_channel(kernel[0]):
            norms[key_of(kernel[0])].append(kernel)
    more = {}
    for name, chosen in norms.items():
        start = START_OF_GROUPS if chosen[0][0].operator in GROUPS else START_OF_NORM
        more[name] = fit(chosen, seconds_by_channel, start)
        tell(name, chosen, replace(rates, kernels={**rates.kernels, **more}))
    recurrent = fit_recurrent([(work, seconds, 1) for work, seconds in recorded(OF_RECURRENT)])
    kernels = {**rates.kernels, **more}
    products = fit_many(rates, chosen_kernels())
    return replace(rates, kernels=kernels, recurrent=recurrent, products=products)


def by_access(kernels: Kernels) -> dict[str, Kernels]:
    """By the key of an operator's own rates, of those that these alone decide."""
    found: dict[str, Kernels] = defaultdict(list)
    for kernel in kernels:
        work = kernel[0]
        is_other = work.flops or is_walk(work) or is_inner(work) or work.operator in REDUCTIONS
        if not is_other and work.has_kernel and not name_of_pieces(work) and not is_across(work):
            kind = work.precision if work.is_evaluated else ACCESS_NAMES[work.access]
            found[f"{name_of(work) if work.is_evaluated else work.operator} {kind}"].append(kernel)
    return found


def left_by(kernels: Kernels, rates: Rates) -> np.ndarray:
    return np.array([math.log(s / modelled_time(w, H200, rates).seconds) for w, s in kernels])


def weights_of(places: np.ndarray, left: np.ndarray) -> np.ndarray:
    matrix = likeness(places, places, LIKE)
    matrix[np.diag_indices(len(matrix))] += NOISE
    return linalg.solve(matrix, left, assume_a="pos", overwrite_a=True)


def errors_of(left: np.ndarray, seconds: np.ndarray) -> float:
    return float(np.average(np.abs(np.expm1(left)), weights=np.minimum(seconds, LONGEST)))


def by_operator(kernels: Kernels) -> dict[str, Kernels]:
    found: dict[str, Kernels] = defaultdict(list)
    for kernel in kernels:
        work = kernel[0]
        is_other = is_convolution(work) or GENERATED in work.operator or is_walk(work)
        is_other = is_other or is_sum(work) or ENLARGED in work.operator
        is_other = is_other or (work.operator in PRODUCTS and work.sizes[0] == 1)
        is_other = is_other or (work.operator in REDUCTIONS and not is_inner(work))
        if not is_other and work.has_kernel and work.operator.startswith("aten::"):
            found[name_of(work)].append(kernel)
    return {name: chosen for name, chosen in found.items() if len(chosen) >= FEWEST}


def table_of(kernels: Kernels, rates: Rates) -> dict[str, np.ndarray]:
    table: dict[str, np.ndarray] = {}
    for name, chosen in sorted(by_operator(kernels).items()):
        places = np.array([features(w) for w, _ in chosen])
        seconds = np.array([s for _, s in chosen])
        left = np.clip(left_by(chosen, rates), -1.5, 1.5)
        part = np.random.RandomState(0).permutation(len(chosen)) % 5
        guessed = np.zeros(len(chosen))
        for number in range(5):
            out = part == number
            weights = weights_of(places[~out], left[~out])
            guessed[out] = likeness(places[out], places[~out], LIKE) @ weights
        before, after = errors_of(-left, seconds), errors_of(guessed - left, seconds)
        medians = [100 * np.median(np.abs(np.expm1(e))) for e in (-left, guessed - left)]
        is_better = after < BETTER * before or name in USED_TOO
        print(
            f"{name:55s} {len(chosen):5d} left out: by time {100 * before:5.1f} -> "
            f"{100 * after:5.1f} %, median {medians[0]:5.1f} -> {medians[1]:5.1f} %"
            + ("" if is_better else "  not used")
        )
        if is_better:
            table[f"{name} places"] = places.astype(np.float16)
            table[f"{name} weights"] = weights_of(places, left).astype(np.float32)
    return table


def tell(what: str, kernels: Kernels, rates: Rates) -> None:
    errors = [abs(modelled_time(w, H200, rates).seconds / s - 1) for w, s in kernels]
    if errors:
        median, most = (100 * np.quantile(errors, share) for share in (0.5, 0.9))
        print(f"{what}, {len(errors)}: median {median:.1f} %, 90 % within {most:.0f} %")


def chosen_kernels() -> Kernels:
    """All that tables of likeness are made from."""
    kernels = recorded(RECORDED) + [k for k in recorded(BEFORE) if not is_counted_anew(k)]
    kernels += [k for k in recorded((KNOWN_BADLY,)) if name_of(k[0]) in BETTER_WITH_THEM]
    kernels = [k for k in kernels if not k[0].operator.startswith(SIZES_ANEW)]
    kernels += [k for k in recorded((PLACES,)) if is_better_with_places(k[0])]
    kernels += [k for k in recorded((OFF,)) if name_of(k[0]) in BETTER_WITH_OFF]
    kernels += [k for k in recorded(OF_STEPS) if is_by_channel(k[0])]
    more = recorded(OF_RECURRENT[len(RECORDED) : -1])
    kernels += [k for k in more if k[0].operator in RECURRENT]
    kernels = [k for k in kernels if not is_told_anew(k[0])]
    extremes = [k for k in recorded((EXTREMES,)) if not k[0].operator.endswith(("l_", "fill_"))]
    batched = [k for k in recorded((BATCHED,)) if k[0].operator in PRODUCTS]
    return kernels + recorded((EVALUATED, MASKED_TOO)) + extremes + batched


def is_told_anew(work: OperatorWork) -> bool:
    """Whether it was simulated before norms of groups and weights told their channels, products in
    TF32 whether they are turned, and attention with dropout whether it has a mask too."""
    is_product = work.operator in PRODUCTS and work.precision == "tf32"
    is_dropped = "attention" in work.operator and work.access == DROPPED
    return is_product or is_dropped or (work.operator in GROUPS | WEIGHTS and not work.sizes[1])


def is_counted_anew(kernel: tuple[OperatorWork, float]) -> bool:
    return kernel[0].operator.startswith(COUNTED_ANEW)


def is_better_with_places(work: OperatorWork) -> bool:
    return name_of(work) in BETTER_WITH_PLACES or work.operator.startswith(ONLY_THERE)


def main() -> None:
    kernels, before = recorded(RECORDED), shipped()
    kernels += [k for k in recorded((KNOWN_BADLY,)) if name_of(k[0]) in BETTER_WITH_THEM]
    if sys.argv[1:] == ["--hold-out"]:
        chosen = [k for number, k in enumerate(kernels) if number % 5]
        out = [k for number, k in enumerate(kernels) if not number % 5]
        rates = fitted(chosen, before)
        for what, which in (("walks", is_walk), ("reductions of neighbours", is_inner)):
            these = [k for k in out if which(k[0])]
            tell(f"{what}, left out, before", these, before)
            tell(f"{what}, left out", these, rates)
        return
    if sys.argv[1:] == ["--products"]:
        rates = replace(before, products=fit_many(before, chosen_kernels()))
    else:
        rates = fitted_layers(fitted_pieces(recorded((PLACES, EVALUATED, OFF, EXTREMES)), before))
    if not sys.argv[1:]:
        rates = fitted(kernels, rates)
    if sys.argv[1:] != ["--likeness"]:
        (TABLES / TABLE).write_text(json.dumps(json.loads(rates.to_json()), indent=1) + "\n")
    np.savez_compressed(TABLES / TABLE_OF_LIKENESS, **table_of(chosen_kernels(), rates))


if __name__ == "__main__":
    main()
