"""What torch.compile adds to a prediction: when the peak is, and what Inductor's caches change."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vramcast.allocator.addresses import Starts
from vramcast.allocator.model import PRIVATE
from vramcast.allocator.replay import EMPTY_CACHE, Replay, replay
from vramcast.forecast.budget import Budget
from vramcast.records.compiled import Compilation, Recompilation
from vramcast.tracing.trace import SimulatedRun, made_and_freed


def compilation(
    trace: SimulatedRun, shown: Replay, cached: tuple[Replay, Replay], first_step: int
) -> Compilation:
    """What torch.compile adds to the prediction. `cached`: the replays of a run with filled caches,
    within the budget and with enough memory."""
    done, (cached_limited, cached_shown) = trace.compilations, cached
    assert done
    first_peak_bytes = shown.peaks_after_step[first_step][1]
    return Compilation(
        peak_is_in_first_step=first_peak_bytes == shown.peak_reserved_bytes,
        cached_peak_reserved_bytes=cached_shown.peak_reserved_bytes,
        cached_peak_allocated_bytes=cached_shown.peak_allocated_bytes,
        cached_fits=cached_limited.fits,
        recompilations=[
            Recompilation(function=function, reason=reason, count=count)
            for (function, reason), count in done.recompilations.items()
        ],
    )


def allocates_to_compile(trace: SimulatedRun) -> bool:
    done = trace.compilations
    return done is not None and any(begin < end for begin, end in done.spans)


def with_filled_caches(trace: SimulatedRun) -> SimulatedRun:
    """The run without memory that was allocated only to compile, and with workspaces that were
    first taken to compile where the program itself first uses them."""
    assert trace.compilations
    # These events become step marks, which do nothing.
    events = np.where(_is_of_compiling(trace), 0, trace.events)
    places = np.arange(len(events) + 1.0)
    for number, last in trace.compilations.used_after.items():
        if last:
            places[np.flatnonzero(events == number)] = _place_of(last, trace.events) + 0.5
        else:
            events[_numbers(events) == number] = 0
    order = np.argsort(places, kind="stable")
    place_now = np.argsort(order)
    *begins, cublas_bytes = trace.starts
    starts = Starts(*(int(place_now[i]) for i in begins))
    return replace(
        trace,
        events=events[order[:-1]],
        held_until={number: int(place_now[i]) for number, i in trace.held_until.items()},
        starts=starts._replace(cublas_bytes=cublas_bytes),
    )


def _place_of(number: int, events: NDArray[np.int64]) -> int:
    return int(np.flatnonzero(events == number)[0])


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
