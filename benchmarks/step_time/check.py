"""Compares predicted step times, and their ranges, with steps that the rates were not made from.

    python benchmarks/step_time/check.py

It writes README.md beside it. held_out.jsonl.gz has the steps: rows of the accuracy suites that
fit.py does not use, runs of `tune` and of `max-batch`, each with the operators of its simulation.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from steps import HERE, Step, read_steps

from vramcast.forecast.timing.pipeline import forecast_step
from vramcast.forecast.timing.rates import shipped
from vramcast.hardware.gpus import find_gpu
from vramcast.records.prediction import BoundBy
from vramcast.units import format_seconds

H200 = find_gpu("h200")
SESSIONS = {
    "wide": "wide",
    "compiled": "compiled",
    "rows": "accuracy suites",
    "tune": "tune",
    "mb": "max-batch",
    "unseen": "unseen.py",
    "further": "further.md",
    "later": "later.md",
    "compiled_set": "compiled_set.md",
}
# One model in many settings: its scans, and a step with another batch, were recorded.
BY_HAND = "elleci-1.36b"
COMPILED = ("-compile-", "-reduce-overhead-", "compiled-", "-compiled_")
TEXT = """# Step times: predicted against measured

Made by `python benchmarks/step_time/check.py` from {num} steps on H200s (torch 2.11) that the rates
in `src/vramcast/forecast/timing/tables` were not made from: the rows of the accuracy suites that
`fit.py` leaves out, runs of `tune` and `max-batch`, and the steps of `unseen.py` and `popular.py`,
whose predictions before they were measured are in [unseen.md](unseen.md), [further.md](further.md)
and [later.md](later.md), and those of `compiled_steps.py` ([compiled_set.md](compiled_set.md)), but
two whose optimizer's kernels were recorded (`by_hand.jsonl`). The rates are made by `fit.py` from
`steps.jsonl.gz`, `kernels.jsonl.gz`,
`operators.jsonl.gz`, some steps of `popular.py` ([larger.md](larger.md): as committed before) and
`shapes.jsonl.gz`, 8,324 convolutions and 1,180 products of `shapes.py`.
[ascribed.md](ascribed.md) says of 20 steps which operator, or the host, made the error. The steps
of `tune` and `max-batch` were simulated before Python in backward passes was counted.
[wide.md](wide.md) has all rows of the suite `wide`, made by `suite.py`. `compiled_alone.jsonl` has
what 21 rows took on an H200, and the parts of their host (profiled.py), `host_pieces.jsonl` what
400 calls of each kind in `host_pieces.py` took; nothing reads them.

Not quite unseen: two numbers were read off profiles of steps of `unseen.py`, 9 ps for each element
of a bilinear interpolation with channels last (segformer), and that the reads of a reduction's last
block take 1.85 times as long where it is not full (convnext, swin, sets, segformer).

{summary}

A range is meant to hold 90 % of measured medians. It is high / low wide, at most 1.3 where the GPU
is busy: of 172 such steps (here and in the mixed sets) no wider range held one more. The GPU is
busy where it would be busy with a slow host too; else the host may be the slower side, and its
speed differs between machines: the same step took up to 2.4 times as long in another session on the
same kind of GPU. `elleci-1.36b` is one model in many settings of `tune`. Its scans are kernels of
the zoo, 10 times as long as their bytes say: they were recorded at batches of 16 and 32
(`by_hand.jsonl`), with the other kernels of a step with a batch of 16 (`hybrid_kernels.jsonl.gz`).
The recurrences of `e10-50m` were recorded too, at batches of 96 and 256, after the last full run of
`fit.py`: its `fit_memory` made their four entries, the others were not made again. Attention,
products that are not aligned, copies, and convolutions with one filter for each channel were fitted
once more, with the kernels of the steps of [newest.md](newest.md) (`newest_kernels.jsonl.gz`);
batch norm in fp16 with those of one step of [fresh.md](fresh.md), whose other kernels
(`fresh_kernels.jsonl.gz`) were not used yet. Kernels that torch.compile writes go by their bytes
and their slow functions at one rate, made from those of six profiled steps (`generated.jsonl`); the
steps of other compiled rows were timed alone, with kernels from Inductor's cache. Batch norm was
fitted to 790 recorded ones (`norm_kernels.jsonl.gz`) and those of four steps of
[recent.md](recent.md) (`recent_kernels.jsonl.gz`), convolutions once more with the 384 of
`shapes.py settings`. [varied.md](varied.md) and [varied_more.md](varied_more.md) have the newest
steps that were predicted before they were measured, and [fields.md](fields.md),
[mixed.md](mixed.md), [mixed_compiled.md](mixed_compiled.md), [mixed_second.md](mixed_second.md),
[mixed_third.md](mixed_third.md), [mixed_fourth.md](mixed_fourth.md) and
[mixed_fifth.md](mixed_fifth.md). `refit.py` has made since what pointwise operators that follow
strides take, reductions of neighbours, cuDNN's recurrent networks, and what 60 operators took
beside their models (`likeness.py`), from the families of `strides.py` (`families_kernels.jsonl.gz`)
and the kernels of the steps of mixed.md and mixed_second.md. Made once more with those of
mixed_third.md and of `rarely.py` (`rarely_kernels.jsonl.gz`), 40 busy steps here were no better
(kernels off by 4.5 % in the median instead of 4.4 %): these tables are not used. Gradients of
tables go by `sums.py`, and additions at positions by `likeness.py` with the kernels of `rarely.py`
too, since these lines know their rows and places; no step here was simulated since. Of the 384
convolutions of `shapes.py settings`, those in 16 bits were fitted as if in TF32 (mended in
convolutions.py, not fitted again). No step here was simulated since: what follows strides and
reductions of neighbours have their old rates here. Additions to places that threads share go by a
model of their own (`additions.py`): 89 recorded ones that it was not fitted to are off by 8 % in
the median, 90 % of them by at most 28 %. No step here was simulated since then: those with such
additions keep their old times. The steps of `steps.jsonl.gz` were simulated again on 2026-11-17: 49
of 51 call up to 2 % more Python functions than before, a GRU 4 %, the zoo's mamba2 twice as many.
The host's rates fitted to them (forward 31.4 us instead of 30.8, backward 11.8 instead of 12.8, a
view 4.0 instead of 3.4) are not better for the steps here, 13.5 % in the median where the host may
be slower instead of 13.2 %, and are not used.

## Every step

{rows}
"""


class Compared(NamedTuple):
    name: str
    source: str
    measured: float
    predicted: float
    low: float
    high: float
    is_busy: bool

    @property
    def is_inside(self) -> bool:
        return self.low <= self.measured <= self.high

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def compare(step: Step) -> Compared:
    forecast = forecast_step(step.works, H200, step.num_python_calls)
    session, measured = next(iter(step.medians.items()))
    assert forecast.seconds_low is not None and forecast.seconds_high is not None
    return Compared(
        step.row,
        SESSIONS[session],
        measured,
        forecast.seconds,
        forecast.seconds_low,
        forecast.seconds_high,
        forecast.bound_by is not BoundBy.LAUNCH,
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    dashes = ["---", *["---:"] * (len(columns) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, dashes, *rows))


def summary(compared: Sequence[Compared]) -> str:
    kinds = {"the GPU is busy": True, "the host may be slower": False}
    groups = {
        f"{kind}, {source}": [c for c in compared if c.is_busy is busy and c.source == source]
        for kind, busy in kinds.items()
        for source in SESSIONS.values()
    }
    for kind, busy in kinds.items():
        groups[kind] = [c for c in compared if c.is_busy is busy]
    others = [c for c in compared if BY_HAND not in c.name]
    groups[f"the GPU is busy, without {BY_HAND}"] = [c for c in others if c.is_busy]
    groups["torch.compile"] = [c for c in compared if any(word in c.name for word in COMPILED)]
    groups["all"] = list(compared)
    return table(
        ("steps", "number", "inside", "width, median", "widest", "|error|, median", "95 % within"),
        [line(name, group) for name, group in groups.items() if group],
    )


def line(name: str, group: Sequence[Compared]) -> list[str]:
    widths = [c.high / c.low for c in group]
    errors = [abs(c.error) for c in group]
    return [
        name,
        str(len(group)),
        f"{100 * statistics.fmean(c.is_inside for c in group):.0f} %",
        f"{statistics.median(widths):.2f}",
        f"{max(widths):.2f}",
        f"{100 * statistics.median(errors):.1f} %",
        f"{100 * np.quantile(errors, 0.95):.0f} %",
    ]


def every(compared: Sequence[Compared]) -> str:
    return table(
        ("step", "from", "measured", "predicted", "range", "inside", "error", "GPU"),
        [
            [
                c.name,
                c.source,
                format_seconds(c.measured),
                format_seconds(c.predicted),
                f"{format_seconds(c.low)} to {format_seconds(c.high)}",
                "yes" if c.is_inside else "**no**",
                f"{100 * c.error:+.1f} %",
                "busy" if c.is_busy else "may wait",
            ]
            for c in sorted(compared, key=lambda c: -abs(c.error))
        ],
    )


def main() -> None:
    used = set(shipped().calibrated_on)
    steps = [step for step in read_steps("held_out.jsonl.gz") if step.row not in used]
    compared = [compare(step) for step in steps]
    text = TEXT.format(num=len(compared), summary=summary(compared), rows=every(compared))
    (HERE / "README.md").write_text(text)
    print(summary(compared))


if __name__ == "__main__":
    main()
