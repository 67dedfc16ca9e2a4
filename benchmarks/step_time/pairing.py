"""Pairs the operators of a profiled step with those of its simulation, one by one, in order."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from vramcast.tracing.work import GENERATED, OperatorWork

LOOK_AHEAD = 60
IN_A_ROW = 3  # pairs that must fit before the two are taken to go together again


class Call(NamedTuple):
    names: tuple[str, ...]  # of the operators that call each other, the innermost last
    kernels: tuple[str, ...]
    seconds: float
    shapes: str
    dtypes: str


class Pair(NamedTuple):
    work: OperatorWork | None  # None: not simulated
    calls: list[Call]  # none: not in the profile

    @property
    def seconds(self) -> float:
        return sum(call.seconds for call in self.calls)


def calls_of(record: dict[str, Any]) -> list[Call]:
    """Of the last profiled step, each with the median of all steps where they are alike."""
    steps = record["steps"]
    last = steps[-1]
    alike = [s for s in steps if [c[0] for c in s] == [c[0] for c in last]] or [last]
    calls = []
    for index, (operator, _, *kernels) in enumerate(last):
        chain, shapes, dtypes, _ = record["operators"][operator]
        times = [sum(ns for _, ns in step[index][2:]) for step in alike]
        names = tuple(record["kernels"][number] for number, _ in kernels)
        seconds = statistics.median(times) * 1e-9
        calls.append(Call(tuple(chain.split(" > ")), names, seconds, shapes, dtypes))
    return calls


def fits(work: OperatorWork, call: Call) -> bool:
    if work.operator.startswith("triton::"):
        return work.operator.removeprefix("triton::") in call.kernels
    if work.operator.startswith(GENERATED):
        return call.kernels[0].startswith(work.operator.removeprefix(GENERATED))
    return work.operator in call.names


def paired(works: Sequence[OperatorWork], calls: Sequence[Call]) -> Iterator[Pair]:
    """An operator that was simulated as one may launch its kernels through several others."""
    i = j = 0
    while i < len(works) and j < len(calls):
        if not fits(works[i], calls[j]):
            skip_works, skip_calls = _next_fit(works[i:], calls[j:])
            yield from (Pair(work, []) for work in works[i : i + skip_works])
            yield from (Pair(None, [call]) for call in calls[j : j + skip_calls])
            i, j = i + skip_works, j + skip_calls
            continue
        end = j + 1
        following = works[i + 1] if i + 1 < len(works) else None
        while end < len(calls) and _goes_on(works[i], calls[j:end], calls[end], following):
            end += 1
        yield Pair(works[i], list(calls[j:end]))
        i, j = i + 1, end
    yield from (Pair(work, []) for work in works[i:])
    yield from (Pair(None, [call]) for call in calls[j:])


def _goes_on(
    work: OperatorWork, before: Sequence[Call], call: Call, following: OperatorWork | None
) -> bool:
    """Whether a call still is of the operator that those before were of, not of the following."""
    first = before[0].names
    if work.operator not in call.names or work.operator not in first:
        return False
    # that of a number calls that of a tensor, of the same name
    depth = len(first) - first[::-1].index(work.operator)
    if call.names[:depth] != first[:depth]:
        return False
    if len(call.names) == depth:  # the operator's own kernels, which it has once
        return all(len(each.names) > depth for each in before)
    return not (following and fits(following, call) and call.names == first)


def _next_fit(works: Sequence[OperatorWork], calls: Sequence[Call]) -> tuple[int, int]:
    """How many of each to leave out, as few as can be."""
    for total in range(1, LOOK_AHEAD):
        for skip_works in range(total + 1):
            skip_calls = total - skip_works
            ahead = zip(works[skip_works:], calls[skip_calls:], strict=False)
            first = [fits(work, call) for _, (work, call) in zip(range(IN_A_ROW), ahead)]
            if first and all(first):
                return skip_works, skip_calls
    return 1, 1
