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
in `src/vramcast/forecast/timing/tables` were not made from: rows of the accuracy suites that
`fit.py` leaves out, runs of `tune` and `max-batch`, and the sets `unseen`, `further`, `later` and
`compiled_set`. They are timed with today's rates. [sets/](sets/README.md) has every set of steps
whose predictions were committed before they were measured, as they were committed.

{summary}

A range is meant to hold 90 % of measured medians. It is high / low wide, at most 1.3 where the GPU
is busy. The GPU is busy where it would be busy with a slow host too; else the host may be the
slower side, and its speed differs between machines: the same step took up to 2.4 times as long in
another session on the same kind of GPU. `elleci-1.36b` is one model in many settings of `tune`.

Not quite unseen: two numbers were read off profiles of steps of `unseen.py`, 9 ps for each element
of a bilinear interpolation with channels last (segformer), and that the reads of a reduction's last
block take 1.85 times as long where it is not full (convnext, swin, sets, segformer). The scans of
`elleci-1.36b` and the recurrences of `e10-50m` are kernels of the zoo and were recorded, at other
batches (`by_hand.jsonl`).

## What is where

- `workloads/`: the steps, by set (`sets/sets.toml` names the file). `simulated.py` writes what a
  step's simulation does, `set_table.py` predicts it, adds what was measured, and makes the tables.
- `families/`: single operators over many sizes, as workloads. `recording/`: scripts for the GPU;
  `record.py --step` profiles a workload. `recorded/`: what came of them. `joined.py` pairs recorded
  kernels with simulated operators.
- `fit.py` makes the rates from recorded kernels and steps; `refit.py` pointwise operators that
  follow strides, reductions of neighbours, recurrent networks, and operators by their likeness to
  recorded ones; `additions.py` and `sums.py` additions to shared places and gradients of tables;
  `fit_fused.py` kernels that torch.compile writes. Run them in this order. `fit_products.py` fits
  products of two matrices alone, `convolutions.py` convolutions.
- `suite.py` compares all rows of a suite ([sets/wide.md](sets/wide.md)).

## What the tables were made from

| tables | from |
| --- | --- |
| norms, memory | `steps`, `kernels`, `operators`, `larger_kernels` |
| products of two matrices | `products_kernels`, `shapes`, `kernels`, `larger_kernels`, \
`newest_kernels`, `unaligned`; in groups: `larger_kernels`, `tenth_kernels` |
| attention, copies, rows that are not aligned, one filter a channel | `newest_kernels` too |
| masks and dropout of attention, and its likeness | `masked_kernels` too |
| batch norm | `norm_kernels`, `recent_kernels`, one step of `fresh_kernels` |
| batch norm of networks in `eval()` | `evaluated_kernels` |
| CTC losses; samples at points, likeness of others (refit.py names them) | `off_kernels` too |
| convolutions | `shapes`, `volumes`, `layers`, `more_layers`, `more_layers_in_time`; kernels of \
the sets `tenth`, \
`compiled_fourth`, \
`compiled_fifth` too |
| convolutions, cuDNN's batch norm | kernels of the sets `mixed_third`, `mixed_fifth`, `sixth`, \
`seventh`, `eighth`, `compiled_third` too |
| many products at once | all that tells their likeness, and `batched_kernels` |
| joined tensors, pools, samples at points; likeness of some operators | `places_kernels` |
| unfold, fold; likeness of some operators | `known_badly_kernels` too (refit.py names them) |
| kernels that torch.compile writes | `fused_kernels`: families/fused.py, and 51 steps of the \
sets `compiled_third` to `compiled_sixth` |
| strides, reductions, likeness, recurrent networks | `families_kernels`, `mixed_kernels`, \
`mixed_second_kernels` |
| additions at positions, gradients of tables | `rarely_kernels` too |
| recurrent networks | `off_kernels`, `rarely_kernels`, `eighth_kernels` too |
| nothing: kept for checks | `compiled_alone`, `host_pieces`, `fused_unseen`, \
`compiled_seventh_kernels`, and all else of the sets |

Batch norms in `eval()` were timed as in training, up to four times too long. Where a fifth of them
was left out, they are off by 17 % by time forward and by 6.5 % backward; `taught` of the seventh
set came out at -3.6 % with them (+27.5 % as predicted).

cuDNN's batch norm has a block for each channel, about 7 ns in fp32 and 4.5 in half precision beside
its bytes and its reads. Where a fifth was left out, with the likeness of both, forward went from
10.8 to 6.1 % by time in fp32 and from 13.8 to 10.1 in half precision, backward from 5.2 to 2.8 and
from 8.1 to 5.8; an instance norm of 131,072 channels was told an eighth of its time. Recurrent
networks count arithmetic and bytes beside their steps now: those in half precision went from about
22 to 14 % in the median, in TF32 it stayed near 17 %, as cuDNN chooses among kernels there by a
rule that is not known (`mb-lstm-fp32` is +14.7 % now, +10.9 before).

Tried and not used: copies by likeness (better by a fifth where left out, but 87 ms of errors
instead of 74 in five sets of steps), likeness of all operators with four sets of steps too (363 ms
of errors instead of 361 in the fifth), rates of the host from `steps` as simulated on 2026-11-17
(13.5 % instead of 13.2 where the host may be slower). Single products by likeness made busy steps
above worse (3.3 % instead of 2.7), joined tensors by their shortest run those of the seventh set.

Kernels that torch.compile writes went by their tensors' bytes and slow functions, with one rate for
all, until 2026-11-19: reductions of the third and fourth compiled set came out at -15 and -26 %,
persistent ones at -22 and -56 %. Now a few of their blocks run on the host
(src/vramcast/simulate/fused): what they move, ask the cache for, compute and wait for.
`fused_kernels` has 8,083 that are fitted, of them 2,034 of families/fused.py. Of functions and
steps that were left out, a quarter at a time, kernels over 20 microseconds are off by 8.2 % in the
median, all by 13.6 % by time. These were 8.9 and 17.8 % before five things were told: what a
kernel computes twice of the same counts once, as compilers do (16.4 % by time); memory is read 64
bytes at a time (14.8); what blocks that run at once, or rounds that follow each other, read of far
places is shared (14.3); whole numbers cost otherwise than others (14.2); and what goes through
shared memory takes its time. The numbers in use were fitted before the last one: fitted again they
are no better for kernels that nothing was made from. Of the 15 steps of the set `compiled_seventh`
that were profiled (`fused_unseen`), from which nothing was made, those over 20 microseconds are off
by 8.5 % in the median (8.7 before the last one), all by 16.8 % by time (19.6). A part of this is
not so in a simulation, which knows the places that are gathered in `deberta` (1.9 ms, 5.6 told
without them and 2.0 with them). Without a GPU that configuration is taken which the rates call
fastest. Still off: a loss with the squares of its normalizers (`sizes_of_scores`, 2.7 ms, 3.8
told), and masks that depend on the place along an axis (`states_by_doubling`).

What goes through shared memory (src/vramcast/simulate/fused/shared_memory.py) has no number that
was fitted to times. Gradients of layer norms behind dropout sum up along columns; a mask of bytes
gives each thread 16 numbers in a row, so that warps have different rows, and their sums go through
shared memory with 16 threads at one bank (`distilbert_fp16`: 1.70 ms, 0.38 told before, 1.66 now).
With other configurations of such a kernel an H200 took what this says, and as long as without these
sums where each warp had all rows. Gradients of pools hand on their addresses (`resnet50_last`: 1.86
ms, 1.02 before, 2.01 now; 13 kernels were at -20 to -46 %, now -11 to +22).

Masks and dropout of attention are timed by `masked_kernels`, of families/masked.py: with both,
cuDNN's were off by 50 % forward and 48 % backward in the median. Of all of cuDNN's attention, what
was left out is off by 6.9 % forward and 6.5 % backward now.

Additions of which it is known that many go to one place wait for each other
(src/vramcast/simulate/fused/crowds.py): of gradients of a T5's distances 21.5 and 1.17 ms are told
for 19.9 and 0.96, with the numbers that were fitted to `atomics` before; without knowing it 2.2 and
0.14.

Products of two matrices take the tile and the parts of the inner dimension that are fastest
(forecast/timing/products.py), with rates for each kind of product: of TF32 it is told how many of
the two matrices cuBLAS has to turn. `products_kernels` has the three products of 840 layers, in any
precision. Of what was left out, a quarter at a time, the median error is 3.8 % in 16 bits (4.4
before), 4.0 in fp32 (4.5), in TF32 5.1 with no matrix turned (6.8), 7.8 with one (22.4), 8.1 with
both (16.6), and 5 to 11 % with rows that are not aligned (13.4 and 22). What a product is told to
write to (`out=`, as in compiled steps) was counted as read, too, until 2026-11-19. Products in
groups, of experts, are told by their groups; of those only the kernels of two steps are recorded.

`off_kernels` has 26 parts of families/off.py and of older families. Of what was left out, by time:
additions along a dimension went from 60 to 17 %, chosen rows from 30 to 9, Fourier transforms
from 31 to 52 % to 5, attention by cuDNN from 42 to 14, ensembles (baddbmm) from 32 to 9, many small
products from 27 to 18, CTC losses from 98 to 15 or less. On steps of the seventh set, operators
that are no convolutions are off by 1.35 % of their step in the median and 3.7 in the mean (1.7 and
4.8 before; the families were made after it), on those of the third to sixth by 1.2 and 2.1 (1.1 and
2.1 before). Still off: gradients of samples at points (36 % in the median),
recurrent networks (19 and 16 %; their kernels run side by side, which profiled.py tells since),
products with few columns (`cait`), additions at positions that most rows share (`switch`).

Convolutions go by the 64 recorded ones that are most alike, and scales.py learned which of their
features tell most; paddings, strides and sides of filters are told since 2026-11-18. `layers` has
5,582 (layers.py: first layers, one filter a channel, groups, patches, sound, films, and layers of
426 networks): of the quarter that was left out the median error went from 19.9 to 14.9 %, by time
from 55 to 32 %, of layers that networks have from 14.3 to 10.1 % and from 29 to 21 %. The
convolutions of the steps named above are in the table too; two gradients that were timed as one
have their shares as told before. Groups that were recorded without their spans are left out: cuDNN
may run their kernels side by side. Trees of decisions (300 of 40 leaves) were no better: 14.4 and
21.3 % forward instead of 11.0 and 20.0. `more_layers` has 4,535 rarer ones (1x1, groups, one filter
a channel, short lines), beside which the sums over features are of the others: where a quarter was
left out, the median error went from 14.2 to 12.2 % and by time from 28.0 to 24.7; of 1,921 in four
recordings that the table is not made from it is 9.5 % as before. With the sets `ninth`, `tenth` and
`compiled_fourth` left out, these went from 8.9, 9.8 and 11.1 to 8.8, 9.4 and 9.7 % in the median,
by time from 17.9, 39.2 and 34.6 to 18.8, 38.2 and 37.2; to take in kernels of steps that are told
four times too short made no difference. `more_layers_in_time` has 3,205 of films, sound and volumes
(3x1x1 and the like): of a quarter of `layers` that was left out, 13.4 went to 12.4 % in the median,
of a quarter of these 13.5 to 12.9 and by time 31.9 to 29.3. Still off are 1x1 convolutions of many
short lines in TF32 (gradients of 3,072 x 1,024 x 24: 9.7 ms, 4.5 predicted), and one filter a
channel on volumes with channels last (3x7x7: 40.8 ms, 17.2 predicted), whose gradients go by
kernels of 0.01 to 0.9 TFLOP/s; of the 98 such in 16 bits that were recorded none has that filter.
Why cuDNN does not divide the sum of some gradients of a first layer's weights, which then take 9.3
ns for each position (yolo's 105 ms), is not known.

Many products at once (bmm) take the tiles that are fastest: operations for each element and each
row and column of one, in rounds over the multiprocessors, the bytes beside them, and seconds for
each step of the inner dimension, which cuBLAS does not divide where there are few tiles.
`batched_kernels` has 559 of any layout. Where each of its four parts was left out, the median error
went from 14.6 to 8.8 % and by time from 20.1 to 13.9, both with the likeness of all others (19.1
and 22.5 before there were any); of 2,703 recorded before, a quarter left out each time, from 8.7 to
6.2 and from 11.4 to 8.7. Of 364 kernels of steps that nothing was made from, the median error went
from 10.6 to 6.4 %, by time from 15.3 to 11.0. Still off: experts in TF32 and in 16 bits with 24,576
rows and more (a bmm of (8, 1024, 768, 24576) in bf16 took 995 us, 360 predicted, where one of (16,
512, 1408, 24576) ran at 845 TFLOP/s), and which of 16-bit rows begin at 4 bytes and which at 2 is
told by all sizes, not by the layout (16 of the 559).

places.py tells it of `places_kernels`:
joined tensors went from 31.8 to 7.3 % by time where they were left out, the gradients of samples at
points from 93 to 28 %; enlarging along lines and by cubes is off by as much as before. With
likeness of all operators of `known_badly_kernels` steps were no better. The steps above
were simulated before operators told their strides, the places they add to and the rows of their
tables: these have their old rates here.

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
