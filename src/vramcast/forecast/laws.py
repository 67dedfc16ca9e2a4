"""A law for measured memory: named terms, least squares, honest errors. No torch.

    allocated = sum of coefficient x term(knobs)        reserved = allocated + overhead

or, where small runs do not move with the knobs, the larger of that and a floor (see piecewise.py).

Every in-sample error has its leave-one-out error beside it: a law that was fitted to a row says
little about it.
"""

from __future__ import annotations

import ast
import math
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vramcast.errors import UsageError
from vramcast.forecast.piecewise import Pieces, find_pieces, fitted_without, odd_one_out, solve
from vramcast.records.fit import FittedRow, Knob, MemoryFit
from vramcast.records.max_batch import MemoryLaw
from vramcast.text import printable
from vramcast.units import format_bytes

TERMS = {
    "constant": "1",
    "per_sample": "batch_size",
    "per_token": "batch_size * seq_len",
    "per_token_and_length": "batch_size * seq_len ** 2",
}
_OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
LARGEST_POWER = 8
LONGEST_SHOWN = 200  # characters of a term in a message
# A coefficient this near to a whole number, as a part of it, is taken to mean that number.
WHOLE_NUMBER_TOLERANCE = 0.03


@dataclass(frozen=True, kw_only=True)
class Point:
    """One run: its knobs and what was measured."""

    name: str
    knobs: Mapping[str, Any]
    allocated_bytes: int
    reserved_bytes: int
    outcome: str = "ok"
    capacity_bytes: int | None = None
    group: str = ""


def batch_law(bytes_at: Mapping[int, int]) -> MemoryLaw | None:
    """Memory as a line over the batch size; None where fewer than two sizes are known."""
    if len(bytes_at) < 2:
        return None
    sizes, measured = np.array(list(bytes_at)), np.array(list(bytes_at.values()))
    matrix = np.stack([np.ones(len(sizes)), sizes], axis=1)
    intercept_bytes, bytes_per_sample = solve(matrix, measured)
    fitted = intercept_bytes + bytes_per_sample * sizes
    return MemoryLaw(
        intercept_bytes=round(intercept_bytes),
        bytes_per_sample=round(bytes_per_sample),
        largest_residual=float(np.max(np.abs(fitted / measured - 1))),
        smallest_batch=min(bytes_at),
        largest_batch=max(bytes_at),
    )


def law_at(fit: MemoryFit, knobs: Mapping[str, float]) -> int:
    """Reserved bytes by the law; refused outside what was measured."""
    for knob in fit.knobs:
        value = knobs.get(knob.name)
        if value is None or not knob.smallest <= value <= knob.largest:
            raise UsageError(
                f"The law was fitted for {knob.name} from {knob.smallest:g} to {knob.largest:g}, "
                f"not for {value}.",
                "Measure a run there, or ask vramcast predict, which simulates it.",
            )
    law = round(sum(fit.coefficients[n] * evaluate(text, knobs) for n, text in fit.terms.items()))
    return max(law, fit.floor_bytes or 0) + fit.overhead_bytes


def evaluate(expression: str, knobs: Mapping[str, Any]) -> float:
    """Arithmetic with knobs' names; nothing else is run."""
    try:
        value = _value(ast.parse(expression, mode="eval").body, knobs)
        if not math.isfinite(value):
            raise ValueError(f"it is {value}")
        return value
    except (
        SyntaxError,
        ValueError,
        ArithmeticError,
        RecursionError,
        MemoryError,
    ) as problem:  # the parser's stack is "memory"
        what = (
            f"The term {printable(expression, LONGEST_SHOWN)!r} cannot be computed: "
            f"{problem or 'it is too deep'}."
        )
        raise UsageError(what, "Write knobs and numbers with + - * / **.") from None


def _value(node: ast.AST, knobs: Mapping[str, Any]) -> float:
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    ):
        return float(node.value)
    if isinstance(node, ast.Name):
        value = knobs.get(node.id)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise UsageError(
                f"A term names {node.id!r}, which is no number among the knobs.",
                f"Knobs: {', '.join(knobs) or 'none'}.",
            )
        return float(value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left, knobs), _value(node.right, knobs)
        if isinstance(node.op, ast.Pow) and abs(right) > LARGEST_POWER:
            raise ValueError(f"a power of {right:g}")
        value = _OPERATORS[type(node.op)](left, right)
        if isinstance(value, complex):
            raise ValueError(f"{left:g} to the power of {right:g} is no real number")
        return float(value)
    raise ValueError(f"{ast.unparse(node)!r} is not arithmetic")


def fit(points: Sequence[Point], terms: Mapping[str, str] | None = None) -> list[MemoryFit]:
    """One law for each group of runs."""
    groups = sorted({point.group for point in points})
    return [_fit_group(group, [p for p in points if p.group == group], terms) for group in groups]


def _fit_group(group: str, points: Sequence[Point], terms: Mapping[str, str] | None) -> MemoryFit:
    reasons = [_unusable(p) for p in points]  # by run: two runs may have the same name
    used = [p for p, why in zip(points, reasons, strict=True) if why is None]
    left_out = _by_name(
        [(p.name, why) for p, why in zip(points, reasons, strict=True) if why is not None]
    )
    if not used:
        what = f"No run of {group or 'these'} can be fitted: {'; '.join(left_out.values())}."
        raise UsageError(
            what, "Give runs that ended with ok; where memory ran out, measure smaller sizes."
        )
    chosen = dict(terms) if terms is not None else default_terms(used)
    matrix = np.array([_term_values(p, chosen) for p in used])
    allocated = np.array([p.allocated_bytes for p in used], dtype=float)
    pieces = _pieces(chosen, matrix, allocated)
    overhead = round(statistics.median(p.reserved_bytes - p.allocated_bytes for p in used))
    return MemoryFit(
        group=group,
        terms=chosen,
        coefficients=dict(zip(chosen, map(float, pieces.coefficients), strict=True)),
        overhead_bytes=overhead,
        rows=[_row(i, used, matrix, allocated, pieces, overhead) for i in range(len(used))],
        knobs=_ranked_knobs(used, chosen, pieces),
        floor_bytes=round(pieces.floor_bytes) if pieces.on_floor else None,
        left_out=left_out,
        notes=[
            *_notes(used, chosen, matrix, pieces.coefficients),
            *_piece_notes(used, chosen, matrix, allocated, pieces),
        ],
    )


def _pieces(terms: Mapping[str, str], matrix: Any, allocated: Any) -> Pieces:
    """A floor makes sense only beside a law that grows from some constant."""
    found = find_pieces(matrix, allocated) if _may_have_a_floor(terms) else None
    return found or Pieces(-math.inf, solve(matrix, allocated), ())


def _may_have_a_floor(terms: Mapping[str, str]) -> bool:
    return TERMS["constant"] in terms.values() and len(terms) > 1


def _term_values(point: Point, terms: Mapping[str, str]) -> list[float]:
    try:
        return [evaluate(text, point.knobs) for text in terms.values()]
    except UsageError as problem:
        raise UsageError(f"{printable(point.name)}: {problem.message}", problem.advice) from None


def _by_name(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, text in pairs:
        count = sum(1 for known, _ in pairs[: len(found)] if known == name)
        found[f"{name} ({count + 1})" if count else name] = text
    return found


def _unusable(point: Point) -> str | None:
    if point.outcome == "unfinished":
        return f"{point.name} was cut off before it ended"
    if point.outcome != "ok":
        return f"{point.name} ended with {point.outcome}"
    if point.reserved_bytes <= 0 or not 0 <= point.allocated_bytes <= point.reserved_bytes:
        sizes = (
            f"{format_bytes(point.allocated_bytes)} allocated and "
            f"{format_bytes(point.reserved_bytes)} reserved"
        )
        return f"{point.name} has {sizes}: no allocator says that"
    if point.capacity_bytes is not None and point.reserved_bytes > point.capacity_bytes:
        return (
            f"{point.name} reserved more than the card has: it was paging, and its numbers are of "
            "that"
        )
    return None


def default_terms(points: Sequence[Point]) -> dict[str, str]:
    """A constant, and those of the others that differ between the runs and can be told apart."""
    chosen = {"constant": TERMS["constant"]}
    knobs = [p.knobs for p in points]
    if len({k.get("batch_size") for k in knobs}) < 2 and len({k.get("seq_len") for k in knobs}) < 2:
        return chosen
    num_lengths = len({k.get("seq_len") for k in knobs})
    names = ["per_token", "per_token_and_length"] if num_lengths > 2 else ["per_token"]
    if num_lengths < 2:
        names = ["per_sample"]
    for name in names:
        if len(chosen) + 1 < len(points) or (len(chosen) == 1 and len(points) > 1):
            chosen[name] = TERMS[name]
    return chosen


def _row(
    index: int, points: Sequence[Point], matrix: Any, allocated: Any, pieces: Pieces, overhead: int
) -> FittedRow:
    point = points[index]
    fitted = pieces.at(matrix[index]) + overhead
    left_out = left_out_allocated = None
    others = fitted_without(matrix, allocated, pieces.on_floor, index)
    if others is not None:
        left_out_allocated = _percent(others.at(matrix[index]), point.allocated_bytes)
        beside = statistics.median(
            p.reserved_bytes - p.allocated_bytes for i, p in enumerate(points) if i != index
        )
        left_out = _percent(others.at(matrix[index]) + beside, point.reserved_bytes)
    return FittedRow(
        name=point.name,
        measured_reserved_bytes=point.reserved_bytes,
        fitted_reserved_bytes=round(fitted),
        error_percent=_percent(fitted, point.reserved_bytes),
        left_out_error_percent=left_out,
        allocated_error_percent=_percent(fitted - overhead, point.allocated_bytes),
        left_out_allocated_error_percent=left_out_allocated,
        on_floor=index in pieces.on_floor,
    )


def _percent(fitted: float, measured: int) -> float:
    return 100 * (fitted / measured - 1) if measured else 0.0


def _ranked_knobs(points: Sequence[Point], terms: Mapping[str, str], pieces: Pieces) -> list[Knob]:
    names = {
        n.id
        for text in terms.values()
        for n in ast.walk(ast.parse(text))
        if isinstance(n, ast.Name)
    }
    largest = max(points, key=lambda p: p.allocated_bytes)

    def total(knobs: Mapping[str, Any]) -> float:
        return pieces.at(np.array([evaluate(text, knobs) for text in terms.values()]))

    whole = total(largest.knobs)
    found = []
    for name in names:
        values = [p.knobs[name] for p in points]
        share = 1 - total({**largest.knobs, name: min(values)}) / whole if whole else 0.0
        found.append(Knob(name=name, share=share, smallest=min(values), largest=max(values)))
    return sorted(found, key=lambda knob: (-knob.share, knob.name))


def _notes(
    points: Sequence[Point], terms: Mapping[str, str], matrix: Any, coefficients: Any
) -> list[str]:
    notes = []
    if len(points) <= len(terms):
        counts = f"{_count(len(points), 'run')} for {_count(len(terms), 'term')}"
        note = f"{counts}: the errors are zero by construction and prove nothing"
        if len(points) < len(terms):
            note += ", and how the memory is shared between the terms is arbitrary"
        notes.append(note)
    if len(points) > len(terms) > np.linalg.matrix_rank(matrix):
        notes.append(
            f"these runs cannot tell {', '.join(terms)} apart: how the memory is shared between "
            "them is arbitrary"
        )
    for name, coefficient in zip(terms, coefficients, strict=True):
        if (
            name not in TERMS
            and coefficient > 1.5
            and abs(coefficient / round(coefficient) - 1) < WHOLE_NUMBER_TOLERANCE
        ):
            notes.append(
                f"{name} has a coefficient of {coefficient:.4f}: if its term is in bytes, the "
                f"elements are {round(coefficient)} times as "
                "wide as assumed, or so many copies are kept"
            )
    return notes


def _piece_notes(
    points: Sequence[Point], terms: Mapping[str, str], matrix: Any, allocated: Any, pieces: Pieces
) -> list[str]:
    if pieces.on_floor:
        names = ", ".join(points[i].name for i in pieces.on_floor)
        return [
            f"the floor is what these take, whatever their knobs: {names}; so it is while the "
            "peak lies in the optimizer step"
        ]
    odd = odd_one_out(matrix, allocated) if _may_have_a_floor(terms) else None
    if odd is None:
        return []
    name = points[odd].name
    return [
        f"{name} lies above the law of the others: its peak may lie in the optimizer step; "
        "measure one more run as small to tell"
    ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
