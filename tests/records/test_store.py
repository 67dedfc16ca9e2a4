"""Files are whole or not there, and a list of records survives a crash at any byte."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.records import store
from vramcast.records.base import convert
from vramcast.records.store import (
    append_line,
    check_trusted,
    locked_folder,
    new_folder,
    read_file,
    read_lines,
    read_text,
    write_atomically,
)

plain = (
    st.none()
    | st.integers()
    | st.text(max_size=9)
    | st.lists(st.floats(allow_nan=False), max_size=3)
)
values = st.dictionaries(st.text(max_size=5), plain)
some = st.lists(values, min_size=1, max_size=3)


@given(
    before=st.lists(values, max_size=3),
    torn=values,
    cut=st.floats(0, 1, exclude_max=True),
    after=some,
)
def test_of_a_list_that_broke_off_anywhere_every_whole_record_stays_and_more_can_follow(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[Any],
    torn: Any,
    cut: float,
    after: list[Any],
) -> None:
    path = tmp_path_factory.mktemp("lines") / "records.jsonl"
    for value in before:
        append_line(path, value)
    line = json.dumps(torn).encode()
    with open(path, "ab") as file:
        file.write(line[: int(cut * len(line))])
    assert list(read_lines(path)) == before
    for value in after:
        append_line(path, value)
    assert list(read_lines(path)) == before + after


def test_a_list_that_is_not_there_is_empty_and_what_is_no_record_is_left_out(
    tmp_path: Path,
) -> None:
    assert list(read_lines(tmp_path / "absent")) == []
    (tmp_path / "odd").write_bytes(b'\xff\n[1]\n3\n{"a": 1}\n' + b"[" * 100_000 + b"\n\n")
    assert list(read_lines(tmp_path / "odd")) == [{"a": 1}]
    with pytest.raises(UsageError, match=str(tmp_path)):
        list(read_lines(tmp_path))


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_on_a_full_disk_the_old_file_stays_and_no_other_is_left(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    monkeypatch.setattr(os, call, no_room)
    with pytest.raises(EnvironmentProblem, match="No space left"):
        write_atomically(path, "new")
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["file"])


def test_an_interruption_while_writing_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    write_atomically(tmp_path / "file", "old")
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", "new")
    assert (os.listdir(tmp_path), (tmp_path / "file").read_text()) == (["file"], "old")


def test_a_record_that_cannot_be_added_is_a_clear_error_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.jsonl"
    append_line(path, {"a": 1})
    with monkeypatch.context() as patched, pytest.raises(EnvironmentProblem, match="No space left"):
        patched.setattr(os, "fsync", no_room)
        append_line(path, {"b": 2})
    append_line(path, {"c": 3})
    assert {"a": 1} in list(read_lines(path)) and {"c": 3} in list(read_lines(path))


def test_lines_that_several_threads_append_at_once_are_all_kept_and_none_is_empty(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lines"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: append_line(path, {"number": number}), range(200)))
    assert len(path.read_text().splitlines()) == 200
    assert sorted(line["number"] for line in read_lines(path)) == list(range(200))


def test_written_files_hold_any_bytes_of_a_name(tmp_path: Path) -> None:
    write_atomically(tmp_path / "deep" / "file", os.fsdecode(b"name=\xff\n"))
    assert (tmp_path / "deep" / "file").read_bytes() == b"name=\xff\n"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o007, 0o660)])
def test_who_may_read_a_written_file_is_what_the_umask_says(
    umask: int, mode: int, tmp_path: Path
) -> None:
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "file", "")
        append_line(tmp_path / "lines", {})
    finally:
        os.umask(before)
    for name in ("file", "lines"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode


def test_a_folder_has_one_writer_and_another_is_told_who_it_is(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from vramcast.records.store import locked_folder\n"
        "with locked_folder(Path(sys.argv[1])): pass"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with locked_folder(tmp_path):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode
        assert f"{tmp_path} is being written by process {os.getpid()} (" in done.stderr
        assert re.search(r"\) since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\.", done.stderr)
    assert subprocess.run(command).returncode == 0
    assert os.listdir(tmp_path) == []


def test_a_lock_holds_although_every_file_in_the_folder_is_removed(tmp_path: Path) -> None:
    append_line(tmp_path / "lines", {})
    with locked_folder(tmp_path):
        (tmp_path / "lines").unlink()
        with pytest.raises(UsageError, match="is being written by"), locked_folder(tmp_path):
            pass


def test_who_waited_for_a_folder_that_was_removed_locks_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, taken = tmp_path / "run", store.lock

    def removed_meanwhile(descriptor: int, **options: Any) -> bool:
        monkeypatch.setattr(store, "lock", taken)
        folder.rmdir()
        return taken(descriptor, **options)

    monkeypatch.setattr(store, "lock", removed_meanwhile)
    with locked_folder(folder):
        assert folder.is_dir()
        with pytest.raises(UsageError), locked_folder(folder):
            pass


KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from vramcast.records.store import write_atomically
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
write_atomically(Path(sys.argv[1]), "half")
"""


def test_what_a_killed_writer_left_is_gone_after_the_next_write_but_not_what_is_being_written(
    tmp_path: Path,
) -> None:
    write_atomically(tmp_path / "file", "old")
    subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path / "file")])
    assert (len(os.listdir(tmp_path)), (tmp_path / "file").read_text()) == (2, "old")
    (tmp_path / store.unfinished_name()).mkdir()
    with open(tmp_path / store.unfinished_name(), "xb") as busy:
        store.lock(busy.fileno())
        write_atomically(tmp_path / "other", "")
        assert {*os.listdir(tmp_path)} == {"file", "other", Path(busy.name).name}
    with locked_folder(tmp_path):
        assert {*os.listdir(tmp_path)} == {"file", "other"}


def test_only_a_cache_that_no_other_user_can_write_to_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("VRAMCAST_CACHE", str(cache))
    before = os.umask(0o000)
    try:
        write_atomically(cache / "tables" / "table", "")
    finally:
        os.umask(before)
    check_trusted(cache / "tables" / "table")
    assert stat.S_IMODE((cache / "tables").stat().st_mode) == 0o700
    for path, mode in ((cache / "tables", 0o770), (cache / "tables" / "table", 0o646)):
        usual = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode)
        with pytest.raises(EnvironmentProblem, match=f"{path} .* other users can write to it"):
            check_trusted(cache / "tables" / "table")
        path.chmod(usual)
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    check_trusted(cache / "tables" / "table") if os.geteuid() == 0 else None
    with pytest.raises(UsageError, match="not a regular file"):
        check_trusted(cache / "tables")
    theirs = os.stat_result((0o100644, 0, 0, 0, 1234, 0, 0, 0, 0, 0))
    monkeypatch.setattr(os, "stat", lambda *_, **__: theirs)
    with pytest.raises(EnvironmentProblem, match="belongs to user 1234"):
        check_trusted(cache / "tables" / "table")


def special_files(folder: Path) -> list[Path]:
    """None of them ends: a pipe that nobody writes to, a folder, a device."""
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "device").symlink_to("/dev/zero")
    return [folder / "pipe", folder / "folder", folder / "device"]


def test_only_regular_files_of_a_reasonable_size_are_read_and_only_such_are_written(
    tmp_path: Path,
) -> None:
    for path in special_files(tmp_path):
        for read in (read_file, read_text, lambda p: list(read_lines(p))):
            with pytest.raises(UsageError, match=path.name):
                read(path)
        for write in (lambda p: write_atomically(p, "x"), lambda p: append_line(p, {})):
            with pytest.raises((UsageError, EnvironmentProblem), match=path.name):
                write(path)
        assert path.is_fifo() or path.is_dir() or path.is_char_device(), "it is still there"
    (tmp_path / "file").write_bytes(b"\xff" * 9)
    assert read_file(tmp_path / "file", 9) == b"\xff" * 9
    with pytest.raises(UsageError, match="at most 8 are read"):
        read_file(tmp_path / "file", 8)
    with pytest.raises(UsageError, match="is not text"):
        read_text(tmp_path / "file")


def test_text_that_is_no_unicode_is_refused_with_the_file() -> None:
    with pytest.raises(UsageError, match="rows.jsonl"):
        convert({"name": json.loads('"\\ud800"')}, dict[str, int], "rows.jsonl")


def test_a_small_file_is_read_with_little_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("small")
    tracemalloc.start()
    try:
        assert read_file(tmp_path / "file") == b"small"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_folder_that_cannot_be_a_runs_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").write_text("")
    for path in (
        tmp_path / "file",
        tmp_path / "file" / "below",
        tmp_path / "full",
        tmp_path / ("x" * 300),
    ):
        with pytest.raises(UsageError, match=path.name):
            new_folder(path, force=False)
    assert new_folder(tmp_path / "full", force=True).is_dir()
    assert new_folder(tmp_path / "a" / "b", force=False).is_dir()


def test_a_line_with_half_a_character_is_passed_over_like_every_line_that_cannot_be_read(
    tmp_path: Path,
) -> None:
    """No file and no page could hold it."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"row": "a"}\n{"row": "\\ud800"}\n{"row": \n{"row": "b"}\n')
    assert [line["row"] for line in read_lines(path)] == ["a", "b"]


def test_a_folder_with_nothing_but_what_a_killed_writer_left_is_new(tmp_path: Path) -> None:
    (tmp_path / store.unfinished_name()).write_text("ha")
    assert store.new_folder(tmp_path, force=False) == tmp_path
    assert not any(tmp_path.iterdir())
