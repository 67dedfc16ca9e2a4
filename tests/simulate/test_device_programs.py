"""Programs run on the simulated GPU as on a real one; their files have them by name."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

FILES = (
    "drawing_programs.py",
    "error_programs.py",
    "library_programs.py",
    "repeating_programs.py",
    "storage_programs.py",
    "stream_programs.py",
    "value_programs.py",
)


def names(file: str) -> list[str]:
    tree = ast.parse((Path(__file__).parent / file).read_text())
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name for name in functions if not name.startswith("_")]


@cache
def errors(file: str) -> dict[str, str]:
    command = [sys.executable, str(Path(__file__).parent / file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.mark.parametrize("file, name", [(file, name) for file in FILES for name in names(file)])
def test_it_runs_as_on_a_real_gpu(file: str, name: str) -> None:
    assert errors(file)[name] == ""
