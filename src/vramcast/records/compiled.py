"""What torch.compile did in a run, and what it brought."""

from dataclasses import field

from vramcast.records.base import Bytes, Count, Part, Seconds


class Recompilation(Part):
    """A function that was compiled again, because something about its inputs had changed."""

    function: str  # and its file and line
    reason: str  # torch's own, cut short
    count: Count = 1


class Compilation(Part):
    peak_is_in_first_step: bool
    # Of a run that finds everything in Inductor's caches, as a second one does: nothing is timed.
    cached_peak_reserved_bytes: Bytes
    recompilations: list[Recompilation] = field(default_factory=list)
    # Of the same step without torch.compile; None where it was not simulated.
    eager_peak_reserved_bytes: Bytes | None = None
    eager_step_seconds: Seconds | None = None
