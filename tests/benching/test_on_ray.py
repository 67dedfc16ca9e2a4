"""Trials on a real Ray cluster of one node, and what comes back from nodes that do not share the
folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vramcast.benching import on_ray
from vramcast.benching.bench import bench
from vramcast.benching.data import Corpus
from vramcast.benching.on_ray import RayWorker, ray_cluster
from vramcast.benching.trainer import Trainer
from vramcast.benching.trial_folder import TrialFolder
from vramcast.benching.workers import LocalWorker, finished_run
from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.hardware import cluster
from vramcast.processes.ask import FailureKind, TaskFailed
from vramcast.processes.progress import Progress, ignore
from vramcast.records.bench import BenchTrial, TrainedRun, TrainingOutcome
from vramcast.records.measurement import Device

MakeTrial = Callable[..., BenchTrial]
PROTOCOL = """\
name = "tiny-1"
batch_size = 4
seq_len = 16
steps = 30
last_steps = 10
lr = 0.01
optimizer = "adamw"
precision = "fp32"
"""
START = """
import sys, ray
quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
context = ray.init(num_cpus=2, object_store_memory=80 * 2**20, _temp_dir=sys.argv[1], **quiet)
print(context.address_info["gcs_address"], flush=True)
sys.stdin.read()
ray.shutdown()
"""


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("ray", reason="the package ray is not installed")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # it would write a token into the home folder
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    folder = tempfile.mkdtemp(prefix="ray")  # pytest's folders are too deep for Ray's sockets
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    cluster = subprocess.Popen([sys.executable, "-c", START, folder], text=True, **pipes)  # type: ignore[call-overload]
    yield cluster.stdout.readline().strip()
    cluster.communicate()
    shutil.rmtree(folder, ignore_errors=True)


def test_trials_are_tasks_of_a_cluster_and_one_that_is_lost_takes_no_other_with_it(
    address: str, make_trial: MakeTrial, models: Path, data: Path, tmp_path: Path
) -> None:
    """Starting Ray is slow: everything that needs it is here."""
    toml = tmp_path / "tiny.toml"
    toml.write_text(PROTOCOL)
    news: list[Progress] = []

    trained, lost = bench(
        [f"{models}:tiny", f"{models}:lost"],
        out=tmp_path / "out",
        protocol=str(toml),
        data=data,
        device="cpu",
        ray=address,
        progress=news.append,
    )
    assert (trained.outcome, lost.outcome) == ("ok", "crashed")
    assert "Ray has lost the task" in (lost.error or "")
    assert {told.name for told in news} == {f"{trained.trial.label} seed 42"}
    assert news[-1].done == 1.0
    (tmp_path / "whole").mkdir()
    whole = Trainer(
        make_trial(), Corpus(data), TrialFolder(tmp_path / "whole"), 60.0, {}, lambda _: None
    ).run()
    assert trained.losses == whole.losses


class PretendedRay:
    """Tasks are iterators here, and references what they refer to."""

    exceptions = SimpleNamespace(RayError=ConnectionResetError)
    cancelled: Any = None

    def get(self, reference: Any) -> Any:
        if reference == "lost":
            raise ConnectionResetError("the node is gone")
        return reference

    def cancel(self, task: Any, force: bool) -> None:
        self.cancelled = task


def ray_worker(*news: Any) -> tuple[RayWorker, PretendedRay]:
    ray = PretendedRay()
    return RayWorker(ray, SimpleNamespace(remote=lambda request, data: iter(news)), None), ray


def test_a_node_that_does_not_share_the_folder_sends_what_it_wrote(
    make_trial: MakeTrial, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []

    class PretendedWorker:
        def __enter__(self) -> PretendedWorker:
            return self

        def __exit__(self, *_: object) -> None:
            return

        def train(self, request: dict[str, Any]) -> Iterator[Any]:
            assert Corpus(Path(request["data_path"])).identity() == make_trial().data
            seen.append(Path(request["folder"]))
            trial = BenchTrial.from_dict(request["trial"])
            run = TrainedRun(
                trial=trial,
                outcome=TrainingOutcome.OK,
                environment={},
                losses=[1.0] * 30,
                step_seconds=[0.1] * 30,
                step_memory_bytes=[1] * 30,
            )
            TrialFolder(seen[-1]).write_result(run)
            TrialFolder(seen[-1]).board.mkdir(exist_ok=True)
            (TrialFolder(seen[-1]).board / "events").write_bytes(bytes(range(256)))
            yield {"fraction": 1.0, "detail": "step 30"}

    monkeypatch.setattr(on_ray, "LocalWorker", PretendedWorker)
    here = TrialFolder(tmp_path / "here")
    here.begin(make_trial())
    request = {
        "trial": make_trial().to_dict(),
        "folder": str(tmp_path / "not there"),
        "data_path": f"/elsewhere/{data.name}",
    }
    told = list(on_ray._train(request, data.read_bytes()))
    assert not seen[0].exists()  # nothing stays on the node
    assert told[0] == {"progress": {"fraction": 1.0, "detail": "step 30"}}
    assert told[-1].keys() == {"files"}
    heard: list[Progress] = []
    news = ray_worker(*told)[0].train({**request, "folder": str(here.path)})
    run = finished_run(make_trial(), here, news, heard.append)
    assert (run.losses, [reached.detail for reached in heard]) == ([1.0] * 30, ["step 30"])
    assert (here.board / "events").read_bytes() == bytes(range(256))

    list(on_ray._train({**request, "folder": str(here.path)}, data.read_bytes()))
    assert seen[1] == here.path  # a node that sees the folder writes its checkpoints there


def test_a_lost_task_is_a_crash_and_a_cancelled_one_is_nothing(
    make_trial: MakeTrial, tmp_path: Path
) -> None:
    folder = TrialFolder(tmp_path / "trial")
    folder.begin(make_trial())
    run = finished_run(make_trial(), folder, ray_worker("lost")[0].train({}), ignore)
    assert (run.outcome, "the node is gone" in str(run.error)) == ("crashed", True)
    stopped, ray = ray_worker({"progress": {}}, "lost")
    news = stopped.train({})
    next(news)
    stopped.stop()
    assert ray.cancelled is not None
    with pytest.raises(TaskFailed) as raised:
        next(news)
    assert raised.value.kind is FailureKind.STOPPED


def test_a_worker_that_was_stopped_before_its_task_began_cancels_it() -> None:
    worker, ray = ray_worker("lost")
    worker.stop()
    with pytest.raises(TaskFailed) as raised:
        next(worker.train({}))
    assert raised.value.kind is FailureKind.STOPPED
    assert ray.cancelled is not None


def test_what_went_wrong_on_a_node_is_raised_here_as_it_was_there(
    make_trial: MakeTrial, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = TrialFolder(tmp_path / "trial")
    folder.begin(make_trial())
    request = {
        "trial": make_trial().to_dict(),
        "folder": str(folder.path),
        "data_path": str(data),
    }
    for problem in (UsageError("no knob", "Did you"), TaskFailed(FailureKind.EXITED, "It left.")):

        class FailingWorker(LocalWorker):
            def train(self, request: dict[str, Any], problem: Any = problem) -> Iterator[Any]:
                raise problem

        monkeypatch.setattr(on_ray, "LocalWorker", FailingWorker)
        (end,) = on_ray._train(request, None)
        with pytest.raises(type(problem)) as caught:
            list(ray_worker(end)[0].train(request))
        assert caught.value.message == problem.message


def test_without_ray_it_is_said_what_to_install(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EnvironmentProblem, match="needs the package ray"):
        bench(["e1-50m"], out=tmp_path / "out", data=data, ray="auto")
    assert not os.path.exists(tmp_path / "out")


def test_an_address_at_which_nobody_answers_is_said_at_once(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "import_ray", SimpleNamespace)
    for address in ("ray://head:10001", "head", ":6379", "head:port"):
        with pytest.raises(UsageError, match="no address"):
            ray_cluster(address, Device.CPU, data).__enter__()
    with pytest.raises(EnvironmentProblem, match="No Ray cluster answers at '127.0.0.1:1'"):
        ray_cluster("127.0.0.1:1", Device.CPU, data).__enter__()


def test_the_clusters_gpu_is_known_by_its_type_if_there_is_one_type(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    def gpu(*types: str) -> str | None:
        resources = {"GPU": 8.0, **{f"accelerator_type:{name}": 1.0 for name in types}}
        ray = SimpleNamespace(
            cluster_resources=lambda: resources,
            put=lambda content: content,
            init=lambda **_: None,
            remote=lambda function: SimpleNamespace(options=lambda **_: function),
            shutdown=lambda: None,
        )
        monkeypatch.setattr(cluster, "import_ray", lambda: ray)
        with ray_cluster("auto", Device.CUDA, data) as machine:
            return machine.gpu

    assert gpu("H200") == "h200"
    assert gpu("H200", "A100") is None
    assert gpu("TPU-V4") is None


def test_a_cluster_without_a_gpu_is_refused_and_left(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    left: list[bool] = []
    ray = SimpleNamespace(
        cluster_resources=lambda: {"CPU": 8.0},
        init=lambda **_: None,
        shutdown=lambda: left.append(True),
    )
    monkeypatch.setattr(cluster, "import_ray", lambda: ray)
    with pytest.raises(EnvironmentProblem, match="has no GPU"):
        ray_cluster("auto", Device.CUDA, data).__enter__()
    assert left
