"""What torch.compile brings, and what Inductor's caches change, as lines."""

from vramcast.records.compiled import Compilation
from vramcast.records.prediction import Prediction
from vramcast.reporting import sections as page

MOST_RECOMPILATIONS = 5


def compiled_lines(p: Prediction) -> list[str]:
    c = p.compilation
    return [_saved(p, c), _when(p, c), *_again(c)] if c else []


def _saved(p: Prediction, c: Compilation) -> str:
    before_bytes, before_seconds = c.eager_peak_reserved_bytes, c.eager_step_seconds
    if before_bytes is None:  # a launch line would have to run a second time
        return "--no-compile shows what it takes without torch.compile"
    parts = [page.size(before_bytes) + _less(p.peak_reserved_bytes, before_bytes)]
    if before_seconds and p.step_seconds:
        parts.append(page.duration(before_seconds) + _less(p.step_seconds, before_seconds))
    return f"without torch.compile the step takes {' and '.join(parts)}"


def _less(now: float, before: float) -> str:
    """What torch.compile does to a number, given the number without it."""
    change = now / before - 1
    if abs(change) < 0.005:
        return " (the same)"
    return f" (it {'saves' if change < 0 else 'adds'} {page.share(abs(change), 0)})"


def _when(p: Prediction, c: Compilation) -> str:
    when = f"the peak is {'in' if c.peak_is_in_first_step else 'after'} the first step"
    if c.cached_peak_reserved_bytes == p.peak_reserved_bytes:
        return f"{when}, also in a run that finds what it compiles in Inductor's caches"
    return (
        f"{when} of a run that compiles and times its kernels; one that finds them in "
        f"Inductor's caches takes {page.size(c.cached_peak_reserved_bytes)}{_fits(p, c)}"
    )


def _fits(p: Prediction, c: Compilation) -> str:
    """Only where it differs from the run that compiles."""
    if c.cached_fits in (None, p.fits):
        return ""
    return ", which fits" if c.cached_fits else ", which does not fit"


def _again(c: Compilation) -> list[str]:
    found = c.recompilations
    shown = [
        f"compiled again{page.given(', {} times', one.count if one.count > 1 else None)}: "
        f"{one.function}: {one.reason}"
        for one in found[:MOST_RECOMPILATIONS]
    ]
    if more := len(found) - len(shown):
        shown.append(f"compiled again: {more} more, of other functions or for other reasons")
    return shown
