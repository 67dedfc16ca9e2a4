"""A plan on several numbers of GPUs: what is asked for, and what GPUs do together."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from vramcast.errors import UsageError
from vramcast.predicting.training_cost import Training
from vramcast.records.plan import GpuPlan, Stage
from vramcast.units import parse_duration
from vramcast.workload.world import MAX_WORLD_SIZE, world_request

KNOB = "parallel"  # a knob of the zoo's models, and of any other workload that has it
MOST_CASES = 64


class Case(NamedTuple):
    gpu: str | None
    world_size: int = 1
    strategy: str = ""

    def request(self, started: tuple[int, int]) -> dict[str, Any]:
        own = self.world_size if self.world_size > 1 else None
        return {"gpu": self.gpu, **world_request(started, own, None, None)}

    def share(self, training: Training) -> Training:
        """The part of the training that one of the GPUs does."""
        tokens = training.tokens and -(-training.tokens // self.world_size)
        return replace(training, tokens=tokens, num_gpus=self.world_size)


def read_cases(
    gpus: Sequence[str],
    world_sizes: str | Sequence[int] | None,
    strategies: str | Sequence[str] | None,
) -> list[Case]:
    """The combinations of GPU, number of GPUs and strategy. A single GPU has no strategy."""
    sizes = _sizes(world_sizes) if world_sizes is not None else [1]
    ways = _ways(strategies) if strategies is not None else [""]
    if strategies is not None and max(sizes) == 1:
        raise UsageError(
            "--strategies is for several GPUs, and there is one.", "Add --world-sizes 1,2,4,8."
        )
    named: list[str | None] = [*gpus] or [None]
    cases = [
        Case(gpu, size, "" if size == 1 else way) for gpu, size, way in product(named, sizes, ways)
    ]
    cases = list(dict.fromkeys(cases))
    if len(cases) > MOST_CASES:
        raise UsageError(
            f"These are {len(cases)} combinations of GPU, number of GPUs and strategy; at most "
            f"{MOST_CASES} are planned.",
            "Name fewer of them.",
        )
    return cases


def _sizes(given: str | Sequence[int]) -> list[int]:
    parts = given.split(",") if isinstance(given, str) else [str(size) for size in given]
    if not all(part.strip().isdecimal() and len(part) < 8 for part in parts) or not parts:
        raise UsageError(
            f"--world-sizes {given!r} is not a list of numbers of GPUs.", "Such as 1,2,4,8."
        )
    sizes = sorted({int(part) for part in parts})
    if not 1 <= sizes[0] <= sizes[-1] <= MAX_WORLD_SIZE:
        raise UsageError(
            f"--world-sizes {given!r}: a number of GPUs is from 1 to {MAX_WORLD_SIZE:,}.",
            "Such as 1,2,4,8.",
        )
    return sizes


def _ways(given: str | Sequence[str]) -> list[str]:
    ways = [part.strip() for part in (given.split(",") if isinstance(given, str) else given)]
    if not ways or not all(ways):
        raise UsageError(f"--strategies {given!r} names no strategy.", "Such as ddp,fsdp2.")
    return list(dict.fromkeys(ways))


def read_deadline(given: str | float | None) -> float | None:
    """The deadline in hours. A plain number is in seconds."""
    if given is None:
        return None
    seconds = parse_duration(given) if isinstance(given, str) else float(given)
    if not 0 < seconds < float("inf"):
        raise UsageError(f"--deadline {given} is not a time.", "For example --deadline 7d.")
    return seconds / 3600


def together(plan: GpuPlan, case: Case) -> GpuPlan:
    """The plan of all GPUs from that of one: they take the same time, and process that many times
    more tokens."""
    count = case.world_size
    total, hours = plan.total_tokens, plan.total_hours
    return replace(
        plan,
        world_size=count,
        strategy=case.strategy,
        stages=[_together(stage, count) for stage in plan.stages],
        total_tokens=None if total is None else total * count,
        gpu_hours=None if hours is None else hours * count,
    )


def _together(stage: Stage, count: int) -> Stage:
    names = ("tokens_per_step", "tokens_per_second", "samples_per_second", "tokens")
    values = {name: getattr(stage, name) for name in names}
    more: dict[str, Any] = {n: v if v is None else v * count for n, v in values.items()}
    return replace(stage, **more)


def with_efficiency(plans: Sequence[GpuPlan]) -> list[GpuPlan]:
    """The plans with their efficiency: tokens per GPU-hour, relative to the fewest GPUs on which it
    fits."""
    found = []
    for plan in plans:
        like = [one for one in plans if one.gpu == plan.gpu and one.gpu_hours]
        fewest = min((one.world_size for one in like), default=0)
        best = min((_cost(one) for one in like if one.world_size == fewest), default=None)
        own = _cost(plan) if plan.gpu_hours else None
        found.append(replace(plan, efficiency=best / own if best and own else None))
    return found


def _cost(plan: GpuPlan) -> float:
    return (plan.gpu_hours or 0.0) / (plan.total_tokens or 1)
