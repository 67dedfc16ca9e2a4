"""A law of memory that was fitted to measured runs."""

import ast
from dataclasses import field
from typing import Annotated, Any

from msgspec import Meta

from vramcast.records.base import Bytes, Contradiction, Number, Part, Record, require, shortened

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
}


class FittedRow(Part):
    name: str
    measured_reserved_bytes: Bytes
    fitted_reserved_bytes: Bytes
    error_percent: Number
    # The error of a law fitted without this row; None where that cannot be fitted.
    left_out_error_percent: Number | None
    allocated_error_percent: Number = 0.0  # without the overhead's noise
    left_out_allocated_error_percent: Number | None = None
    on_floor: bool = False  # the law was fitted without it


class Knob(Part):
    name: str
    # The share of the largest run's memory that is saved when this knob has its smallest value.
    share: Number
    smallest: Number
    largest: Number


class MemoryFit(Record, kind="memory law"):
    """What `vramcast fit` found for one group of runs."""

    group: str
    terms: dict[str, str]
    coefficients: dict[str, Number]
    overhead_bytes: Bytes  # reserved minus allocated: the median
    rows: Annotated[list[FittedRow], Meta(min_length=1)]
    knobs: list[Knob]
    # or as a share of allocated memory, where the overhead grows with it
    overhead_share: Number = 0.0
    floor_bytes: Bytes | None = None  # allocated = max(floor, law), where there is one
    left_out: dict[str, str] = field(default_factory=dict)  # runs not used, and why
    notes: list[str] = field(default_factory=list)
    source: str = "fitted"

    def check(self) -> None:
        require(set(self.terms) <= set(self.coefficients), "coefficients lacks a term")
        for text in self.terms.values():
            parse_term(text)


# A parsed expression, so that no text need be executed: a number, a knob's name, or [operator,
# left, right].
Term = float | str | list[Any]


def parse_term(text: str) -> Term:
    """Parses arithmetic with numbers and the names of knobs; nothing else is accepted."""
    try:
        return _parsed(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Contradiction(f"terms: {shortened(text)} is not arithmetic") from None


def _parsed(node: ast.AST) -> Term:
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return [OPERATORS[type(node.op)], _parsed(node.left), _parsed(node.right)]
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    raise ValueError(ast.unparse(node))
