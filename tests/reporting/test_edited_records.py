"""Whatever a field of a record is edited to, a report is made or the record is refused."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from long_tests import long_unless
from report_examples import record

from vramcast.errors import UsageError
from vramcast.records.kinds import record_from
from vramcast.reporting.sections import Report
from vramcast.reporting.showing import Format, render, sections_of

NAMES = (
    "prediction.json",
    "h200-measurement.json",
    "curve.json",
    "max-batch.json",
    "plan.json",
    "fit.json",
    "tune.json",
    "bench/small/result.json",
    "compare.json",
    "gpus.json",
    "run-diff.json",
)
VALUES: tuple[Any, ...] = (None, -1, 0, 10**12, "x", [], {})
Path = tuple[str | int, ...]


def fields(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every field; of a list the last entry."""
    if path:
        yield path
    if isinstance(value, dict):
        for name in value:
            yield from fields(value[name], (*path, name))
    elif isinstance(value, list) and value:
        yield from fields(value[-1], (*path, len(value) - 1))


def edited(data: Any, path: Path, value: Any) -> Any:
    changed = copy.copy(data)
    name: Any = path[0]
    changed[name] = value if len(path) == 1 else edited(data[name], path[1:], value)
    return changed


@pytest.mark.parametrize("name", long_unless("plan.json".__eq__, NAMES))
def test_an_edited_field_never_ends_in_a_traceback(name: str) -> None:
    data = record(name)
    if "step_memory" in data:  # the others are alike, and take long
        del data["step_memory"]["allocations"][5:]
    made = 0
    for number, path in enumerate(fields(data)):
        for value in VALUES:
            try:
                found = record_from(edited(data, path, value), "edited.json")
            except UsageError as refused:
                assert "edited.json" in refused.message
                continue
            try:
                report = Report(title="edited", sections=sections_of(found))
                # The terminal takes ten times as long: only with values that are sound most often,
                # and of every fourth field.
                is_shown = value in (0, []) and number % 4 == 0
                render(report, Format.TERMINAL if is_shown else Format.MARKDOWN)
            except Exception as problem:
                raise AssertionError(f"{path} = {value!r}: {problem!r}") from problem
            made += 1
    assert made > 20, "most values of text are sound"
