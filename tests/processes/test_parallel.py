"""The same function over many items, in forks of this process."""

from __future__ import annotations

import os
import signal

import pytest

from vramcast.processes.ask import TaskFailed
from vramcast.processes.parallel import in_parallel


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_results_keep_the_order_of_the_items(count: int) -> None:
    assert in_parallel(lambda item: item * item, range(count)) == [i * i for i in range(count)]


def test_a_process_that_is_killed_is_told_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    parent = os.getpid()

    def dies_at_three(item: int) -> int:
        assert os.getpid() != parent
        if item == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    with pytest.raises(TaskFailed, match="SIGKILL"):
        in_parallel(dies_at_three, range(5))
