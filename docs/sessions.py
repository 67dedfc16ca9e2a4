"""Runs the commands of the documentation and compares what they print with what a page shows."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from blocks import ROOT, Command, blocks_of, pages

COLUMNS = "100"
_REDIRECTED = re.compile(r"^(.*\S) > (\S+)$")
# A command that writes files is run every time.
_WRITES = {"--out", "--trace", "-o", "--figures", "report"}
# differ from machine to machine: the version of torch, and how long something took
_VARIES = (re.compile(r"\b2\.\d+\.\d+(\+\w+)?"), re.compile(r"\b[\d.]+ s\b"))


class Sandbox:
    """A folder in which commands of pages run, with examples, records and files that pages make."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code = 0
        self._printed: dict[tuple[str, ...], tuple[int, str]] = {}
        # No link: outputs would name the file where it really is.
        shutil.copytree(ROOT / "examples", folder / "examples")
        for name in ("benchmarks", "tests"):
            (folder / name).symlink_to(ROOT / name)
        for block in (block for page in pages() for block in blocks_of(page) if block.file):
            (folder / block.file).write_text(block.text)

    def run(self, command: str) -> str:
        """What the command prints, and the message too where it failed."""
        redirected = _REDIRECTED.match(command)
        if redirected:
            (self.folder / redirected[2]).write_text(self.run(redirected[1]))
            return ""
        if command == "echo $?":
            return f"{self.code}\n"
        words = shlex.split(command, comments=True)
        if words[0] == "vramcast":
            self.code, printed = self._vramcast(tuple(words[1:]))
            return printed
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "COLUMNS": COLUMNS}
        done = subprocess.run(
            ["bash", "-c", command],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=environment,
        )
        self.code = done.returncode
        return done.stdout + (done.stderr if done.returncode in (1, 2) else "")

    def python(self, text: str) -> str:
        """What a block of Python prints."""
        with self._inside() as (out, _):
            exec(compile(text, "block", "exec"), {"__name__": "block"})
        return _text(out)

    def _vramcast(self, words: tuple[str, ...]) -> tuple[int, str]:
        if words not in self._printed or _WRITES & set(words):
            from vramcast.cli.main import main

            code = 0
            with self._inside() as (out, err), mock.patch.object(sys, "argv", ["vramcast", *words]):
                try:
                    main()
                except SystemExit as end:
                    code = int(end.code or 0)
            self._printed[words] = (code, _text(out) + (_text(err) if code in (1, 2) else ""))
        return self._printed[words]

    @contextlib.contextmanager
    def _inside(self) -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
        out, err = (
            io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)
        )
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.dict(os.environ, {"COLUMNS": COLUMNS}),
        ):
            yield out, err


def _text(stream: io.TextIOWrapper) -> str:
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined]


def not_printed(command: Command, printed: str) -> list[str]:
    """The lines a page shows that the command did not print, in this order."""
    rest = comparable(printed)
    missing = []
    for line in command.shown:
        if line.strip() in ("", "..."):
            continue
        _, found, after = rest.partition(comparable(line))
        if found:
            rest = after
        else:
            missing.append(line)
    return missing


def comparable(text: str) -> str:
    for pattern in _VARIES:
        text = pattern.sub("~", text)
    return " ".join(text.split())
