"""`vramcast.predict_many`: one workload on several GPUs, or with several values of its knobs."""

import contextlib
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError, VramcastError
from vramcast.hardware.gpus import find_gpu
from vramcast.predicting.checks import read_gpus
from vramcast.predicting.predict import (
    DEFAULT_TIMEOUT_SECONDS,
    compile_device,
    make_request,
    read_batch_sizes,
    stop_rule,
)
from vramcast.predicting.training_cost import Training, per_step, read_training
from vramcast.processes.progress import Report, ignore
from vramcast.records.base import Knobs
from vramcast.records.prediction import PredictedCase, Prediction, PredictionTable
from vramcast.records.store import locked_folder, new_folder, write_atomically
from vramcast.simulate.many import ANSWERS_FILE, Where, try_cases
from vramcast.workload import Text, Workload, joined
from vramcast.workload.world import world_request

TABLE_FILE = "predictions.json"
MAX_CASES = 10_000
VARY_ADVICE = "For example --vary batch_size=8,16 --vary checkpointing=true,false."


class Sort(StrEnum):
    GIVEN = "given"  # in the order given
    MEMORY = "memory"
    TIME = "time"
    COST = "cost"


SORTED_BY = {
    Sort.MEMORY: "peak_reserved_bytes",
    Sort.TIME: "step_seconds",
    Sort.COST: "cost",
}


def predict_many(
    workload: Workload,
    *,
    gpu: str | Sequence[str] | None = None,
    memory: str | int | None = None,
    vary: Mapping[str, Sequence[Any]] | Sequence[str] = (),
    batch_sizes: str | Sequence[int] | None = None,
    sort: str | None = None,
    allocator: str | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    ray: str | None = None,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    steps: int | None = None,
    whole: bool = False,
    tokens: str | float | None = None,
    train_steps: int | None = None,
    price: Mapping[str, float] | Sequence[str] = (),
    prices: str | os.PathLike[str] | None = None,
    world_size: int | None = None,
    gpus_per_node: int | None = None,
    progress: Report = ignore,
    knobs: Mapping[str, Any] | None = None,
    **more_knobs: Any,
) -> PredictionTable:
    """A prediction for every GPU and every combination of the values that vary.

    `predict_many("train.py:build", gpu=["rtx-4090", "h200"], vary={"batch_size": [8, 16]})`; "all"
    is every GPU that is known. The others are compared with the first that is predicted. `out` is a
    folder: what it holds is not simulated again. `ray` is the address of a Ray cluster. With
    `tokens` or `train_steps` every row has the hours of that training; with `price`, {GPU: price of
    an hour}, or a file of `prices` also the cost, and the cheapest comes first. Of `world_size`
    GPUs every row is the first one.
    """
    started = time.perf_counter()
    gpus = read_gpus(gpu)
    varied = _varied(vary, batch_sizes)
    fixed = joined(knobs, more_knobs)
    for name in varied.keys() & fixed:
        raise UsageError(f"The knob {name!r} is given, and varied too.", "Do one of both.")
    count = max(1, len(gpus)) * math.prod(len(values) for values in varied.values())
    if count > MAX_CASES:
        raise UsageError(
            f"These are {count:,} combinations; at most {MAX_CASES:,} are predicted.",
            "Vary fewer knobs, or give fewer values.",
        )
    combinations = [dict(zip(varied, values)) for values in product(*varied.values())]
    requests = [
        make_request(workload, {**fixed, **chosen}, None, memory, allocator)
        for chosen in combinations
    ]
    if "line" not in requests[0] and steps is not None and train_steps is None:
        # A function needs no rule when to stop, so `steps` is the length of the training.
        steps, train_steps = None, steps
    requests = [
        {
            **request,
            **stop_rule(request, steps, whole),
            **world_request(request["started"], world_size, gpus_per_node, None),
        }
        for request in requests
    ]
    training = read_training(
        tokens=tokens,
        steps=train_steps,
        price=price,
        prices=prices,
        num_gpus=world_size or requests[0]["started"][0],
    )
    order = _sort(sort, training)
    folder = None if out is None else Path(out)
    with _locked(folder, force=force):
        compile_device(progress)
        answers = _predictions(requests, gpus, timeout, Where(ray, folder), progress)
        table = _table(requests[0], varied, combinations, gpus, answers, training)
        table = replace(
            table,
            cases=_sorted(table.cases, order),
            seconds=time.perf_counter() - started,
        )
        if folder is not None:
            write_atomically(folder / TABLE_FILE, table.to_json() + "\n")
    return table


@contextlib.contextmanager
def _locked(folder: Path | None, *, force: bool) -> Iterator[None]:
    """Locks the folder. An earlier call's answers there are used again; with `force` they are
    removed."""
    if folder is None:
        yield
        return
    with locked_folder(folder):
        new_folder(folder, force=force or (folder / ANSWERS_FILE).exists())
        if force:
            for name in (ANSWERS_FILE, TABLE_FILE):
                (folder / name).unlink(missing_ok=True)
        yield


def _table(
    request: Mapping[str, Any],
    varied: Mapping[str, list[Any]],
    combinations: Sequence[Mapping[str, Any]],
    gpus: list[str],
    answers: Sequence[Mapping[str | None, Prediction | VramcastError]],
    training: Training,
) -> PredictionTable:
    cases = [
        _case(name, chosen, answer, training)
        for chosen, of_gpus in zip(combinations, answers, strict=True)
        for name, answer in of_gpus.items()
    ]
    made = [one for of_gpus in answers for one in of_gpus.values() if isinstance(one, Prediction)]
    if not made:
        raise next(one for one in answers[0].values() if isinstance(one, VramcastError))
    first = next(case for case in cases if not case.error)
    return PredictionTable(
        workload=request["workload"],
        knobs={name: value for name, value in made[0].knobs.items() if name not in varied},
        vary={name: [str(value) for value in values] for name, values in varied.items()},
        gpus=gpus,
        cases=[_compared(case, first) for case in cases],
        allocator_settings=made[0].allocator_settings,
        torch_version=made[0].torch_version,
        tokens=training.tokens,
        train_steps=training.steps,
        prices={name: training.prices[name] for name in gpus if name in training.prices},
    )


def _varied(
    vary: Mapping[str, Sequence[Any]] | Sequence[str], batch_sizes: str | Sequence[int] | None
) -> dict[str, list[Any]]:
    """The values of each knob, from {knob: values}, or from texts such as width=256,512."""
    if isinstance(vary, Mapping):
        pairs: Iterable[tuple[str, list[Any]]] = [(k, list(values)) for k, values in vary.items()]
    else:
        pairs = map(_parsed, vary)
    found: dict[str, list[Any]] = {}
    if batch_sizes is not None:
        found["batch_size"] = read_batch_sizes(batch_sizes)
    for name, values in pairs:
        if name in found:
            raise UsageError(f"The knob {name!r} is varied twice.", "Give all its values at once.")
        if not values or len({str(value) for value in values}) < len(values):
            raise UsageError(
                f"The knob {name!r} has no value to vary, or one of them twice.", VARY_ADVICE
            )
        found[name] = values
    return found


def _parsed(text: str) -> tuple[str, list[Any]]:
    name, equals, values = map(str.strip, text.partition("="))
    parts = [value.strip() for value in values.split(",")]
    if not name or not equals or not all(parts):
        raise UsageError(f"--vary {text!r} is not a knob with values.", VARY_ADVICE)
    return name, [Text(part) for part in parts]


def _sort(given: str | None, training: Training) -> Sort:
    if given is None:
        return Sort.COST if training.prices else Sort.GIVEN
    if given not in list(Sort):
        raise UsageError(f"--sort {given!r} is not known.", f"Give one of {', '.join(Sort)}.")
    if given == Sort.COST and not training.prices:
        raise UsageError("--sort cost needs prices.", "Give --prices FILE or --price GPU=PRICE.")
    return Sort(given)


def _predictions(
    requests: Sequence[dict[str, Any]],
    gpus: Sequence[str],
    timeout: float,
    where: Where,
    progress: Report,
) -> list[dict[str | None, Prediction | VramcastError]]:
    """The predictions of every request, by GPU."""
    found: list[dict[str | None, Prediction | VramcastError]] = [{} for _ in requests]
    # GPUs on which a step does the same share one simulation.
    groups: dict[object, list[str | None]] = {}
    for name in gpus:
        one = find_gpu(name)
        alike = one.capability, one.num_multiprocessors, one.max_threads_per_multiprocessor
        groups.setdefault(alike, []).append(name)
    if not gpus:
        groups[None] = [None]
    asked = [(place, group) for place in range(len(requests)) for group in groups.values()]
    while asked:
        now = [{**requests[place], "gpu": group[0], "gpus": group} for place, group in asked]
        answers = try_cases(now, timeout, where=where, progress=progress)
        alone: list[tuple[int, list[str | None]]] = []
        for (place, group), answer in zip(asked, answers, strict=True):
            if isinstance(answer, VramcastError):
                found[place] |= dict.fromkeys(group, answer)
                continue
            got = {None if name == "" else name: one for name, one in answer["predictions"].items()}
            found[place] |= {name: Prediction.from_dict(one) for name, one in got.items()}
            # If the program asked which GPU it is on, each GPU needs a simulation of its own.
            alone += [(place, [name]) for name in group if name not in got]
        asked = alone
    named: Sequence[str | None] = gpus or [None]
    return [{name: of_gpus[name] for name in named} for of_gpus in found]


def _case(
    gpu: str | None,
    chosen: Mapping[str, Any],
    found: Prediction | VramcastError,
    training: Training,
) -> PredictedCase:
    if isinstance(found, VramcastError):
        texts: Knobs = {name: str(value) for name, value in chosen.items()}
        return PredictedCase(gpu=gpu, knobs=texts, error=found.message)
    samples, tokens = per_step(found.knobs)
    whole: dict[str, Any] = {}
    for bound in ("", "_low", "_high"):
        # A step that does not fit cannot be trained.
        seconds = getattr(found, f"step_seconds{bound}") if found.fits else None
        hours = whole[f"hours{bound}"] = training.hours(seconds, tokens)
        whole[f"cost{bound}"] = training.cost(gpu, hours)
    batch = found.knobs.get("batch_size")
    return PredictedCase(
        gpu=gpu,
        knobs={name: found.knobs.get(name) for name in chosen},
        capacity_bytes=found.capacity_bytes,
        fits=found.fits,
        peak_allocated_bytes=found.peak_allocated_bytes,
        peak_reserved_bytes=found.peak_reserved_bytes,
        process_bytes=found.process_bytes,
        headroom_bytes=found.headroom_bytes,
        num_alloc_retries=found.num_alloc_retries,
        num_parameters=found.num_parameters,
        step_seconds=found.step_seconds,
        step_seconds_low=found.step_seconds_low,
        step_seconds_high=found.step_seconds_high,
        bound_by=found.step.bound_by if found.step else PredictedCase.bound_by,
        tokens_per_second=found.tokens_per_second,
        limits=found.limits,
        batch_size=batch if type(batch) is int and batch > 0 else None,
        samples_per_second=samples / found.step_seconds if samples and found.step_seconds else None,
        **whole,
    )


def _compared(case: PredictedCase, first: PredictedCase) -> PredictedCase:
    here, there = case.peak_reserved_bytes, first.peak_reserved_bytes
    if here is not None and there:
        percent = 100 * (here - there) / there
        case = replace(case, more_bytes=here - there, more_percent=percent)
    if case.step_seconds is not None and first.step_seconds is not None:
        case = replace(case, more_seconds=case.step_seconds - first.step_seconds)
    return case


def _sorted(cases: list[PredictedCase], order: Sort) -> list[PredictedCase]:
    """The cases in order. Those without the number come last."""

    def key(case: PredictedCase) -> tuple[float, bool]:
        value = getattr(case, SORTED_BY[order])
        return math.inf if value is None else float(value), not case.fits

    return cases if order is Sort.GIVEN else sorted(cases, key=key)
