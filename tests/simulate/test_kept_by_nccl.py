"""Tensors of asynchronous collectives live until NCCL's process group notices that these ended."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vramcast.simulate.kept_by_nccl import AT_ONCE, KeptByNccl


class Clock:
    """Of host and GPU, set by hand."""

    host_seconds = device_seconds = 0.0

    def look(self) -> None: ...

    def wait(self) -> None:
        self.host_seconds = max(self.host_seconds, self.device_seconds)

    clear = look


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kept(clock: Clock) -> KeptByNccl:
    made: Any = KeptByNccl(clock)  # type: ignore[arg-type]
    return made  # type: ignore[no-any-return]


def test_a_collective_lets_go_what_has_ended_for_long_enough(
    clock: Clock, kept: KeptByNccl
) -> None:
    shelf = kept.keep([torch.zeros(4)])
    clock.host_seconds = 0.01
    kept.let_go()
    assert shelf.tensors, "the group's thread looks ten times a second"
    clock.host_seconds = 0.2
    assert shelf.tensors, "only the next collective lets go"
    kept.let_go()
    assert not shelf.tensors


def test_what_the_gpu_has_not_reached_is_kept(clock: Clock, kept: KeptByNccl) -> None:
    clock.device_seconds = 1.0
    shelf = kept.keep([torch.zeros(4)])
    clock.host_seconds = 0.5
    kept.let_go()
    assert shelf.tensors
    kept.let_go(waits=True)
    assert shelf.tensors, "the host has waited, and nobody has looked since"
    clock.host_seconds = 1.2
    kept.let_go()
    assert not shelf.tensors


def test_it_is_said_whether_time_decides(clock: Clock, kept: KeptByNccl) -> None:
    bucket = torch.zeros(4)
    view = bucket[1:]
    kept.keep([bucket])
    kept.let_go()
    assert not kept.was_last, "the program has it too"
    del view, bucket
    kept.let_go()
    assert kept.was_last


def test_at_the_least_nothing_is_kept_longer_than_to_the_next_collective(
    kept: KeptByNccl,
) -> None:
    kept.noticed_after_seconds = AT_ONCE
    shelf = kept.keep([torch.zeros(4)])
    kept.let_go()
    assert not shelf.tensors
