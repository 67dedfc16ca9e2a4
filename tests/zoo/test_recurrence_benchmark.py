"""The benchmark of the recurrences.

What goes wrong in one case is that case's record, and costs the others nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from waiting import Timer

from vramcast_zoo.launch import Plan

FOLDER = Path(__file__).parents[2] / "benchmarks" / "recurrence"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(FOLDER))
    names = ("run", "cases")
    kept = {
        name: sys.modules.pop(name, None) for name in names
    }  # other benchmarks have a run.py too
    yield __import__("run")
    for name in names:
        sys.modules.pop(name, None)
        if kept[name] is not None:
            sys.modules[name] = kept[name]  # type: ignore[assignment]


def pretend(
    benchmark: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    (folder / "measure.py").write_text(
        f"import sys, time\nsys.stdin.readline()\nname = sys.argv[1]\n{script}\n"
    )
    monkeypatch.setattr(benchmark, "__file__", str(folder / "run.py"))


def test_a_hang_and_an_error_are_records_and_the_rest_is_measured(
    benchmark: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = """
if name == "elman-fused":
    open("hangs", "w").close()
    time.sleep(600)
if name == "elman-plain": raise RuntimeError("no such thing")
print('{"forward_ms": 1.5}')
"""
    pretend(benchmark, tmp_path, monkeypatch, script)
    monkeypatch.chdir(tmp_path)
    Timer.install(monkeypatch, benchmark, over=tmp_path / "hangs")
    cases = [benchmark.ALL[name] for name in ("elman-fused", "elman-plain", "elman-cudnn")]
    benchmark.run(cases, tmp_path / "out.jsonl", 600.0)
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(r["case"], r["outcome"]) for r in records] == [
        ("elman-fused", "timeout"),
        ("elman-plain", "error"),
        ("elman-cudnn", "ok"),
    ]
    assert "no such thing" in records[1]["error"]
    assert "RuntimeError: no such thing" in capsys.readouterr().out


def test_when_the_time_is_over_nothing_more_is_begun(
    benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(benchmark, tmp_path, monkeypatch, "print('{}')")
    benchmark.run(benchmark.RECURRENCES[:2], tmp_path / "out.jsonl", 0.0)
    assert not (tmp_path / "out.jsonl").exists()


def test_every_case_has_a_name_of_its_own_and_a_plan_that_exists(benchmark: ModuleType) -> None:
    cases = [*benchmark.RECURRENCES, *benchmark.WHOLE_MODELS, *benchmark.PLAIN_MODELS]
    assert len(cases) == len(benchmark.ALL)
    for case in cases:
        if case.plan:
            Plan(**case.plan)
