"""Seconds of collectives, and of steps on several streams, from data sheets alone."""

from __future__ import annotations

import pytest

from vramcast.errors import UsageError
from vramcast.forecast.timing.communication import WAIT, collective_seconds, sent_bytes
from vramcast.forecast.timing.pipeline import forecast_step
from vramcast.hardware.gpus import find_gpu
from vramcast.hardware.links import fabric_for, find_link
from vramcast.tracing.work import FORWARD, NO_KERNEL, PLAIN, OperatorWork

H100 = find_gpu("h100-80gb")
GIB = float(1 << 30)


def collective(name: str, num_bytes: float, size: int, in_machine: int, stream: int = 0):  # type: ignore[no-untyped-def]
    sizes = (size, in_machine, 0, 0)
    return OperatorWork(f"c10d::{name}", 6, 0.0, num_bytes, sizes, FORWARD, PLAIN, stream)


def test_an_all_gather_over_nvlink_reaches_what_nccl_tests_show() -> None:
    work = collective("_allgather_base_", 8 * GIB, 8, 8)
    rate = sent_bytes(work) / collective_seconds(work, fabric_for(H100))
    assert rate == pytest.approx(360e9, rel=0.01)


def test_an_all_reduce_moves_twice_what_a_reduce_scatter_does() -> None:
    whole, part = (collective(name, GIB, 8, 8) for name in ("allreduce_", "_reduce_scatter_base_"))
    assert sent_bytes(whole) == 2 * sent_bytes(part) == 2 * 7 / 8 * GIB


def test_machines_share_as_many_adapters_as_they_have_gpus_in_the_group() -> None:
    fabric = fabric_for(H100, network="100Gb/s")
    one, eight = (
        collective_seconds(collective("allreduce_", GIB, 16, of_machine), fabric)
        for of_machine in (1, 8)
    )
    assert one == pytest.approx(8 * eight, rel=0.01)


def test_a_small_collective_takes_the_latency_of_its_steps() -> None:
    few, many = (
        collective_seconds(collective("_allgather_base_", 8.0, size, 8), fabric_for(H100))
        for size in (8, 1024)
    )
    assert 5e-6 < few < 2e-5
    assert 10 * few < many < 1e-3


def test_a_collective_goes_on_beside_kernels_until_a_stream_waits_for_it() -> None:
    kernel = OperatorWork("aten::add", 6, 0.0, 40 * GIB, (0,) * 4, FORWARD, PLAIN)
    gather = collective("_allgather_base_", GIB, 8, 8, stream=7)
    for_gather = OperatorWork(WAIT, -1, 0.0, 0.0, (7, 0, 0, 0), FORWARD, NO_KERNEL)
    after_kernel = OperatorWork(WAIT, -1, 0.0, 0.0, (0, 0, 0, 0), FORWARD, NO_KERNEL, 7)
    fabric = fabric_for(H100)
    beside = forecast_step([gather, kernel, for_gather], H100, fabric=fabric)
    behind = forecast_step([kernel, after_kernel, gather, for_gather], H100, fabric=fabric)
    alone = forecast_step([kernel], H100)
    assert beside.communication and behind.communication
    assert beside.seconds == pytest.approx(alone.seconds, rel=0.01)
    assert beside.communication.efficiency == pytest.approx(1.0, abs=0.01)
    taken = behind.communication.seconds
    assert behind.seconds == pytest.approx(alone.seconds + taken, rel=0.01)
    assert behind.communication.exposed_seconds == pytest.approx(taken, rel=0.01)


def test_a_gpu_without_nvlink_talks_over_the_pcie_of_its_time() -> None:
    assert fabric_for(find_gpu("rtx-4090")).link.name == "pcie-4"
    assert fabric_for(H100).link.name == "nvlink-4"
    assert find_link("network", "200Gb/s").bytes_per_second == 25e9
    assert find_link("link", "64GB/s").bytes_per_second == 64e9
    for bad in ("fast", "0Gb/s", ""):
        with pytest.raises(UsageError, match="is not known"):
            find_link("network", bad)
