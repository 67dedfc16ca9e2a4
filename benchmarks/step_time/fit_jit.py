"""Fits the rules for Triton kernels that people wrote to those that recording/jit_kernels.py
recorded.

    PYTHONPATH=src:FOLDER python benchmarks/step_time/fit_jit.py

FOLDER has Liger Kernel, flash-linear-attention (fla, fla_core) and einops; kernels that are not
installed are left out, and told. It prints what simulate/fused/rules.py should say of BY_HAND, but
for registers, which were fitted once, with the rest. Errors are told of cases that were left out, a
quarter at a time, and of the launches of jit_fresh.jsonl.gz, which are not fitted. Kernels that add
to numbers of other blocks are left to atomics.jsonl.
"""

from __future__ import annotations

import gc
import gzip
import importlib
import json
import pkgutil
import random
import sys
import warnings
from collections import defaultdict
from contextlib import suppress
from typing import Any, NamedTuple

# the device must come before torch
from vramcast.simulate.worker import preload

preload()

import numpy as np  # noqa: E402
from fit_kernels import H200  # noqa: E402
from scipy.optimize import minimize  # noqa: E402
from steps import HERE, RECORDED  # noqa: E402
from triton.runtime.jit import JITFunction  # noqa: E402

from vramcast.simulate.fused.by_hand import ByHand, padded  # noqa: E402
from vramcast.simulate.fused.costs import Sample, sample_of  # noqa: E402
from vramcast.simulate.fused.launch import Launch  # noqa: E402
from vramcast.simulate.fused.rules import BY_HAND, DOT, OPERATION_COSTS, Rules  # noqa: E402
from vramcast.simulate.fused.values import Name, Tensor  # noqa: E402
from vramcast.simulate.fused.works import seconds_of, work_of_cost  # noqa: E402

FITTED, FRESH = "jit_kernels.jsonl.gz", "jit_fresh.jsonl.gz"
LIBRARIES = ("liger_kernel.ops", "fla.modules", "fla.ops.common", "fla.ops.utils")
LIBRARIES += ("fla.ops.retention", "fla.ops.simple_gla", "fla.ops.gla")
LIBRARIES += ("fla.ops.delta_rule", "fla.ops.gated_delta_rule")
OTHER_DEVICES = ("ascend", "gluon", "backends", "cute", "cutile")
TYPE = "type "  # as recording/jit_kernels.py has it
SHORT_SECONDS, TOLD_SECONDS, PARTS, ROUNDS = 4e-6, 1e-5, 4, 1500
START = {
    "scale": 0.785,
    "whole": 0.295,
    DOT: 0.052,
    "asked": 6.33,
    "part_written": 17.0,
    "round_seconds": 0.444e-6,
    "pipelined_seconds": 0.234e-6,
    "reduction_seconds": 0.142e-6,
    "read_seconds": 0.635e-6,
    "spilled": 0.825,
    "pass_bytes": 120.0,
}
KEPT = 0.002  # how much a value that is twice or half of START counts, as an error


class Recorded(NamedTuple):
    case: str
    seconds: float
    sample: Sample

    def predicted(self, rules: Rules) -> float:
        return seconds_of(work_of_cost(self.sample._replace(rules=rules).cost(H200)), H200)


def import_all(name: str) -> None:
    with suppress(Exception):
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(getattr(package, "__path__", [])):
            if not any(other in module.name for other in OTHER_DEVICES):
                import_all(f"{name}.{module.name}")


def kernels() -> dict[tuple[str, ...], Any]:
    """By their name and those of their arguments."""
    sys.path.append(str(HERE / "families"))
    for name in ("own_triton", *LIBRARIES):
        import_all(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some objects warn when they are looked at
        every = [each for each in gc.get_objects() if isinstance(each, JITFunction)]
    return {(each.__name__, *each.arg_names): each for each in every}


def told(value: Any) -> Any:
    if isinstance(value, list):
        return Tensor(*value)
    is_type = isinstance(value, str) and value.startswith(TYPE)
    return Name(value.removeprefix(TYPE)) if is_type else value


def recorded(file_name: str, functions: dict[tuple[str, ...], Any]) -> list[Recorded]:
    found, missing = [], defaultdict[str, int](int)
    with gzip.open(RECORDED / file_name, "rt") as file:
        for case, _, name, grid, num_warps, given, seconds in map(json.loads, file):
            function = functions.get((name, *given))
            if function is None:
                missing[f"{name}: not installed"] += 1
                continue
            values = {key: told(value) for key, value in given.items()}
            try:
                sample = sample_of(Launch(ByHand(function), values, padded(grid), num_warps), H200)
            except Exception as error:
                missing[f"{name}: {error}"] += 1
                continue
            if not sample.num_additions and seconds > SHORT_SECONDS:
                found.append(Recorded(case, seconds, sample))
    for what, number in missing.items():
        print(f"left out {number}: {what}")
    return found


def rules_of(x: np.ndarray) -> Rules:
    known = dict(zip(START, np.exp(x).tolist(), strict=True))
    scale, whole, dot = (known.pop(name) for name in ("scale", "whole", DOT))
    operations = {kind: scale * cost for kind, cost in OPERATION_COSTS.items()}
    return BY_HAND._replace(operations=operations | {"whole": whole, DOT: dot}, **known)


def fitted(chosen: list[Recorded]) -> Rules:
    start = np.log([*START.values()])
    seconds = np.array([kernel.seconds for kernel in chosen])
    weights = (1e6 * seconds) ** 0.15

    def loss(x: np.ndarray) -> float:
        rules = rules_of(x)
        predicted = np.array([kernel.predicted(rules) for kernel in chosen])
        errors = np.minimum(1.0, np.abs(np.log(predicted / seconds)))
        return float((weights * errors).mean() + KEPT * ((x - start) ** 2).sum())

    options = {"maxiter": ROUNDS, "fatol": 1e-5, "xatol": 1e-3, "adaptive": True}
    return rules_of(minimize(loss, start, method="Nelder-Mead", options=options).x)


def tell(what: str, pairs: list[tuple[float, float]]) -> None:
    """Of pairs of predicted and measured seconds."""
    predicted, seconds = np.array([pair for pair in pairs if pair[1] > TOLD_SECONDS]).T
    errors = np.abs(predicted / seconds - 1)
    print(
        f"{what}: {errors.size} kernels over 10 us, {100 * np.median(errors):.1f} % in the median, "
        f"{100 * (errors * seconds).sum() / seconds.sum():.1f} % by time, "
        f"{100 * (errors < 0.15).mean():.0f} % within 15 %"
    )


def main() -> None:
    functions = kernels()
    every, fresh = recorded(FITTED, functions), recorded(FRESH, functions)
    cases = sorted({kernel.case for kernel in every})
    random.Random(1).shuffle(cases)
    left_out = []
    for part in range(PARTS):
        out = set(cases[part::PARTS])
        rules = fitted([kernel for kernel in every if kernel.case not in out])
        left_out += [(k.predicted(rules), k.seconds) for k in every if k.case in out]
    rules = fitted(every)
    print(rules)
    tell("fitted", [(kernel.predicted(rules), kernel.seconds) for kernel in every])
    tell("left out, by case", left_out)
    tell("as rules.py has them", [(k.predicted(BY_HAND), k.seconds) for k in every])
    tell("fresh, as rules.py has them", [(k.predicted(BY_HAND), k.seconds) for k in fresh])


if __name__ == "__main__":
    main()
