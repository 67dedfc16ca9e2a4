"""Predictions of the steps in unseen.py, or of a set of popular.py, and what came of them.

    python benchmarks/step_time/unseen_table.py unseen predict SIMULATED.jsonl  # to unseen.jsonl
    python benchmarks/step_time/unseen_table.py unseen measured FOLDER   # record.py --step of each
    python benchmarks/step_time/unseen_table.py unseen again SIMULATED.jsonl
    python benchmarks/step_time/unseen_table.py unseen                   # writes unseen.md

A prediction is made once, and committed before its step is measured. `again` puts beside it what
the rates say later, of what is then simulated: those are not predictions of something unseen.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from check import table
from steps import HERE

from vramcast.forecast.timing.pipeline import forecast_step
from vramcast.forecast.timing.rates import shipped
from vramcast.hardware.gpus import find_gpu
from vramcast.records.prediction import BoundBy
from vramcast.tracing.work import OperatorWork
from vramcast.units import format_seconds

FILES = {
    "unseen": "unseen.py",
    "compiled_set": "compiled_steps.py",
    "varied": "varied.py",
    "varied_more": "varied.py",
    "fields": "fields.py",
    "mixed": "mixed.py",
    "mixed_compiled": "mixed.py",
    "mixed_second": "mixed_second.py",
    "mixed_third": "mixed_later.py",
    "mixed_fourth": "mixed_later.py",
    "mixed_fifth": "mixed_fifth.py",
}
OWN = ("seconds", "seconds_low", "seconds_high", "device_seconds", "host_seconds")
TEXT = """# Steps that nobody had measured

Made by `benchmarks/step_time/unseen_table.py` from `{name}.jsonl`. The steps are those of
`{file}`. Each was simulated without a GPU and its prediction committed before it was measured,
on one H200 with a host whose small step takes {host} ms (`vramcast calibrate --host`); the
predicted seconds of the host are for one that takes {usual} ms. "kernels" are the sums of all
kernels of a step, larger than the step where cuDNN runs some side by side; "calls" the Python
functions that it calls. {more}

{rows}

{summary}{again}
"""
AGAIN = """

## Predicted again

With the rates and models of {day}, which have met what was measured here: no test of them.

{rows}

{summary}"""
DAY = "2026-11-18, night"


MORE = {
    "recent": """`mpnet` of [fresh.md](fresh.md), measured once more beside these, took 143 ms and
not 325: why is not known. Convolutions in groups and dilated ones made the other errors.""",
    "compiled_set": """Compiled ones found their kernels in Inductor's cache. `t5` was off by one
kernel, which adds the gradients of all scores into a table of 384 numbers. Of bitsandbytes' kernels
only the bytes were known, and Python inside of them was not counted: with what was recorded here
the three come out at 19, 19 and 21 ms, torchao_8bit at 19 ms with 11,532 calls. torchao_4bit was
predicted before that too.""",
    "unseen": """README.md has the same steps with today's rates: tokens_in_the_middle was off
because a softmax across rows reads from memory what a smaller one finds in the cache, which was
found in recorded kernels before this measurement came.""",
    "larger": """The rates have since been made from their kernels too (`larger_kernels.jsonl.gz`):
further.md has steps that they have not met.""",
    "further": "",
    "later": "",
    "varied": """Batch norm made the errors of `unet_of_masks` and `deeplab_plus` (2.2 and 3.7 ms
too long; it was counted by its bytes, and goes by the reads of its threads since), convolutions in
groups that of `seresnext_last` (6.2 ms too long; those whose widths are powers of 2 are told apart
since), other convolutions that of `resnet50d_fp32`. `graph`, `policy` and `tables` are not there:
no time was left for them.""",
    "varied_more": """Interpolation made the error of `deeplab_fp32_last`: 15.3 ms predicted for two
gradients that took 0.8, as a slice of channels-last memory was not seen to be one (its dilated
convolutions took 23.2 ms, 22.2 predicted). In `ratings` it is the gradient of embedding bags, 3.6
ms for 0.3. The kernels of `sounds` are right, but those of a long filter's 16 groups ran side by
side. These predictions were made without two features of such filters, which came back since.
`cohere` is not there: no time was left for it.""",
    "fields": "",
    "mixed": """`autoencoder_of_latents` was off by one kernel (attention with heads 512 wide, 43
ms, 17 predicted), `styles` by convolutions with a group for each sample (three to five times as
long as predicted, side by side), `hash_grid` by lookups of pairs and by tensors with gaps,
`deberta` by additions in 16 bits (31 ms, 67 predicted). `eva` failed on the GPU (an assertion of
its own kernels).""",
    "mixed_compiled": """`codec` was off by the gradients of dilated convolutions in one dimension.
They found their kernels in Inductor's cache.""",
    "mixed_second": """The tables have since been made from their kernels too
(`mixed_second_kernels.jsonl.gz`, with those of `cells` and `pictures` of strides.py).""",
    "mixed_third": """Nine of twelve steps of `vit_compiled` took 27 to 40 ms while other
processes compiled on that machine; measured again alone it took 20.5 ms. The first measurement
stays in the table. `edgenext_last` was off by filters of 9 x 9 for each channel (10.3 ms, 1.8
predicted), `scores_compiled` by additions to neighbouring places (2.6 ms, 0.4 measured), `dla_last`
by batch norm of 16 channels. `words`, `recommender` and `vocoder` were measured in a later call.
`mixed_third_kernels.jsonl.gz` has the kernels of the others; no table is made from them.""",
    "mixed_fourth": "It was predicted with the rates that mixed_third.md had.",
    "mixed_fifth": """`impala`, `periodic`, `bought_next`, `clicks`, `sage`, `planes` and `critics`
are not there: no time was left for them. `volumes` was off by filters of 5 x 5 x 5 in bf16, which
were never recorded (14.9 ms forward, 5.3 measured), `hubert` by the kernels of a long filter's 16
groups, which ran side by side for less than predicted. Eight of twelve steps of `hiera` took 85 ms
while another process prepared its step on that GPU; the other four, and steps alone after that,
took 73 ms. The median of all stays in the table. `volo` was off by im2col and col2im (11.7 ms, 1.7
predicted) and by many small products (the other way), `preferences` by scores that are copied
before their softmax, `joint` by layer norms without weights (2.0 ms, 5.2 predicted).
`mixed_fifth_kernels.jsonl.gz` has their kernels; no table is made from them.""",
    "newest": """The rates have since been made from their kernels too (`newest_kernels.jsonl.gz`):
fresh.md has steps that they have not met.""",
    "fresh": """`scaled` was off because no batch norm in fp16 had been recorded (mended
since), `mpnet` because it computes positions on the host, 150 ms on each of 16 threads: arithmetic
of the host is not counted. `stablelm` took 87 ms in steps with nothing queued before them.
Convolutions made the errors of `deeplab_101` (dilated, 18 ms, predicted 38) and of `regnet_y_last`
(in groups with channels last, 53 ms, predicted 28). `diffusion` is not there: its library was not
on that machine.""",
}


def read(file: Path) -> dict[str, dict[str, Any]]:
    if not file.exists():
        return {}
    return {line["step"]: line for line in map(json.loads, file.read_text().splitlines())}


def write(file: Path, steps: dict[str, dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(step) + "\n" for step in steps.values()))


def name_of(row: str) -> str:
    """Of unseen.py:NAME, or of popular.py:step name=NAME."""
    return row.rpartition(":")[2].rpartition("=")[2]


def forecasts(simulated: Path) -> Iterator[dict[str, Any]]:
    for line in map(json.loads, simulated.read_text().splitlines()):
        works = [OperatorWork(*w[:4], tuple(w[4]), *w[5:]) for w in line["works"]]
        order = [works[index] for index in line["order"]]
        found = forecast_step(order, find_gpu("h200"), line["num_python_calls"], shipped())
        yield {
            "step": name_of(line["row"]),
            "is_busy": found.bound_by is not BoundBy.LAUNCH,
            "num_python_calls": line["num_python_calls"],
            "predicted": {key: float(f"{getattr(found, key):.5g}") for key in OWN},
        }


def predict(file: Path, simulated: Path) -> None:
    write(file, {**read(file), **{found["step"]: found for found in forecasts(simulated)}})


def predict_again(file: Path, simulated: Path) -> None:
    steps = read(file)
    for found in forecasts(simulated):
        steps[found["step"]]["again"] = {"is_busy": found["is_busy"], **found["predicted"]}
    write(file, steps)


def add_measured(file: Path, folder: Path) -> None:
    steps = read(file)
    for path in sorted(folder.glob("*.jsonl")):
        record = json.loads(path.read_text())
        name = record.get("knobs", {}).get("name") or name_of(record["row"])
        if name not in steps or "seconds" not in record:
            continue
        sums = [sum(ns for call in step for _, ns in call[2:]) for step in record["steps"]]
        steps[name]["measured"] = {
            "seconds": float(f"{statistics.median(record['seconds']):.5g}"),
            "wall_seconds": float(f"{record['wall_seconds']:.5g}"),
            "device_seconds": float(f"{statistics.median(sums) * 1e-9:.5g}"),
            "python_calls": sum(record["python_calls"].values()),
            "host_step_seconds": record.get("host_step_seconds"),
        }
    write(file, steps)


def row(step: dict[str, Any]) -> list[str]:
    predicted, measured = step["predicted"], step["measured"]
    low, high = predicted["seconds_low"], predicted["seconds_high"]
    is_inside = low <= measured["seconds"] <= high
    kernels = predicted["device_seconds"] / measured["device_seconds"] - 1
    return [
        step["step"],
        format_seconds(measured["seconds"]),
        format_seconds(predicted["seconds"]),
        f"{100 * error_of(step):+.1f} %",
        f"{format_seconds(low)} to {format_seconds(high)}",
        "yes" if is_inside else "**no**",
        f"{format_seconds(measured['device_seconds'])}, {100 * kernels:+.1f} %",
        f"{measured['python_calls']}, {step['num_python_calls']}",
        "busy" if step["is_busy"] else "may wait",
    ]


def error_of(step: dict[str, Any]) -> float:
    return float(step["predicted"]["seconds"] / step["measured"]["seconds"] - 1)


def summary(steps: list[dict[str, Any]]) -> str:
    lines = []
    for name, is_busy in (("the GPU is busy", True), ("the host may be slower", False)):
        chosen = [step for step in steps if step["is_busy"] is is_busy]
        if not chosen:
            continue
        errors = [abs(error_of(step)) for step in chosen]
        inside = [
            s["predicted"]["seconds_low"]
            <= s["measured"]["seconds"]
            <= s["predicted"]["seconds_high"]
            for s in chosen
        ]
        widths = [s["predicted"]["seconds_high"] / s["predicted"]["seconds_low"] for s in chosen]
        lines.append(
            [
                name,
                str(len(chosen)),
                f"{sum(inside)}",
                f"{statistics.median(widths):.2f}, {max(widths):.2f}",
                f"{100 * statistics.median(errors):.1f} %",
                f"{100 * max(errors):.0f} %",
            ]
        )
    columns = ("steps", "number", "inside", "width: median, most", "|error|: median", "most")
    return table(columns, lines)


def again(steps: list[dict[str, Any]]) -> str:
    later = [
        {**step, "is_busy": step["again"]["is_busy"], "predicted": step["again"]}
        for step in steps
        if "again" in step
    ]
    if not later:
        return ""
    columns = ("step", "measured", "as committed", "again", "error", "range", "inside", "GPU")
    rows = []
    for before, step in zip((step for step in steps if "again" in step), later, strict=True):
        cells = row(step)
        committed = format_seconds(before["predicted"]["seconds"])
        rows.append([*cells[:2], committed, *cells[2:6], cells[-1]])
    return AGAIN.format(day=DAY, rows=table(columns, rows), summary=summary(later))


def main() -> None:
    name, *wanted = sys.argv[1:]
    file = HERE / f"{name}.jsonl"
    if wanted:
        actions = {"predict": predict, "measured": add_measured, "again": predict_again}
        actions[wanted[0]](file, Path(wanted[1]))
        return
    steps = [step for step in read(file).values() if "measured" in step]
    columns = ("step", "measured", "predicted", "error", "range", "inside", "kernels, error")
    rows = table((*columns, "calls: real, simulated", "GPU"), [row(step) for step in steps])
    hosts = [
        s["measured"]["host_step_seconds"] for s in steps if s["measured"]["host_step_seconds"]
    ]
    usual = shipped().host_step_seconds or 0.0
    text = TEXT.format(
        name=name,
        file=FILES.get(name, "popular.py"),
        more=MORE[name],
        rows=rows,
        summary=summary(steps),
        again=again(steps),
        host=f"{1e3 * statistics.median(hosts):.2f}" if hosts else "unknown",
        usual=f"{1e3 * usual:.2f}",
    )
    (HERE / f"{name}.md").write_text(text)
    print(summary(steps))


if __name__ == "__main__":
    main()
