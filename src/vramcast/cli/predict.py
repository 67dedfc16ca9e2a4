"""`vramcast predict`."""

from __future__ import annotations

import json
import sys
from typing import Any

from vramcast.cli.progress import sign_of_life
from vramcast.errors import UsageError
from vramcast.predicting.predict import curve_from, make_request
from vramcast.records.prediction import Prediction
from vramcast.simulate import build
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
    trace: str | None,
    force: bool,
) -> int:
    request = make_request(
        workload,
        gpu=gpu,
        memory=memory,
        allocator=allocator,
        knobs=split_assignments(assignments),
        batch_sizes=None if batch_sizes is None else parse_batch_sizes(batch_sizes),
        trace=trace,
        force=force,
    )
    if build.needs_building():
        print(
            "Compiling the simulated GPU for this version of torch, once (about 30 s).",
            file=sys.stderr,
        )
        with sign_of_life("Compiling"):
            build.build()
    with sign_of_life("Simulating"):
        answer = simulate(request, timeout)
    if trace is not None:
        print(
            f"Wrote {trace}/trace.json and snapshot.pickle; https://pytorch.org/memory_viz opens the latter.",
            file=sys.stderr,
        )
    if request["batch_sizes"] is not None:
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
        raise UsageError(
            f"--batch-sizes {text!r} is not a list of positive sizes.",
            "For example --batch-sizes 1-64 or 8,16,32.",
        )
    return sorted(set(sizes))


def _show_prediction(answer: dict[str, Any], as_json: bool) -> int:
    prediction = Prediction.from_json(json.dumps(answer))
    if as_json:
        print(prediction.to_json())
    else:
        from rich.console import Console

        from vramcast.reporting.terminal import show_prediction

        show_prediction(prediction, Console())
    return 0 if prediction.fits else DOES_NOT_FIT


def _show_curve(answer: dict[str, Any], as_json: bool) -> int:
    curve = curve_from(answer)
    if as_json:
        print(curve.to_json())
    else:
        from rich.console import Console

        from vramcast.reporting.terminal import show_curve

        show_curve(curve, Console())
    return 0 if any(point.fits for point in curve.points) else DOES_NOT_FIT
