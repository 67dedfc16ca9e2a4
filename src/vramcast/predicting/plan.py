"""`vramcast.plan`: a batch for every sequence length and GPU, and the curriculum they make."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from vramcast.predicting.plan_request import PlanRequest, check_request
from vramcast.predicting.plan_stages import SPLIT, in_sequence, make_stage, reserved_law, totals
from vramcast.predicting.predict import DEFAULT_TIMEOUT_SECONDS, compile_device
from vramcast.processes.progress import Progress, Report, ignore
from vramcast.records.plan import GpuPlan, Plan
from vramcast.records.store import new_folder, write_atomically
from vramcast.simulate.runner import simulate_all
from vramcast.workload import Workload, joined

# For fragmentation in long runs: what is predicted is the first steps.
DEFAULT_SAFETY = 0.05
DEFAULT_TOKENS = 1e9
# Requests or answers of workers, by GPU.
Jobs = dict[str | None, list[dict[str, Any]]]


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

    `plan("train.py:build", seq_lens=[128, 256, 512], gpu=["rtx-4090", "h200"])`. `out` is a folder
    for plan.json and a curriculum-GPU.yaml each.
    """
    started = time.perf_counter()
    request = check_request(
        workload,
        seq_lens=seq_lens,
        gpu=gpu,
        memory=memory,
        allocator=allocator,
        tokens=tokens,
        tokens_per_step=tokens_per_step,
        safety=safety,
        knobs=joined(knobs, more_knobs),
    )
    folder = None if out is None else new_folder(Path(out), force=force)
    compile_device(progress)
    answers = _run(_jobs(request), timeout, progress)
    found = _plan(request, answers, time.perf_counter() - started)
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


def as_yaml(found: Plan, gpu: GpuPlan) -> str:
    """`curriculum_stages`: the stage of a step is the last one whose start_step is not above it."""
    import yaml

    stages = [
        {
            "start_step": stage.start_step,
            "steps": stage.steps,
            "seq_len": stage.seq_len,
            "batch_size": stage.batch_size,
            "gradient_accumulation_steps": stage.accumulation_steps,
            "tokens_per_step": stage.tokens_per_step,
            "why": stage.why,
        }
        for stage in gpu.stages
        if stage.steps
    ]
    content = {
        "workload": found.workload,
        "knobs": found.knobs,
        "gpu": gpu.gpu,
        "memory_bytes": gpu.limit_bytes,
        "tokens": found.tokens,
        "total_steps": gpu.total_steps,
        "total_tokens": gpu.total_tokens,
        "predicted_hours": gpu.total_hours,
        "curriculum_stages": stages,
    }
    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=140)
    return f"# Planned by vramcast, nothing was measured. {SPLIT[0].upper()}{SPLIT[1:]}.\n{text}"


def _jobs(request: PlanRequest) -> Jobs:
    """The requests for workers. Where cores would be idle, a GPU's lengths are shared out."""
    cores = os.cpu_count() or 1
    parts = 1 if len(request.gpus) % cores == 0 else min(cores, len(request.seq_lens))
    # By turns: every share has short and long lengths.
    shares = [request.seq_lens[part::parts] for part in range(parts)]
    return {gpu: [_job(request, gpu, share) for share in shares] for gpu in request.gpus}


def _job(request: PlanRequest, gpu: str | None, seq_lens: Sequence[int]) -> dict[str, Any]:
    asked = {
        "seq_lens": list(seq_lens),
        "tokens_per_step": request.tokens_per_step,
        "safety": request.safety,
    }
    return {**request.worker_request, "gpu": gpu, "plan": asked}


def _run(jobs: Jobs, timeout: float, progress: Report) -> Jobs:
    requests = list(chain(*jobs.values()))
    total, done = sum(len(request["plan"]["seq_lens"]) for request in requests), [0]

    def count(_: Any) -> None:
        done[0] += 1
        progress(Progress("Planning", done[0], total))

    progress(Progress("Planning", 0, total))
    answers = iter(simulate_all(requests, timeout, count))
    return {gpu: [next(answers) for _ in some] for gpu, some in jobs.items()}


def _plan(request: PlanRequest, answers: Jobs, seconds: float) -> Plan:
    gpus = [_gpu_plan(request, gpu, some) for gpu, some in answers.items()]
    first = answers[request.gpus[0]][0]
    return Plan(
        workload=request.worker_request["workload"],
        knobs=first["knobs"],
        seq_lens=list(request.seq_lens),
        tokens=request.tokens,
        tokens_per_step=request.tokens_per_step,
        safety=request.safety,
        split=SPLIT,
        gpus=gpus,
        step_seconds_reason=_why_no_time(gpus),
        allocator_settings=request.worker_request["allocator"],
        torch_version=first["torch_version"],
        seconds=seconds,
    )


def _gpu_plan(
    request: PlanRequest, gpu: str | None, answers: Sequence[Mapping[str, Any]]
) -> GpuPlan:
    capacity = answers[0]["capacity_bytes"]
    limit = int((1 - request.safety) * capacity)
    found = [stage for answer in answers for stage in answer["stages"]]
    found.sort(key=lambda stage: stage["seq_len"])
    stages = [
        make_stage(
            stage,
            capacity_bytes=capacity,
            limit_bytes=limit,
            tokens_per_step=request.tokens_per_step,
            tokens=request.tokens,
        )
        for stage in found
    ]
    if all(stage.fits for stage in stages):
        stages = in_sequence(stages, request.tokens)
    return GpuPlan(
        gpu=gpu,
        capacity_bytes=capacity,
        limit_bytes=limit,
        stages=stages,
        limits=sorted({text for answer in answers for text in answer["limits"]}),
        law=reserved_law(found),
        **totals(stages),
    )


def _why_no_time(gpus: Sequence[GpuPlan]) -> str:
    for gpu in gpus:
        if any(stage.fits and stage.step_seconds is None for stage in gpu.stages):
            if gpu.gpu is None:
                return "no GPU was named, so how fast it is is not known: give --gpu NAME for times"
            return f"the time of a step on {gpu.gpu}: measure it with vramcast probe"
    return ""
