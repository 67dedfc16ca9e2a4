"""Runs files of programs, each in a fork of one process that has the device and torch.

python tests/simulate/run_device_programs.py FOLDER FILE...

What they print goes into files of the folder that have their names.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import program_device  # noqa: F401

# isort: split
# the device is loaded before torch
import hypothesis  # noqa: F401
import torch  # noqa: F401


def main(folder: Path, files: list[str]) -> None:
    for file in files:
        if (fork := os.fork()) == 0:
            with open(folder / file, "w") as output:
                os.dup2(output.fileno(), 1)
            runpy.run_path(str(Path(__file__).with_name(file)), run_name="__main__")
        status = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
        if status:
            print(f"{file} ended with {status}", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
