"""A candidate: an optimisation in a tune; and in which order candidates are tried."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vramcast.records.measurement import Measurement
from vramcast.records.tune import LOSS_REASONS, Reason, TrialResult, TuneVerdict
from vramcast.tuning.optimisations import Optimisation, Refusal
from vramcast.workload.configuration import Configuration

# Candidates that take longer to start are tried last, and once.
SLOW_START_SECONDS = 30.0
# A candidate that was at least so fast alone may still help on top of others.
SECOND_CHANCE_RATIO = 0.98


@dataclass(eq=False)
class Candidate:
    optimisation: Optimisation
    # An optimisation that chooses a size gets it when it is tried.
    change: Configuration = field(default_factory=Configuration)
    refusal: Refusal | None = None  # why it is not applicable
    alone: TrialResult | None = None
    on_top: TrialResult | None = None
    not_tried: TrialResult | None = None  # why it was not tried when it was its turn
    num_on_top: int = 0  # trials on top of others
    tried_on: str = ""  # the last configuration's key
    replaced_by: str = ""

    @property
    def name(self) -> str:
        size = self.change.knobs.get(self.optimisation.size or "")
        return self.optimisation.name if size is None else f"{self.optimisation.name} {size}"

    @property
    def is_slow_to_start(self) -> bool:
        return self.optimisation.start_seconds >= SLOW_START_SECONDS

    @property
    def last(self) -> TrialResult | None:
        return self.on_top or self.alone

    @property
    def last_ratio(self) -> float:
        return self.last.speedup.ratio if self.last and self.last.speedup else 0.0

    def is_in_force(self, configuration: Configuration) -> bool:
        return not self.change.settings().items().isdisjoint(configuration.settings().items())


def already_set(change: Configuration, first: Measurement) -> Refusal | None:
    switches = change.switches.given().items()
    is_allocator = change.allocator and change.allocator in first.allocator_settings
    if is_allocator or (switches and not change.knobs and switches <= first.switches.items()):
        return Refusal(Reason.ALREADY_SET, f"the baseline has it already ({change})")
    return None


def promising(
    candidates: Sequence[Candidate], applied: Sequence[Candidate], *, has_larger_step: bool
) -> list[Candidate]:
    """Candidates that won alone, best first; then alternatives to those; then those that may help
    on top of others.

    A change that was slower while the GPU waited for the host, such as fewer bits, may help a
    larger step.
    """
    waiting = [
        one
        for one in candidates
        if one not in applied and not one.replaced_by and not one.optimisation.size
    ]
    winners = [one for one in waiting if not one.on_top and one.alone and one.alone.is_gain]
    first, alternatives, taken = list[Candidate](), list[Candidate](), set[tuple[str, str]]()
    for one in _best_first(winners):
        names = one.change.settings().keys()
        (alternatives if names & taken else first).append(one)
        taken |= names
    again = _best_first(one for one in waiting if _may_help_yet(one, has_larger_step))
    return [*first, *alternatives, *again, *filter(_failed_with_the_baseline, waiting)]


def untried(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates for which there was no time alone. Those that change the training come
    last."""
    found = [one for one in candidates if one.last is None and not one.optimisation.size]
    return sorted(found, key=lambda one: one.optimisation.changes_training)


def with_sizes(candidates: Sequence[Candidate], *, at_the_end: bool) -> list[Candidate]:
    """One candidate for each optimisation that chooses sizes.

    Those that change the training are included only if they won alone; at the end also if they were
    not tried.
    """
    found = {one.optimisation.name: one for one in reversed(candidates) if one.optimisation.size}
    return [
        one
        for one in found.values()
        if not one.optimisation.changes_training
        or (at_the_end if one.alone is None else one.alone.is_gain)
    ]


def _best_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda one: -one.last_ratio)


def _may_help_yet(one: Candidate, has_larger_step: bool) -> bool:
    if one.last is None or one.last.verdict != TuneVerdict.REJECTED:
        return False
    if one.optimisation.changes_training or one.last.reason_code in LOSS_REASONS:
        return False
    if has_larger_step and one.optimisation.likely:
        return one.num_on_top < 2 and one.last_ratio > 0
    return one.num_on_top == 0 and one.last_ratio >= SECOND_CHANCE_RATIO


def _failed_with_the_baseline(one: Candidate) -> bool:
    """Whether it failed alone but may work on top of others. One that hangs is not tried twice."""
    if one.num_on_top or one.last is None or one.last.verdict != TuneVerdict.FAILED:
        return False
    return one.last.reason_code != Reason.TIMEOUT
