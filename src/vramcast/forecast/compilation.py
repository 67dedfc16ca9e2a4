"""What torch.compile adds to a prediction: when the peak is, and what Inductor's caches change."""

import numpy as np
from numpy.typing import NDArray

from vramcast.allocator.model import PRIVATE
from vramcast.allocator.replay import EMPTY_CACHE, Replay, replay
from vramcast.forecast.budget import Budget
from vramcast.records.compiled import Compilation, Recompilation
from vramcast.tracing.trace import SimulatedRun


def compilation(
    trace: SimulatedRun, budget: Budget, shown: Replay, first_step: int
) -> Compilation | None:
    """Of a run in which something was compiled."""
    done = trace.compilations
    if done is None:
        return None
    peak_bytes = shown.peak_reserved_bytes
    has_allocated = any(begin < end for begin, end in done.spans)
    return Compilation(
        peak_is_in_first_step=shown.peaks_after_step[first_step][1] == peak_bytes,
        cached_peak_reserved_bytes=_cached_bytes(trace, budget) if has_allocated else peak_bytes,
        recompilations=[
            Recompilation(function=function, reason=reason, count=count)
            for (function, reason), count in done.recompilations.items()
        ],
    )


def _cached_bytes(trace: SimulatedRun, budget: Budget) -> int:
    """Peak reserved without what was only allocated to compile."""
    # A mark of a step does nothing: indices of other events stay as they are.
    events = np.where(_is_of_compiling(trace), 0, trace.events)
    found = replay(events, trace.sizes, budget.settings, **trace.circumstances())
    return found.peak_reserved_bytes


def _is_of_compiling(trace: SimulatedRun) -> NDArray[np.bool_]:
    """Whether each event makes or frees a tensor that was alive only while something was
    compiled."""
    events, num_tensors = trace.events, len(trace.sizes)
    made_at = np.full(num_tensors + 2, len(events))
    freed_at = made_at.copy()
    is_free = (events < 0) & (events != EMPTY_CACHE)
    made_at[events[events > 0]] = np.flatnonzero(events > 0)
    freed_at[-events[is_free]] = np.flatnonzero(is_free)
    is_gone = np.zeros(num_tensors + 2, bool)
    assert trace.compilations
    for begin, end in trace.compilations.spans:
        is_gone[begin:end] |= freed_at[begin:end] < made_at[end]
    is_tensor = (events > 0) | is_free
    found = np.zeros(len(events), bool)
    found[is_tensor] = is_gone[np.abs(events[is_tensor])]
    return found


def private_bytes(
    trace: SimulatedRun, budget: Budget, alive: NDArray[np.int64], shown: Replay
) -> int:
    """What private pools, as CUDA graphs have, keep beside the tensors that are alive in them."""
    streams = np.asarray(trace.streams, np.int64)
    if not (streams >= PRIVATE).any():
        return 0
    is_private = np.append(False, streams >= PRIVATE)
    numbers = np.where(trace.events == EMPTY_CACHE, 0, np.abs(trace.events))
    # No other pool has a part in what these reserve.
    events = np.where(is_private[numbers], trace.events, 0)
    pools = replay(events, trace.sizes, budget.settings, keys=trace.streams)
    alive_bytes = int(shown.block_bytes[alive - 1][is_private[alive]].sum())
    return pools.peak_reserved_bytes - alive_bytes
