"""Trials on a real Ray cluster of two nodes, and what comes back from nodes that do not share the
folder.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
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
from vramcast.predicting.predict_many import predict_many
from vramcast.processes.ask import FailureKind, TaskFailed
from vramcast.processes.progress import Progress, ignore
from vramcast.records.bench import BenchTrial, TrainedRun, TrainingOutcome
from vramcast.records.measurement import Device
from vramcast.suites.accuracy import accuracy

MakeTrial = Callable[..., BenchTrial]
RECORDED = Path(__file__).parents[2] / "benchmarks" / "accuracy" / "h200-torch-2.11"
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
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
size = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
quick = {"health_check_period_ms": 500, "health_check_failure_threshold": 5}
head = {"include_dashboard": False, "no_monitor": True, "_system_config": quick, **size}
cluster = Cluster(initialize_head=True, head_node_args=head)
other = cluster.add_node(**size)
print(cluster.address, other.all_processes["raylet"][0].process.pid, flush=True)
if sys.stdin.readline():
    cluster.remove_node(other, allow_graceful=False)
    cluster.add_node(**size)
    print("lost", flush=True)
sys.stdin.read()
cluster.shutdown()
"""
SECONDS = 300.0  # until a test gives up waiting for something that must come


class Cluster:
    """A real one with two nodes, in a process of its own."""

    def __init__(self, folder: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CLUSTER],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "RAY_TMPDIR": folder},
        )
        self.printed: list[str] = []
        address, raylet = self._wait_for_line(r"([\d.]+:\d+) (\d+)\n").groups()
        self.address, self.raylet_to_lose = address, int(raylet)

    def _wait_for_line(self, pattern: str) -> re.Match[str]:
        """Ray prints there too."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.printed.append(line)
            if found := re.fullmatch(pattern, line):
                return found
        self.close()
        raise AssertionError("".join(self.printed))

    def lose_a_node(self) -> None:
        """And another comes."""
        assert self._process.stdin is not None
        print("lose", file=self._process.stdin, flush=True)
        self._wait_for_line("lost\n")

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def cluster_of_two() -> Iterator[Cluster]:
    """One for all tests: starting it takes seconds."""
    pytest.importorskip("ray", reason="the package ray is not installed")
    folder = tempfile.mkdtemp(prefix="ray")  # pytest's folders are too deep for Ray's sockets
    (Path(folder) / "ray").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # it would write a token into the home folder
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        started = Cluster(folder)
        yield started
        started.close()
    shutil.rmtree(folder, ignore_errors=True)


def wait_until(happens: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (found := happens()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.long
def test_no_trial_is_lost_with_a_worker_a_node_or_the_driver(
    cluster_of_two: Cluster, make_trial: MakeTrial, models: Path, data: Path, tmp_path: Path
) -> None:
    """Trials wait until they are let go, so that each is in its midst when it is lost."""
    toml, out = tmp_path / "tiny.toml", tmp_path / "out"
    toml.write_text(PROTOCOL)
    seen: set[Path] = set()

    def trainers(count: int) -> list[list[int]]:
        """The next that wait: each with its guard, fork server, Ray's worker and raylet."""
        found = wait_until(
            lambda: new if len(new := {*tmp_path.glob("reached-*")} - seen) == count else None
        )
        seen.update(found)
        return [[int(pid) for pid in path.read_text().split()] for path in sorted(found)]

    options = ["--protocol", str(toml), "--data", str(data), "--seeds", "1,2", "--device", "cpu"]
    options += ["--out", str(out), "--checkpoint-seconds", "1e-9"]
    options += ["--ray", cluster_of_two.address]
    command = [sys.executable, "-m", "vramcast", "bench", f"{models}:waiting", *options]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    second, first = sorted(trainers(2), key=lambda pids: pids[-1] != cluster_of_two.raylet_to_lose)
    assert second[-1] == cluster_of_two.raylet_to_lose != first[-1]
    os.kill(first[3], signal.SIGKILL)  # Ray's worker
    cluster_of_two.lose_a_node()
    others = trainers(2)
    assert not is_alive(first[0]) and not is_alive(second[0])
    driver.kill()
    driver.communicate()
    wait_until(lambda: not any(is_alive(pids[0]) for pids in others))
    assert not list(out.glob("*/result.json"))

    (tmp_path / "go").touch()
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    runs = [TrainedRun.from_file(path) for path in sorted(out.glob("*/result.json"))]
    assert [run.trial.seed for run in runs] == [1, 2]
    for run in runs:
        folder = TrialFolder(tmp_path / f"whole-{run.trial.seed}")
        folder.path.mkdir()
        trial = make_trial("waiting", seed=run.trial.seed)
        whole = Trainer(trial, Corpus(data), folder, 60.0, {}, lambda _: None).run()
        assert (run.outcome, run.losses) == ("ok", whole.losses)
        # Every attempt had got to a checkpoint, and the next went on from there.
        assert len(run.resumed_at_steps) == 2


PREDICTED = """
import torch

def build(*, batch_size: int = 8):
    if batch_size == 13:
        raise ValueError("an unlucky size")
    layer = torch.nn.Linear(64, 64, device="cuda")
    data = torch.zeros(batch_size, 64, device="cuda")
    return lambda: layer(data).sum().backward()
"""


@pytest.mark.long
def test_predictions_of_a_cluster_are_those_of_this_machine(
    cluster_of_two: Cluster, warm_simulations: None, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(PREDICTED)
    question: dict[str, Any] = {"gpu": "h200", "vary": {"batch_size": [8, 13, 4096]}}
    workload, out = f"{tmp_path / 'train.py'}:build", tmp_path / "out"
    table = predict_many(workload, **question, ray=cluster_of_two.address, out=out)
    assert table.cases == predict_many(workload, **question).cases
    # The answers are kept as those of this machine are.
    assert len((out / "answers.jsonl").read_text().splitlines()) == 2


@pytest.mark.long
def test_rows_of_the_accuracy_suites_are_predicted_on_a_cluster(
    cluster_of_two: Cluster, warm_simulations: None, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"against": RECORDED, "only": ["gpt124m-amp-B8"]}
    on_cluster = accuracy(["open"], **options, out=tmp_path / "ray", ray=cluster_of_two.address)
    (one,), (other,) = on_cluster.rows, accuracy(["open"], **options, out=tmp_path / "here").rows
    assert replace(one, prediction_seconds=None) == replace(other, prediction_seconds=None)
    # with the records that a run on this machine goes on from
    again = accuracy(["open"], **options, out=tmp_path / "ray", ray="127.0.0.1:1")
    assert again == on_cluster


class PretendedRay:
    """Tasks are iterators here, and references what they refer to."""

    exceptions = SimpleNamespace(RayError=OSError, RayTaskError=PermissionError)
    cancelled: Any = None
    num_tasks = 0

    def get(self, reference: Any) -> Any:
        if reference == "failed":
            raise PermissionError("an exception of the task itself")
        if reference == "lost":
            raise ConnectionResetError("the node is gone")
        return reference

    def cancel(self, task: Any, force: bool) -> None:
        self.cancelled = task


def ray_worker(*news: Any) -> tuple[RayWorker, PretendedRay]:
    ray = PretendedRay()

    def remote(request: Any, data: Any) -> Any:
        ray.num_tasks += 1
        return iter(news)

    return RayWorker(ray, SimpleNamespace(remote=remote), None), ray


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


def test_a_task_that_is_lost_every_time_is_a_crash_and_a_cancelled_one_is_nothing(
    make_trial: MakeTrial, tmp_path: Path
) -> None:
    folder = TrialFolder(tmp_path / "trial")
    folder.begin(make_trial())
    request = {"folder": str(folder.path)}
    for how, num_tasks, words in (
        ("lost", on_ray.MAX_ATTEMPTS, "lost the task 3 times"),
        ("failed", 1, "an exception of the task itself"),
    ):
        worker, ray = ray_worker(how)
        folder.begin(make_trial())
        run = finished_run(make_trial(), folder, worker.train(request), ignore)
        assert (run.outcome, ray.num_tasks) == ("crashed", num_tasks)
        assert words in str(run.error)
    stopped, ray = ray_worker({"progress": {}}, "lost")
    news = stopped.train(request)
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
        next(worker.train({"folder": "none"}))
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
        with pytest.raises(UsageError, match="is not the address of a cluster"):
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
