"""From a trace to a prediction: what is alive at the peak, in the blocks really given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vramcast.allocator.model import PRIVATE
from vramcast.allocator.settings import AllocatorSettings
from vramcast.downsampling import downsample
from vramcast.forecast.bands import step_bands
from vramcast.forecast.budget import Budget
from vramcast.forecast.compilation import with_filled_caches
from vramcast.forecast.forecast import batch_size_point, forecast
from vramcast.records.prediction import PhaseName, Prediction
from vramcast.tracing.trace import Allocation, Compilations, SimulatedRun
from vramcast.tracing.work import BACKWARD, FORWARD, UPDATE

MiB = 1 << 20
ENDLESS = Budget(gpu=None, memory_bytes=None, settings=AllocatorSettings())


def a_run(own_settings: str | None = None) -> SimulatedRun:
    """A parameter of 33 MiB, and an activation of 33 MiB in each of two steps."""
    sizes, categories = [33 * MiB] * 3, ["parameters", "activations", "activations"]

    def allocation(number: int) -> Allocation:
        return Allocation(33 * MiB, "aten::empty", categories[number - 1])

    return SimulatedRun(
        events=[1, 0, 2, -2, 0, 3, -3],
        sizes=sizes,
        categories=categories,
        num_parameters=0,
        notes=(),
        torch_version="",
        allocation=allocation,
        allocator_settings=own_settings,
    )


def test_what_a_graph_keeps_is_no_memory_that_others_could_use() -> None:
    """Two tensors of a graph, of which one goes; then the largest tensor, of the default stream."""
    run = replace(
        a_run(),
        events=np.array([1, 2, -1, 0, 3, -3]),
        sizes=np.array([10 * MiB, 30 * MiB, 100 * MiB]),
        streams=np.array([PRIVATE + 1, PRIVATE + 1, 0]),
    )
    found = forecast(run, ENDLESS, workload="w", knobs={})
    assert found.breakdown_bytes["private_pools"] == 10 * MiB
    assert found.breakdown_bytes["cached_unused"] == 0
    assert sum(found.breakdown_bytes.values()) == found.peak_reserved_bytes == 140 * MiB


def test_with_caches_a_run_lacks_what_was_alive_only_while_kernels_were_timed() -> None:
    """Of three tensors that were made meanwhile one stays: it is a result."""
    run = replace(
        a_run(),
        events=np.array([0, 1, 2, 3, -2, 4, -4, -1, 0]),
        sizes=np.array([20, 30, 40, 50]) * MiB,
        categories=["temporaries"] * 4,
        allocation=lambda number: Allocation(20 * MiB, "aten::empty"),
        compilations=Compilations([(1, 4)], {("forward", "size mismatch"): 2}),
    )
    found = forecast(run, ENDLESS, workload="w", knobs={}).compilation
    assert found is not None and found.peak_is_in_first_step
    assert found.cached_peak_reserved_bytes == (20 + 40 + 50) * MiB
    assert found.cached_peak_allocated_bytes == (20 + 40 + 50) * MiB
    assert [again.count for again in found.recompilations] == [2]


def test_with_caches_a_workspace_is_taken_where_the_program_first_uses_it() -> None:
    """The first of three is taken to compile; then the program makes, uses and frees two tensors,
    the second of which would find room in what the first had."""
    run = replace(
        a_run(),
        events=np.array([0, 1, 2, -2, 3, -3, 0]),
        sizes=np.array([32, 30, 40]) * MiB,
        categories=["workspaces", "temporaries", "temporaries"],
        allocation=lambda number: Allocation(20 * MiB, "aten::empty"),
        compilations=Compilations([(1, 2)], used_after={1: 2}),
    )
    found = with_filled_caches(run)
    assert found.events.tolist() == [0, 2, 1, -2, 3, -3, 0]
    assert run.compilations
    run.compilations.used_after[1] = 0
    assert with_filled_caches(run).events.tolist() == [0, 0, 2, -2, 3, -3, 0]


def test_a_run_with_filled_caches_may_not_fit_where_one_that_compiles_does() -> None:
    """What is freed after a timing has room for two tensors. Without it there is only what the
    first tensor left, which has room for one of them and is not given back."""
    run = replace(
        a_run(),
        events=np.array([0, 1, -1, 2, -2, 3, 4, 0]),
        sizes=np.array([44, 24, 10, 30]) * MiB,
        categories=["temporaries"] * 4,
        allocation=lambda number: Allocation(20 * MiB, "aten::empty"),
        compilations=Compilations([(1, 2)]),
    )
    budget = Budget(gpu=None, memory_bytes=50 * MiB, settings=AllocatorSettings.parse(""))
    found = forecast(run, budget, workload="w", knobs={})
    assert found.fits and found.peak_reserved_bytes == 44 * MiB
    assert found.compilation and not found.compilation.cached_fits
    assert found.compilation.cached_peak_reserved_bytes == (24 + 30) * MiB


def predicted(settings: str, memory_bytes: int | None = None) -> Prediction:
    budget = Budget(gpu=None, memory_bytes=memory_bytes, settings=AllocatorSettings.parse(settings))
    return forecast(a_run(), budget, workload="w", knobs={})


@pytest.mark.parametrize(
    ("settings", "block_bytes"), [("", 34 * MiB), ("roundup_power2_divisions:4", 40 * MiB)]
)
def test_the_breakdown_counts_whole_blocks_and_only_the_rest_is_cached(
    settings: str, block_bytes: int
) -> None:
    """Sums of the sizes asked for once showed what the allocator rounds up as cached and unused."""
    found = predicted(settings)
    assert found.breakdown_bytes["parameters"] == block_bytes
    assert found.breakdown_bytes["activations"] == block_bytes
    assert found.breakdown_bytes["cached_unused"] == 0
    assert sum(found.breakdown_bytes.values()) == found.peak_reserved_bytes
    assert sum(group.num_bytes for group in found.alive_at_peak) == found.peak_allocated_bytes


def test_settings_that_a_program_makes_itself_hold_at_every_size_of_a_search() -> None:
    run = a_run("roundup_power2_divisions:4")
    budget = Budget(gpu=None, memory_bytes=70 * MiB, settings=AllocatorSettings.parse(""))
    found = batch_size_point(1, run, run.sizes, budget, simulated=True)
    assert (found.peak_reserved_bytes, found.fits) == (80 * MiB, False)


def test_the_steps_of_a_run_are_one_band_over_its_timeline() -> None:
    found = [(one.name, one.first_event, one.last_event) for one in predicted("").phase_bands]
    assert found == [("build", 0, 1), ("train", 1, 7)]


def test_forward_backward_and_optimizer_are_bands_of_a_training_step() -> None:
    """A teacher's forward pass, without gradients, is forward and not the optimizer's."""
    kinds = [FORWARD, UPDATE, FORWARD, BACKWARD, UPDATE, FORWARD]
    run = replace(
        a_run(),
        events=[1, 0, 2, -2, 3, 4, -3, 5, -5, 0, 6],
        sizes=[33 * MiB] * 6,
        categories=["activations"] * 6,
        parts=np.array(kinds),
        segments=[PhaseName.TRAIN, PhaseName.EVALUATE],
        allocation=lambda _: Allocation(33 * MiB, "aten::empty", "activations"),
    )
    found = step_bands(run, run.segments)
    assert [(one.name, one.first_event, one.last_event) for one in found] == [
        ("forward", 1, 5),
        ("backward", 5, 7),
        ("optimizer", 7, 9),
    ]


def test_each_micro_batch_of_compiled_code_has_its_forward_pass() -> None:
    """What compiled code frees before the backward pass belongs to what it keeps."""
    kinds = [FORWARD, UPDATE, BACKWARD, FORWARD, UPDATE, BACKWARD, UPDATE]
    run = replace(
        a_run(),
        events=[0, *range(1, 8)],
        sizes=[33 * MiB] * 7,
        categories=["activations"] * 7,
        parts=np.array(kinds),
        segments=[PhaseName.TRAIN],
        allocation=lambda _: Allocation(33 * MiB, "aten::empty", "activations"),
    )
    names = [one.name for one in step_bands(run, run.segments)]
    assert names == ["forward", "backward", "forward", "backward", "optimizer"]


def test_what_does_not_fit_is_shown_as_it_would_be_with_enough_memory() -> None:
    found = predicted("", memory_bytes=50 * MiB)
    assert (found.fits, found.failed_allocation_bytes) == (False, 33 * MiB)
    assert (found.peak_reserved_bytes, found.peak_phase) == (68 * MiB, "step 1")
    assert found.headroom_bytes == -18 * MiB


def test_a_long_series_keeps_its_ends_and_the_extremes_of_every_stretch() -> None:
    values = [float(index % 7) for index in range(1000)]
    values[333], values[777] = 99.0, -99.0
    kept = downsample(values, 50, keep=[500])
    assert len(kept) <= 50 and {0, 333, 500, 777, 999} <= set(kept)
    assert downsample(values[:50], 50) == list(range(50))
