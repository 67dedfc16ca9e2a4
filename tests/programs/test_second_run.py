"""Programs that are run a second time, with values computed: where a guess decided sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast

pytestmark = pytest.mark.usefixtures("warm_simulations")
TRAIN = """
import os, random, sys, threading, time, torch

def note(name, *what):
    with open(name, "a") as file:
        print(*what, file=file)

note("set-ups")
random.seed(7)
data = open("data")
data.readline()
own = os.getpid()
if "thread" in sys.argv:
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
net = torch.nn.Linear(300, 300).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(100):
    x = torch.randn(500, 300, device="cuda")
    chosen = x[net(x)[:, 0] > 0]
    if "fails" in sys.argv and os.getpid() != own and step:
        raise ValueError("in the second run alone")
    note("steps", step, random.random(), data.readline().strip())
    net(chosen).square().mean().backward()
    optimizer.step()
"""


def _predict(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[str, list[str]]:
    """What limits the prediction, and the steps that were begun."""
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(TRAIN)
    (folder / "data").write_text("".join(f"line {number}\n" for number in range(200)))
    found = vramcast.predict(["python", "train.py", *words], gpu="h200")
    return " ".join(found.limits), (folder / "steps").read_text().splitlines()


def _set_ups_and_steps(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> list[int]:
    """How often it set itself up and began its first and its second step, after the steps were seen
    to be alike."""
    limits, steps = _predict(folder, monkeypatch, *words)
    assert "assumed" not in limits
    firsts, seconds = ([one for one in steps if one.startswith(f"{n} ")] for n in (0, 1))
    assert len(set(firsts)) == len(set(seconds)) == 1
    assert firsts[0].endswith("line 1") and seconds[0].endswith("line 2")
    return [(folder / "set-ups").read_text().count("\n"), len(firsts), len(seconds)]


def test_the_second_run_begins_where_the_gpu_is_first_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same random numbers, and with files at the places to which they were read then. The
    first ends as its second step begins."""
    assert _set_ups_and_steps(tmp_path, monkeypatch) == [1, 2, 1]


def test_it_begins_anew_where_a_thread_would_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _set_ups_and_steps(tmp_path, monkeypatch, "thread") == [2, 2, 2]


def test_the_first_run_goes_on_where_the_second_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had waited since its first step, and reads its files from where it was."""
    limits, steps = _predict(tmp_path, monkeypatch, "fails")
    assert "assumed" in limits
    assert [one.split()[0] for one in steps[:4]] == ["0", "0", "1", "2"]
    assert [one.rpartition(" ")[2] for one in steps[:4]] == ["1", "1", "2", "3"]
