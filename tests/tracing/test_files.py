"""trace.json: what is written is read back; what is not a trace is refused with the reason."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_examples import HEAD, ROWS, to_rows, trace, traces

from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.tracing.files import (
    _described,
    check_free,
    from_json,
    read_trace,
    to_json,
    write_files,
)
from vramcast.tracing.lines import read_events


def file_of(**changes: Any) -> str:
    data = {"version": 1, "kind": "trace", **HEAD, "events": ROWS, **changes}
    return json.dumps({key: value for key, value in data.items() if value != "left out"})


def test_events_are_those_of_the_allocators_replay() -> None:
    example = trace()
    assert example.events.tolist() == [1, -1, 2, 0, 3, 4, -3, EMPTY_CACHE, 0, 5]
    assert example.sizes.tolist() == [row[2] for row in ROWS if row[0] == "alloc"]
    assert list(example.steps) == [1, 2]


@given(traces())
def test_what_is_written_is_read_back(example: Any) -> None:
    assert from_json(to_json(example)) == example


@given(traces(), st.sampled_from([30, 100, 1 << 20]))
def test_a_file_is_read_many_lines_at_a_time(example: Any, chunk_bytes: int) -> None:
    file = io.BytesIO(to_json(example).encode())
    file.readline()
    if len(example.allocations):
        found = read_events(file, _described, chunk_bytes)
        assert np.array_equal(found.events, example.events)
        assert found.allocations == example.allocations
        assert found.steps == list(example.steps)


def with_lines(folder: Path, lines: str) -> Path:
    head, _, _ = to_json(trace()).partition("[\n")
    (folder / "trace.json").write_text(f"{head}[\n{lines}\n]}}\n")
    return folder


@pytest.mark.parametrize(
    "lines",
    [
        '["alloc", 1, 4, "a"], ["free", 1]',
        '["alloc",1,4,"a"]',
        '["alloc", 1, 4, "a", {"later": 5}]',
        '["alloc", 1, 4, "\\u00e9\\n]"]',
        '["step", -3]',
        '["empty_cache"], ["empty_cache"]',
        '["step", 1],\n\n["step", 2]',
    ],
)
def test_lines_that_another_program_wrote_are_read_as_json(tmp_path: Path, lines: str) -> None:
    assert to_rows(read_trace(with_lines(tmp_path, lines)))


@pytest.mark.parametrize(
    "lines",
    [
        '["alloc", 2, 4, "a"]',
        '["alloc", 01, 4, "a"]',
        '["alloc", 1, 4, "a"],\n["free", 1],\n["free", 1]',
        '["free", 1],\n["alloc", 1, 4, "a"]',
        '["alloc", 1, 99999999999999999999, "a"]',
        '["alloc", 1, 2000000000000000000, "a"]',
        '["alloc", 1, 4, "a", {"stream": "x"}]',
        '["free", ]',
        '["fred", 1]',
        '["empty_caches"]',
        "[]",
    ],
)
def test_lines_that_cannot_be_are_refused(tmp_path: Path, lines: str) -> None:
    with pytest.raises(UsageError, match="cannot be|not JSON"):
        read_trace(with_lines(tmp_path, lines))


def test_one_event_stands_on_one_line() -> None:
    lines = to_json(trace()).splitlines()
    assert json.loads(lines[1].rstrip(",")) == ROWS[0]
    assert len(lines) == len(ROWS) + 2
    assert json.loads("\n".join(lines)) == json.loads(file_of())


def test_facts_that_a_later_vramcast_adds_are_passed_over() -> None:
    read = from_json(
        file_of(events=[["alloc", 1, 4, "aten::mm", {"node": "MmBackward0", "colour": ["red"]}]])
    )
    assert to_rows(read) == [["alloc", 1, 4, "aten::mm", {"node": "MmBackward0"}]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (file_of()[:200], "cut short"),
        ("", "cut short"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        (file_of(kind="prediction"), "is a 'prediction', not a trace"),
        (file_of(version=0), "trace of version 0; this vramcast reads versions up to 1"),
        (file_of(version="left out"), "version None"),
        (file_of(source="guessed"), "source: .*'guessed'"),
        (file_of(gpu=5), "gpu: .*found 5"),
        (file_of(knobs="left out"), "lacks knobs"),
        (file_of(events="left out"), "lacks events"),
        (file_of(events={}), "events: Expected `array`"),
    ],
)
def test_what_is_not_a_trace_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as raised:
        from_json(text, "old.json")
    assert "old.json" in raised.value.message
    assert raised.value.advice


@pytest.mark.parametrize(
    "row",
    [
        *(
            ["alloc", 2, 4, ""],
            ["alloc", 1, -4, ""],
            ["alloc", 1, 4.0, ""],
            ["alloc", True, 4, ""],
            ["alloc", 1, True, ""],
        ),
        *(
            ["alloc", 1, 4],
            ["alloc", 1, 4, None],
            ["alloc", 1, 4, "", []],
            ["alloc", 1, 4, "", {"node": 5}],
            ["alloc", 1, 4, "", {}, {}],
        ),
        *(
            ["free", 1],
            ["free"],
            ["step"],
            ["step", "1"],
            ["empty_cache", 1],
            ["boom"],
            [],
            "alloc",
            None,
            {"alloc": 1},
        ),
    ],
)
def test_a_row_that_cannot_be_is_refused_by_its_number(row: Any) -> None:
    with pytest.raises(UsageError, match="event 2 cannot be"):
        from_json(file_of(events=[["step", 1], row]))


def test_nothing_is_freed_twice() -> None:
    with pytest.raises(UsageError, match=r"event 3 cannot be: \['free', 1\]"):
        from_json(file_of(events=[["alloc", 1, 4, ""], ["free", 1], ["free", 1]]))


def test_a_folder_stands_for_the_trace_in_it(tmp_path: Path) -> None:
    write_files(tmp_path / "new" / "run", trace(), {"segments": []})
    assert (
        read_trace(tmp_path / "new" / "run")
        == read_trace(tmp_path / "new" / "run" / "trace.json")
        == trace()
    )
    assert sorted(path.name for path in (tmp_path / "new" / "run").iterdir()) == [
        "snapshot.pickle",
        "trace.json",
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("", "There is no"), ("none.json", "There is no"), ("snapshot.pickle", "is not text")],
)
def test_a_path_without_a_trace_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "snapshot.pickle").write_bytes(b"\x80\x04\x95\xff")
    with pytest.raises(UsageError, match=reason):
        read_trace(tmp_path / name)


@pytest.mark.parametrize("name", ["trace.json", "snapshot.pickle"])
def test_existing_files_are_only_written_over_by_force(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=f"already has {name}") as raised:
        write_files(tmp_path, trace(), {})
    assert "--force" in raised.value.advice
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]
    write_files(tmp_path, trace(), {}, force=True)
    assert read_trace(tmp_path) == trace()


def test_a_folder_that_is_or_lies_in_a_file_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(UsageError, match="is a file, not a folder"):
            check_free(folder, force=True)


def test_a_disk_that_is_full_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(EnvironmentProblem, match="No space left"):
        write_files(tmp_path, trace(), {})
    assert list(tmp_path.iterdir()) == []
