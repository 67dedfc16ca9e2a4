"""Programs run on the simulated GPU as on a real one: device_programs.py has them by name."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "device_programs.py"
NAMES = [
    node.name
    for node in ast.parse(PROGRAMS.read_text()).body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith(("_", "main"))
]


@pytest.fixture(scope="module")
def errors() -> dict[str, str]:
    done = subprocess.run([sys.executable, PROGRAMS], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_as_on_a_real_gpu(name: str, errors: dict[str, str]) -> None:
    assert errors[name] == ""
