"""The work of a kernel of which blocks run on the host, with the arguments of a launch: of those
that torch.compile has written, and parts of it also for those that people have (by_hand.py)."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from vramcast.forecast.timing.kernels import kernel_time
from vramcast.forecast.timing.rates import shipped
from vramcast.hardware.gpus import Gpu
from vramcast.simulate.fused.contents import (
    may_be_known,
    may_be_sure,
    note,
    tables_of,
    written_by,
)
from vramcast.simulate.fused.costs import Cost, sample_of
from vramcast.simulate.fused.crowds import crowd_of
from vramcast.simulate.fused.described import Describer
from vramcast.simulate.fused.kept import kept
from vramcast.simulate.fused.launch import Kernel, Launch, Tables
from vramcast.simulate.fused.values import Numbers, Tensor
from vramcast.simulate.kernels.work import DTYPE_NUMBERS, FOUR
from vramcast.tracing.work import CROWD_PARTS, FORWARD, FUSED, PLAIN, OperatorWork

MANY_BLOCKS = 1 << 20
ONE = (1, 1, 1)

Work = tuple[int, float, float, Any]  # type, operations, bytes and sizes (tracing/work.py)


class FusedKernel:
    """`autotuner` is Inductor's: a kernel, its arguments' names and its configurations."""

    def __init__(self, autotuner: Any, gpu: Gpu) -> None:
        self._autotuner, self._gpu = autotuner, gpu
        self._kernel = Kernel(
            autotuner.fn.src, autotuner.fn.__name__, tuple(autotuner.fn.arg_names)
        )
        # read and written; Kernel.changed has also those that are only written
        self._changed = frozenset(autotuner.mutated_arg_names)
        self._known: dict[tuple[Any, ...], Work] = {}
        self._written: dict[tuple[Any, ...], tuple[str, dict[Tensor, Numbers]]] = {}

    def work(self, arguments: tuple[Any, ...]) -> Work:
        """Notes what the kernel is sure to write, too."""
        describer = Describer(torch.Tensor.numel, lambda given: given)
        told = tuple(map(describer.describe, arguments))
        find_tables = cache(lambda: tables_of(describer.tensors, describer.described))
        if told not in self._known:
            self._known[told] = self._fastest(arguments, told, find_tables())
        changed = [
            (tensor, as_told)
            for name, tensor, as_told in zip(self._kernel.names, arguments, told, strict=False)
            if name in self._kernel.changed and may_be_known(tensor)
        ]
        if changed:
            written = self._written_by(told, find_tables())
            for tensor, as_told in changed:
                note(tensor, written.get(as_told))
        return self._known[told]

    def _written_by(self, told: tuple[Any, ...], tables: Tables) -> dict[Tensor, Numbers]:
        """Whether something is sure is the same each time. What it is depends on the tables."""
        key = told, frozenset(tables)
        of, found = self._written.get(key, ("", {}))
        if not of or (found and of != tables.digest):
            launch = self._launch(self._autotuner.configs[0], told, tables)
            found = unless_it_fails({}, lambda: self._sure_of(launch))
            self._written[key] = tables.digest, found
        return found

    def _sure_of(self, launch: Launch) -> dict[Tensor, Numbers]:
        (is_any,) = kept("is_any_sure", launch, self._gpu, lambda: [int(may_be_sure(launch))])
        return written_by(launch) if is_any else {}

    def _fastest(self, arguments: tuple[Any, ...], told: tuple[Any, ...], tables: Tables) -> Work:
        """Inductor takes the fastest of its configurations. Along a single axis all are alike."""
        configs = self._autotuner.configs
        num_axes = len(self._launch(configs[0], told, tables).elements)
        launches = [
            self._launch(config, told, tables)._replace(grid=self._grid(arguments, config))
            for config in configs[: None if num_axes > 1 else 1]
        ]
        works = [self._work_of(launch) for launch in launches]
        seconds = [seconds_of(work, self._gpu) for work in works[1:] and works]
        best = seconds.index(min(seconds)) if seconds else 0
        return self._with_crowd(works[best], launches[best])

    def _grid(self, arguments: tuple[Any, ...], config: Any) -> Any:
        """Empty where it cannot be told."""
        interpret = self._autotuner._interpret_args_grid
        return unless_it_fails((), lambda: interpret(arguments, config)[1])

    def _work_of(self, launch: Launch) -> Work:
        default = Cost(0.0, launch.bytes_of_tensors, 0.0, MANY_BLOCKS, 0.0)
        if not launch.grid:
            return work_of_cost(default)
        cost = unless_it_fails(default, lambda: cost_of(launch, self._gpu))
        return work_of_cost(cost)

    def _with_crowd(self, work: Work, launch: Launch) -> Work:
        number, operations, num_bytes, sizes = work
        _, num_additions, places, rows = sizes
        if not num_additions:
            return work
        find = lambda: [crowd_of(launch, self._gpu)]  # noqa: E731
        (share,) = unless_it_fails([0.0], lambda: kept("crowd", launch, self._gpu, find))
        crowd = round(CROWD_PARTS * share)
        return number, operations, num_bytes, FOUR(crowd, num_additions, places, rows)

    def _launch(self, config: Any, told: tuple[Any, ...], tables: Tables) -> Launch:
        """As a single block."""
        given = dict(zip(self._kernel.names, told, strict=False)) | config.kwargs
        return Launch(self._kernel, given, ONE, config.num_warps, self._changed, tables)


def cost_of(launch: Launch, gpu: Gpu) -> Cost:
    return Cost(*kept("cost", launch, gpu, lambda: sample_of(launch, gpu).cost(gpu)))


def seconds_of(work: Work, gpu: Gpu) -> float:
    number, operations, num_bytes, sizes = work
    done = OperatorWork(FUSED, number, operations, num_bytes, tuple(sizes), FORWARD, PLAIN)
    return kernel_time(done, gpu, shipped()).seconds


def work_of_cost(cost: Cost) -> Work:
    sizes = [cost.num_blocks, 0, round(1e9 * cost.waiting_seconds), round(cost.asked_bytes)]
    if cost.num_additions and cost.num_places:
        sizes = [0, cost.num_additions, cost.num_places, cost.num_rows]
    return DTYPE_NUMBERS[torch.float32], cost.operations, cost.num_bytes, FOUR(*sizes)


def unless_it_fails(default: Any, find: Callable[[], Any]) -> Any:
    """The default where a kernel has something that is not stood in for."""
    try:
        return find()
    except Exception:
        return default
