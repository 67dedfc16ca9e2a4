"""Attacks vramcast in several ways, with a seed, and counts what must not happen.

    python tests/faults/drive.py                 all of it, one attack a core
    python tests/faults/drive.py --sample        what `make test` runs
    python tests/faults/drive.py --part kills    one of them

The figures go into the folder --out as JSON, and with --page into the documentation. A run that was
stopped goes on where it was, as long as vramcast, the attacks and the seed are the same.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import failing_writes

from vramcast.processes import lifetime

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
GENERATED = re.compile(r"(<!-- figures of make faults -->\n).*?(<!-- end -->)", re.DOTALL)
# The longest ones first.
ORDER = ("writes", "kills", "files", "invocations", "records", "server")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--part", action="append", default=[])
    parser.add_argument("--out", type=Path, default=Path("build/faults"))
    parser.add_argument("--page", action="store_true", help="write docs/reliability.md")
    asked = parser.parse_args()
    if failing_writes.CONTROL in os.environ:
        return _drive(asked, Path(os.environ[failing_writes.CONTROL]).parent)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # a shell that starts it in the background has it ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    is_whole = not asked.sample and not asked.part
    each = [[name] for name in ORDER] if is_whole else [asked.part]
    try:
        code = _drive_all(asked, each)
    except KeyboardInterrupt:
        print("Interrupted. Started again, it goes on where it was.", file=sys.stderr)
        return 130
    if asked.page:
        write_page(asked.out)
    return code


def _drive_all(asked: argparse.Namespace, each: list[list[str]]) -> int:
    """Some parts in a process of their own, as many at once as there are cores. Those processes
    do not hear of Ctrl-C: this one ends them, and all that they have started."""
    lifetime.adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="vramcast-faults-") as folder:

        def drive(names: list[str]) -> int:
            root = Path(folder, "-".join(names) or "all")
            root.mkdir()
            parts = [word for name in names for word in ("--part", name)]
            more = ["--seed", str(asked.seed), "--out", asked.out, *["--sample"] * asked.sample]
            return subprocess.run(
                [sys.executable, __file__, *parts, *more],
                env=failing_writes.environment(root),
                start_new_session=True,
            ).returncode

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            driving = [pool.submit(drive, names) for names in each]
            try:
                return max(each.result() for each in driving)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                lifetime.end_children()
                while wait(driving, timeout=0.05).not_done:  # one was about to start
                    lifetime.end_children()


def _drive(asked: argparse.Namespace, root: Path) -> int:
    import attempts
    import figures
    import parts
    import sandbox

    names = asked.part or [name for name in parts.PARTS if name != "server"]
    found = {name: figures.begin(asked.out / f"{name}.json", asked.seed) for name in names}
    left = [name for name in names if not found[name].has_ended]
    if left:
        with attempts.warm_servers():
            place = sandbox.Sandbox(root, with_tune=not asked.sample)
            for name in left:
                parts.PARTS[name](place, found[name], asked.seed, asked.sample)
                found[name].has_ended = True
                found[name].save()
    for name in names:
        print(
            f"{found[name].title}: {found[name].tried.total():,} tried, "
            f"{len(found[name].faults)} faults, {found[name].seconds:.0f} s",
            flush=True,
        )
    return 1 if any(part.faults for part in found.values()) else 0


def write_page(folder: Path) -> None:
    """Of what the parts have left in the folder."""
    import figures

    files = [folder / f"{name}.json" for name in figures.TITLES]
    done = [figures.read(file) for file in files if file.exists()]
    text = figures.page(done, "make faults")
    PAGE.write_text(GENERATED.sub(lambda m: f"{m[1]}\n{text}\n{m[2]}", PAGE.read_text()))


if __name__ == "__main__":
    sys.exit(main())
