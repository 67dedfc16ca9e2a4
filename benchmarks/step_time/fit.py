"""Fits how fast kernels run, and how long the host takes to launch them, to recorded steps.

    python benchmarks/step_time/fit.py [--hold-out]

With --hold-out every fifth kernel of the families is left out, and only the errors on those are
told. Else it writes src/vramcast/forecast/timing/tables from benchmarks/convolutions and the files
here. kernels.jsonl.gz has
[operator, dtype, flops, bytes, sizes, access, median seconds, how often] of the kernels of one
profiled step of each calibration row, paired with the simulated operators one by one (pairing.py);
operators.jsonl.gz the same of the families in operators.py, layers.py, sequences.py and
pictures.py (joined.py), alone.jsonl of memory-efficient attention, called again and again under the
profiler; by_hand.jsonl the scans of the zoo's elleci-1.36b, and hybrid_kernels.jsonl.gz the
other kernels of its step (batch_size=16 precision=bf16, no checkpoints); shapes.jsonl.gz has
convolutions and products of shapes.py, copies.jsonl copies over PCIe (record.py --only copies).
steps.jsonl.gz has for every calibration row its step times, measured in three sessions on H200
machines, the simulated operators of a step in order, and how many Python functions it calls. The
other rows of the suites are the test: check.py and `make accuracy` compare them.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from dataclasses import replace

import numpy as np
from convolutions import fit_convolutions
from fit_host import fit_host, spreads, spreads_of_steps
from fit_kernels import H200, fit_device, recorded, recorded_steps
from others import (
    Kernels,
    fit_copies,
    fit_power,
    tell_errors,
)
from steps import HERE, read_steps

from vramcast.forecast.timing.convolutions import TABLE as TABLE_OF_CONVOLUTIONS
from vramcast.forecast.timing.kernels import (
    kernel_class,
    kernel_time,
)
from vramcast.forecast.timing.rates import TABLE
from vramcast.records.calibration import Rates

HOST_NAME = "the H200 machines that were measured"
# What `vramcast calibrate --host` found beside an H200 on 2026-11-16.
HOST_STEP_SECONDS = 1.66e-3


def tell_left_out(left_out: Kernels, rates: Rates) -> None:
    errors = defaultdict(list)
    for work, seconds, _ in left_out:
        error = abs(math.log(kernel_time(work, H200, rates).seconds / seconds))
        errors[kernel_class(work, rates)].append(error)
        errors[work.operator].append(error)
    for name, found in sorted(errors.items()):
        tell_errors(f"left out: {name}, {len(found)}", np.array(found))


def main() -> None:
    kernels, steps = recorded(), read_steps("steps.jsonl.gz")
    if sys.argv[1:] == ["--hold-out"]:
        first = len(recorded_steps())
        rates = Rates(
            gpu="",
            torch_version="2.11",
            host={},
            copies={},
            **fit_device([k for number, k in enumerate(kernels) if number < first or number % 5]),
        )
        tell_left_out([k for n, k in enumerate(kernels) if n >= first and not n % 5], rates)
        return
    tables = HERE.parents[1] / "src/vramcast/forecast/timing/tables"
    sums, like_them, of_convolutions = fit_convolutions()
    np.savez_compressed(tables / TABLE_OF_CONVOLUTIONS, **like_them)
    copies, of_copies = fit_copies()
    rates = Rates(
        gpu=H200.full_name,
        torch_version="2.11.0+cu130",
        calibrated_on=sorted(step.row for step in steps),
        num_kernels=sum(often for _, _, often in kernels),
        convolutions=sums,
        copies=copies,
        power=fit_power(),
        host={},
        host_name=HOST_NAME,
        host_step_seconds=HOST_STEP_SECONDS,
        **fit_device(kernels),
    )
    rates = replace(rates, host=fit_host(rates, steps))
    # how far an operator may be off that nobody recorded: the families have strange ones
    unknown = spreads(recorded_steps(), rates)["default"]
    found = {
        **spreads(kernels, rates),
        "default": unknown,
        "convolutions": of_convolutions,
        **of_copies,
    }
    rates = replace(rates, spread=found)
    spread = {**rates.spread, **spreads_of_steps(rates, steps)}
    rates = replace(rates, spread={kind: round(v, 4) for kind, v in sorted(spread.items())})
    print("spread", rates.spread)
    (tables / TABLE).write_text(json.dumps(json.loads(rates.to_json()), indent=1) + "\n")
    errors = [math.log(kernel_time(w, H200, rates).seconds / s) for w, s, _ in kernels]
    weights = np.array([s * n for _, s, n in kernels])
    weights /= weights.sum()
    in_all, each = np.exp(errors) @ weights - 1, np.abs(np.expm1(errors)) @ weights
    print(
        f"{len(kernels)} kernels; weighted by time: {100 * in_all:+.1f} % in all, "
        f"{100 * each:.1f} % each"
    )


if __name__ == "__main__":
    main()
