"""How far kernels of families/sampled.py and joins.py are off where a quarter of them is left out.

    python benchmarks/step_time/places.py

By operator: how many were left out, and how far they are off by time and in the median, with the
rates as they are shipped and with those made from the others too.
"""

from __future__ import annotations

import zlib
from collections import defaultdict

import numpy as np
from refit import (
    H200,
    LONGEST,
    PLACES,
    Kernels,
    chosen_kernels,
    fitted_pieces,
    recorded,
    table_of,
)

from vramcast.forecast.timing.additions import is_sum
from vramcast.forecast.timing.kernels import kernel_time, modelled_time
from vramcast.forecast.timing.likeness import LIKE, MOST, features, likeness, name_of
from vramcast.forecast.timing.rates import shipped

HELD_OUT = 4  # one of


def is_held_out(kernel: tuple) -> bool:
    return zlib.crc32(repr(kernel[0]).encode()) % HELD_OUT == 0


def told(errors: np.ndarray, seconds: np.ndarray) -> str:
    by_time = np.average(np.abs(errors), weights=np.minimum(seconds, LONGEST))
    return f"{100 * by_time:5.1f} {100 * np.median(np.abs(errors)):5.1f}"


def main() -> None:
    every = recorded((PLACES,))
    out = [kernel for kernel in every if is_held_out(kernel)]
    before = shipped()
    rates = fitted_pieces([kernel for kernel in every if not is_held_out(kernel)], before)
    table = table_of([k for k in chosen_kernels() if not is_held_out(k)], rates)
    by_operator: dict[str, Kernels] = defaultdict(list)
    for kernel in out:
        by_operator[name_of(kernel[0])].append(kernel)
    for name, chosen in sorted(by_operator.items()):
        seconds = np.array([s for _, s in chosen])
        old = np.array([kernel_time(w, H200, before).seconds for w, _ in chosen])
        timed = kernel_time if is_sum(chosen[0][0]) else modelled_time
        new = np.array([timed(w, H200, rates).seconds for w, _ in chosen])
        if f"{name} places" in table:
            places = table[f"{name} places"].astype(float)
            near = likeness(np.array([features(w) for w, _ in chosen]), places, LIKE)
            new *= np.exp(np.clip(near @ table[f"{name} weights"], -MOST, MOST))
        both = told(old / seconds - 1, seconds), told(new / seconds - 1, seconds)
        print(f"{name:50s} {len(chosen):4d}: {both[0]} -> {both[1]} %")


if __name__ == "__main__":
    main()
