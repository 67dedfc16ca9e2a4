"""Loops over millions of events in C++: simulate/native/replay.h, a part of the compiled device.

If it is not loaded, or does not know a setting, Python does the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vramcast.allocator.settings import MIN_BLOCK_BYTES, AllocatorSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_library: ctypes.CDLL | None = None


def use(library: ctypes.CDLL | None) -> None:
    global _library
    _library = library
    if library is not None:
        pointer, number, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
        replay, period = library.vramcast_replay, library.vramcast_step_period
        replay.restype, period.restype = number, real
        replay.argtypes = [
            *(pointer, number, pointer, pointer, number, pointer, pointer, number),
            *[number] * 9,
            *[pointer] * 6,
        ]
        period.argtypes = [*[pointer] * 3, *[number] * 3, *[real] * 5]


def can_replay(settings: AllocatorSettings, capacity_bytes: int | None) -> bool:
    collects_garbage = settings.garbage_collection_threshold > 0 and capacity_bytes is not None
    has_rare_rules = settings.expandable_segments or settings.max_split_size_bytes is not None
    return _library is not None and not collects_garbage and not has_rare_rules


def replay(
    events: NDArray[np.int64],
    sizes: NDArray[np.int64],
    settings: AllocatorSettings,
    capacity_bytes: int | None,
    keys: NDArray[np.int64] | None,
    releases: NDArray[np.int64],
    empty_cache: int,
    starts: Sequence[int],
    *,
    with_pieces: bool = False,
) -> tuple[Any, ...] | None:
    """The fields of Replay (the second is None, or the fields of OutOfMemory), and with
    `with_pieces` the pieces of memory at the end: address, bytes and allocation, with a piece of no
    bytes before each segment. None if an event frees what is not allocated."""
    import numpy as np

    assert _library is not None
    events, sizes = np.ascontiguousarray(events), np.ascontiguousarray(sizes)
    rounded = rounded_bytes(sizes, settings)
    allocated, reserved = np.empty(len(events), np.int64), np.empty(len(events), np.int64)
    block_bytes = np.zeros(len(sizes), np.int64)
    peaks = np.zeros((np.count_nonzero(events == 0) + 1, 2), np.int64)
    result = np.zeros(6, np.int64)
    # an allocation makes at most one segment, and cuts it in two
    pieces = np.empty((3 * len(sizes) * with_pieces, 3), np.int64)
    keys = None if keys is None else np.ascontiguousarray(keys)
    num_done = _library.vramcast_replay(
        *(events.ctypes.data, len(events), sizes.ctypes.data, rounded.ctypes.data, len(sizes)),
        *(None if keys is None else keys.ctypes.data, releases.ctypes.data, len(releases)),
        *(empty_cache, -1 if capacity_bytes is None else capacity_bytes),
        *(settings.large_segment_bytes, *starts),
        *(each.ctypes.data for each in (allocated, reserved, block_bytes, peaks, result)),
        pieces.ctypes.data if with_pieces else None,
    )
    if num_done < 0:
        return None
    num_retries, *failed, num_pieces = result.tolist()
    num_peaks = np.count_nonzero(events[:num_done] == 0) + 1
    return (
        num_retries,
        failed if num_done < len(events) else None,
        allocated[:num_done],
        reserved[:num_done],
        block_bytes,
        [(first, second) for first, second in peaks[:num_peaks].tolist()],
        pieces[:num_pieces],
    )


def rounded_bytes(
    sizes: NDArray[np.int64], settings: AllocatorSettings | None = None
) -> NDArray[np.int64]:
    import numpy as np

    if not settings or not settings.roundup_power2_divisions:
        plain: NDArray[np.int64] = (sizes + MIN_BLOCK_BYTES - 1) & -MIN_BLOCK_BYTES
        return np.maximum(plain, MIN_BLOCK_BYTES)
    distinct, place = np.unique(sizes, return_inverse=True)
    return np.array([settings.rounded(size) for size in distinct.tolist()], np.int64)[place]


def step_period(
    costs: NDArray[np.float64],
    seconds: NDArray[np.float64],
    waits: NDArray[np.bool_],
    repetitions: int,
    queue_length: int,
    *reals: float,
) -> float | None:
    """The period of a step in seconds. None if the compiled device is not loaded."""
    if _library is None:
        return None
    arrays = [each.ctypes.data for each in (costs, seconds, waits)]
    return float(
        _library.vramcast_step_period(*arrays, len(costs), repetitions, queue_length, *reals)
    )
