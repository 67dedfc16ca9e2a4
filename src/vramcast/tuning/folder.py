"""A tune's folder: every run and prediction is on disk at once, and is not made again."""

import contextlib
from collections import defaultdict, deque
from dataclasses import replace
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.records import store
from vramcast.records.base import convert, parse_json
from vramcast.records.measurement import Measurement, Outcome
from vramcast.records.prediction import Prediction

FILES = ("request.json", "records.jsonl", "worker.log", "result.json", "log.md", "final.json")


class TuneFolder:
    def __init__(self, path: Path, request: dict[str, Any], *, force: bool) -> None:
        self.path, self.log = path, path / "worker.log"
        self._request, self._records = path / "request.json", path / "records.jsonl"
        store.new_folder(path, force=force or self._request.exists())
        with contextlib.ExitStack() as stack:
            stack.enter_context(store.locked_folder(path))
            if force:
                self._remove_files()
            self._begin(request)
            self._lock = stack.pop_all()
        self._runs: dict[str, deque[Measurement]] = defaultdict(deque)
        self.predictions: dict[str, Prediction | str] = {}  # or a text why there is none
        for line in store.read_lines(self._records):
            # Records of an older version, or edited ones, are skipped and made again.
            with contextlib.suppress(UsageError, LookupError, TypeError):
                self._take_over(line)
        self.num_resumed = sum(map(len, self._runs.values()))

    def close(self) -> None:
        """Releases the folder. If nothing was run its files are removed, so that the corrected
        command may use it."""
        if not self._records.exists():
            self._remove_files()
            with contextlib.suppress(OSError):  # something else is in it
                self.path.rmdir()
        self._lock.close()

    def recorded_run(self, key: str) -> Measurement | None:
        """The next run with this key that an earlier call made."""
        return self._runs[key].popleft() if self._runs[key] else None

    def has_run(self, key: str) -> bool:
        return bool(self._runs[key])

    def add_run(self, key: str, run: Measurement) -> None:
        store.append_line(self._records, {"kind": "run", "key": key, "measurement": run.to_dict()})

    def add_prediction(self, key: str, answer: Prediction | str) -> None:
        """Keeps a prediction without its memory over time: that is nine tenths of it, and a tune
        needs only sizes and times."""
        written: dict[str, Any] = {"error": answer}
        if isinstance(answer, Prediction):
            answer = replace(
                answer, timeline=[], step_memory=None, alive_at_peak=[], alive_places=[]
            )
            written = {"prediction": answer.to_dict()}
        self.predictions[key] = answer
        store.append_line(self._records, {"kind": "prediction", "key": key, "answer": written})

    def _take_over(self, line: dict[str, Any]) -> None:
        key = str(line["key"])
        if line["kind"] == "run":
            run = Measurement.from_dict(line["measurement"])
            if run.outcome != Outcome.OK or (run.times and run.times.median_seconds > 0):
                self._runs[key].append(run)
        elif "error" in line["answer"]:
            self.predictions[key] = str(line["answer"]["error"])
        else:
            self.predictions[key] = Prediction.from_dict(line["answer"]["prediction"])

    def _begin(self, request: dict[str, Any]) -> None:
        if self._records.exists():
            where = str(self._request)
            try:
                there = convert(
                    parse_json(store.read_file(self._request), where), dict[str, Any], where
                )
            except UsageError as problem:
                raise UsageError(problem.message, store.OTHER_FOLDER) from None
            store.check_same(self.path, "tune", there, request)
        store.write_json(self._request, request)

    def _remove_files(self) -> None:
        with store.usable(self.path):
            for name in FILES:
                (self.path / name).unlink(missing_ok=True)
