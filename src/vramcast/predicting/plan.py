"""`vramcast.plan`: a batch for every sequence length and GPU, and the curriculum they make."""

import itertools
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vramcast.errors import VramcastError
from vramcast.predicting import checks
from vramcast.predicting.plan_stages import SPLIT, in_sequence, make_stage, reserved_law, totals
from vramcast.predicting.plan_worlds import (
    KNOB,
    Case,
    read_cases,
    read_deadline,
    together,
    with_efficiency,
)
from vramcast.predicting.predict import (
    DEFAULT_TIMEOUT_SECONDS,
    compile_device,
    links_request,
    make_request,
)
from vramcast.predicting.training_cost import Training, read_prices
from vramcast.processes.progress import Progress, Report, ignore
from vramcast.records.plan import GpuPlan, Plan
from vramcast.records.store import locked_run, write_atomically
from vramcast.simulate.many import Where, try_all
from vramcast.workload import Workload, joined


def plan(
    workload: Workload,
    *,
    seq_lens: str | Sequence[int] | None = None,
    gpu: str | Sequence[str] | None = None,
    memory: str | int | None = None,
    tokens_per_step: int | None = None,
    tokens: str | float = 1e9,
    # for fragmentation in long runs: only the first steps are predicted
    safety: float = 0.05,
    allocator: str | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    ray: str | None = None,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    price: Mapping[str, float] | Sequence[str] = (),
    prices: str | os.PathLike[str] | None = None,
    world_sizes: str | Sequence[int] | None = None,
    strategies: str | Sequence[str] | None = None,
    deadline: str | float | None = None,
    link: str | None = None,
    network: str | None = None,
    progress: Report = ignore,
    knobs: Mapping[str, Any] | None = None,
    **more_knobs: Any,
) -> Plan:
    """The batch for every sequence length on every GPU, with no GPU.

    `plan("train.py:build", seq_lens=[128, 256, 512], gpu=["rtx-4090", "h200"])`. Without `seq_lens`
    it is for the knob `seq_len` as it is; in a model without that, for samples. `out` is a folder
    for plan.json and a curriculum-GPU.yaml each. `ray` is the address of a Ray cluster.
    With `price`, {GPU: price of an hour}, or a file of `prices` GPUs have a cost. `world_sizes`
    are numbers of GPUs to plan for, `strategies` values of the workload's knob `parallel` on
    several, and `deadline` ("7d") the time that the training may take; `link` and `network` connect
    them, as in predict.
    """
    started = time.perf_counter()
    # None: the workload's own length, if it has one
    lengths = None if seq_lens is None else checks.read_lengths(seq_lens)
    gpus = checks.read_gpus(gpu)
    num_tokens = checks.read_tokens(tokens)
    training = Training(tokens=num_tokens, prices=read_prices(price, prices))
    cases = read_cases(gpus, world_sizes, strategies)
    deadline_hours = read_deadline(deadline)
    is_spread = {"world": cases} if any(case.world_size > 1 for case in cases) else {}
    links = links_request(is_spread, link, network)
    moved = ["batch_size"] if lengths is None else ["batch_size", "seq_len"]
    requests = _requests(workload, joined(knobs, more_knobs), memory, allocator, cases, moved)
    request = next(iter(requests.values()))
    checks.check_memory(gpus, request["memory_bytes"], safety)
    checks.check_tokens_per_step(tokens_per_step, lengths or [])
    checks.check_divides(tokens_per_step, [case.world_size for case in cases])
    folder = None if out is None else Path(out)
    with locked_run(folder, force=force):
        compile_device(progress)
        shares = _shares(lengths, len(cases) if gpus else 0)
        common = {**links, "safety": safety}
        jobs = _jobs(cases, shares, requests, common, tokens_per_step)
        num_stages = len(lengths or [None]) * len(cases)
        answers = _answers(jobs, timeout, ray, num_stages, progress)
        # The answers for one GPU follow each other.
        of_cases = [answers[i * len(shares) :][: len(shares)] for i in range(len(cases))]
        plans = _gpu_plans(cases, of_cases, tokens_per_step, training)
        made = [one for one in answers if not isinstance(one, VramcastError)]
        found = Plan(
            workload=request["workload"],
            knobs=made[0]["knobs"],
            seq_lens=next([s.seq_len for s in gpu.stages] for gpu in plans if gpu.stages),
            has_lengths=made[0]["has_lengths"],
            tokens=num_tokens,
            tokens_per_step=tokens_per_step,
            safety=float(safety),
            split=SPLIT,
            gpus=plans,
            step_seconds_reason=_why_no_time(plans),
            allocator_settings=made[0]["allocator_settings"],
            torch_version=made[0]["torch_version"],
            seconds=time.perf_counter() - started,
            prices={name: training.prices[name] for name in gpus if name in training.prices},
            deadline_hours=deadline_hours,
        )
        if folder is not None:
            write(found, folder)
    return found


def _requests(
    workload: Workload,
    knobs: Mapping[str, Any],
    memory: str | int | None,
    allocator: str | None,
    cases: Sequence[Case],
    moved: Sequence[str],
) -> dict[str, dict[str, Any]]:
    """The request of each strategy."""
    return {
        way: make_request(
            workload, {**knobs, **({KNOB: way} if way else {})}, None, memory, allocator, moved
        )
        for way in {case.strategy: None for case in cases}
    }


def _jobs(
    cases: Sequence[Case],
    shares: Sequence[list[int] | None],
    requests: Mapping[str, dict[str, Any]],
    common: dict[str, Any],
    tokens_per_step: int | None,
) -> list[dict[str, Any]]:
    """For every case, a simulation of each share of the lengths."""
    started = next(iter(requests.values()))["started"]
    return [
        {
            **requests[case.strategy],
            **case.request(started),
            **common,
            "plan": {
                "seq_lens": share,
                "tokens_per_step": tokens_per_step and tokens_per_step // case.world_size,
                "is_only_gpu": len(cases) == 1,
            },
        }
        for case in cases
        for share in shares
    ]


def _answers(
    jobs: list[dict[str, Any]], timeout: float, ray: str | None, num_stages: int, progress: Report
) -> list[dict[str, Any] | VramcastError]:
    done = itertools.count()

    def tell(planned: dict[str, int] | None = None) -> None:
        detail = f"seq_len={planned['seq_len']} is done" if planned else ""
        progress(Progress("Planning", next(done), num_stages, detail))

    tell()
    return try_all(
        jobs,
        timeout,
        where=Where(ray),
        # The nodes of a cluster report no progress before they answer.
        progress=ignore if ray is None else progress,
        name="Planning",
        tell=tell,
    )


def _gpu_plans(
    cases: Sequence[Case],
    of_cases: Sequence[list[dict[str, Any] | VramcastError]],
    tokens_per_step: int | None,
    training: Training,
) -> list[GpuPlan]:
    """A plan for each GPU or number of GPUs, the cheapest first where there are prices. If none
    could be planned, the first error is raised."""
    plans = [
        _gpu_plan(case, its, tokens_per_step, training)
        for case, its in zip(cases, of_cases, strict=True)
    ]
    if all(gpu.error for gpu in plans):
        answers = itertools.chain(*of_cases)
        raise next(one for one in answers if isinstance(one, VramcastError))
    if len({case.world_size for case in cases}) > 1:
        plans = with_efficiency(plans)
    if training.prices:
        plans.sort(key=lambda gpu: math.inf if gpu.cost is None else gpu.cost)
    return plans


def write(found: Plan, folder: Path) -> None:
    """Writes plan.json, and a curriculum for every GPU on which all lengths fit."""
    write_atomically(folder / "plan.json", found.to_json() + "\n")
    for gpu in found.gpus:
        if gpu.complete:
            path = folder / f"curriculum-{gpu.name}.yaml"
            write_atomically(path, as_yaml(found, gpu))


def as_yaml(found: Plan, gpu: GpuPlan) -> str:
    """The plan for training programs, with `curriculum_stages`: a step's stage is the last one
    whose start_step is not above it."""
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
        **({"num_gpus": gpu.world_size} if gpu.world_size > 1 else {}),
        **({"strategy": gpu.strategy} if gpu.strategy else {}),
        "memory_bytes": gpu.limit_bytes,
        "tokens": found.tokens,
        "total_steps": gpu.total_steps,
        "total_tokens": gpu.total_tokens,
        "predicted_hours": gpu.total_hours,
        "curriculum_stages": stages,
    }
    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=140)
    return f"# Planned by vramcast, nothing was measured. {SPLIT[0].upper()}{SPLIT[1:]}.\n{text}"


def _shares(lengths: list[int] | None, num_gpus: int) -> Sequence[list[int] | None]:
    """The lengths of one GPU, divided among its workers: several workers where cores would be
    idle."""
    if lengths is None:
        return [None]
    cores = os.cpu_count() or 1
    count = 1 if num_gpus and num_gpus % cores == 0 else min(cores, len(lengths))
    # Dealt out in turn, so that every share has short and long lengths.
    return [lengths[first::count] for first in range(count)]


def _gpu_plan(
    case: Case,
    found_or_errors: Sequence[dict[str, Any] | VramcastError],
    tokens_per_step: int | None,
    training: Training,
) -> GpuPlan:
    errors = [one.message for one in found_or_errors if isinstance(one, VramcastError)]
    gpu, count = case.gpu, case.world_size
    if errors:
        return GpuPlan(
            gpu=gpu,
            world_size=count,
            strategy=case.strategy,
            capacity_bytes=0,
            limit_bytes=0,
            stages=[],
            error=errors[0],
            total_steps=None,
            total_tokens=None,
            total_hours=None,
        )
    answers = [one for one in found_or_errors if not isinstance(one, VramcastError)]
    training = case.share(training)
    tokens_per_step = tokens_per_step and tokens_per_step // count
    tokens = training.tokens or 0
    capacity, limit = answers[0]["capacity_bytes"], answers[0]["limit_bytes"]
    found = [stage for answer in answers for stage in answer["stages"]]
    found.sort(key=lambda stage: stage["seq_len"])
    stages = [make_stage(stage, capacity, limit, tokens_per_step, tokens) for stage in found]
    if all(stage.fits for stage in stages):
        stages = in_sequence(stages, tokens)
    total = totals(stages)
    for bound in ("", "_low", "_high"):
        total[f"cost{bound}"] = training.cost(gpu, total[f"total_hours{bound}"])
    plan = GpuPlan(
        gpu=gpu,
        capacity_bytes=capacity,
        limit_bytes=limit,
        stages=stages,
        limits=sorted({text for answer in answers for text in answer["limits"]}),
        law=reserved_law(found),
        **total,
    )
    return together(plan, case)


def _why_no_time(gpus: Sequence[GpuPlan]) -> str:
    for gpu in gpus:
        if any(stage.fits and stage.step_seconds is None for stage in gpu.stages):
            if gpu.gpu is None:
                return "the time is not known without a GPU: give --gpu NAME"
            return f"the time of a step on {gpu.gpu}: measure it with vramcast probe"
    return ""
