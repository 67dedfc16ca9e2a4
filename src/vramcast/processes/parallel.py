"""The same pure function over many items, on all cores."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_work: tuple[Callable[[Any], Any], Sequence[Any]] = (id, ())


def _run(index: int) -> Any:
    function, items = _work
    return function(items[index])


def in_parallel(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """In forked processes, which inherit the items. Results keep the order of the items."""
    global _work
    num_processes = min(os.cpu_count() or 1, len(items))
    if num_processes < 2:
        return list(map(function, items))
    _work = (function, items)
    with multiprocessing.get_context("fork").Pool(num_processes) as pool:
        return pool.map(_run, range(len(items)))
