"""A law for measured memory: named terms, least squares, honest errors. No torch.

    allocated = sum of coefficient x term(knobs)        reserved = allocated + overhead

or, where small runs do not move with the knobs, the larger of that and a floor (see piecewise.py).
"""

import ast
import math
import operator
import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vramcast.errors import UsageError
from vramcast.forecast.piecewise import Pieces, find_floor, fit_pieces, solve
from vramcast.records.fit import FittedRow, Knob, MemoryFit, Term, parse_term
from vramcast.records.prediction import MemoryLaw
from vramcast.text import printable
from vramcast.units import format_bytes

TERMS = {
    "constant": "1",
    "per_sample": "batch_size",
    "per_token": "batch_size * seq_len",
    "per_token_and_length": "batch_size * seq_len ** 2",
}
OPERATIONS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}
LARGEST_POWER = 8
# A coefficient this near to a whole number, as a fraction of it, is taken to be that number.
WHOLE_NUMBER_TOLERANCE = 0.03
ARBITRARY = "how the memory is shared between the terms is arbitrary"
ODD_ONE = (
    "lies above the law of the others: its peak may lie in the optimizer step; "
    "measure another run of that size to find out"
)


@dataclass(frozen=True, kw_only=True)
class Point:
    name: str
    knobs: Mapping[str, Any]
    allocated_bytes: int
    reserved_bytes: int
    outcome: str = "ok"
    capacity_bytes: int | None = None
    group: str = ""


def batch_law(bytes_at: Mapping[int, int]) -> MemoryLaw | None:
    """Memory as a line over the batch size. None where fewer than two sizes are known."""
    if len(bytes_at) < 2:
        return None
    sizes, measured = np.array(list(bytes_at)), np.array(list(bytes_at.values()))
    bytes_per_sample, intercept_bytes = np.polyfit(sizes, measured, 1)
    fitted = intercept_bytes + bytes_per_sample * sizes
    return MemoryLaw(
        intercept_bytes=round(intercept_bytes),
        bytes_per_sample=round(bytes_per_sample),
        largest_residual=float(np.max(np.abs(fitted / measured - 1))),
        smallest_batch=min(bytes_at),
        largest_batch=max(bytes_at),
    )


def law_at(fit: MemoryFit, knobs: Mapping[str, float]) -> int:
    """Reserved bytes by the law. Raises a UsageError outside the measured range."""
    for knob in fit.knobs:
        value = knobs.get(knob.name)
        if value is None or not knob.smallest <= value <= knob.largest:
            raise UsageError(
                f"The law was fitted for {knob.name} from {knob.smallest:g} to {knob.largest:g}, "
                f"not for {value}.",
                "Measure a run there, or ask vramcast predict, which simulates it.",
            )
    law = round(sum(fit.coefficients[n] * evaluate(text, knobs) for n, text in fit.terms.items()))
    allocated = max(law, fit.floor_bytes or 0)
    return round(allocated * (1 + fit.overhead_share)) + fit.overhead_bytes


def evaluate(expression: str, knobs: Mapping[str, Any]) -> float:
    """The value of an arithmetic expression with knobs' names. Nothing else is executed."""
    try:
        value = _value(parse_term(expression), knobs)
        if math.isfinite(value):
            return value
        problem = f"it is {value}"
    except (ValueError, ArithmeticError, RecursionError) as error:
        problem = str(error)
    shown = printable(expression, 200)
    raise UsageError(
        f"The term {shown!r} cannot be computed: {problem}.",
        "Write knobs and numbers with + - * / **.",
    )


def _value(term: Term, knobs: Mapping[str, Any]) -> float:
    if isinstance(term, list):
        symbol, left, right = term[0], _value(term[1], knobs), _value(term[2], knobs)
        if symbol == "**" and abs(right) > LARGEST_POWER:
            raise ValueError(f"a power of {right:g}")
        value = OPERATIONS[symbol](left, right)
        if isinstance(value, complex):
            raise ValueError(f"{left:g} to the power of {right:g} is not a real number")
        return float(value)
    number = knobs.get(term) if isinstance(term, str) else term
    if not isinstance(number, int | float) or isinstance(number, bool):
        raise UsageError(
            f"A term names {term!r}, which is not a number among the knobs.",
            f"Knobs: {', '.join(knobs) or 'none'}.",
        )
    return float(number)


def fit(points: Sequence[Point], terms: Mapping[str, str] | None = None) -> list[MemoryFit]:
    groups = sorted({point.group for point in points})
    return [_fit_group(group, [p for p in points if p.group == group], terms) for group in groups]


def _fit_group(group: str, points: Sequence[Point], terms: Mapping[str, str] | None) -> MemoryFit:
    used = [point for point in points if not _unusable(point)]
    left_out = _left_out(points)
    if not used:
        raise UsageError(
            f"No run of {group or 'these'} can be fitted: {'; '.join(left_out.values())}.",
            "Give runs that ended with ok; where memory ran out, measure smaller sizes.",
        )
    chosen = dict(terms) if terms is not None else default_terms(used)
    matrix = np.array([_term_values(p, chosen) for p in used])
    allocated = np.array([p.allocated_bytes for p in used], dtype=float)
    # A floor makes sense only with a law that has a constant and grows.
    may_have_floor = TERMS["constant"] in chosen.values() and len(chosen) > 1
    floor, odd = find_floor(matrix, allocated) if may_have_floor else (None, None)
    pieces = floor or Pieces(-math.inf, solve(matrix, allocated))
    coefficients = dict(zip(chosen, map(float, pieces.coefficients), strict=True))
    overhead_bytes, share = _overhead(used)
    return MemoryFit(
        group=group,
        terms=chosen,
        coefficients=coefficients,
        overhead_bytes=overhead_bytes,
        overhead_share=share,
        rows=[_row(i, used, matrix, allocated, pieces) for i in range(len(used))],
        knobs=_ranked_knobs(used, chosen, pieces),
        floor_bytes=round(floor.floor_bytes) if floor else None,
        left_out=left_out,
        notes=[
            *_rank_notes(len(used), chosen, int(np.linalg.matrix_rank(matrix))),
            *_coefficient_notes(coefficients),
            *_floor_notes([used[i].name for i in pieces.on_floor]),
            *([] if odd is None else [f"{used[odd].name} {ODD_ONE}"]),
        ],
    )


def _term_values(point: Point, terms: Mapping[str, str]) -> list[float]:
    try:
        return [evaluate(text, point.knobs) for text in terms.values()]
    except UsageError as problem:
        raise UsageError(f"{printable(point.name)}: {problem.message}", problem.advice) from None


def _left_out(points: Sequence[Point]) -> dict[str, str]:
    """Why runs are left out, by the run's name; a second run of that name is "name (2)"."""
    found, seen = {}, Counter[str]()
    for point in points:
        if why := _unusable(point):
            seen[point.name] += 1
            count = seen[point.name]
            found[f"{point.name} ({count})" if count > 1 else point.name] = f"{point.name} {why}"
    return found


def _unusable(point: Point) -> str:
    allocated, reserved = point.allocated_bytes, point.reserved_bytes
    if point.outcome == "unfinished":
        return "was cut off before it ended"
    if point.outcome != "ok":
        return f"ended with {point.outcome}"
    if reserved <= 0 or not 0 <= allocated <= reserved:
        sizes = f"{format_bytes(allocated)} allocated and {format_bytes(reserved)} reserved"
        return f"has {sizes}, which no allocator reports"
    if point.capacity_bytes is not None and reserved > point.capacity_bytes:
        return (
            "reserved more than the card has: it was paging, so its numbers are not what it needs"
        )
    return ""


def default_terms(points: Sequence[Point]) -> dict[str, str]:
    """A constant, and those of the other terms that these runs can tell apart."""
    num_batches, num_lengths = (
        len({point.knobs.get(name) for point in points}) for name in ("batch_size", "seq_len")
    )
    names = ["per_token", "per_token_and_length"][: num_lengths - 1]
    if num_lengths == 1 and num_batches > 1:
        names = ["per_sample"]
    # Two of them only where there are more runs than terms.
    names = names[: max(1, len(points) - 2)]
    return {name: TERMS[name] for name in ("constant", *names)}


def _overhead(points: Sequence[Point]) -> tuple[int, float]:
    """What is reserved beyond what is allocated: as (bytes, 0) or (0, share of allocated),
    whichever is nearer to the runs."""
    sizes = [(p.reserved_bytes - p.allocated_bytes, max(1, p.allocated_bytes)) for p in points]
    num_bytes = round(statistics.median(more for more, _ in sizes))
    share = statistics.median(more / allocated for more, allocated in sizes)

    def off(num_bytes: int, share: float) -> float:
        return sum(abs(more - num_bytes - share * each) / (more + each) for more, each in sizes)

    return min((num_bytes, 0.0), (0, share), key=lambda one: off(*one))


def _reserved(allocated: float, points: Sequence[Point]) -> float:
    overhead_bytes, share = _overhead(points)
    return allocated * (1 + share) + overhead_bytes


def _row(
    index: int, points: Sequence[Point], matrix: Any, allocated: Any, pieces: Pieces
) -> FittedRow:
    point = points[index]
    fitted = float(pieces.at(matrix[index]))
    fitted_reserved = _reserved(fitted, points)
    left_out = left_out_allocated = None
    if others := fit_pieces(matrix, allocated, pieces.on_floor, without=index):
        predicted = float(others.at(matrix[index]))
        left_out_allocated = _percent(predicted, point.allocated_bytes)
        reserved = _reserved(predicted, [*points[:index], *points[index + 1 :]])
        left_out = _percent(reserved, point.reserved_bytes)
    return FittedRow(
        name=point.name,
        measured_reserved_bytes=point.reserved_bytes,
        fitted_reserved_bytes=round(fitted_reserved),
        error_percent=_percent(fitted_reserved, point.reserved_bytes),
        left_out_error_percent=left_out,
        allocated_error_percent=_percent(fitted, point.allocated_bytes),
        left_out_allocated_error_percent=left_out_allocated,
        on_floor=index in pieces.on_floor,
    )


def _percent(fitted: float, measured: int) -> float:
    return 100 * (fitted / measured - 1) if measured else 0.0


def _ranked_knobs(points: Sequence[Point], terms: Mapping[str, str], pieces: Pieces) -> list[Knob]:
    nodes = ast.walk(ast.parse(";".join(terms.values())))
    largest = max(points, key=lambda p: p.allocated_bytes)

    def total(**changed: Any) -> float:
        knobs = {**largest.knobs, **changed}
        return float(pieces.at(np.array([evaluate(text, knobs) for text in terms.values()])))

    whole = total()
    found = []
    for name in {node.id for node in nodes if isinstance(node, ast.Name)}:
        values = [p.knobs[name] for p in points]
        share = 1 - total(**{name: min(values)}) / whole if whole else 0.0
        found.append(Knob(name=name, share=share, smallest=min(values), largest=max(values)))
    return sorted(found, key=lambda knob: (-knob.share, knob.name))


def _rank_notes(num_runs: int, terms: Collection[str], rank: int) -> list[str]:
    num_terms = len(terms)
    if num_runs <= num_terms:
        counts = f"{_count(num_runs, 'run')} for {_count(num_terms, 'term')}"
        note = f"{counts}: the errors are zero by construction and prove nothing"
        return [f"{note}, and {ARBITRARY}" if num_runs < num_terms else note]
    if num_terms > rank:
        return [f"these runs cannot tell {', '.join(terms)} apart: {ARBITRARY}"]
    return []


def _coefficient_notes(coefficients: Mapping[str, float]) -> list[str]:
    return [
        f"{name} has a coefficient of {value:.4f}: if its term is in bytes, the elements are "
        f"{round(value)} times as wide as assumed, or {round(value)} copies are kept"
        for name, value in coefficients.items()
        if name not in TERMS
        and value > 1.5
        and abs(value / round(value) - 1) < WHOLE_NUMBER_TOLERANCE
    ]


def _floor_notes(names: Sequence[str]) -> list[str]:
    note = (
        f"these runs take the floor, whatever their knobs are: {', '.join(names)}; that happens "
        "while the peak lies in the optimizer step"
    )
    return [note] if names else []


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
