"""Predicts the programs of the list from local checkouts and appends what came of each.

PYTHONPATH=src python benchmarks/programs/run.py CHECKOUTS DATA [NAME...]

CHECKOUTS has a folder for each repository, by its last name (minGPT, vision). DATA is made by
data.py; links to it are made in the folders where the programs look for their data.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from programs import OWN, PROGRAMS, Listed

HERE = Path(__file__).parent
RECORDS = HERE / "predicted.jsonl"
# cuBLASLt has a workspace of its own in torch 2.11, which measured; 2.13 is told to do the same
AS_MEASURED = {"TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0"}
GPU, MOST_SECONDS = "h200", 900
KEPT = ("peak_reserved_bytes", "peak_allocated_bytes", "peak_phase", "phases", "notes", "limits")


def prepared(
    program: Listed, checkouts: Path, data: Path
) -> tuple[list[str], Path, dict[str, str]]:
    """The program's line, its folder and its environment."""
    if program.repository == OWN:
        folder, own = Path(tempfile.mkdtemp()), f"{HERE / OWN}/"
    else:
        top = checkouts / program.repository.split("/")[1]
        folder, own = top / program.folder, ""
        _link(program, top, data)
    for word in shlex.split(program.line) if own else []:
        if word.endswith(".yaml"):
            text = (HERE / OWN / word).read_text()
            (folder / word).write_text(text.replace("DATA", str(data)))
    # scripts are started from the folder that they write to
    words = [own + w if own and w.endswith(".py") else w for w in shlex.split(program.line)]
    words = [word.replace("DATA", str(data)) for word in words]
    # the repository's own package counts as installed
    top_of_own = [] if own else [str(top)]
    given = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(":") if path]
    extra = ":".join([*given, str(folder), *top_of_own])
    return words, folder, {**os.environ, **AS_MEASURED, "PYTHONPATH": extra, "HF_HUB_OFFLINE": "1"}


def start(
    command: list[str], program: Listed, checkouts: Path, data: Path, most_seconds: float
) -> subprocess.CompletedProcess[str] | None:
    """vramcast with the program's line. None after the time."""
    words, folder, environment = prepared(program, checkouts, data)
    try:
        return subprocess.run(
            [sys.executable, "-m", "vramcast", *command, "--", *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=most_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None


def _link(program: Listed, top: Path, data: Path) -> None:
    """What the program reads is where it looks for it."""
    for place, what in program.places:
        link = top / place
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink() or link.readlink() != data / what:
            shutil.rmtree(link) if link.is_dir() and not link.is_symlink() else link.unlink(True)
            with contextlib.suppress(FileExistsError):  # another program looks there too
                link.symlink_to(data / what)


def predict(program: Listed, checkouts: Path, data: Path) -> dict[str, Any]:
    folder = checkouts / program.repository.split("/")[-1] / program.folder
    command = ["predict", "--gpu", GPU, "--json", "--timeout", str(MOST_SECONDS)]
    done = start(command, program, checkouts, data, MOST_SECONDS)
    if done is None:
        return {"error": f"no answer after {MOST_SECONDS} s"}
    if done.returncode:
        told = done.stderr.rpartition("vramcast: ")[2].strip().splitlines()
        return {
            "error": _without_paths(
                " / ".join(dict.fromkeys(line.strip() for line in [*told[:1], *told[-2:]])),
                data,
                folder,
            )
        }
    found = json.loads(done.stdout)
    kept = {name: found[name] for name in KEPT}
    for name in ("notes", "limits"):
        kept[name] = [_without_paths(text, data, folder) for text in kept[name]]
    return {**kept, "seconds": round(found["seconds"], 1)}


def _without_paths(text: str, data: Path, folder: Path) -> str:
    packages = [path for path in os.environ.get("PYTHONPATH", "").split(":") if path]
    for path in sorted([str(data), *packages, str(HERE)], key=len, reverse=True):
        text = text.replace(os.path.relpath(path, folder) + "/", "").replace(path + "/", "")
    return text.replace(f"{folder}/", "")


def main() -> None:
    checkouts, data, names = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3:]
    for program in PROGRAMS:
        if names and program.name not in names:
            continue
        record = {
            "name": program.name,
            "repository": program.repository,
            "commit": program.commit,
            "line": program.line,
            "source": "predicted",
            "gpu": GPU,
            "torch": version("torch"),
            **predict(program, checkouts, data),
        }
        with RECORDS.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(program.name, record.get("peak_reserved_bytes", record.get("error")), flush=True)


if __name__ == "__main__":
    main()
