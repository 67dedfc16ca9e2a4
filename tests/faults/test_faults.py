"""A sample of `make faults` with a fixed seed: nothing that must not happen does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from vramcast.simulate import build

DRIVER = Path(__file__).with_name("drive.py")
PARTS = ("invocations", "records", "kills", "writes", "files")


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """In a process of its own, which adopts what commands leave behind."""
    build.build()
    folder = tmp_path_factory.mktemp("figures")
    command = [sys.executable, DRIVER, "--sample", "--seed", "20", "--out", folder]
    done = subprocess.run(command, capture_output=True, text=True)
    found = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    assert set(found) == set(PARTS), done.stderr
    return found


@pytest.mark.parametrize("part", PARTS)
def test_no_attack_of_the_sample_finds_a_fault(part: str, figures: dict[str, Any]) -> None:
    assert figures[part]["faults"] == []
    assert figures[part]["num_tried"] >= 2


def test_wrong_invocations_of_every_command_are_refused(figures: dict[str, Any]) -> None:
    from vramcast.cli.commands import app

    tried = figures["invocations"]["tried"]
    assert {command.name for command in app.registered_commands} <= set(tried)
    assert figures["invocations"]["exits"]["2"] > 20


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_driver_that_is_stopped_leaves_nothing_and_prints_no_traceback(
    number: int, code: int, tmp_path: Path
) -> None:
    driver = subprocess.Popen(
        [sys.executable, DRIVER, "--sample", "--part", "files", "--out", tmp_path / "figures"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    while driver.poll() is None and not [*tmp_path.glob("*/*/control")]:
        time.sleep(0.02)
    time.sleep(0.2)
    driver.send_signal(number)
    printed = driver.communicate(timeout=60)[1]
    assert driver.returncode == code, printed
    assert "Traceback" not in printed
    assert [*tmp_path.glob("vramcast-faults-*")] == []
