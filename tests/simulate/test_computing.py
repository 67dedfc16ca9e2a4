"""When a workload is run again with all that the GPU would compute; and what comes of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import vramcast
from vramcast.errors import WorkloadError
from vramcast.simulate.job import MOST_COMPUTED_BYTES, Job

GUESSED, COMPUTED = False, True
FEW_BYTES = 1 << 20


class Session:
    """Whose runs are noted, with whether they computed."""

    def __init__(self, guessed_with_bytes: int, fails: bool) -> None:
        self.gpu = SimpleNamespace(has_compiled=False)
        self.guessed_with_bytes, self.fails, self.runs = guessed_with_bytes, fails, list[bool]()

    def run(self, *_: Any, computes: bool = False, **__: Any) -> Any:
        self.runs.append(computes)
        if computes and self.fails:
            raise WorkloadError("It takes too much to compute what the GPU would.")
        guessed = 0 if computes else self.guessed_with_bytes
        return SimpleNamespace(guessed_with_bytes=guessed, computes=computes)


def job(guessed_with_bytes: int, *, fails: bool = False, **request: Any) -> tuple[Job, Session]:
    made, session = Job.__new__(Job), Session(guessed_with_bytes, fails)
    made.__dict__.update(session=session, request=request, function=None, knobs={})
    return made, session


def answers(asked: Job, times: int = 1) -> list[bool]:
    return [asked.run(lambda run: run.computes) for _ in range(times)]


def test_where_a_guess_decided_something_it_is_run_again_and_computed() -> None:
    asked, session = job(FEW_BYTES)
    assert answers(asked) == [COMPUTED]
    assert session.runs == [GUESSED, COMPUTED]


def test_runs_that_are_compared_with_it_are_computed_at_once() -> None:
    asked, session = job(FEW_BYTES)
    assert answers(asked, 3) == [COMPUTED] * 3
    assert session.runs == [GUESSED, COMPUTED, COMPUTED, COMPUTED]


def test_where_it_takes_too_much_the_first_run_is_the_answer_and_it_is_tried_once() -> None:
    asked, session = job(FEW_BYTES, fails=True)
    assert answers(asked, 2) == [GUESSED] * 2
    assert session.runs == [GUESSED, COMPUTED, GUESSED]


@pytest.mark.parametrize(
    ("guessed_with_bytes", "request_"),
    [(0, {}), (MOST_COMPUTED_BYTES + 1, {}), (FEW_BYTES, {"world": {}})],
    ids=["nothing was guessed", "it is large", "there are other GPUs"],
)
def test_it_is_run_once_where(guessed_with_bytes: int, request_: dict[str, Any]) -> None:
    asked, session = job(guessed_with_bytes, **request_)
    assert answers(asked) == [GUESSED]
    assert session.runs == [GUESSED]


WORKLOAD = """
import torch
from torch import nn

def build(*, least: float = 0.9, width: int = 128):
    net, data = nn.Linear(width, width).cuda(), torch.randn(1024, width, device="cuda")

    def step():
        sure = net(data).softmax(1).amax(1) >= least
        (net(data[sure]).square().sum() + net.weight.sum()).backward()
        net.zero_grad()

    return step
"""


def test_what_a_network_is_never_sure_of_takes_no_memory(tmp_path: Any) -> None:
    """New weights give 128 classes about the same share: none is above 0.9, and all above 0."""
    (tmp_path / "sure.py").write_text(WORKLOAD)
    none, all_ = (
        vramcast.predict(f"{tmp_path}/sure.py:build", gpu="h200", least=least)
        for least in (0.9, 0.0)
    )
    assert (none.limits, all_.limits) == ([], [])
    # the chosen rows, what the network makes of them and its square's gradient
    assert all_.peak_allocated_bytes - none.peak_allocated_bytes >= 2 * 1024 * 128 * 4
