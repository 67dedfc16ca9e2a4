"""Plausible values for what a program reads from the GPU: not computed, but as in a healthy run.

Losses, norms and gradients are positive and fall a little with every backward pass; nothing is NaN
or infinite; checks hold.
"""

import sys
from collections import Counter
from types import CodeType, FrameType

from vramcast.errors import WorkloadError
from vramcast.simulate import branches
from vramcast.simulate.device import Device

FIRST_VALUE = 0.5
FALL = 0.98  # the factor on losses with every backward pass
# Gradients fall faster: a line search is content when a slope is below 0.9 of the one before.
GRADIENT_FALL = 0.89
SMALLEST_GRADIENT = 1e-6
# In a while loop, reads at one place since the last backward pass or step:
PATIENT_READS = 20  # from here on values fall faster
LOOP_FALL = 0.9
TURNED_READS = 1000  # from here on values rise, and conditions have the other answer
MAX_READS = 10_000
MAX_KNOWN_READS = 50_000  # the same limit for values that are really computed
LARGEST_VALUE = 1e30
# Which share of a detector's boxes overlap with wanted ones: with new weights, and at most.
FEW_OVERLAPS, MANY_OVERLAPS = 0.002, 0.25
OWN_FOLDER = __file__.rpartition("/")[0]


class HostReads:
    """Counts what is read where, and lets the values fall."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.overlaps = FEW_OVERLAPS
        # loops of these functions end only when they have counted to their end
        self.going_on: set[CodeType] = set()
        self.clear()

    def clear(self) -> None:
        self.num_backward_passes = 0
        self._device.library.vramcast_begin_overlaps(self.overlaps)
        self._lines: dict[str, set[str]] = {}
        self.begin_round()

    def saw_backward_pass(self) -> None:
        self.num_backward_passes += 1
        self.begin_round()

    def begin_round(self) -> None:
        """From here on, repeated reads count as a new loop."""
        self._num_reads: Counter[tuple[CodeType, int]] = Counter()
        self._device.library.vramcast_begin_reads(MAX_KNOWN_READS)
        self._set_healthy(1.0)

    def condition(self, assumed: bool, is_sure: bool) -> bool:
        """The answer to a condition that the program reads now."""
        frame = _reading_frame()
        num_reads = self._count(frame)
        good = None if _is_own(frame) else branches.answer_that_does_not_raise(frame)
        if (
            frame.f_code in self.going_on
            and (on := branches.answer_that_goes_on(frame)) is not None
        ):
            self._note(f"{on} was assumed of conditions", frame)
            good = on
        if num_reads < TURNED_READS and (is_sure or good is not None):
            return assumed if good is None else good
        answer = assumed != (num_reads >= TURNED_READS)
        self._note(f"{answer} was assumed of conditions", frame)
        return answer

    def number(self, assumed: float, is_sure: bool) -> float:
        frame = _reading_frame()
        num_reads = self._count(frame)
        if not is_sure and (num_reads > 1 or branches.is_compared(frame)):
            self._note("numbers as of a healthy run were assumed", frame)
        return assumed if is_sure else assumed * self._factor(num_reads)

    def integer(self, assumed: int, is_sure: bool) -> int:
        frame = _reading_frame()
        self._count(frame)
        if not is_sure:
            self._note(f"the integer {assumed} was assumed", frame)
        return assumed

    def known(self) -> None:
        """Counts a read of a value that was really computed: even then a loop may wait for ever.
        Called only for those after as many of a round were read in C++ (native/reading.h)."""
        self._count_place(_reading_frame(), MAX_KNOWN_READS)

    def notes(self) -> list[str]:
        return [
            f"the program reads a value from the GPU that was not computed; {what} at "
            + ", ".join(sorted(lines))
            for what, lines in self._lines.items()
        ]

    def _note(self, what: str, frame: FrameType) -> None:
        self._lines.setdefault(what, set()).add(_line(frame))

    def _count(self, frame: FrameType) -> int:
        num_reads = self._count_place(frame, MAX_READS)
        if num_reads > PATIENT_READS:
            self._set_healthy(self._factor(num_reads))
        return num_reads

    def _count_place(self, frame: FrameType, most: int) -> int:
        """How often this place has been read in this round. 0 outside a while loop."""
        if _is_own(frame) or not branches.is_in_while_loop(frame):
            return 0
        place = frame.f_code, frame.f_lasti
        self._num_reads[place] += 1
        num_reads = self._num_reads[place]
        if num_reads > most:
            raise WorkloadError(
                f"A loop waits for a value from the GPU that never comes: {_line(frame)} has "
                f"read one {most:,} times.",
                "The simulated GPU computes few values, so it cannot know when this loop ends. "
                "Bound the number of its passes.",
            )
        return num_reads

    def _factor(self, num_reads: int) -> float:
        if num_reads <= PATIENT_READS:
            return 1.0
        if num_reads < TURNED_READS:
            return float(LOOP_FALL ** (num_reads - PATIENT_READS))
        return float(LARGEST_VALUE ** min(1.0, (num_reads - TURNED_READS) / TURNED_READS))

    def _set_healthy(self, factor: float) -> None:
        passes = self.num_backward_passes
        value = FIRST_VALUE * FALL**passes * factor
        gradient = max(FIRST_VALUE * GRADIENT_FALL**passes, SMALLEST_GRADIENT) * factor
        self._device.library.vramcast_set_healthy(value, gradient)


def _is_own(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(OWN_FOLDER)


def _line(frame: FrameType) -> str:
    if _is_own(frame):
        return "the backward pass"
    # imports torch, which the simulated device must precede
    from vramcast.simulate.locations import line_of

    return line_of(frame)


def _reading_frame() -> FrameType:
    """The innermost frame outside the simulated GPU; it may be in torch's code. On autograd's own
    thread there may be none outside."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_own(frame):
        frame = frame.f_back
    return frame
