"""Attacks vramcast in five ways, with a seed, and counts what must not happen.

    python tests/faults/drive.py                 all of it, in about an hour of processor time
    python tests/faults/drive.py --sample        what `make test` runs
    python tests/faults/drive.py --part kills    one of the five

The figures go into the folder --out as JSON, and with --page into the documentation.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import failing_writes

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
GENERATED = re.compile(r"(<!-- figures of make faults -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--part", action="append", default=[])
    parser.add_argument("--out", type=Path, default=Path("build/faults"))
    parser.add_argument("--page", action="store_true", help="write docs/reliability.md")
    asked = parser.parse_args()
    if failing_writes.CONTROL not in os.environ:
        folder = Path(tempfile.mkdtemp(prefix="vramcast-faults-"))
        os.environ["FAULTS_FOLDER"] = str(folder)
        failing_writes.start_again_with_the_library(folder)
    root = Path(os.environ["FAULTS_FOLDER"])
    try:
        return _drive(asked, root)
    finally:
        import shutil

        shutil.rmtree(root, ignore_errors=True)


def _drive(asked: argparse.Namespace, root: Path) -> int:
    import attempts
    import figures
    import parts
    import sandbox

    num_faults = 0
    with attempts.warm_servers():
        place = sandbox.Sandbox(root, with_tune=not asked.sample)
        for name in asked.part or parts.PARTS:
            file = asked.out / f"{name}.json"
            part = figures.Part(parts.TITLES[name], file, made=figures.made_now(asked.seed))
            started = time.monotonic()
            parts.PARTS[name](place, part, asked.seed, asked.sample)
            part.seconds = time.monotonic() - started
            num_faults += len(part.faults)
            print(
                f"{part.title}: {part.tried.total():,} tried, {len(part.faults)} faults, "
                f"{part.seconds:.0f} s",
                flush=True,
            )
            part.has_ended = True
            part.save()
    if asked.page:
        write_page(asked.out)
    return 1 if num_faults else 0


def write_page(folder: Path) -> None:
    """Of what the five parts have left in the folder."""
    import figures
    import parts

    done = [figures.read(folder / f"{name}.json") for name in parts.PARTS]
    text = figures.page(done, "make faults")
    PAGE.write_text(GENERATED.sub(lambda m: f"{m[1]}\n{text}\n{m[2]}", PAGE.read_text()))


if __name__ == "__main__":
    sys.exit(main())
