"""The time of a step that runs on several streams.

Each stream runs its kernels in order, and waits for another where the program says so. Collectives
run beside the kernels.
"""

from bisect import bisect_right
from collections import defaultdict, deque

import numpy as np
from numpy.typing import NDArray

from vramcast.forecast.timing.communication import WAIT
from vramcast.tracing.work import Works

REPETITIONS = 3  # after so many, host and GPU have a steady rhythm
QUEUE_LENGTH = 1024  # kernels the host can be ahead of the GPU


def has_streams(works: Works) -> bool:
    return any(work.stream or work.operator == WAIT for work in works.distinct)


class _Stream:
    """When a stream had finished its work, by the number of operators that had been launched in
    all."""

    def __init__(self) -> None:
        self.numbers: list[int] = [-1]
        self.ends: list[float] = [0.0]

    @property
    def end(self) -> float:
        return self.ends[-1]

    def end_before(self, number: int) -> float:
        return self.ends[bisect_right(self.numbers, number - 1) - 1]

    def put(self, number: int, end: float) -> None:
        self.numbers.append(number)
        self.ends.append(end)


def period_of_streams(
    works: Works,
    seconds: NDArray[np.float64],
    costs: NDArray[np.float64],
    waiting: NDArray[np.bool_],
    reals: tuple[float, float, float],
) -> float:
    """The same as pipeline.period_seconds, for several streams."""
    latency, gap, wait = reals
    streams: dict[int, _Stream] = defaultdict(_Stream)
    ends: dict[int, deque[float]] = defaultdict(
        lambda: deque([0.0] * QUEUE_LENGTH, maxlen=QUEUE_LENGTH)
    )
    listed = list(
        zip(works.codes.tolist(), seconds.tolist(), costs.tolist(), waiting.tolist(), strict=True)
    )
    host = before = last = 0.0
    number = 0
    for _ in range(REPETITIONS):
        for code, own, cost, must_wait in listed:
            work = works.distinct[code]
            stream = streams[work.stream]
            if work.operator == WAIT:
                other, ago = work.sizes[:2]
                earlier = streams[other].end_before(number - ago)
                if earlier > stream.end:
                    stream.put(number, earlier)
            else:
                host += cost
                if own:
                    queue = ends[work.stream]
                    host = max(host, queue[0])
                    end = max(stream.end + gap, host + latency) + own
                    stream.put(number, end)
                    queue.append(end)
                if must_wait:
                    host = max(host, stream.end) + wait
            number += 1
        before, last = last, max([host, *(each.end for each in streams.values())])
    return last - before
