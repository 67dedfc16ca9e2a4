"""Fits kernels that torch.compile has written to those that recording/fused_kernels.py recorded.

    python benchmarks/step_time/fit_fused.py

It writes their rates into the table of rates, and prints what simulate/fused/costs.py should say
of operations. Errors are told of functions that were left out, a quarter at a time. Kernels that
add to numbers of other blocks are left to atomics.jsonl. Several kernels that are one are left out,
because the grid of these is not recorded. Those of fused_unseen.jsonl.gz, of the set
`compiled_seventh`, are not fitted: their errors are told too.
"""

from __future__ import annotations

import gzip
import json
import math
from typing import Any, NamedTuple

import numpy as np
from fit_kernels import H200
from scipy.optimize import least_squares
from steps import HERE, RECORDED

from vramcast.forecast.timing.fused import ENOUGH
from vramcast.forecast.timing.kernels import CACHED, IN_CACHE, OF_MEMORY
from vramcast.forecast.timing.rates import TABLE, peak_flops
from vramcast.simulate.fused.costs import LANES, Sample, sample_of
from vramcast.simulate.fused.launch import Kernel, Launch
from vramcast.simulate.fused.rules import OPERATION_COSTS
from vramcast.simulate.fused.values import Tensor
from vramcast.simulate.fused.works import ONE
from vramcast.tracing.work import GENERATED

LONG, PARTS = 2e-5, 4
SEVERAL = "triton_for"  # names of several kernels that are one begin with it
BLOCKS = {"x": "XBLOCK", "y": "YBLOCK", "z": "ZBLOCK"}
START = {"load": 2.0, "fixed": 1.0, "of_asked": 2.0, "part_written": 3.0}
START |= {"round": 0.3, "in_turn": 0.3, "of_bandwidth": 0.9, "power": 2.0}
MOST = {"of_bandwidth": 0.95, "power": 6.0}


class Recorded(NamedTuple):
    function: str
    kernel: str
    seconds: float
    sample: Sample


def launch_of(name: str, given: list[Any], config: dict[str, int], source: str) -> Launch:
    inside = source[source.index("(") + 1 : source.index("):")]
    names = [each.split(":")[0].strip() for each in inside.split(",")]
    told = iter(Tensor(*each) if isinstance(each, list) else each for each in given)
    values = {n: config[n] if n in config else next(told, None) for n in names}
    launch = Launch(Kernel(source, name, names), values, ONE, config["num_warps"])
    sides = [config.get("RSPLIT_SIZE", config.get(block, 1)) for block in BLOCKS.values()]
    grid = [math.ceil(launch.elements.get(axis, 1) / side) for axis, side in zip(BLOCKS, sides)]
    return launch._replace(grid=grid)


def recorded(name_of_file: str) -> list[Recorded]:
    found = []
    with gzip.open(RECORDED / name_of_file, "rt") as file:
        for function, name, given, config, seconds, source in map(json.loads, file):
            if "atomic_add" in source or name.startswith(SEVERAL):
                continue
            try:
                sample = sample_of(launch_of(name, given, config, source), H200)
            except Exception as error:
                print(f"left out: {name}: {error}")
                continue
            found.append(Recorded(function.split()[0], name, seconds, sample))
    return found


class Model:
    """Everything in logarithms: costs of operations, then the others."""

    def __init__(self, kernels: list[Recorded], operations: list[str] | None = None) -> None:
        samples = [kernel.sample for kernel in kernels]
        self.operations = operations or sorted({kind for s in samples for kind in s.operations})
        self.names = [*self.operations, *START]
        kinds = self.operations
        self._counts = np.array([[s.operations.get(kind, 0) for kind in kinds] for s in samples])
        columns = {name: [getattr(s, name) for s in samples] for name in Sample._fields[1:-1]}
        self._of = {name: np.array(numbers, float) for name, numbers in columns.items()}
        self.seconds = np.array([kernel.seconds for kernel in kernels])

    def predicted(self, x: np.ndarray) -> np.ndarray:
        known = dict(zip(self.names, np.exp(x), strict=True))
        of, units = self._of, H200.num_multiprocessors
        costs = np.exp(x[: len(self.operations)])
        lanes = peak_flops(H200, "fp32") / 2
        arithmetic = (self._counts @ costs + known["load"] * of["loads"]) / lanes
        idle = np.maximum(1.0, units / of["num_blocks"])
        asked = of["asked_bytes"] + known["part_written"] * of["part_written_bytes"]
        asked = asked / (known["of_asked"] * H200.bandwidth_bytes_per_second)
        turns = np.maximum(1.0, of["num_blocks"] / (units * of["resident"]))
        in_turn = known["round"] * of["rounds"] + known["in_turn"] * of["reductions"]
        shared = of["shared_cycles"] * LANES / lanes
        memory = self._memory(known["of_bandwidth"]) * np.maximum(1.0, ENOUGH * idle)
        parts = (memory, idle * asked, idle * arithmetic)
        together = sum(part ** known["power"] for part in parts) ** (1 / known["power"])
        return 1e-6 * (known["fixed"] + turns * in_turn) + shared + together

    def _memory(self, of_bandwidth: float) -> np.ndarray:
        """As kernels.memory_seconds has it."""
        num_bytes = self._of["num_bytes"]
        too_large = np.minimum(1.0, num_bytes / (CACHED * H200.l2_cache_bytes))
        reached = np.minimum(of_bandwidth, OF_MEMORY * (1 + IN_CACHE * (1 - too_large) ** 3))
        return num_bytes / (H200.bandwidth_bytes_per_second * reached)

    def fitted(self, chosen: np.ndarray) -> np.ndarray:
        weights = np.clip(np.sqrt(self.seconds / LONG), 0.5, 4.0)
        known = [max(0.05, OPERATION_COSTS.get(kind, 1.0)) for kind in self.operations]
        start = np.log([*known, *START.values()])
        most = [math.log(MOST.get(name, 200.0)) for name in self.names]

        def errors(x: np.ndarray) -> np.ndarray:
            return (weights * np.log(self.predicted(x) / self.seconds))[chosen]

        found = least_squares(
            errors, start, bounds=(-7.0, most), loss="soft_l1", f_scale=0.1, max_nfev=100
        )
        return found.x


def tell(what: str, predicted: np.ndarray, seconds: np.ndarray) -> None:
    errors, is_long = np.abs(np.log(predicted / seconds)), seconds > LONG
    for name, chosen in (("all", seconds > 0), ("over 20 us", is_long)):
        median, most = 100 * np.median(errors[chosen]), 100 * np.quantile(errors[chosen], 0.9)
        print(f"{what}, {name} {chosen.sum()}: median {median:.1f} %, 90 % within {most:.1f} %")
    by_time = 100 * np.abs(predicted - seconds).sum() / seconds.sum()
    in_all = 100 * (predicted.sum() / seconds.sum() - 1)
    print(f"{what}: by time {by_time:.1f} %, sum {in_all:+.1f} %")


def main() -> None:
    kernels = recorded("fused_kernels.jsonl.gz")
    model = Model(kernels)
    everything = np.ones(len(kernels), bool)
    functions = sorted({kernel.function for kernel in kernels})
    left_out = np.empty(len(kernels))
    for part in range(PARTS):
        chosen = np.isin([k.function for k in kernels], functions[part::PARTS])
        left_out[chosen] = model.predicted(model.fitted(~chosen))[chosen]
    x = model.fitted(everything)
    tell("fitted", model.predicted(x), model.seconds)
    tell("left out", left_out, model.seconds)
    unseen = Model(recorded("fused_unseen.jsonl.gz"), model.operations)
    tell("of steps that nothing was made from", unseen.predicted(x), unseen.seconds)
    known = {name: float(f"{v:.3g}") for name, v in zip(model.names, np.exp(x), strict=True)}
    print("for costs.py:", known)
    path = HERE.parents[1] / "src/vramcast/forecast/timing/tables" / TABLE
    table = json.loads(path.read_text())
    table["compute"][GENERATED] = [
        *(float(f"{1e-6 * known['fixed']:.4g}"), known["of_bandwidth"]),
        *(known["of_asked"], known["power"]),
    ]
    path.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
