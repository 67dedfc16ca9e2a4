"""One rank of many GPUs on the simulated one, started by torchrun's line or with --world-size."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import vramcast
from vramcast.errors import UsageError
from vramcast.forecast.budget import budget_for
from vramcast.hardware.calibration.table import minor_version
from vramcast.processes.ask import ForkServer
from vramcast.records.prediction import Prediction
from vramcast.simulate.runner import ENVIRONMENT, SHARED, shared_server
from vramcast.workload.world import rank_variables, world_request

PARALLEL = str(Path(__file__).parent / "small" / "parallel.py")
SPREAD = ("fsdp", "optim", "pipelining", "tensor.parallel", "tensor.experimental")


@pytest.fixture(scope="module", autouse=True)
def warm_ranks(workspaces_of_torch_2_11: None) -> Iterator[None]:
    """What spreads a model is imported once: it takes longer than these programs."""
    modules = (f"torch.distributed.{name}" for name in SPREAD)
    with ForkServer((*SHARED, *modules), ENVIRONMENT) as server, shared_server(server):
        yield


def predict(*words: str, processes: int = 8, **options: Any) -> Prediction:
    line = ["torchrun", "--nproc-per-node", str(processes), PARALLEL, *words]
    return vramcast.predict(line, gpu="h200", **options)


@pytest.mark.parametrize("kind", ["ddp", "hook", "zero", "tp", "cp", "pp"])
def test_a_rank_trains_in_whatever_way_the_model_is_spread(kind: str) -> None:
    found = predict(kind, ranks=[0])
    assert found.world_size == 8
    assert [rank.rank for rank in found.ranks] == [0]
    assert found.phases[-1].num_steps >= 3
    assert any("communication between GPUs" in limit for limit in found.limits)
    assert found.step and found.step.communication
    assert found.step.communication.seconds > 0


def test_the_state_of_a_sharded_optimizer_is_gathered_for_saving() -> None:
    first, last = predict("zero-saved", processes=3).ranks
    assert (first.rank, last.rank) == (0, 2) or first.alike == [2]


def test_a_step_sends_every_gradient_once_around_the_ring() -> None:
    """An all-reduce sends it once to be summed, and once to be known."""
    found = predict("ddp", ranks=[0], link="pcie-4", network="100Gb/s")
    assert found.step and found.step.communication
    between = found.step.communication
    assert (between.link, between.network) == ("pcie-4", "100Gb/s")
    reduced = [one for one in between.collectives if one.operation == "all-reduce"]
    assert sum(one.sent_bytes for one in reduced) == 2 * 7 / 8 * 4 * found.num_parameters
    assert found.step.seconds >= found.step.communication.exposed_seconds


def test_every_stage_of_a_pipeline_is_simulated() -> None:
    """Each keeps one batch more than the next until its backward pass.

    From torch 2.15 on room for what comes from the stage before is taken late, and the second stage
    of this small model may take more than the first, whose batches are there from the beginning.
    """
    taken = {rank.rank: rank.peak_allocated_bytes for rank in predict("pp", processes=3).ranks}
    assert list(taken) == [0, 1, 2]
    assert taken[0] > taken[2]
    if minor_version(torch.__version__) < (2, 15):
        assert taken[0] > taken[1] > taken[2]


@pytest.mark.long
def test_ranks_that_take_the_same_are_shown_once() -> None:
    (only,) = predict("ddp", processes=2, ranks="all").ranks
    assert (only.rank, only.alike) == (0, [1])


@pytest.mark.long
def test_a_workload_that_starts_torch_distributed_can_be_built_at_many_sizes(
    tmp_path: Path,
) -> None:
    workload = tmp_path / "train.py"
    workload.write_text(
        "import torch, torch.distributed as dist\n"
        "def build(batch_size: int = 1):\n"
        "    dist.init_process_group('nccl')\n"
        "    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())\n"
        "    def step():\n"
        "        model(torch.randn(batch_size, 64, device='cuda')).sum().backward()\n"
        "    return step\n"
    )
    found = vramcast.max_batch(f"{workload}:build", memory="200MiB", gpu="h200", maximum=8)
    assert found.largest_batch


def test_what_connects_the_gpus_must_be_known() -> None:
    with pytest.raises(UsageError, match="--link 'token-ring' is not known"):
        predict("ddp", link="token-ring")
    with pytest.raises(UsageError, match="--network is for several GPUs"):
        vramcast.predict("llama-300m", gpu="h200", network="ethernet-100")


def test_the_first_and_the_last_rank_are_simulated_and_the_larger_one_is_shown() -> None:
    found = predict("fsdp2", processes=3)
    assert sorted(n for rank in found.ranks for n in (rank.rank, *rank.alike)) == [0, 2]
    largest = max(rank.peak_reserved_bytes for rank in found.ranks)
    assert found.peak_reserved_bytes == largest


def test_where_only_one_rank_fails_the_other_is_the_answer(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import os, torch\n"
        "if os.environ['RANK'] == '1':\n"
        "    raise RuntimeError('rank 0 said something else')\n"
        "model = torch.nn.Linear(8, 8).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "while True:\n"
        "    model(torch.randn(4, 8, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n"
    )
    found = vramcast.predict(["torchrun", "--nproc-per-node=2", str(program)], gpu="h200")
    assert [rank.rank for rank in found.ranks] == [0]
    assert any(limit.startswith("rank 1 could not be simulated") for limit in found.limits)


@pytest.mark.long
def test_what_is_run_again_for_its_bounds_prints_only_once(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('nccl')\n"
        "print('begun', flush=True)\n"
        "w = torch.ones(64, 64, device='cuda', requires_grad=True)\n"
        "while True:\n"
        "    dist.all_reduce((w.detach() * 2).contiguous(), async_op=True)\n"
        "    w.square().sum().backward()\n"
        "    torch.optim.SGD([w], 0.1).step()\n"
    )
    line = ["torchrun", "--nproc-per-node=2", str(program)]
    command = [sys.executable, "-m", "vramcast", "predict", "--gpu=h200", "--ranks=0", "--json"]
    done = subprocess.run([*command, "--", *line], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["peak_reserved_bytes_low"], "it was run three times"
    assert done.stderr.count("begun") == 1


@pytest.mark.long
def test_of_a_pipeline_whose_stages_ask_each_other_only_the_first_is_simulated() -> None:
    """It is asked; the shape of the gradient it waits for is that of what it sent."""
    assert predict("pp-shapes-unknown", ranks=[0]).phases[-1].num_steps >= 3
    with pytest.raises(UsageError, match="asks stage 6, which another GPU has"):
        predict("pp-shapes-unknown", ranks=[7])


@cache
def whole_model(kind: str) -> Prediction:
    sizes = ("--width=768", "--depth=12", "--vocabulary=50304", "--length=1024")
    return predict(kind, *sizes, ranks=[0])


# An H200 ran one rank of eight with torch 2.11. Where streams share memory, timing decides, and a
# real run may take the least that is possible.
@pytest.mark.parametrize(
    ("kind", "measured_bytes"),
    [("fsdp2", 6_463_422_464), pytest.param("fsdp1", 10_554_966_016, marks=pytest.mark.long)],
)
def test_reserved_memory_is_within_a_thousandth_of_what_an_h200_took(
    kind: str, measured_bytes: int
) -> None:
    found = whole_model(kind)
    low = found.peak_reserved_bytes_low or found.peak_reserved_bytes
    assert abs(low - measured_bytes) <= 0.001 * measured_bytes


@pytest.mark.parametrize("kind", ["fsdp2", "fsdp1"])
def test_a_rank_has_its_share_of_the_parameters_and_leaves_room_for_nccl(kind: str) -> None:
    found = whole_model(kind)
    assert found.peak_reserved_bytes >= (found.peak_reserved_bytes_low or 0)
    # 162 million parameters in float32 over eight GPUs, and a block that is gathered
    assert 81_000_000 < found.breakdown_bytes["parameters"] < 100_000_000
    assert found.num_parameters == 162_371_712, "of the whole model"
    assert found.attention_kernels == ["cudnn"]
    # an estimate of what NCCL takes for one group is left out of what the allocator may take
    assert found.communicators_bytes == (192 + 170) << 20
    alone = budget_for("h200").capacity_bytes
    assert alone is not None and found.capacity_bytes == alone - found.communicators_bytes


def test_a_program_that_never_starts_torch_distributed_is_said_to_run_as_one_gpu() -> None:
    plain = str(Path(PARALLEL).with_name("epochs.py"))
    found = vramcast.predict(["python", plain], gpu="h200", world_size=4, ranks=[0])
    assert (
        "4 processes were asked for; the program never calls init_process_group, "
        "so each of them runs as a single GPU"
    ) in found.limits
    assert found.communicators_bytes == 0


@pytest.mark.long
def test_the_order_of_attention_kernels_can_be_chosen() -> None:
    found = predict("fsdp2", ranks=[0], attention_order="efficient,flash")
    assert (found.attention_order, found.attention_kernels) == (
        ["efficient", "flash"],
        ["efficient"],
    )
    with pytest.raises(UsageError, match="--attention-order flesh is not a list"):
        predict("fsdp2", attention_order="flesh")


@pytest.mark.long
@pytest.mark.parametrize(("parallel", "share"), [("ddp", 1), ("fsdp2", 4)])
def test_a_model_of_the_zoo_is_copied_or_sharded(parallel: str, share: int) -> None:
    sizes = {"dim": 256, "depth": 2, "hidden": 512, "batch_size": 1, "precision": "bf16"}
    found = vramcast.predict(
        "llama-300m", gpu="h200", world_size=4, ranks=[0], parallel=parallel, knobs=sizes
    )
    assert found.num_parameters == 17_499_392
    own_bytes = 2 * found.num_parameters / share
    assert found.breakdown_bytes["parameters"] == pytest.approx(own_bytes, rel=0.02)


def test_a_rank_is_told_what_torchrun_would_tell_it() -> None:
    told = rank_variables(13, world_size=16, gpus_per_node=8)
    assert (told["RANK"], told["WORLD_SIZE"], told["GROUP_RANK"]) == ("13", "16", "1")
    assert told["LOCAL_RANK"] == "0", "the GPU that is simulated is the first of its machine"


@pytest.mark.parametrize(
    ("started", "world_size", "per_node", "ranks", "message"),
    [
        ((1, 1), 0, None, None, "--world-size is 0"),
        ((1, 1), 1 << 20, None, None, "--world-size is 1048576"),
        ((8, 8), 4, None, None, "The line starts 8 processes"),
        ((1, 1), 12, 8, None, "12 GPUs do not fill machines of 8"),
        ((8, 8), None, None, "8", "names a rank that 8 GPUs do not have"),
        ((8, 8), None, None, "first", "is not a list of ranks"),
        ((256, 8), None, None, "all", "at most 64 are simulated"),
        ((1, 1), None, None, "0", "--ranks is for several GPUs"),
    ],
)
def test_a_world_that_cannot_be_is_refused(
    started: tuple[int, int], world_size: Any, per_node: Any, ranks: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as error:
        world_request(started, world_size, per_node, ranks)
    assert error.value.advice


def test_ranks_are_read() -> None:
    assert world_request((8, 8), None, None, "all")["world"]["ranks"] == list(range(8))
    assert world_request((1, 1), 4096, None, None) == {
        "world": {
            "size": 4096,
            "gpus_per_node": 8,
            "ranks": [0, 4095],
            "are_default_ranks": True,
        }
    }
    assert world_request((1, 1), None, None, None) == {}


@pytest.mark.parametrize(
    "wrap",
    ["DistributedDataParallel(model.to(own), device_ids=[own])", "FSDP(model, device_id=own)"],
)
def test_a_process_that_calls_its_gpu_by_its_rank_takes_what_the_first_takes(
    tmp_path: Path, wrap: str
) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import torch, torch.distributed as dist\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "from torch.nn.parallel import DistributedDataParallel\n"
        "dist.init_process_group('nccl')\n"
        "own = dist.get_rank() % torch.cuda.device_count()\n"
        "torch.cuda.set_device(own)\n"
        "model = torch.nn.Linear(1024, 8)\n"
        f"model = {wrap}\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(3):\n"
        "    model(torch.randn(4096, 1024).to(own)).sum().backward()\n"
        "    optimizer.step()\n"
    )
    found = vramcast.predict(["torchrun", "--nproc-per-node=2", str(program)], gpu="h200")
    assert [(rank.rank, rank.alike) for rank in found.ranks] == [(0, [1])]
    assert not any("other GPUs" in limit for limit in found.limits)
