"""Answers that took a while are kept on disk, and never taken from a file that is not ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramcast.records import answers
from vramcast.records.answers import Answers, keep_all, path_of_answers

DAMAGED = ("", "{", "[]", "[" * 100_000, '{"size": ["1"]}', '{"size": true}', '{"a": -1}', "\0")


class Kept:
    """Answers in one file, as often as a process begins."""

    def __init__(self, folder: Path) -> None:
        rules = folder / "rules"
        rules.mkdir()
        self.rule = rules / "one.py"
        self.rule.write_text("1")
        self.num_asked = 0

    @property
    def file(self) -> Path:
        return path_of_answers("sizes", "of a GPU", self.rule.parent)

    def begin(self) -> Answers:
        return Answers(self.file, lambda found: type(found) is int and found >= 0)

    def ask(self) -> int:
        self.num_asked += 1
        return self.num_asked

    def again(self, question: str = "size") -> Any:
        """In a new process."""
        found = self.begin().find(question, self.ask)
        keep_all()
        return found

    def content(self) -> Any:
        return json.loads(self.file.read_text())


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setenv("VRAMCAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(answers, "_opened", [])
    return Kept(tmp_path)


def test_what_was_answered_is_not_asked_again(kept: Kept) -> None:
    assert kept.again() == kept.again() == 1
    assert kept.again("width") == 2
    assert kept.content() == {"size": 1, "width": 2}


def test_another_rule_is_asked_anew(kept: Kept) -> None:
    kept.again()
    kept.rule.write_text("2")
    assert kept.again() == 2


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_not_used_and_replaced(kept: Kept, content: str) -> None:
    kept.again()
    kept.file.write_text(content)
    assert kept.again() == 2
    assert kept.content() == {"size": 2}


def test_a_file_that_others_can_write_is_not_used(kept: Kept) -> None:
    kept.again()
    kept.file.chmod(0o666)
    assert kept.again() == 2


def test_where_nothing_can_be_kept_it_is_asked_each_time(kept: Kept) -> None:
    kept.file.parent.parent.write_text("a file")
    assert kept.again() == 1
    assert kept.again() == 2


def test_a_question_that_fails_has_no_answer(kept: Kept) -> None:
    opened = kept.begin()
    with pytest.raises(ZeroDivisionError):
        opened.find("size", lambda: 1 // 0)
    assert "size" not in opened
    keep_all()
    assert not kept.file.exists()


def test_a_file_does_not_grow_for_ever(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_ANSWERS", 1)
    kept.again()
    kept.again("width")
    assert kept.content() == {"width": 2}


def test_what_two_processes_asked_at_once_is_kept_of_both(kept: Kept) -> None:
    for opened, question in ((kept.begin(), "size"), (kept.begin(), "width")):
        opened.find(question, kept.ask)
    keep_all()
    assert kept.content() == {"size": 1, "width": 2}
