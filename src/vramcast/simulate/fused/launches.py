"""The work of a kernel that torch.compile has written, with the arguments of a launch."""

from collections.abc import Mapping
from typing import Any

import torch

from vramcast.forecast.timing.kernels import kernel_time
from vramcast.forecast.timing.rates import shipped
from vramcast.hardware.gpus import Gpu
from vramcast.simulate.fused.costs import Cost, Launch, sample_of
from vramcast.simulate.fused.language import Kernel
from vramcast.simulate.fused.values import Tensor
from vramcast.simulate.kernels.work import DTYPE_NUMBERS, FOUR
from vramcast.tracing.work import FORWARD, FUSED, PLAIN, OperatorWork

LENGTH = "numel"  # names of arguments end with it that say how long an axis is
MANY_BLOCKS = 1 << 20


class FusedKernel:
    """`autotuner` is Inductor's: a kernel, its arguments' names and its configurations."""

    def __init__(self, autotuner: Any, gpu: Gpu) -> None:
        self._autotuner, self._gpu = autotuner, gpu
        self._kernel = Kernel(
            autotuner.fn.src, autotuner.fn.__name__, tuple(autotuner.fn.arg_names)
        )
        self._changed = frozenset(autotuner.mutated_arg_names)
        self._known: dict[tuple[Any, ...], tuple[int, float, float, Any]] = {}

    def work(self, arguments: tuple[Any, ...]) -> tuple[int, float, float, Any]:
        """Type, operations, bytes and sizes (tracing/work.py)."""
        told = _told(arguments)
        if told not in self._known:
            given = dict(zip(self._kernel.names, told, strict=False))
            # Inductor takes the fastest of its configurations. Along a single axis all are alike.
            num_axes = sum(name.endswith(LENGTH) for name in given)
            works = [
                self._work_of(self._cost_with(config, given, arguments), given)
                for config in self._autotuner.configs[: None if num_axes > 1 else 1]
            ]
            self._known[told] = min(works, key=self._seconds) if len(works) > 1 else works[0]
        return self._known[told]

    def _seconds(self, work: tuple[int, float, float, Any]) -> float:
        number, operations, num_bytes, sizes = work
        done = OperatorWork(FUSED, number, operations, num_bytes, tuple(sizes), FORWARD, PLAIN)
        return kernel_time(done, self._gpu, shipped()).seconds

    def _work_of(self, cost: Cost, given: Mapping[str, Any]) -> tuple[int, float, float, Any]:
        sizes = [cost.num_blocks, 0, round(1e9 * cost.waiting_seconds), round(cost.asked_bytes)]
        added = [given[name].elements for name in self._kernel.added if name in given]
        if cost.num_additions and added:
            sizes = [0, cost.num_additions, added[0], cost.num_rows]
        number = DTYPE_NUMBERS[torch.float32]
        return number, cost.operations, cost.num_bytes, FOUR(*sizes)

    def _cost_with(self, config: Any, given: Mapping[str, Any], arguments: tuple[Any, ...]) -> Cost:
        elements = {
            name.removesuffix(LENGTH).rstrip("_"): number
            for name, number in given.items()
            if name.endswith(LENGTH)
        }
        given = {**given, **config.kwargs}
        launch = Launch(self._kernel, given, elements, (), config.num_warps, self._changed)
        try:
            _, grid = self._autotuner._interpret_args_grid(arguments, config)
            return sample_of(launch._replace(grid=grid), self._gpu).cost(self._gpu)
        except Exception:  # whatever a kernel has that is not stood in for
            return Cost(0.0, launch.bytes_of_tensors, 0.0, MANY_BLOCKS, 0.0)


def _told(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    numbers: dict[int, int] = {}
    return tuple(
        Tensor(t.numel(), t.element_size(), numbers.setdefault(t.data_ptr(), len(numbers)))
        if isinstance(t, torch.Tensor)
        else t
        for t in arguments
    )
