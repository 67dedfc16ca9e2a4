"""What is imported before a workload runs, and when."""

from __future__ import annotations

from pathlib import Path

import pytest
from waiting import comes_true

from vramcast.probing.manager import SLOW, Prober, preload_for
from vramcast.probing.trial import Trial
from vramcast.processes.ask import TaskFailed

STEP = "def build(*, batch_size: int = 1):\n    return lambda: 0.0\n"
LIBRARY = """
import os, torch

def spoil():
    torch.cuda._is_in_bad_fork = lambda: True

"""


def test_a_slow_library_is_imported_before_where_the_workload_names_it(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    plain, hugging = tmp_path / "plain.py", tmp_path / "hugging.py"
    plain.write_text(STEP)
    hugging.write_text("import transformers\n" + STEP)
    assert preload_for(f"{plain}:build") == []
    assert preload_for(f"{hugging}:build") == list(SLOW["transformers"])
    assert preload_for("vramcast_zoo.suites.huggingface:huggingface") == list(SLOW["transformers"])
    assert (
        preload_for("vramcast_zoo.suites.models:gpt")
        == preload_for("gpt2-124m")
        == preload_for("no.such.module:build")
        == []
    )


def test_started_early_torch_is_imported_meanwhile(tmp_path: Path) -> None:
    workload = tmp_path / "w.py"
    workload.write_text(STEP)
    with Prober() as prober:
        prober.start()
        prober.start()  # once is enough
        process = prober._process
        assert process is not None
        maps = Path(f"/proc/{process.pid}/maps")
        assert comes_true(lambda: "libtorch_cpu" in maps.read_text())
        measured = prober.run(Trial(workload=f"{workload}:build", device="cpu", measure_steps=1))
    assert measured.outcome == "ok"


def test_started_early_and_never_used_it_is_gone_with_the_prober() -> None:
    with Prober() as prober:
        prober.start()
        process = prober._process
        assert process is not None and process.poll() is None
    assert process.poll() is not None


def test_started_early_what_cannot_be_imported_is_said_at_the_first_trial() -> None:
    with Prober(preload=["no_such_module"]) as broken:
        broken.start()
        with pytest.raises(TaskFailed, match="no_such_module"):
            broken.run(Trial(workload="examples/gpt.py:build", device="cpu", measure_steps=1))


@pytest.mark.parametrize("starts_cuda", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_library_that_starts_cuda_is_imported_by_each_trial_itself(
    starts_cuda: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No fork of a process that has started CUDA can use it. torch notices that in the fork."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    spoils = "os.register_at_fork(after_in_child=spoil)" if starts_cuda else ""
    (tmp_path / "library.py").write_text(LIBRARY + spoils)
    workload = tmp_path / "w.py"
    is_there = "float('library' in sys.modules)"
    workload.write_text("import sys\n" + STEP.replace("0.0", is_there))
    with Prober(preload=["library"]) as prober:
        trial = Trial(workload=f"{workload}:build", device="cpu", measure_steps=1)
        assert set(prober.run(trial).losses) == {float(not starts_cuda)}
