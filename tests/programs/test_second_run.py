"""Programs that are run a second time, with values computed: where a guess decided sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast

pytestmark = pytest.mark.usefixtures("warm_simulations")
TRAIN = """
import random, sys, threading, time, torch

def note(name, *what):
    with open(name, "a") as file:
        print(*what, file=file)

note("set-ups")
random.seed(7)
data = open("data")
data.readline()
if sys.argv[1:]:
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
net = torch.nn.Linear(300, 300).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(100):
    x = torch.randn(500, 300, device="cuda")
    chosen = x[net(x)[:, 0] > 0]
    note("steps", step, random.random(), data.readline().strip())
    net(chosen).square().mean().backward()
    optimizer.step()
"""


def _set_ups_and_steps(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> list[int]:
    """How often it set itself up and began to train, after the steps were seen to be alike."""
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(TRAIN)
    (folder / "data").write_text("".join(f"line {number}\n" for number in range(200)))
    found = vramcast.predict(["python", "train.py", *words], gpu="h200")
    assert not any("assumed" in limit for limit in found.limits)
    steps = (folder / "steps").read_text().splitlines()
    firsts, seconds = ([one for one in steps if one.startswith(f"{n} ")] for n in (0, 1))
    assert len(set(firsts)) == len(set(seconds)) == 1
    assert firsts[0].endswith("line 1") and seconds[0].endswith("line 2")
    return [(folder / "set-ups").read_text().count("\n"), len(firsts)]


def test_the_second_run_begins_where_the_gpu_is_first_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same random numbers, and with files at the places to which they were read then."""
    assert _set_ups_and_steps(tmp_path, monkeypatch) == [1, 2]


def test_it_begins_anew_where_a_thread_would_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _set_ups_and_steps(tmp_path, monkeypatch, "thread") == [2, 2]
