"""Trials as tasks of a Ray cluster, with a GPU each. Results are sent back to the bench's folder.

Every trial has a process of its own, so a crash does not end Ray's worker. If a node or worker is
lost, its trial is trained elsewhere; on nodes that do not share the bench's folder, it begins
again. vramcast is sent to the nodes; torch, schedulefree and a model's own file must be there.
"""

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from vramcast.benching.trial_folder import TrialFolder
from vramcast.benching.workers import LocalWorker, Machine, Worker
from vramcast.errors import EnvironmentProblem, UsageError, VramcastError
from vramcast.hardware import cluster
from vramcast.hardware.gpus import find_gpu
from vramcast.processes.ask import FailureKind, TaskFailed
from vramcast.processes.channel import error_from_dict, error_to_dict
from vramcast.programs.scratch import scratch_folder
from vramcast.records.bench import BenchTrial
from vramcast.records.measurement import Device
from vramcast.records.store import write_atomically
from vramcast.units import MiB

# The result comes last: it shows that everything is there.
SENT_BACK = ("worker.log", "steps.jsonl", "tensorboard/*", "result.json")
MAX_LOG_BYTES = 100_000
# Larger data is not sent: the nodes must have it at the same path.
MAX_SENT_BYTES = 256 * MiB
# How often a lost trial is started; from its checkpoint, if the nodes share the folder.
MAX_ATTEMPTS = 3
# The trainer on a lost node, or of a killed driver, may take a while to end.
RAY_LOCK_SECONDS = 60.0


@contextlib.contextmanager
def ray_cluster(address: str, device: Device, data_path: Path) -> Iterator[Machine]:
    with cluster.connected(address) as ray:
        resources = ray.cluster_resources()
        if device == Device.CUDA and resources.get("GPU", 0) < 1:
            raise EnvironmentProblem(
                f"The Ray cluster at {address} has no GPU.", "Add a node with one, or --device cpu."
            )
        is_sent = data_path.stat().st_size <= MAX_SENT_BYTES
        data = ray.put(data_path.read_bytes()) if is_sent else None
        task = ray.remote(_train).options(
            num_gpus=1 if device == Device.CUDA else 0,
            num_cpus=1,
            max_retries=0,
            num_returns="streaming",
        )
        gpu = _gpu(resources) if device == Device.CUDA else None
        # One worker for each trial: Ray decides when each runs.
        yield Machine(gpu, lambda num: [RayWorker(ray, task, data) for _ in range(num)])


def _gpu(resources: dict[str, float]) -> str | None:
    """The GPU of all nodes, if they have the same one and vramcast knows it."""
    prefix = "accelerator_type:"
    names = [name.removeprefix(prefix) for name in resources if name.startswith(prefix)]
    try:
        return find_gpu(names[0]).name if len(names) == 1 else None
    except UsageError:
        return None


class RayWorker(Worker):
    def __init__(self, ray: Any, task: Any, data: Any) -> None:
        self._ray, self._task, self._data = ray, task, data
        self._running: Any = None
        self._is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True
        if self._running is not None:
            self._ray.cancel(self._running, force=True)

    def train(self, request: dict[str, Any]) -> Generator[Any, None, None]:
        folder, errors = Path(request["folder"]), self._ray.exceptions
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                yield from self._attempt(request, folder)
                return
            except errors.RayError as problem:
                if self._is_stopped:
                    raise TaskFailed(FailureKind.STOPPED, "The trial was stopped.") from None
                # The task may have written its result before it was lost.
                if (folder / "result.json").exists():
                    return
                # an exception in the task itself would only happen again
                if attempt == MAX_ATTEMPTS or isinstance(problem, errors.RayTaskError):
                    times = f" {attempt} times" if attempt > 1 else ""
                    what = f"Ray has lost the task{times} ({type(problem).__name__}): {problem}"
                    raise TaskFailed(FailureKind.KILLED, what) from None

    def _attempt(self, request: dict[str, Any], folder: Path) -> Generator[Any, None, None]:
        self._running = self._task.remote(request, self._data)
        if self._is_stopped:
            self.stop()
        for reference in self._running:
            message = self._ray.get(reference)
            if "progress" in message:
                yield message["progress"]
                continue
            if not (folder / "result.json").exists():  # the node does not share the folder
                for name, content in message["files"].items():
                    write_atomically(folder / name, content)
            if "error" in message:
                raise error_from_dict(message["error"])
            if "failure" in message:
                raise TaskFailed(*message["failure"])


def _train(request: dict[str, Any], data: bytes | None) -> Iterator[dict[str, Any]]:
    """Runs on a node. Yields the progress, then the files with what went wrong."""
    with scratch_folder() as temporary:
        folder, data_path = Path(request["folder"]), Path(request["data_path"])
        trial = BenchTrial.from_dict(request["trial"])
        # If this node shares the bench's folder, the trial is in it.
        if not (folder / "trial.json").exists() or TrialFolder(folder).trial() != trial:
            folder = temporary / "trial"
            TrialFolder(folder).begin(trial)
        if data is not None:
            data_path = temporary / data_path.name
            data_path.write_bytes(data)
        end: dict[str, Any] = {}
        request = {**request, "folder": str(folder), "data_path": str(data_path)}
        try:
            with LocalWorker() as worker:
                for progress in worker.train(request):
                    yield {"progress": progress}
        except TaskFailed as failed:
            end = {"failure": (failed.kind, failed.message)}
        except VramcastError as problem:
            end = {"error": error_to_dict(problem)}
        paths = [path for name in SENT_BACK for path in sorted(folder.glob(name))]
        files = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
        if "worker.log" in files:
            files["worker.log"] = files["worker.log"][-MAX_LOG_BYTES:]
        yield {"files": files, **end}
