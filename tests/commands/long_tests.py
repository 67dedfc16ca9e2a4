"""Of many cases alike, `make test` runs a few; `make test-all` runs all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def long_unless(is_short: Callable[[Any], bool], cases: Iterable[Any]) -> list[Any]:
    """Cases for `pytest.mark.parametrize`; a tuple is several arguments."""
    return [
        case if is_short(case) else pytest.param(*_arguments(case), marks=pytest.mark.long)
        for case in cases
    ]


def _arguments(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
