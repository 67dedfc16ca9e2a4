"""`vramcast.plan`: a batch for every sequence length and GPU, and the curriculum they make."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.predicting import document_001
from vramcast.predicting.curriculum import SPLIT, as_yaml, in_sequence, totals
from vramcast.predicting.plan_order import LENGTHS_ADVICE, Order, check_order
from vramcast.predicting.plan_stages import make_stage, reserved_law
from vramcast.predicting.predict import DEFAULT_TIMEOUT_SECONDS, compile_device
from vramcast.processes.progress import Progress, Report, ignore
from vramcast.records.plan import DocumentComparison, GpuPlan, Plan
from vramcast.records.prediction import BatchSizePoint
from vramcast.records.store import new_folder, write_atomically
from vramcast.simulate.runner import simulate_all
from vramcast.workload import Workload, joined, name_of

DEFAULT_SAFETY = 0.05  # for fragmentation in long runs: what is predicted is the first steps
DEFAULT_TOKENS = 1e9
Jobs = dict[
    tuple[str | None, bool], list[dict[str, Any]]
]  # by GPU, and whether the loss is in chunks


def plan(
    workload: Workload,
    *,
    seq_lens: str | Sequence[int] | None = None,
    gpu: str | Sequence[str] | None = None,
    memory: str | int | None = None,
    tokens_per_step: int | None = None,
    tokens: str | float = DEFAULT_TOKENS,
    safety: float = DEFAULT_SAFETY,
    allocator: str | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: Report = ignore,
    knobs: Mapping[str, Any] | None = None,
    **more_knobs: Any,
) -> Plan:
    """The batch for every sequence length on every GPU, with no GPU.

    `plan("train.py:build", seq_lens=[128, 256, 512], gpu=["rtx-4090", "h200"])`. `out` is a folder for plan.json and a curriculum-GPU.yaml
    each.
    """
    started = time.perf_counter()
    is_document = name_of(workload) == document_001.WORKLOAD
    if seq_lens is None and not is_document:
        raise UsageError("No sequence lengths were given.", LENGTHS_ADVICE)
    order = check_order(
        workload,
        seq_lens=tuple(document_001.BATCHES) if seq_lens is None else seq_lens,
        gpu=document_001.GPUS if gpu is None and memory is None and is_document else gpu,
        memory=memory,
        allocator=allocator,
        tokens=tokens,
        tokens_per_step=tokens_per_step,
        safety=safety,
        knobs=joined(knobs, more_knobs),
    )
    folder = None if out is None else new_folder(Path(out), force=force)
    compile_device(progress)
    jobs = _jobs(order, compare=is_document and document_001.GPU in order.gpus)
    answers = _run(jobs, timeout, progress)
    found = _plan(order, answers, time.perf_counter() - started)
    if folder is not None:
        write(found, folder)
    return found


def write(found: Plan, folder: Path) -> list[Path]:
    """plan.json, and a curriculum for every GPU on which all lengths fit."""
    contents = {"plan.json": found.to_json() + "\n"}
    contents |= {
        f"curriculum-{gpu.gpu or 'memory'}.yaml": as_yaml(found, gpu)
        for gpu in found.gpus
        if gpu.complete
    }
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return [folder / name for name in contents]


# ------------------------------------------------------------------------------------------------------------------- workers
def _jobs(order: Order, *, compare: bool) -> Jobs:
    """Requests for workers, enough that no core idles: a GPU's lengths are shared out where GPUs do not go round evenly."""
    cores = os.cpu_count() or 1
    parts = 1 if len(order.gpus) % cores == 0 else cores
    known = (
        {
            length: document_001.BATCHES[length]
            for length in order.seq_lens
            if length in document_001.BATCHES
        }
        if compare
        else {}
    )
    jobs: Jobs = {}
    if known and document_001.CHUNKS_KNOB not in {
        **order.request["knobs"],
        **order.request["knobs_text"],
    }:
        knobs = {**order.request["knobs"], document_001.CHUNKS_KNOB: document_001.CHUNKS}
        whole = replace(order, tokens_per_step=None)  # what fits, not what divides
        shares = _shares(tuple(known), cores)
        jobs[document_001.GPU, True] = [
            _request(whole, document_001.GPU, share, {}, knobs, confirm=False) for share in shares
        ]
    for gpu in order.gpus:
        also = (
            {str(length): [batch] for length, batch in known.items()}
            if gpu == document_001.GPU
            else {}
        )
        jobs[gpu, False] = [
            _request(order, gpu, share, also, order.request["knobs"])
            for share in _shares(order.seq_lens, parts)
        ]
    return jobs


def _shares(seq_lens: Sequence[int], parts: int) -> list[Sequence[int]]:
    """By turns: every share has short and long lengths."""
    return [seq_lens[part::parts] for part in range(min(parts, len(seq_lens)))]


def _request(
    order: Order,
    gpu: str | None,
    seq_lens: Sequence[int],
    also: Mapping[str, list[int]],
    knobs: Mapping[str, Any],
    *,
    confirm: bool = True,
) -> dict[str, Any]:
    """`also`: further batch sizes to simulate, by length. What is only compared with need not be confirmed, which saves time."""
    asked = {
        "seq_lens": list(seq_lens),
        "tokens_per_step": order.tokens_per_step,
        "safety": order.safety,
        "also": also,
        "confirm": confirm,
    }
    return {**order.request, "gpu": gpu, "knobs": knobs, "plan": asked}


def _run(jobs: Jobs, timeout: float, progress: Report) -> Jobs:
    requests = list(chain(*jobs.values()))
    total, done = sum(len(request["plan"]["seq_lens"]) for request in requests), [0]

    def count(_: dict[str, Any], __: Any) -> None:
        done[0] += 1
        progress(Progress("Planning", done[0], total))

    progress(Progress("Planning", 0, total))
    answers = iter(simulate_all(requests, timeout, count))
    return {key: [next(answers) for _ in some] for key, some in jobs.items()}


# ------------------------------------------------------------------------------------------------------------------- answers
def _plan(order: Order, answers: Jobs, seconds: float) -> Plan:
    gpus = [_gpu_plan(order, gpu, answers[gpu, False]) for gpu in order.gpus]
    first = answers[order.gpus[0], False][0]
    return Plan(
        workload=order.request["workload"],
        knobs=first["knobs"],
        seq_lens=list(order.seq_lens),
        tokens=order.tokens,
        tokens_per_step=order.tokens_per_step,
        safety=order.safety,
        split=SPLIT,
        gpus=gpus,
        step_seconds_reason=_why_no_time(gpus),
        allocator_settings=order.request["allocator"],
        document=_document(gpus, answers, first["knobs"]),
        torch_version=first["torch_version"],
        seconds=seconds,
    )


def _gpu_plan(order: Order, gpu: str | None, answers: Sequence[Mapping[str, Any]]) -> GpuPlan:
    capacity = answers[0]["capacity_bytes"]
    limit = int((1 - order.safety) * capacity)
    found = sorted(
        chain(*(answer["stages"] for answer in answers)), key=lambda stage: stage["seq_len"]
    )
    stages = [
        make_stage(
            one,
            capacity_bytes=capacity,
            limit_bytes=limit,
            tokens_per_step=order.tokens_per_step,
            tokens=order.tokens,
        )
        for one in found
    ]
    if all(stage.fits for stage in stages):
        stages = in_sequence(stages, order.tokens)
    limits = sorted({text for answer in answers for text in answer["limits"]})
    law = reserved_law({stage["seq_len"]: stage["points"] for stage in found})
    return GpuPlan(
        gpu=gpu,
        capacity_bytes=capacity,
        limit_bytes=limit,
        stages=stages,
        limits=limits,
        law=law,
        **totals(stages),
    )


def _why_no_time(gpus: Sequence[GpuPlan]) -> str:
    without = next(
        (
            gpu
            for gpu in gpus
            if any(stage.fits and stage.step_seconds is None for stage in gpu.stages)
        ),
        None,
    )
    if without is None:
        return ""
    if without.gpu is None:
        return "no GPU was named, so how fast it is is not known: give --gpu NAME for times"
    return f"the time of a step on {without.gpu}: measure it with vramcast probe"


def _document(
    gpus: Sequence[GpuPlan], answers: Jobs, knobs: Mapping[str, Any]
) -> DocumentComparison | None:
    stages = [
        stage for answer in answers.get((document_001.GPU, False), []) for stage in answer["stages"]
    ]
    also = {
        stage["seq_len"]: BatchSizePoint(**stage["also"][0]) for stage in stages if stage["also"]
    }
    chunked = {
        s["seq_len"]: s["largest_batch"]
        for answer in answers.get((document_001.GPU, True), [])
        for s in answer["stages"]
    }
    return document_001.compare(gpus, also, chunked, knobs) if also else None
