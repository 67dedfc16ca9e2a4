"""The README's own commands print what the README says they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```\n(\$ vramcast.*?)\n```", (ROOT / "README.md").read_text(), re.DOTALL)


def command_and_output(block: str) -> tuple[str, list[str]]:
    lines = block.splitlines()
    length = 1
    while lines[length - 1].endswith(("|", "\\")):  # it goes on in the next line
        length += 1
    return "\n".join(lines[:length]).removeprefix("$ "), lines[length:]


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("block", BLOCKS, ids=[command_and_output(block)[0][:70] for block in BLOCKS])
def test_a_command_of_the_readme_prints_what_the_readme_shows(block: str) -> None:
    command, shown = command_and_output(block)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "120"}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, env=environment)
    printed = words(done.stdout)
    for line in shown:
        # the time a prediction takes, and the torch version it was made with, differ from machine to machine
        if line != "..." and not line.startswith("All numbers are predicted"):
            assert words(line) in printed


def test_the_readme_shows_commands() -> None:
    assert len(BLOCKS) >= 5
