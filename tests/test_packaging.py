"""The wheel holds all that vramcast needs: the sources of the simulated GPU, tables, pages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an installed wheel, built from a copy: setuptools writes beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=LEFT_OUT)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, folder]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def test_a_wheel_installed_alone_predicts(installed: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "gpt.py", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "vramcast", "predict", "gpt.py:build", "--gpu", "h200", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["fits"]
    found = subprocess.run(
        [sys.executable, "-c", "import vramcast, vramcast_zoo; print(vramcast.__file__)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()).is_relative_to(installed)


def test_a_wheel_has_every_file_of_the_sources(installed: Path) -> None:
    def files(folder: Path) -> set[Path]:
        parts = (folder / "vramcast", folder / "vramcast_zoo")
        found = {file.relative_to(folder) for part in parts for file in part.rglob("*")}
        return {f for f in found if "__pycache__" not in f.parts and f.suffix}

    assert files(installed) == files(ROOT / "src")
