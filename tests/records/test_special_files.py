"""A pipe, a folder or a device in place of a file is refused at once, whoever reads it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vramcast.benching.data import Corpus
from vramcast.benching.protocol import read_protocol
from vramcast.benching.trial_folder import TrialFolder, find_runs
from vramcast.errors import UsageError
from vramcast.hardware.calibration import table
from vramcast.predicting import fit
from vramcast.probing.run_folder import read_measurement
from vramcast.records.accuracy import ROWS_FILE, read_records
from vramcast.records.measurement import Measurement
from vramcast.reporting.loading import load
from vramcast.tracing.files import read_trace
from vramcast.workload.configuration import load_configuration

BENCH = Path(__file__).parents[1] / "reporting" / "records" / "bench" / "small"


def in_folder(name: str, read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Reads the folder in which the special file has a name of vramcast's."""

    def put_and_read(special: Path) -> Any:
        folder = special.with_name("run folder")
        folder.mkdir()
        special.rename(folder / name)
        return read(folder)

    return put_and_read


def in_a_bench(name: str, read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def put_and_read(special: Path) -> Any:
        folder = special.with_name("run folder")
        shutil.copytree(BENCH, folder)
        (folder / name).unlink()
        special.rename(folder / name)
        return read(folder)

    return put_and_read


READERS: dict[str, Callable[[Path], Any]] = {
    "any record": Measurement.from_file,
    "a probe's record": in_folder("metrics.json", read_measurement),
    "a configuration": load_configuration,
    "a protocol": read_protocol,
    "a corpus": lambda path: Corpus(path),
    "a CSV of fit": lambda path: fit._from_table(path),
    "a run of fit": lambda path: fit.fit(path),
    "a trace": in_folder("trace.json", read_trace),
    "a calibration table": table.read,
    "rows of an accuracy run": in_folder(ROWS_FILE, read_records),
    "a bench's trial": in_a_bench("trial.json", lambda folder: TrialFolder(folder).trial()),
    "a bench's result": in_a_bench("result.json", find_runs),
    "a report's file": lambda path: load(path) and not path.is_dir(),
    **{
        f"a report's {name}": in_folder(name, load)
        for name in ("metrics.json", "trace.json", "plan.json", "accuracy.json", ROWS_FILE)
    },
}


@pytest.fixture(params=["pipe", "folder", "device", "link to itself"])
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "special.json"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "folder":
        path.mkdir()
    elif request.param == "link to itself":
        path.symlink_to(path.name)
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_waits_for_a_special_file_or_reads_it(reader: str, special: Path) -> None:
    with pytest.raises(UsageError) as refusal:
        READERS[reader](special)
    assert refusal.value.exit_code == 2 and refusal.value.message
