"""The stages one after the other: how many steps each, where it starts, how long all take; and the file a training loop reads. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vramcast.predicting.plan_stages import SECONDS_PER_HOUR
from vramcast.records.plan import GpuPlan, Plan, Stage

SPLIT = "every length gets the same number of tokens, rounded up to whole steps; what one has too many, the next has less"


def in_sequence(stages: Sequence[Stage], tokens: int) -> list[Stage]:
    """The stages with their steps. After the n-th of N, at least n/N of the tokens are done and less than a step more."""
    done, step, result = 0, 0, []
    for number, stage in enumerate(stages, 1):
        assert stage.tokens_per_step is not None
        due = -(-tokens * number // len(stages))
        steps = max(0, -(-(due - done) // stage.tokens_per_step))
        seconds = None if stage.step_seconds is None else steps * stage.step_seconds
        hours = None if seconds is None else seconds / SECONDS_PER_HOUR
        result.append(
            replace(
                stage,
                start_step=step,
                steps=steps,
                tokens=steps * stage.tokens_per_step,
                hours=hours,
            )
        )
        step, done = step + steps, done + steps * stage.tokens_per_step
    return result


def totals(stages: Sequence[Stage]) -> dict[str, Any]:
    """None where a stage does not fit, hours also where one has no predicted time."""
    if not all(stage.fits for stage in stages):
        return {"total_steps": None, "total_tokens": None, "total_hours": None}
    hours = [stage.hours for stage in stages]
    return {
        "total_steps": sum(stage.steps or 0 for stage in stages),
        "total_tokens": sum(stage.tokens or 0 for stage in stages),
        "total_hours": None if None in hours else sum(h for h in hours if h is not None),
    }


def as_yaml(plan: Plan, gpu: GpuPlan) -> str:
    """`curriculum_stages`, named as in document 001. The stage of a step is the last one whose start_step is not above it."""
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
        "workload": plan.workload,
        "knobs": plan.knobs,
        "gpu": gpu.gpu,
        "memory_bytes": gpu.limit_bytes,
        "tokens": plan.tokens,
        "total_steps": gpu.total_steps,
        "total_tokens": gpu.total_tokens,
        "predicted_hours": gpu.total_hours,
        "curriculum_stages": stages,
    }
    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=140)
    return f"# Planned by vramcast, nothing was measured. {SPLIT[0].upper()}{SPLIT[1:]}.\n{text}"
