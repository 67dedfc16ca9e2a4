"""Estimates by torch's MemTracker with fake tensors, by accelerate, and by a rule of thumb."""

import gc
from collections.abc import Callable
from typing import Any

from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import Optimizer

from vramcast.records.accuracy import Estimate, PeerEstimates
from vramcast.workload import bind_knobs, load_function, parse_reference

STEPS = 2  # the second step has the optimizer's state


def estimates(request: dict[str, Any], _: object = None) -> dict[str, Any]:
    """The task: a record of all estimates, with the reason where a tool fails."""
    function = load_function(parse_reference(request["workload"]))
    values = bind_knobs(function, request["knobs"])
    with FakeTensorMode():
        try:
            step = function(**values)
        except Exception as error:  # any code of a row
            return PeerEstimates.all_failed(_short(error)).to_dict()
        models, optimizers = _found()
        return PeerEstimates(
            four_times_parameters=_attempt(lambda: 4 * _parameter_bytes(models)),
            accelerate=_attempt(lambda: _accelerate(models, values)),
            memtracker=_attempt(lambda: _memtracker(step, models, optimizers)),
        ).to_dict()


def _attempt(estimate: Callable[[], int]) -> Estimate:
    try:
        return Estimate(bytes=int(estimate()))
    except Exception as error:  # a tool's failure is its result
        return Estimate(error=_short(error))


def _found() -> tuple[list[nn.Module], list[Optimizer]]:
    """The outermost models and the optimizers in memory."""
    alive = gc.get_objects()
    modules = [o for o in alive if isinstance(o, nn.Module) and any(True for _ in o.parameters())]
    children = {id(child) for module in modules for child in module.children()}
    models = [module for module in modules if id(module) not in children]
    return models, [o for o in alive if isinstance(o, Optimizer)]


def _parameter_bytes(models: list[nn.Module]) -> int:
    parameters = {id(p): p for model in models for p in model.parameters()}
    return sum(p.nbytes for p in parameters.values())


def _accelerate(models: list[nn.Module], knobs: dict[str, Any]) -> int:
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    total, _ = calculate_maximum_sizes(models[0])
    name = str(knobs.get("autocast") or knobs.get("precision") or "").removeprefix("amp-")
    precision = {"bf16": "bfloat16", "fp16": "float16"}.get(name, "float32")
    return int(max(estimate_training_usage(total, precision).values()))


def _memtracker(
    step: Callable[[], Any], models: list[nn.Module], optimizers: list[Optimizer]
) -> int:
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker = MemTracker()
    tracker.track_external(*models, *optimizers)
    for _ in range(STEPS):
        with tracker:
            step()
        tracker.reset_mod_stats()  # otherwise it refuses a second step; the peak is kept
    peaks = tracker.get_tracker_snapshot("peak")
    return max(int(sum_of["Total"]) for device, sum_of in peaks.items() if device.type == "cuda")


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
