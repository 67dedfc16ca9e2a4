"""A long step that repeats is not simulated again, and the answer is the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vramcast
from vramcast.simulate.repeating import originals, with_repetitions

PROGRAM = """
import json
from vramcast.forecast.budget import budget_for
from vramcast.forecast.forecast import forecast
from vramcast.simulate import repeating
from vramcast.simulate.worker import _session_for

budget = budget_for("h200", None, "")
session = _session_for(budget)
import torch
from torch import nn
num_steps = 0

def build(kind="plain"):
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    kept = []

    def step():
        global num_steps
        num_steps += 1
        if kind == "late":
            optimizer.zero_grad()
        loss = model(torch.randn(8, 64, device="cuda")).sum()
        loss.backward()
        if kind != "accumulates" or num_steps % 4 == 0:
            optimizer.step()
            if kind != "late":
                optimizer.zero_grad()
        if kind == "keeps":
            kept[:] = [loss.detach(), torch.zeros(9, device="cuda")]
        if kind == "grows":
            kept.append(torch.zeros(num_steps, 1024, device="cuda"))
        if kind == "grows evenly":
            kept.append(torch.zeros(1024, device="cuda"))
        if kind == "every third" and num_steps % 3 == 2:
            torch.zeros(9, device="cuda")

    return step

for kind in ("plain", "late", "keeps", "accumulates", "grows", "grows evenly", "every third"):
    for repeating.LONG_STEP in (10**9, 1):
        num_steps = 0
        run = session.run(build, {"kind": kind})
        found = forecast(run, budget, workload="", knobs={})
        print(json.dumps([kind, num_steps, found.to_dict()]))
"""


def test_a_prediction_is_the_same_as_if_all_steps_had_run() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(kind, steps) for kind, steps, _ in found] == [
        *(("plain", 4), ("plain", 2)),
        *(("late", 4), ("late", 2)),
        *(("keeps", 4), ("keeps", 2)),
        *(("accumulates", 22), ("accumulates", 22)),
        *(("grows", 22), ("grows", 22)),
        *(("grows evenly", 4), ("grows evenly", 3)),
        *(("every third", 22), ("every third", 22)),
    ]
    for (_, _, all_ran), (_, _, repeated) in zip(found[::2], found[1::2], strict=True):
        assert repeated == all_ran


REPLACES = """
import torch

def build():
    kept = [None] * 3

    def step():
        for i, mib in enumerate((2, 11, 12)):
            kept[i] = torch.empty(mib << 20, dtype=torch.uint8, device="cuda")

    return step
"""


@pytest.mark.usefixtures("warm_simulations")
def test_steps_that_do_the_same_go_on_until_they_take_no_more(tmp_path: Path) -> None:
    """The fifth finds free memory cut up otherwise. An H200: 34, 46, 46, 46, 58 and 58 MiB."""
    (tmp_path / "work.py").write_text(REPLACES)
    found = vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200")
    assert found.phases[-1].num_steps == 5
    assert found.peak_reserved_bytes == 58 << 20


def steps(num_steps: int) -> dict[str, Any]:
    """Every step frees what is left of the one before. The first makes one thing more."""
    events, sizes = [1], [7]
    left: list[int] = []
    for number in range(num_steps):
        first = len(sizes) + 1
        more = number == 0
        sizes += [100] * more + [512, 1024]
        last = first + more + 1
        events += [0, *range(first, last + 1), *(-one for one in left), -(last - 1)]
        left = [last]
    return {"events": np.array(events), "sizes": np.array(sizes)}


def test_what_only_the_first_step_made_is_not_made_again() -> None:
    few, many = steps(2), steps(5)
    assert with_repetitions(few["events"], 3, np.array([2])).tolist() == many["events"].tolist()


def test_repeated_events_are_those_of_further_steps() -> None:
    few, many = steps(3), steps(6)
    assert with_repetitions(few["events"], 3).tolist() == many["events"].tolist()
    original = originals(few["events"], len(few["sizes"]), 3)
    assert original.each(few["sizes"]).tolist() == many["sizes"].tolist()
    numbers = map(original.number, range(1, len(many["sizes"]) + 1))
    assert [few["sizes"][number - 1] for number in numbers] == many["sizes"].tolist()
    assert with_repetitions(few["events"], 0).tolist() == few["events"].tolist()
