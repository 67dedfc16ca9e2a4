"""The simulated device is compiled once, also where several processes begin without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMPILER = """#!/bin/sh
echo compiled >> {log}
sleep 0.5
while [ "$1" != -o ]; do shift; done
echo library > "$2"
"""
BUILD = "from vramcast.simulate.build import cublas_substitute; print(cublas_substitute('lib.so'))"


def test_processes_that_need_the_same_library_wait_for_the_one_that_compiles(
    tmp_path: Path,
) -> None:
    log, compiler = tmp_path / "log", tmp_path / "compiler"
    compiler.write_text(COMPILER.format(log=log))
    compiler.chmod(0o755)
    cache = tmp_path / "cache"
    environment = {**os.environ, "CXX": str(compiler), "VRAMCAST_CACHE": str(cache)}
    command = [sys.executable, "-c", BUILD]
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    answers = {process.communicate(timeout=60)[0] for process in started}
    (answer,) = answers
    assert Path(answer.strip()).read_text() == "library\n"
    assert log.read_text().split() == ["compiled"]
    assert [path.name for path in cache.iterdir()] == [Path(answer.strip()).name]
