"""Runs the examples of the two callbacks and prints what each predicted and measured.

PYTHONPATH=src python benchmarks/programs/callbacks.py [GPU]

Without GPU it is the one here. The last lines are what the callbacks themselves print.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

FRAMEWORKS = Path(__file__).resolve().parent / "frameworks"
EXAMPLES = ("callback_hugging_face.py", "callback_lightning.py")
MOST_SECONDS = 300


def run(example: str, words: list[str]) -> list[str]:
    """What the callback said, or the end of what went wrong."""
    packages = os.pathsep.join(str(Path(word).resolve()) for word in sys.path[1:] if word)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(FRAMEWORKS / example), *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": packages, "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            check=False,
        )
    lines = done.stderr.splitlines()
    said = [line for line in lines if "vramcast" in line]
    return said if done.returncode == 0 and said else lines[-8:]


if __name__ == "__main__":
    for name in EXAMPLES:
        print(name, *run(name, sys.argv[1:]), sep="\n  ", flush=True)
