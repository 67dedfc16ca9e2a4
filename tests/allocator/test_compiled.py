"""The replay in C++ and the one in Python agree on everything, whatever the run."""

from __future__ import annotations

import ctypes
import random
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vramcast
from vramcast.allocator import compiled
from vramcast.allocator.addresses import Starts
from vramcast.allocator.model import PRIVATE
from vramcast.allocator.replay import EMPTY_CACHE, Replay, replay, segments_after
from vramcast.allocator.settings import AllocatorSettings
from vramcast.hardware.machine import cxx_compiler

MIB = 2**20
SOURCE = Path(vramcast.__file__).parent / "simulate" / "native" / "replay.h"
LIMITS = [4096, MIB, 3 * MIB, 12 * MIB, 45 * MIB, 600 * MIB]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("compiled") / "replay.so"
    options = ["-O1", "-shared", "-fPIC", "-std=c++20", "-ffp-contract=off", "-x", "c++"]
    subprocess.run([*(cxx_compiler() or []), *options, SOURCE, "-o", path], check=True)
    return ctypes.CDLL(str(path))


@pytest.fixture(autouse=True)
def without_it_afterwards() -> Iterator[None]:
    yield
    compiled.use(None)


def run(seed: int) -> dict[str, Any]:
    """Events, sizes, streams, and allocations that are held after they were freed."""
    pick = random.Random(seed)
    events, sizes, alive, freed = [], [], [], {}
    for _ in range(pick.choice([5, 50, 400])):
        kind = pick.random()
        if kind < 0.03:
            events.append(pick.choice([0, EMPTY_CACHE]))
        elif kind < 0.45 and alive:
            number = alive.pop(pick.randrange(len(alive)))
            freed[number] = len(events)
            events.append(-number)
        else:
            sizes.append(pick.randint(1, pick.choice(LIMITS)))
            alive.append(len(sizes))
            events.append(len(sizes))
    held = {n: at + pick.randint(1, 40) for n, at in freed.items() if pick.random() < 0.1}
    keys = [pick.choice([0, 0, 3, 8, PRIVATE + 3]) for _ in sizes] if pick.random() < 0.5 else []
    return {
        "events": np.array(events, np.int64),
        "sizes": np.array(sizes, np.int64),
        "keys": np.array(keys, np.int64),
        "held_until": held,
        "starts": Starts(
            *(pick.choice([0, len(events) // part]) for part in (4, 3, 5, 2, 3)),
            cublas_bytes=pick.choice([0, 128 << 10, 32 * MIB, 64 * MIB]),
        ),
    }


allocator_settings = st.builds(
    AllocatorSettings,
    roundup_power2_divisions=st.sampled_from([(), (), (4,) * 16]),
    large_segment_bytes=st.sampled_from([20 * MIB, 12 * MIB, 32 * MIB]),
    max_non_split_rounding_bytes=st.just(32 * MIB),
)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(
    st.integers(0, 2**32).map(run),
    allocator_settings,
    st.one_of(st.none(), st.integers(30, 2000).map(lambda mib: mib * MIB)),
)
def test_both_replays_agree_after_every_event(
    library: ctypes.CDLL, done: dict[str, Any], chosen: AllocatorSettings, capacity: int | None
) -> None:
    compiled.use(None)
    in_python = replay(settings=chosen, capacity_bytes=capacity, **done)
    compiled.use(library)
    in_cpp = replay(settings=chosen, capacity_bytes=capacity, **done)
    for field in fields(Replay):
        one, other = getattr(in_python, field.name), getattr(in_cpp, field.name)
        if field.name == "out_of_memory":
            assert (one and vars(one)) == (other and vars(other))
        elif isinstance(one, np.ndarray):
            assert one.tolist() == other.tolist(), field.name
        else:
            assert one == other, field.name


def test_of_a_part_of_a_run_what_is_held_after_it_is_left_alone(library: ctypes.CDLL) -> None:
    later = {10**12: 7}
    whole = {"events": np.array([1, -1]), "sizes": np.array([512]), "settings": AllocatorSettings()}
    compiled.use(library)
    assert replay(**whole, held_until=later).reserved_bytes.tolist() == [2 * MIB] * 2


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    st.integers(0, 2**32).map(run),
    allocator_settings,
    st.one_of(st.none(), st.integers(30, 2000).map(lambda mib: mib * MIB)),
)
def test_both_cut_up_the_memory_in_the_same_way(
    library: ctypes.CDLL, done: dict[str, Any], chosen: AllocatorSettings, capacity: int | None
) -> None:
    compiled.use(None)
    in_python = segments_after(settings=chosen, capacity_bytes=capacity, **done)
    compiled.use(library)
    assert segments_after(settings=chosen, capacity_bytes=capacity, **done) == in_python


@pytest.mark.parametrize(
    "text", ["expandable_segments:True", "max_split_size_mb:32", "garbage_collection_threshold:0.5"]
)
def test_rare_rules_are_left_to_python(library: ctypes.CDLL, text: str) -> None:
    compiled.use(library)
    assert not compiled.can_replay(AllocatorSettings.parse(text), 2**30)
    assert compiled.can_replay(AllocatorSettings(), 2**30)


def test_freeing_what_is_not_allocated_is_an_error_in_both(library: ctypes.CDLL) -> None:
    for used in (None, library):
        compiled.use(used)
        with pytest.raises(KeyError):
            replay([1, -1, -1], [512])


@given(
    st.lists(
        st.tuples(st.floats(0, 1e-4), st.sampled_from([0.0, 1e-6, 3e-5]), st.booleans()),
        max_size=60,
    ),
    st.integers(1, 40),
)
@settings(max_examples=100, derandomize=True, deadline=None)
def test_the_period_of_a_step_is_the_same_to_the_last_digit(
    library: ctypes.CDLL, kernels: list[tuple[float, float, bool]], times: int
) -> None:
    from vramcast.forecast.timing.pipeline import period_seconds
    from vramcast.forecast.timing.rates import shipped
    from vramcast.tracing.work import OperatorWork, Works

    names = {True: "aten::equal", False: "aten::add"}
    step = [OperatorWork(names[waits], 6, 0.0, 0.0, (0,) * 4, 0, 1) for _, _, waits in kernels]
    works = Works.of(step * times)
    costs, seconds = (np.array([k[i] for k in kernels] * times, float) for i in (0, 1))
    found = []
    for used in (None, library):
        compiled.use(used)
        found.append(period_seconds(works, seconds, costs, shipped(), 1.1, 0.9))
    assert found[0] == found[1]
