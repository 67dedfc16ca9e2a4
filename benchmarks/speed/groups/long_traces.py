"""Long traces in report and diff: three sizes of each, the ratio is to the first."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from timing import Row, grown

TITLE = "Long traces"
TIMES = (1, 2, 5)
EVENTS = 1_000_000
NUM_LAYERS = 48
FORWARD = ("native_layer_norm", "addmm", "add", "addmm", "gelu", "addmm", "add")
BACKWARD = ("mm", "gelu_backward", "mm")
HEAD = {
    "version": 1,
    "kind": "trace",
    "source": "predicted",
    "workload": "generated",
    "knobs": {},
    "gpu": "h200",
    "torch_version": "2.13.0",
    "allocator_settings": "",
}


def rows(repeats: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for times in TIMES:
            for other in ("", "other"):
                file = folder / f"{times}{other}.json"
                write_trace(file, times * EVENTS, is_other=bool(other))
        report = [("report", f"{times}.json", "-o", "report.html") for times in TIMES]
        same = [("diff", f"{times}.json", f"{times}.json") for times in TIMES]
        changed = [("diff", f"{times}.json", f"{times}other.json") for times in TIMES]
        sizes = [times * EVENTS for times in TIMES]
        limits = {"at_most_seconds": 15.0, "at_most_bytes": 10**9}
        yield from grown("report, {} events", sizes, report, folder, repeats, **limits)
        yield from grown("diff, {} events, the same", sizes, same, folder, repeats, **limits)
        yield from grown("diff, {} events, changed", sizes, changed, folder, repeats, **limits)


def write_trace(file: Path, num_events: int, *, is_other: bool) -> None:
    """As of training a transformer. The other one lacks an allocation now and then."""
    with file.open("w") as opened:
        opened.write(f'{json.dumps(HEAD)[:-1]}, "events": [\n')
        lines = events(num_events, every=10_007 if is_other else num_events)
        opened.write(next(lines))
        for line in lines:
            opened.write(f",\n{line}")
        opened.write("\n]}\n")


def events(num_events: int, every: int) -> Iterator[str]:
    """`every`: so many allocations of the forward pass apart, one is left out."""
    forward, backward = (
        [
            [described(op, layer, place) for place, op in enumerate(ops)]
            for layer in range(NUM_LAYERS)
        ]
        for ops in (FORWARD, BACKWARD)
    )
    number = written = num_forward = num_steps = 0
    while written < num_events:
        num_steps += 1
        yield f'["step", {num_steps}]'
        alive: list[int] = []
        for layer, texts in enumerate(forward):
            for place, text in enumerate(texts):
                num_forward += 1
                if num_forward % every:
                    number += 1
                    alive.append(number)
                    num_bytes = (4 + place) * 2**20 + layer * 1024
                    yield f'["alloc", {number}, {num_bytes}, {text}]'
        written += 2 * len(alive) + 1
        for texts in reversed(backward):
            for text in texts:
                number += 1
                yield f'["alloc", {number}, {4 * 2**20}, {text}]'
                yield f'["free", {number}]'
            for _ in FORWARD:
                if alive:
                    yield f'["free", {alive.pop()}]'
        written += 2 * len(BACKWARD) * NUM_LAYERS


def described(op: str, layer: int, place: int) -> str:
    facts = {
        "category": "activations",
        "module": f"blocks.{layer}.part_{place}",
        "source": f"model.py:{50 + place} in forward",
    }
    return f'"aten::{op}", {json.dumps(facts)}'
