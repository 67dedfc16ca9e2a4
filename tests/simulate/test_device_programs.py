"""Programs run on the simulated GPU as on a real one; their files have them by name."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = (
    "computing_programs.py",
    "drawing_programs.py",
    "error_programs.py",
    "library_programs.py",
    "repeating_programs.py",
    "storage_programs.py",
    "stream_programs.py",
    "value_programs.py",
    "work_programs.py",
)


def names(file: str) -> list[str]:
    tree = ast.parse((HERE / file).read_text())
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name for name in functions if not name.startswith("_")]


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Of every program that ran, by its file."""
    folder = tmp_path_factory.mktemp("programs")
    command = [sys.executable, str(HERE / "run_device_programs.py"), str(folder), *FILES]
    subprocess.run(command, check=True, timeout=4200)
    return {file: dict(map(json.loads, (folder / file).read_text().splitlines())) for file in FILES}


@pytest.mark.parametrize("file, name", [(file, name) for file in FILES for name in names(file)])
def test_it_runs_as_on_a_real_gpu(file: str, name: str, errors: dict[str, dict[str, str]]) -> None:
    assert errors[file].get(name) == "", "None: its file ended before it"
