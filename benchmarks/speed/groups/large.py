"""Large input: long traces in report and diff, models of many tensors, steps of many kernels.

Three sizes of each; the ratio is to the first. It stays below the ratio of the sizes where time
grows no faster than they do.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from timing import VRAMCAST, Row, once, shown

TITLE = "Large input"
TIMES = (1, 2, 5)  # the sizes, as parts of what the issue names
EVENTS, TENSORS, LAUNCHES = 1_000_000, 4_000, 200_000
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
WORKLOADS = """
import torch
from torch import nn


def tensors(num_tensors=4_000):
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(num_tensors // 2)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(4, 16, device="cuda")

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


def launches(num_launches=200_000):
    x = torch.randn(4, 16, device="cuda")

    def step():
        y = x
        for _ in range(num_launches):
            y = y * 1.5

    return step
"""


def rows(repeats: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "large.py").write_text(WORKLOADS)
        for times in TIMES:
            for other in ("", "other"):
                file = folder / f"{times}{other}.json"
                write_trace(file, times * EVENTS, is_other=bool(other))
        report = [("report", f"{times}.json", "-o", "report.html") for times in TIMES]
        same = [("diff", f"{times}.json", f"{times}.json") for times in TIMES]
        changed = [("diff", f"{times}.json", f"{times}other.json") for times in TIMES]
        yield from grown("report, {} events", EVENTS, report, folder, repeats, 15.0, 10**9)
        yield from grown("diff, {} events, the same", EVENTS, same, folder, repeats, 15.0, 10**9)
        yield from grown("diff, {} events, changed", EVENTS, changed, folder, repeats, 15.0, 10**9)
        tensors = [simulated("tensors", times * TENSORS) for times in TIMES]
        launches = [simulated("launches", times * LAUNCHES) for times in TIMES]
        yield from grown("{} parameter tensors", TENSORS, tensors, folder, repeats, 5.0)
        yield from grown("{} launches a step", LAUNCHES, launches, folder, repeats, 12.0)


def simulated(name: str, number: int) -> tuple[str, ...]:
    return "predict", f"large.py:{name}", f"num_{name}={number}", "--gpu", "h200"


def grown(
    name: str,
    unit: int,
    commands: Sequence[Sequence[str]],
    folder: Path,
    repeats: int,
    at_most_seconds: float,
    at_most_bytes: int | None = None,
) -> Iterator[Row]:
    """The limits are of the last, largest one. Processor seconds are compared."""
    first_seconds = 0.0
    for times, words in zip(TIMES, commands, strict=True):
        command = (*VRAMCAST, *words)
        timings = [once(command, (0, 3), folder) for _ in range(repeats)]
        best = timings[0]
        for timing in timings[1:]:
            best = best.best(timing)
        first_seconds = first_seconds or best.processor_seconds
        is_last = times == TIMES[-1]
        yield Row(
            name.format(f"{times * unit:,}"),
            shown(command),
            best,
            f"{unit:,}",
            best.processor_seconds / first_seconds,
            at_most=1.2 * times,
            at_most_seconds=at_most_seconds if is_last else None,
            at_most_bytes=at_most_bytes if is_last else None,
        )


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
