"""What torch.compile did in a run, and what it brought."""

from dataclasses import field

from vramcast.records.base import Bytes, Count, Part, Seconds


class Recompilation(Part):
    """A function that was compiled again, because something about its inputs had changed."""

    function: str  # with its file and line
    reason: str  # torch's own reason, shortened
    count: Count = 1


class Compilation(Part):
    peak_is_in_first_step: bool
    # The peak of a run that finds in Inductor's caches what they keep, such as a second one. It
    # times only kernels that had one configuration.
    cached_peak_reserved_bytes: Bytes
    cached_peak_allocated_bytes: Bytes | None = None  # None in predictions of older versions
    # Whether that run fits; `fits` is of one that compiles. None in predictions of older versions.
    cached_fits: bool | None = None
    recompilations: list[Recompilation] = field(default_factory=list)
    # The same step without torch.compile; None where it was not simulated.
    eager_peak_reserved_bytes: Bytes | None = None
    eager_step_seconds: Seconds | None = None
