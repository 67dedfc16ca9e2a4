"""The same pure function over many items, on all cores."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_work: tuple[Callable[[Any], Any], Sequence[Any]] | None = None


def _run(index: int) -> Any:
    assert _work is not None
    return _work[0](_work[1][index])


def in_parallel(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """In forked processes, which inherit the items. Results keep the order of the items."""
    global _work
    num_processes = min(os.cpu_count() or 1, len(items))
    if num_processes < 2:
        return [function(item) for item in items]
    _work = (function, items)
    try:
        with multiprocessing.get_context("fork").Pool(num_processes) as pool:
            return pool.map(_run, range(len(items)))
    finally:
        _work = None
