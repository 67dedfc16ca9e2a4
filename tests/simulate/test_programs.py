"""Small programs of many fields run on the simulated GPU, all in one process.

Forward, backward and update; their own assertions hold.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
# how often each may read a value, and what the line has that does
ENDLESS = {
    "values.a_loop_that_never_ends": ("2,000", "!= 17.5"),
    "values.a_loop_for_a_known_value_that_never_ends": ("2,200", "!= 16.5"),
}


def names() -> list[str]:
    """Of the programs, without importing them: they import torch."""
    return [
        f"{file.stem}.{node.name}"
        for file in sorted((HERE / "programs").glob("*.py"))
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and file.stem != "common"
        if not node.name.startswith("_")
    ]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    out = tmp_path_factory.mktemp("programs") / "results.json"
    command = [sys.executable, str(HERE / "run_programs.py"), str(out)]
    subprocess.run(command, check=True, capture_output=True)
    found: dict[str, dict[str, Any]] = json.loads(out.read_text())
    return found


@pytest.mark.parametrize("name", [name for name in names() if name not in ENDLESS])
def test_a_program_runs_to_its_end(name: str, results: dict[str, dict[str, Any]]) -> None:
    assert results[name]["error"] == ""


@pytest.mark.parametrize("name, most, condition", [(name, *what) for name, what in ENDLESS.items()])
def test_a_loop_that_waits_for_ever_ends_with_its_line(
    name: str, most: str, condition: str, results: dict[str, dict[str, Any]]
) -> None:
    text = (HERE / "programs" / "values.py").read_text().splitlines()
    line = next(n for n, code in enumerate(text, 1) if condition in code)
    assert f"values.py:{line} in step has read one {most} times" in results[name]["error"]


@pytest.mark.parametrize(
    "name", ["nothing_is_infinite_or_nan", "losses_and_norms_fall", "the_loss_scaler_never_skips"]
)
def test_what_a_healthy_run_has_for_certain_is_not_among_the_limits(
    name: str, results: dict[str, dict[str, Any]]
) -> None:
    assert results[f"values.{name}"]["limits"] == []


def test_a_loop_on_a_computed_value_is_among_the_limits(results: dict[str, dict[str, Any]]) -> None:
    assert any("values.py" in limit for limit in results["values.loops_end"]["limits"])
