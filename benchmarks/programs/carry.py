"""Carries the programs to a machine with a GPU and without a network, and measures them there.

python benchmarks/programs/carry.py pack CHECKOUTS WHEELS FOLDER [NAME...]
PYTHONPATH=src python benchmarks/programs/carry.py measure FOLDER [NAME...]
PYTHONPATH=src python benchmarks/programs/carry.py addresses FOLDER [NAME...]

FOLDER gets an archive of the programs' own files and the wheels of the packages that they need
beside those of the GPU machine. There the wheels are installed, the data is made by data.py, and
measure.py is run, or addresses.py. NAME `new` stands for the programs that were not measured yet.
WHEELS is a folder of wheels for that machine's Python.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from programs import OWN, PROGRAMS, Listed

HERE = Path(__file__).parent
ARCHIVE = "checkouts.tar.gz"
MOST_BYTES, MOST_FILE_BYTES = 45_000_000, 2_000_000
LEFT_OUT = {".git", ".github", "docs", "doc", "tests", "assets", "images", "visuals", "notebooks"}
LEFT_OUT_ENDINGS = {".ipynb", ".png", ".jpg", ".gif", ".pdf", ".pyc", ".pt", ".pth", ".bin"}


def chosen(names: list[str]) -> list[Listed]:
    return [program for program in PROGRAMS if not names or program.name in names]


def pack(checkouts: Path, wheels: Path, folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / ARCHIVE, "w:gz") as archive:
        for path in files(checkouts, chosen(names)):
            archive.add(path, path.relative_to(checkouts))
    shutil.copytree(wheels, folder / "wheels", dirs_exist_ok=True)
    size_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size_bytes:,} bytes")
    if size_bytes > MOST_BYTES:
        sys.exit(f"More than {MOST_BYTES:,} bytes: leave wheels or programs out.")


def files(checkouts: Path, programs: list[Listed]) -> list[Path]:
    """What the programs need of their repositories."""
    found = set()
    for program in programs:
        if program.repository == OWN:
            continue
        top = checkouts / program.repository.split("/")[1]
        for folder in (program.folder, *program.beside):
            for path in (top / folder).rglob("*"):
                if path.is_file() and not path.is_symlink() and _is_needed(path, top):
                    found.add(path)
    return sorted(found)


def _is_needed(path: Path, top: Path) -> bool:
    inside = path.relative_to(top)
    return (
        LEFT_OUT.isdisjoint(inside.parts)
        and path.suffix not in LEFT_OUT_ENDINGS
        and path.stat().st_size <= MOST_FILE_BYTES
    )


def not_measured() -> list[str]:
    lines = (HERE / "measured.jsonl").read_text().splitlines()
    known = {found["name"] for found in map(json.loads, lines) if found.get("peak_reserved_bytes")}
    return [program.name for program in PROGRAMS if program.name not in known]


def run(script: str, folder: Path, names: list[str]) -> int:
    place = Path(tempfile.mkdtemp(prefix="programs-"))
    packages, data = place / "packages", place / "data"
    wheels = sorted((folder / "wheels").glob("*.whl"))
    install = ["-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", packages]
    subprocess.run([sys.executable, *install, *wheels], check=True)
    with tarfile.open(folder / ARCHIVE) as archive:
        archive.extractall(place / "checkouts", filter="data")
    given = os.environ.get("PYTHONPATH", "")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{given}:{packages}",
        "PATH": f"{packages}/bin:{os.environ['PATH']}",
    }
    subprocess.run([sys.executable, HERE / "data.py", data], env=environment, check=True)
    names = not_measured() if names == ["new"] else names
    command = [sys.executable, HERE / script, place / "checkouts", data, *names]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    if sys.argv[1] == "pack":
        pack(*(Path(word).resolve() for word in sys.argv[2:5]), sys.argv[5:])
    else:
        sys.exit(run(f"{sys.argv[1]}.py", Path(sys.argv[2]).resolve(), sys.argv[3:]))
