"""The same pure function over many items, on all cores."""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from vramcast.processes.forked import in_forks

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The results in the order of the items. Runs in forks, which inherit the items. A pool of
    multiprocessing would wait for ever if one of its processes is killed."""
    num_processes = min(os.cpu_count() or 1, len(items))
    if num_processes < 2:
        return list(map(function, items))

    def part(first: int) -> Callable[[Any], list[Result]]:
        return lambda _: [function(item) for item in items[first::num_processes]]

    parts = in_forks([part(first) for first in range(num_processes)])
    return [parts[i % num_processes][i // num_processes] for i in range(len(items))]
