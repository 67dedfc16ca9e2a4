"""A tune's folder: everything that was measured or predicted is on disk the moment it exists, and is not done again.

request.json     what was asked for: another tune is refused here
records.jsonl    one line a run or prediction
worker.log       what the last run's workload printed
result.json      the TuneResult
log.md           for people
final.json       the configuration that came out
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections import defaultdict, deque
from pathlib import Path
from typing import IO, Any

from vramcast.errors import UsageError
from vramcast.records.measurement import Measurement
from vramcast.records.prediction import Prediction
from vramcast.records.store import append_line, new_folder, read_lines, write_json

FILES = ("request.json", "records.jsonl", "worker.log", "result.json", "log.md", "final.json")


class TuneFolder:
    def __init__(self, path: Path, request: dict[str, Any], *, force: bool) -> None:
        self.path = path
        self._records = path / "records.jsonl"
        if force and (path / "request.json").exists():
            self._locked().close()  # not what another process is filling
        if force:
            _remove(path)
        self._begin(request, force=force)
        self._lock = self._locked()
        self._runs: dict[str, deque[Measurement]] = defaultdict(deque)
        self._predictions: dict[str, Any] = {}
        for record in read_lines(self._records):
            key, answer = record.get("key"), record.get("answer")
            if (
                record.get("kind") == "run"
                and isinstance(key, str)
                and (run := _run_of(record.get("measurement"))) is not None
            ):
                self._runs[key].append(run)
            elif record.get("kind") == "prediction" and isinstance(key, str) and _is_answer(answer):
                self._predictions[key] = answer
        self.num_resumed = sum(map(len, self._runs.values()))

    @property
    def log(self) -> Path:
        return self.path / "worker.log"

    def close(self) -> None:
        """A tune that came to nothing leaves nothing: the corrected command may use the same folder."""
        if not self._records.exists():
            for name in FILES:
                (self.path / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # something else is in it
                self.path.rmdir()
        self._lock.close()

    def _begin(self, request: dict[str, Any], *, force: bool) -> None:
        file = self.path / "request.json"
        if not file.exists():
            new_folder(self.path, force=force)
            write_json(file, request)
            return
        try:
            there = json.loads(file.read_text())
        except (OSError, ValueError, RecursionError) as problem:
            raise UsageError(
                f"{file} cannot be read: {problem}.",
                "Choose another folder with --out, or --force to begin again.",
            ) from None
        different = [
            name
            for name in request
            if not isinstance(there, dict) or there.get(name) != request[name]
        ]
        if (
            different and not self._records.exists()
        ):  # it was killed before its first run: nothing is lost
            self._locked().close()
            write_json(file, request)
        elif different:
            raise UsageError(
                f"{self.path} holds another tune: not the same {', '.join(different)}.",
                "Choose another folder with --out, or --force to begin again in this one.",
            )

    def _locked(self) -> IO[bytes]:
        """Held until it is closed or the process ends: two tunes on one GPU would measure each other."""
        file = open(self.path / "request.json", "rb")  # noqa: SIM115  closed by close()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise UsageError(
                f"Another process tunes in {self.path}.",
                "Wait for it, or choose another folder with --out.",
            ) from None
        return file

    def recorded_run(self, key: str) -> Measurement | None:
        """The next run of this configuration that an earlier call has made."""
        return self._runs[key].popleft() if self._runs[key] else None

    def has_run(self, key: str) -> bool:
        return bool(self._runs[key])

    def add_run(self, key: str, measurement: Measurement) -> None:
        append_line(
            self._records, {"kind": "run", "key": key, "measurement": measurement.to_dict()}
        )

    def recorded_prediction(self, key: str) -> Any:
        return self._predictions.get(key)

    def add_prediction(self, key: str, answer: Any) -> None:
        lean = without_pictures(answer)
        self._predictions[key] = lean
        append_line(self._records, {"kind": "prediction", "key": key, "answer": lean})


def _run_of(data: Any) -> Measurement | None:
    """None for what another version wrote, or was edited: that run is made again."""
    try:
        measurement = Measurement.from_dict(data)
    except UsageError:
        return None
    return measurement if is_sound(measurement) else None


def is_sound(measurement: Measurement) -> bool:
    """Whether a run can have been like this: what is computed with later on is there, and positive."""
    times, sizes = (
        measurement.times,
        [measurement.knobs.get(name, 1) for name in ("batch_size", "seq_len")],
    )
    if any(isinstance(size, int) and not size >= 1 for size in sizes):
        return False
    if times is None:
        return measurement.outcome != "ok"
    return all(seconds > 0 for seconds in (times.median_seconds, times.p95_seconds, *times.seconds))


def _is_answer(answer: Any) -> bool:
    """Whether there is a prediction that this version reads, or why there is none."""
    if not isinstance(answer, dict):
        return False
    try:
        return "error" in answer or bool(Prediction.from_dict(answer.get("prediction")))
    except UsageError:
        return False


def without_pictures(answer: dict[str, Any]) -> dict[str, Any]:
    """A tune asks dozens of predictions for their sizes and times; memory over time is nine tenths of each."""
    if "prediction" not in answer:
        return answer
    return {
        **answer,
        "prediction": {
            **answer["prediction"],
            "timeline": [],
            "step_memory": None,
            "alive_at_peak": [],
        },
    }


def _remove(path: Path) -> None:
    try:
        for name in FILES:
            (path / name).unlink(missing_ok=True)
    except OSError as problem:
        raise UsageError(
            f"The folder {path} cannot be used: {problem.strerror}.",
            "Choose another folder with --out.",
        ) from None
