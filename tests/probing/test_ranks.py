"""probe of a line that starts several processes: every one of them is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast
from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.hardware import nvml
from vramcast.probing.ranks import check_ranks
from vramcast.records.measurement import Device

PROGRAM = """
import os, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
rank = dist.get_rank()
more = torch.zeros(1000_000 * rank, device="cuda")
if os.environ.get("FAILS") == str(rank):
    raise RuntimeError("this rank fails")
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64).cuda(), device_ids=[0])
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def line(tmp_path: Path) -> list[str]:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    return ["torchrun", "--nproc-per-node", "2", str(program)]


@pytest.mark.long
def test_the_peaks_of_every_rank_are_in_one_record(line: list[str]) -> None:
    found = vramcast.probe(line, device="cpu", steps=3)
    assert (found.outcome, found.world_size) == ("ok", 2)
    first, second = found.ranks
    assert (first.rank, second.rank) == (0, 1)
    assert first.peak_allocated_bytes and second.peak_allocated_bytes
    more = second.peak_allocated_bytes - first.peak_allocated_bytes
    assert more == pytest.approx(4_000_000, abs=1000)  # a number may be alive at the peak of one
    assert found.peak_allocated_bytes == second.peak_allocated_bytes, "the one that takes most"


def test_a_rank_that_fails_first_is_the_answer(
    line: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS", "1")
    found = vramcast.probe(line, device="cpu", steps=3)
    assert found.outcome == "crashed"
    assert "this rank fails" in (found.error or "")


def test_processes_of_other_machines_and_missing_gpus_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvml, "gpu_states", lambda: [None])
    with pytest.raises(UsageError, match="16 processes on 2 machines"):
        check_ranks((16, 8), Device.CPU)
    with pytest.raises(EnvironmentProblem, match="there are 1 GPUs here"):
        check_ranks((2, 2), Device.CUDA)
    assert check_ranks((2, 2), Device.CPU) == 2
