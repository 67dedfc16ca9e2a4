"""The code blocks of README.md and docs/.

An HTML comment above a block, which readers do not see, says how it is treated:

    <!-- not run: it needs a GPU -->     with the reason; its commands are still parsed
    <!-- varies: its times differ -->    with the reason; it is run, its output is not compared
    <!-- file: train.py -->              the block is that file, for the commands of every page

A `console` block is a session: lines with `$` are run, the others are what they print; `...` stands
for lines left out. A `bash` block is commands without their output. A `python` block is run;
`# text` below a print is what it prints.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_FENCE = re.compile(
    r"(?:^ *<!-- (not run|varies|file): (.*?) -->\n\n?)?^( *)```(\w*)[^\n]*\n(.*?)^\3```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    not_run: str | None = None
    varies: str | None = None
    file: str | None = None

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    text: str
    written: str  # as the page has it, over several lines perhaps
    shown: tuple[str, ...] = ()


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in _FENCE.finditer(text):
        mark, value, _, language, body = match.groups()
        line = text.count("\n", 0, match.start(4)) + 1
        given = {mark.replace(" ", "_"): value} if mark else {}
        found.append(
            Block(str(page.relative_to(ROOT)), line, language, textwrap.dedent(body), **given)
        )
    return found


def commands_of(block: Block) -> list[Command]:
    lines = iter(block.text.splitlines())
    return list(_session(lines) if block.language == "console" else _script(lines))


def _session(lines: Iterator[str]) -> Iterator[Command]:
    command, shown = None, list[str]()
    for line in lines:
        if not line.startswith("$ "):
            shown.append(line)
            continue
        if command:
            yield Command(*command, tuple(shown))
        command, shown = _whole(line[2:], lines), []
    if command:
        yield Command(*command, tuple(shown))


def _script(lines: Iterator[str]) -> Iterator[Command]:
    for line in lines:
        if line.strip() and not line.startswith("#"):
            yield Command(*_whole(line, lines))


def _whole(line: str, lines: Iterator[str]) -> tuple[str, str]:
    """A command that goes on in the next line: joined, and as it is written."""
    text = written = line
    while text.endswith("\\"):
        line = next(lines)
        text, written = text[:-1] + line.strip(), f"{written}\n{line}"
    return text, written
