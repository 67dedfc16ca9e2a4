"""`vramcast predict`."""

from __future__ import annotations

import json
import sys
from typing import Any

from vramcast.cli.progress import sign_of_life
from vramcast.errors import UsageError
from vramcast.predict import compiles_first, curve_from, make_request
from vramcast.records import Prediction
from vramcast.simulate.runner import simulate
from vramcast.workload import split_assignments

DOES_NOT_FIT = 3


def run(
    workload: str,
    assignments: list[str],
    gpu: str | None,
    memory: str | None,
    batch_sizes: str | None,
    allocator: str | None,
    timeout: float,
    as_json: bool,
) -> int:
    request = make_request(
        workload,
        gpu=gpu,
        memory=memory,
        allocator=allocator,
        knobs={},
        knobs_text=split_assignments(assignments),
        batch_sizes=parse_batch_sizes(batch_sizes) if batch_sizes else (),
    )
    compiling = compiles_first()
    if compiling:
        print("Compiling the simulated GPU for this version of torch, once (about 30 s).", file=sys.stderr)
    with sign_of_life("Compiling and simulating" if compiling else "Simulating"):
        # the time limit is for the user's code, not for the compiler
        answer = simulate(request, timeout + (120 if compiling else 0))
    if request["batch_sizes"]:
        return _show_curve(answer, as_json)
    return _show_prediction(answer, as_json)


def parse_batch_sizes(text: str) -> list[int]:
    """'1-64', '1-64:4' (every fourth) or '8,16,32'."""
    sizes: list[int] = []
    try:
        for part in text.split(","):
            span, _, stride = part.partition(":")
            first, dash, last = span.partition("-")
            sizes += range(int(first), int(last) + 1, int(stride or 1)) if dash else [int(first)]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise UsageError(f"--batch-sizes {text!r} is not a list of positive sizes.", "For example --batch-sizes 1-64 or 8,16,32.")
    return sorted(set(sizes))


def _show_prediction(answer: dict[str, Any], as_json: bool) -> int:
    prediction = Prediction.from_json(json.dumps(answer))
    if as_json:
        print(prediction.to_json())
    else:
        from rich.console import Console

        from vramcast.report.terminal import show_prediction

        show_prediction(prediction, Console())
    return 0 if prediction.fits else DOES_NOT_FIT


def _show_curve(answer: dict[str, Any], as_json: bool) -> int:
    curve = curve_from(answer)
    if as_json:
        print(curve.to_json())
    else:
        from rich.console import Console

        from vramcast.report.terminal import show_curve

        show_curve(curve, Console())
    return 0 if any(point.fits for point in curve.points) else DOES_NOT_FIT
