"""What torch.compile adds to a prediction: when the peak is, and what Inductor's caches change."""

import numpy as np
from numpy.typing import NDArray

from vramcast.allocator.model import PRIVATE
from vramcast.allocator.replay import EMPTY_CACHE, Replay, replay
from vramcast.forecast.budget import Budget
from vramcast.records.compiled import Compilation, Recompilation
from vramcast.tracing.trace import SimulatedRun, made_and_freed


def compilation(
    trace: SimulatedRun, budget: Budget, shown: Replay, first_step: int
) -> Compilation | None:
    """What torch.compile adds to the prediction. None where nothing was compiled."""
    done = trace.compilations
    if done is None:
        return None
    has_allocated = any(begin < end for begin, end in done.spans)
    cached = _cached(trace, budget) if has_allocated else shown
    first_peak_bytes = shown.peaks_after_step[first_step][1]
    return Compilation(
        peak_is_in_first_step=first_peak_bytes == shown.peak_reserved_bytes,
        cached_peak_reserved_bytes=cached.peak_reserved_bytes,
        cached_peak_allocated_bytes=cached.peak_allocated_bytes,
        recompilations=[
            Recompilation(function=function, reason=reason, count=count)
            for (function, reason), count in done.recompilations.items()
        ],
    )


def _cached(trace: SimulatedRun, budget: Budget) -> Replay:
    """The run without memory that was allocated only to compile."""
    # These events become step marks, which do nothing, so that the indices of other events stay the
    # same.
    events = np.where(_is_of_compiling(trace), 0, trace.events)
    return replay(events, trace.sizes, budget.settings, **trace.circumstances())


def _is_of_compiling(trace: SimulatedRun) -> NDArray[np.bool_]:
    """For each event, whether it makes or frees a tensor that lived only during a compilation."""
    made_at, freed_at = made_and_freed(trace.events, len(trace.sizes) + 1)
    is_gone = np.zeros(len(made_at) + 1, bool)
    assert trace.compilations
    for begin, end in trace.compilations.spans:
        is_gone[begin:end] |= freed_at[begin - 1 : end - 1] < made_at[end - 1]
    return is_gone[_numbers(trace.events)]


def _numbers(events: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of the allocation of each event; 0 for events without one."""
    return np.where(events == EMPTY_CACHE, 0, np.abs(events))


def private_bytes(
    trace: SimulatedRun, budget: Budget, alive: NDArray[np.int64], shown: Replay
) -> int:
    """What private pools, such as those of CUDA graphs, reserve beyond the live tensors in them."""
    streams = np.asarray(trace.streams, np.int64)
    if not (streams >= PRIVATE).any():
        return 0
    is_private = np.append(False, streams >= PRIVATE)
    # Other pools do not change what these reserve.
    events = np.where(is_private[_numbers(trace.events)], trace.events, 0)
    pools = replay(events, trace.sizes, budget.settings, keys=trace.streams)
    alive_bytes = int(shown.block_bytes[alive - 1][is_private[alive]].sum())
    return pools.peak_reserved_bytes - alive_bytes
