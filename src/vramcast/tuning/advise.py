"""`vramcast.advise`: what would save memory, by how much, and what it costs. No GPU needed."""

import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from vramcast.errors import UsageError, VramcastError
from vramcast.hardware.gpus import find_gpu
from vramcast.predicting.predict import DEFAULT_TIMEOUT_SECONDS, compile_device, make_request
from vramcast.processes.progress import Progress, Report, ignore
from vramcast.records.advice import Advice, AdvisedChange, NotAdvised
from vramcast.records.base import plain_value
from vramcast.records.prediction import LargeTensor, Prediction
from vramcast.simulate.many import try_cases
from vramcast.simulate.runner import shared_server, simulate
from vramcast.tuning.advised_changes import Applicable, Change, applicable
from vramcast.tuning.candidates import SLOW_START_SECONDS
from vramcast.tuning.optimisations import Optimisation
from vramcast.units import format_bytes
from vramcast.workload import Workload, joined
from vramcast.workload.world import world_request

# A change must save at least this share of the peak, and this many bytes.
LEAST_SHARE, LEAST_BYTES = 0.005, 16 << 20
MOST_IN_A_COMBINATION = 4
# So many combinations are simulated at most, some at a time, until enough of them fit.
MOST_COMBINATIONS, COMBINATIONS_AT_A_TIME, ENOUGH = 18, 6, 5
# The peak of a combination is estimated first; the estimate may be too high by this factor.
OPTIMISM = 1.08
# The changes tried for the short advice after a prediction that does not fit.
BRIEF = (
    "expandable-segments",
    "checkpointing-on",
    "amp-bf16",
    "accumulate-2",
    "accumulate-4",
    "optimizer-fused",
)
LOSS_OPERATORS = ("log_softmax", "nll_loss", "cross_entropy")
Found = tuple[Change, Prediction]


def advise(
    workload: Workload,
    *,
    gpu: str | None = None,
    memory: str | int | None = None,
    allocator: str | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    brief: bool = False,
    base: Prediction | None = None,
    progress: Report = ignore,
    knobs: Mapping[str, Any] | None = None,
    **more_knobs: Any,
) -> Advice:
    """Every change that applies, predicted alone and in the best combinations.

    `advise("train.py:build", gpu="rtx-4090", batch_size=32)`. With `brief` only the usual changes
    are looked at. `base` is a prediction of the same workload, where there is one.
    """
    started = time.perf_counter()
    values = joined(knobs, more_knobs)
    request = make_request(workload, values, gpu, memory, allocator)
    if request["gpu"] is None and request["memory_bytes"] is None:
        raise UsageError(
            "Whether a change is enough depends on the available memory.",
            "Give --gpu NAME or --memory SIZE.",
        )
    if request["started"][0] > 1:
        raise UsageError(
            "Advice is for one GPU, and the line starts several processes.",
            "Give it with one, as in torchrun --nproc-per-node 1; FSDP over 2, 4 and 8 GPUs is "
            "among the changes.",
        )
    compile_device(progress)
    progress(Progress("Predicting it as it is"))
    with shared_server():
        base = base or Prediction.from_dict(simulate(request, timeout))
        offers = offers_for(request, base, timeout)
        adviser = Adviser(request, values, base, timeout, progress)
        found = adviser.advice(offers, is_brief=brief)
    return replace(found, seconds=time.perf_counter() - started)


def offers_for(request: dict[str, Any], base: Prediction, timeout: float) -> Applicable:
    in_force: dict[str, Any] = dict(base.knobs)

    def bind(changes: list[dict[str, Any]]) -> list[Any]:
        if "line" in request:  # only running the program shows whether it takes a value
            return [{**in_force, **change} for change in changes]
        answer = simulate({**request, "bind": changes}, timeout)
        in_force.update(answer["knobs"])
        return list(answer["bound"])

    gpu = find_gpu(base.gpu) if base.gpu else None
    return applicable(in_force, bind, request.get("line", ()), gpu, base.allocator_settings)


class Adviser:
    def __init__(
        self,
        request: dict[str, Any],
        knobs: Mapping[str, Any],
        base: Prediction,
        timeout: float,
        progress: Report,
    ) -> None:
        self._request, self._knobs, self._base = request, knobs, base
        self._timeout, self._progress = timeout, progress
        self._line: list[str] = list(request.get("line", ()))

    def advice(self, offers: Applicable, *, is_brief: bool) -> Advice:
        base = self._base
        changes = [c for c in offers.changes if not is_brief or c.names[0] in BRIEF]
        alone, failed = self._predicted(changes)
        saving = [one for one in alone if self._saved(one[1]) >= self._least_bytes]
        # Combinations leave out compiling, which takes longer than all others together.
        quick = [one for one in saving if one[0].start_seconds < SLOW_START_SECONDS]
        together = self._combinations(quick, is_brief=is_brief)
        fitting = [one for one in (*saving, *together) if one[1].fits]
        if base.fits:
            fitting = sorted((*saving, *together), key=lambda one: -self._saved(one[1]))
        else:
            fitting = sorted(fitting, key=self._cost)
        # Changes that cannot be simulated here, because a package is missing, are estimated.
        unknown = [c.optimisations[0] for c in changes if c.names[0] in failed]
        unknown = [one for one in unknown if one.saves]
        estimates = [] if is_brief else self._estimates([*offers.estimated, *unknown])
        shown = [self._advised(*one) for one in _without_more_than_needed(fitting)]
        if not base.fits:
            shown += [one for one in estimates if one.fits]
        useless = {
            change.names[0]: f"it saves less than {format_bytes(self._least_bytes)} here"
            for change, found in alone
            if self._saved(found) < self._least_bytes
        }
        return Advice(
            workload=base.workload,
            knobs=base.knobs,
            gpu=base.gpu,
            capacity_bytes=base.capacity_bytes,
            peak_reserved_bytes=base.peak_reserved_bytes,
            fits=base.fits,
            step_seconds=base.step_seconds,
            step_seconds_low=base.step_seconds_low,
            step_seconds_high=base.step_seconds_high,
            suggestions=shown,
            alone=sorted(
                [*(self._advised(*one) for one in saving), *estimates],
                key=lambda one: (one.is_estimate, -one.saved_bytes),
            ),
            not_advised=[
                NotAdvised(name=name, reason=reason)
                for name, reason in {**offers.refused, **failed, **useless}.items()
            ],
            command=self._command(),
            is_brief=is_brief,
            allocator_settings=base.allocator_settings,
            torch_version=base.torch_version,
        )

    @property
    def _least_bytes(self) -> int:
        return max(LEAST_BYTES, int(LEAST_SHARE * self._base.peak_reserved_bytes))

    @property
    def _base_resting(self) -> float:
        return max(1.0, _resting_bytes(None, self._base))

    def _saved(self, found: Prediction) -> int:
        return self._base.peak_reserved_bytes - found.peak_reserved_bytes

    def _time_ratio(self, one: Found) -> float:
        """The time with the change relative to without, for the same number of samples."""
        change, found = one
        before, after = self._base.step_seconds, found.step_seconds
        return change.num_steps * after / before if before and after else 1.0

    def _cost(self, one: Found) -> tuple[float, ...]:
        change, found = one
        slow = bool(found.num_alloc_retries)
        return change.level, slow, self._time_ratio(one), len(change.optimisations)

    def _predicted(self, changes: Sequence[Change]) -> tuple[list[Found], dict[str, str]]:
        """The prediction of each change, and why a change could not be predicted, by name."""
        requests, made, failed = [], [], dict[str, str]()
        for change in changes:
            try:
                requests.append(self._asked(change))
                made.append(change)
            except VramcastError as problem:
                failed[" + ".join(change.names)] = problem.message
        shown = [" + ".join(change.names) for change in made]
        answers = try_cases(
            requests, self._timeout, progress=self._progress, name="Advising", shown=shown
        )
        found = []
        for change, answer in zip(made, answers, strict=True):
            if isinstance(answer, VramcastError):
                failed[" + ".join(change.names)] = " ".join(answer.message.split())[:300]
            else:
                (prediction,) = answer["predictions"].values()
                found.append((change, Prediction.from_dict(prediction)))
        return found, failed

    def _asked(self, change: Change) -> dict[str, Any]:
        settings = change.configuration.allocator
        if settings and self._base.allocator_settings:
            settings = f"{self._base.allocator_settings},{settings}"
        workload: Any = change.line(self._line) if self._line else self._request["workload"]
        asked = make_request(
            workload,
            {**self._knobs, **change.configuration.knobs},
            self._request["gpu"],
            self._request["memory_bytes"],
            settings or (self._request["allocator"] if self._request["allocator_given"] else None),
        )
        if change.world_size > 1:
            size = change.world_size
            asked |= world_request(asked["started"], size, size, None)
        return {
            **asked,
            "gpus": [asked["gpu"]],
            "switches": change.configuration.switches.given(),
            "passes": change.passes,
        }

    def _combinations(self, saving: Sequence[Found], *, is_brief: bool) -> list[Found]:
        """For a workload that does not fit: the cheapest combinations that may fit. Otherwise those
        that save most."""
        base, capacity = self._base.peak_reserved_bytes, self._base.capacity_bytes or 0

        def estimate(change: Change, value: Callable[[Found], float]) -> float:
            product = 1.0
            for one, found in saving:
                if set(one.names) <= set(change.names):
                    product *= value((one, found))
            return product

        rated: list[tuple[tuple[float, ...], Change]] = []
        for change in _joined(saving):
            peak = base * estimate(change, lambda one: one[1].peak_reserved_bytes / base)
            time_ratio = estimate(change, self._time_ratio)
            resting = self._base_resting * estimate(
                change, lambda one: _resting_bytes(*one) / self._base_resting
            )
            if self._base.fits:
                rated.append(((peak, time_ratio), change))
            elif peak <= OPTIMISM * capacity and resting <= capacity:
                rated.append(((change.level, time_ratio, len(change.names)), change))
        rated.sort(key=lambda one: one[0])
        if not rated and not self._base.fits:
            rated = [((len(c.names),), c) for c in _joined(saving)[-COMBINATIONS_AT_A_TIME:]]
        waiting, found = [change for _, change in rated], list[Found]()
        fitting: list[Change] = []
        if not self._base.fits:
            fitting = [change for change, one in saving if one.fits and change.level == 0]
        has_some = is_brief or self._base.fits or len({c.families for c in fitting}) > 1
        most = COMBINATIONS_AT_A_TIME // 2 if has_some else MOST_COMBINATIONS
        for first in range(0, most, COMBINATIONS_AT_A_TIME):
            waiting = [c for c in waiting if not any(_has_all(c, one) for one in fitting)]
            now = waiting[: min(most - first, COMBINATIONS_AT_A_TIME)]
            waiting = waiting[len(now) :]
            new, _ = self._predicted(now)
            found += new
            fitting += [change for change, one in new if one.fits and not self._base.fits]
            if len(fitting) >= ENOUGH or not waiting:
                break
        return found

    def _estimates(self, optimisations: Sequence[Optimisation]) -> list[AdvisedChange]:
        """Estimates from what is alive at the peak: nothing is known of other moments of the
        step."""
        parts, made = self._base.breakdown_bytes, []
        for one in optimisations:
            saved = int(sum(share * parts.get(name, 0) for name, share in one.saves.items()))
            if one.saves_loss:
                saved = int(one.saves_loss * _loss_bytes(self._base.largest_tensors))
            peak = self._base.peak_reserved_bytes - saved
            capacity = self._base.capacity_bytes
            if saved < self._least_bytes:
                continue
            change = Change((one,))
            made.append(
                AdvisedChange(
                    names=[one.name],
                    what=[one.what],
                    how=[one.code],
                    training=change.training(),
                    world_size=one.world_size,
                    fits=capacity is None or peak <= capacity,
                    peak_reserved_bytes=max(0, peak),
                    saved_bytes=saved,
                    is_estimate=True,
                    changes_training=one.changes_training,
                )
            )
        return made

    def _advised(self, change: Change, found: Prediction) -> AdvisedChange:
        after, low, high = (
            seconds and change.num_steps * seconds
            for seconds in (found.step_seconds, found.step_seconds_low, found.step_seconds_high)
        )
        has_times = bool(after and self._base.step_seconds)
        configuration = change.configuration
        knobs = {name: plain_value(value) for name, value in configuration.knobs.items()}
        return AdvisedChange(
            names=list(change.names),
            what=[one.what for one in change.optimisations],
            how=change.how(),
            training=change.training(),
            knobs=knobs,
            switches=configuration.switches.given(),
            allocator=configuration.allocator or "",
            line=change.line(self._line) if self._line else [],
            passes=change.passes,
            world_size=change.world_size,
            fits=found.fits,
            peak_reserved_bytes=found.peak_reserved_bytes,
            saved_bytes=self._saved(found),
            step_seconds=after,
            step_seconds_low=low,
            step_seconds_high=high,
            more_time_percent=100 * (self._time_ratio((change, found)) - 1) if has_times else None,
            changes_training=any(one.changes_training for one in change.optimisations),
        )

    def _command(self) -> str:
        """The command that gives this advice."""
        memory = self._request["memory_bytes"]
        words = ["vramcast", "advise"]
        if not self._line:
            words.append(self._request["workload"])
        words += [f"{name}={value}" for name, value in self._knobs.items()]
        if self._request["gpu"]:
            words += ["--gpu", self._request["gpu"]]
        if memory is not None:
            in_mib, rest = divmod(memory, 1 << 20)
            words += ["--memory", str(memory) if rest else f"{in_mib}MiB"]
        return shlex.join([*words, *(["--", *self._line] if self._line else [])])


def _resting_bytes(change: Change | None, found: Prediction) -> float:
    """Weights, gradients and optimizer states: an update needs them all, so no combination takes
    less."""
    weights = found.breakdown_bytes.get("parameters", 0)
    share = (found.num_trainable_parameters or 0) / max(1, found.num_parameters or 0)
    if change is not None and "optimizer-in-backward" in change.names:
        share = 0.0
    return weights * (1 + min(1.0, share)) + found.breakdown_bytes.get("optimizer_state", 0)


def _loss_bytes(largest: Sequence[LargeTensor]) -> int:
    """The tensors at the peak that are as large as the logits, in the loss and its backward
    pass."""
    shapes = [
        math.prod(tensor.shape)
        for tensor in largest
        if any(name in tensor.operator for name in LOSS_OPERATORS) and len(tensor.shape) > 1
    ]
    return sum(t.num_bytes for t in largest if math.prod(t.shape) == max(shapes, default=-1))


def _joined(saving: Sequence[Found]) -> list[Change]:
    """Every combination of changes that do not exclude each other, smaller ones first."""
    found = []
    for size in range(2, MOST_IN_A_COMBINATION + 1):
        for several in combinations([change for change, _ in saving], size):
            whole: Change | None = several[0]
            for other in several[1:]:
                whole = whole and whole.with_(other)
            if whole is not None:
                found.append(whole)
    return found


def _has_all(change: Change, other: Change) -> bool:
    """Whether a change includes another, or more of the same: four passes for two, every block for
    every second."""
    return other.families <= change.families


def _without_more_than_needed(found: Sequence[Found]) -> list[Found]:
    """The changes without those that include a cheaper one, which comes before them."""
    kept: list[Found] = []
    for one in found:
        if not any(_has_all(one[0], other) for other, _ in kept):
            kept.append(one)
    return kept
