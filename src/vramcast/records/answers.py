"""Answers that take a while to find, kept in vramcast's cache for the next processes."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from vramcast.errors import VramcastError
from vramcast.records.store import cache_folder, check_trusted, read_text, write_atomically

MOST_ANSWERS = 20_000

_opened: list["Answers"] = []


class Answers:
    """Those of one file, which keep() writes. `is_answer` tells them from anything else in it."""

    def __init__(self, path: Path, is_answer: Callable[[Any], bool]) -> None:
        self._path, self._is_answer = path, is_answer
        self._known, self._fresh = self._read(), dict[str, Any]()
        _opened.append(self)

    def __contains__(self, question: str) -> bool:
        return question in self._known

    def find(self, question: str, ask: Callable[[], Any]) -> Any:
        """The answer that is known, or else what `ask` returns."""
        if question not in self._known:
            self._known[question] = self._fresh[question] = ask()
        return self._known[question]

    def keep(self) -> None:
        """Writes the new answers. If that fails, they will be asked for again next time."""
        fresh, self._fresh = self._fresh, {}
        if not fresh:
            return
        # Other processes write too. What is lost where two write at once is asked for again.
        answers = self._read() | fresh
        with suppress(VramcastError):
            content = json.dumps(answers if len(answers) <= MOST_ANSWERS else fresh)
            write_atomically(self._path, content)

    def _read(self) -> dict[str, Any]:
        """Empty if another user could have written the file, or if it has no such content."""
        try:
            check_trusted(self._path)
            found = json.loads(read_text(self._path))
        except (VramcastError, OSError, ValueError, RecursionError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {question: answer for question, answer in found.items() if self._is_answer(answer)}


def keep_all() -> None:
    for answers in _opened:
        answers.keep()


def path_of_answers(folder: str, about: object, rules: Path) -> Path:
    """Another one where `about` or the code in the folder `rules` is another."""
    digest = hashlib.sha256(repr(about).encode())
    for file in sorted(rules.glob("*.py")):
        digest.update(file.read_bytes())
    return cache_folder() / folder / f"{digest.hexdigest()[:16]}.json"
