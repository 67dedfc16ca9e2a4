"""The benchmark of bench: the time is shared out, what fails costs the others nothing, and the
table says what is not comparable.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from waiting import Timer

from vramcast.benching.protocol import STANDARD_1, with_steps
from vramcast.benching.trial_folder import Steps, TrialFolder
from vramcast.records.bench import BenchTrial, DataIdentity, Protocol, TrainedRun

FOLDER = Path(__file__).parents[2] / "benchmarks" / "bench"
NAMES = ("rows", "row", "run", "table", "overhead")
TINY = replace(
    STANDARD_1, name="tiny-1", batch_size=2, seq_len=8, steps=30, last_steps=10, precision="fp32"
)

# row.py as a script without torch: what it is asked for is in the request
PRETENDED_ROW = """
import json, sys, time
for line in sys.stdin:
    request = json.loads(line)
    model, steps = request["trial"]["model"], request["trial"]["protocol"]["steps"]
    if request["do"] == "time":
        if model == "mamba2-50m": sys.exit("no such luck")
        seconds = {"e1-50m": 0.01, "e5-d768-r539": 0.2}.get(model, 0.05)
        print(json.dumps({"timed": {"step_seconds": seconds}}), flush=True)
        continue
    from vramcast.records.bench import TrainedRun, BenchTrial
    from vramcast.benching.trial_folder import TrialFolder
    from pathlib import Path
    folder, trial = TrialFolder(Path(request["folder"])), BenchTrial.from_dict(request["trial"])
    folder.begin(trial)
    if model == "e5-d1024-r404":
        open("hangs", "w").close()
        time.sleep(600)
    values = {"losses": [1.5], "step_seconds": [0.01], "step_memory_bytes": [1]}
    lists = {name: value * steps for name, value in values.items()}
    run = TrainedRun(trial=trial, outcome="ok", environment={}, **lists)
    folder.write_result(run)
    print(json.dumps({"progress": {"step": steps}}))
    print(json.dumps({"trained": run.summary()}), flush=True)
"""


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    monkeypatch.syspath_prepend(str(FOLDER))
    kept = {
        name: sys.modules.pop(name, None) for name in NAMES
    }  # other benchmarks have a run.py too
    yield importlib.import_module
    for name in NAMES:
        sys.modules.pop(name, None)
        if kept[name] is not None:
            sys.modules[name] = kept[name]  # type: ignore[assignment]


Load = Callable[[str], ModuleType]


def run_of(
    model: str, protocol: Protocol = STANDARD_1, steps: int = 1000, **changes: object
) -> TrainedRun:
    data = DataIdentity(name="some.bin", size_bytes=1000, hash="sha256:0123456789abcdef0123")
    who = {
        "model": model,
        "knobs": {},
        "model_hash": None,
        "seed": 42,
        "device": "cuda",
        "batch_size": 256,
    }
    trial = BenchTrial(protocol=protocol, protocol_hash=protocol.hash, data=data, **who)  # type: ignore[arg-type]
    where = {
        "gpu": "NVIDIA H200",
        "torch_version": "2.11.0",
        "schedulefree_version": "1.4.1",
        "time_utc": "2026-11-15T00:00:00",
    }
    values = {
        "outcome": "ok",
        "losses": [1.25] * steps,
        "step_seconds": [0.5] * steps,
        "step_memory_bytes": [2**30] * steps,
        **changes,
    }
    return TrainedRun(trial=trial, environment=where, parameters=50_000_000, **values)  # type: ignore[arg-type]


def test_a_model_gets_the_protocols_steps_or_as_many_tens_as_its_time_is_enough_for(
    load: Load,
) -> None:
    run = load("run")
    step = 0.1 * run.SLOWER_THAN_TIMED
    assert run.steps_within(0.1, run.START_SECONDS + 1001 * step, STANDARD_1) == 1000
    assert run.steps_within(0.1, run.START_SECONDS + 999 * step, STANDARD_1) == 990
    assert run.steps_within(0.1, run.START_SECONDS + 101 * step, STANDARD_1) == 100
    assert run.steps_within(0.1, run.START_SECONDS + 99 * step, STANDARD_1) is None


def test_the_fastest_is_first_and_what_fails_or_hangs_costs_only_itself(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = load("run")
    (tmp_path / "row.py").write_text(PRETENDED_ROW)
    monkeypatch.setattr(run, "__file__", str(tmp_path / "run.py"))
    monkeypatch.setattr(run, "START_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    Timer.install(monkeypatch, run, over=tmp_path / "hangs")
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parents[1] / "src"))
    protocol, data = tmp_path / "tiny.toml", tmp_path / "data.bin"
    protocol.write_text(
        'name = "tiny-1"\nbatch_size = 2\nseq_len = 8\nsteps = 30\nlast_steps = 10\nprecision ='
        ' "fp32"\n'
    )
    data.write_bytes(b"some text " * 50)
    models = ["e5-d768-r539", "mamba2-50m", "e1-50m", "e5-d1024-r404"]
    options = [
        "--work",
        str(tmp_path / "work"),
        "--data",
        str(data),
        "--protocol",
        str(protocol),
        "--seconds",
        "5",
        "--models",
        *models,
    ]
    assert run.main(["--out", str(tmp_path / "out"), *options]) == 1
    lines = [
        json.loads(line) for line in (tmp_path / "out" / "session.jsonl").read_text().splitlines()
    ]
    assert [line["model"] for line in lines if line["what"] == "given"][:3] == [
        "e1-50m",
        "e5-d1024-r404",
        "e5-d768-r539",
    ]
    failed = {line["model"]: line["failed"] for line in lines if "failed" in line}
    assert "no such luck" in failed["mamba2-50m"]
    assert failed["e5-d1024-r404"] == "out of time"
    assert sorted(path.parent.name for path in tmp_path.glob("out/*/result.json")) == ["e1-50m"]
    assert (tmp_path / "out" / "unfinished" / "e5-d1024-r404" / "trial.json").exists()
    kept = TrialFolder(tmp_path / "out" / "e1-50m").result()
    assert kept is not None and len(kept.losses) == 30
    capsys.readouterr()
    assert run.main(["--out", str(tmp_path / "out"), *options[:-4], "e1-50m"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == []  # it is not trained again


def test_the_table_has_the_documents_figures_and_marks_what_had_fewer_steps(
    load: Load, tmp_path: Path
) -> None:
    table = load("table")
    fewer = with_steps(STANDARD_1, 400)
    for run in (
        run_of("e1-50m"),
        run_of("mamba2-50m", losses=[1.1] * 1000),
        run_of("e5-d768-r539", fewer, 400, resumed_at_steps=[100]),
    ):
        TrialFolder(tmp_path / run.trial.model).begin(run.trial)
        TrialFolder(tmp_path / run.trial.model).write_result(run)
    lost = {"what": "ended", "model": "e5-d2048-r200", "failed": "out of time"}
    session = {"what": "session", "seconds": 410.0, "knobs": {"recurrence": "auto"}}
    (tmp_path / "session.jsonl").write_text(json.dumps(session) + "\n" + json.dumps(lost) + "\n")
    left = TrialFolder(tmp_path / "unfinished" / "e5-d2048-r200")
    left.begin(run_of("e5-d2048-r200").trial)
    left.add_steps(0, Steps([3.0, 2.0], [0.1, 0.1], [1, 1]))
    text = table.page(tmp_path)
    assert (
        "| e1-50m | 1.2500 | 1.4742 | 50.0 M | 262K | ~175K | 1.50 x | 1.00 GiB | 1000 | 8 min 20 s"
        " | 0.0% |" in text
    )
    assert "| e5-d768-r539 | 1.2500 \\* | 1.4815 |" in text
    assert "standard-1/400-steps" in text
    assert "resumed at step 100" in text
    assert "| e5-d1536-r270 | not run | 1.4463 |" in text
    assert (
        "e5-d2048-r200 has no result: out of time; after 2 steps the mean loss of the last 2 was"
        " 2.5000" in text
    )
    assert "under standard-1, best first: mamba2-50m, e1-50m;" in text
    assert "other data" in text
    assert "run.py --out" in text and " recurrence=auto --seconds 410\n" in text


RECORDS = FOLDER / "h200-torch-2.11"


@pytest.mark.skipif(not RECORDS.exists(), reason="there are no records of an H200 here")
def test_the_page_is_what_the_records_say(load: Load) -> None:
    assert load("table").page(RECORDS) == (FOLDER / "README.md").read_text()


def test_the_loop_by_hand_does_the_same_work(load: Load, tmp_path: Path) -> None:
    data = tmp_path / "data.bin"
    data.write_bytes(b"some text " * 50)
    record = load("overhead").measure(
        "e1-50m", {"dim": "8", "depth": "1", "rank": "2"}, TINY, 5, data, "cpu"
    )
    assert record["model"] == "e1-50m dim=8 depth=1"  # it has no rank
    assert record["losses"]["bench"][0] == record["losses"]["by_hand"][0]
    assert len(record["bench_seconds"]) == len(record["by_hand_seconds"]) == 2
    (tmp_path / "overhead.jsonl").write_text(json.dumps(record) + "\n")
    assert "(at most 1.02)" in load("table").overhead(tmp_path)
