"""bench on a real GPU: nothing waits for it, its time and memory are recorded, and a resumed run
goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vramcast.benching.bench import bench
from vramcast.benching.data import Corpus
from vramcast.benching.threads import Batches
from vramcast.benching.trainer import Trainer
from vramcast.benching.trial_folder import TrialFolder
from vramcast.hardware import nvml
from vramcast.records.bench import BenchTrial
from vramcast.records.measurement import Device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not nvml.gpu_states(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture
def trainer(
    make_trial: Callable[..., BenchTrial], data: Path, tmp_path: Path
) -> Callable[..., Trainer]:
    def make(
        folder: str = "run", tell: Any = lambda _: None, checkpoint_seconds: float = 1e9
    ) -> Trainer:
        (tmp_path / folder).mkdir(exist_ok=True)
        trial = replace(make_trial(), device=Device.CUDA)
        return Trainer(
            trial, Corpus(data), TrialFolder(tmp_path / folder), checkpoint_seconds, {}, tell
        )

    return make


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_no_step_waits_for_the_gpu(trainer: Callable[..., Trainer]) -> None:
    import torch

    one = trainer()
    training, done, _ = one.prepare()
    with Batches(one._batch, 0, training.device) as batches:
        training.step(batches.next())
        try:
            torch.cuda.set_sync_debug_mode("error")  # whatever waits raises
            block = one._block(training, batches, 1, 0.0)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    steps = block.finish()
    assert len(steps) == len(steps.step_seconds) == len(steps.step_memory_bytes) == 29
    assert all(seconds > 0 for seconds in steps.step_seconds)
    assert all(0 < memory < 2**30 for memory in steps.step_memory_bytes)


def test_a_resumed_run_goes_on_where_it_was(
    trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vramcast.benching.trainer.MAX_BLOCK_STEPS", 4)

    def stop(progress: dict[str, Any]) -> None:
        if progress["step"] >= 15:
            raise InterruptedError

    whole = trainer("whole").run()
    with pytest.raises(InterruptedError):
        trainer("resumed", tell=stop, checkpoint_seconds=1e-9).run()
    resumed = trainer("resumed").run()
    assert resumed.resumed_at_steps
    assert resumed.losses == pytest.approx(
        whole.losses, rel=1e-3
    )  # kernels may add in another order each time


def test_a_model_of_the_zoo_is_trained_in_a_process_of_its_own(data: Path, tmp_path: Path) -> None:
    protocol = tmp_path / "tiny.toml"
    protocol.write_text(
        'name = "tiny-1"\nbatch_size = 4\nseq_len = 32\nsteps = 30\nlast_steps = 10\nlr = 0.01\n'
    )
    (run,) = bench(
        ["e1-50m", "dim=64", "depth=2"], out=tmp_path / "out", protocol=str(protocol), data=data
    )
    assert run.outcome == "ok", run.error
    assert run.memory_kind == "GPU, allocated"
    assert run.environment["gpu"] == nvml.gpu_states()[0].name
    assert run.last_loss < (run.losses[0] or 0)
