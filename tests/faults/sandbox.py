"""A folder with everything that commands read, made once by the commands themselves, and copied.

After a command it is looked at: what was left, what is half-written, what is gone.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import attempts
import workloads

from vramcast.hardware.calibration.table import SHIPPED
from vramcast.simulate import build

words = str.split
TESTS = Path(__file__).parents[1]
RECORDS = TESTS / "reporting" / "records"
ROWS = TESTS.parent / "benchmarks" / "accuracy" / "h200-torch-2.11" / "rows.jsonl"
ROW = "zoo-mamba2-50m-B8-T256"
ACCURACY = words(f"accuracy --against accuracy --no-peers --row {ROW}")
PROTOCOL = """\
name = "tiny-1"
batch_size = 4
seq_len = 8
steps = 6
last_steps = 2
lr = 0.01
optimizer = "adamw"
precision = "fp32"
"""
BENCH = words(
    "bench models.py:tiny models.py:tiny width=4 --protocol tiny.toml --data text.bin "
    "--device cpu --out bench"
)
PROBE = words("probe work.py:good --device cpu --steps 2 --warmup 0 --out probe")
TUNE = words(
    "tune work.py:good --device cpu --only anomaly-off --no-outlook --budget 60s --out tune"
)
PLAN = words("plan work.py:sequence --seq-lens 8,16 --gpu rtx-4090 --out plan")
SIMPLE = {
    "prediction": "predict work.py:good --gpu h200",
    "curve": "predict work.py:good --batch-sizes 1-4 --gpu h200",
    "max-batch": "max-batch work.py:good --memory 1GiB --max 4",
    "fit": "fit runs.csv",
    "compare": "compare bench",
}


class Sandbox:
    """`folder` is for one command; `renew` makes it as it was."""

    def __init__(self, root: Path, *, with_tune: bool = True) -> None:
        self.template, self.folder = root / "template", root / "sandbox"
        self._make(self.template, with_tune)
        self.renew()

    @property
    def environment(self) -> dict[str, str]:
        return self._environment_of(self.folder)

    def _environment_of(self, folder: Path) -> dict[str, str]:
        return {
            "VRAMCAST_CACHE": str(folder / "cache"),
            "TMPDIR": str(folder / "tmp"),
            "HOME": str(folder / "home"),
            "BROWSER": "true",
            "COLUMNS": "80",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def renew(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.template, self.folder, symlinks=True)

    def run(self, arguments: list[str], **options: object) -> attempts.Ending:
        return attempts.run(arguments, self.folder, self.environment, **options)  # type: ignore[arg-type]

    def state(self) -> dict[str, tuple[int, int, bytes]]:
        """Every file with its mode and content; large ones by their size."""
        return {str(path.relative_to(self.folder)): _content(path) for path in _walk(self.folder)}

    def _make(self, folder: Path, with_tune: bool) -> None:
        for name in ("cache", "tmp", "home"):
            (folder / name).mkdir(parents=True)
        # compiling it again would take half a minute
        shutil.copy2(build.build(), folder / "cache")
        files: dict[str, str | bytes] = {
            "work.py": workloads.GOOD,
            "train.py": workloads.SCRIPT,
            "models.py": workloads.MODELS,
            "hostile.py": workloads.HOSTILE,
            "syntax.py": workloads.SYNTAX,
            **workloads.AT_IMPORT,
            "tiny.toml": PROTOCOL,
            "text.bin": b"the quick brown fox jumps over the lazy dog. " * 40,
            "runs.csv": "name,batch_size,allocated_gib,reserved_gib\n"
            + "".join(f"r{b},{b},{1 + b / 8},{1.5 + b / 8}\n" for b in (1, 2, 4, 8, 16)),
            "binary": bytes(range(256)) * 64,
            "empty": "",
        }
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            (folder / name).write_bytes(data)
        (folder / "accuracy").mkdir()
        (folder / "accuracy" / "rows.jsonl").write_bytes(b"".join(_few_rows()))
        (folder / "h200").mkdir()
        shutil.copy(RECORDS / "h200-measurement.json", folder / "h200" / "metrics.json")
        shutil.copy(RECORDS / "tune.json", folder / "tuned.json")
        self._run_in(folder, words("predict work.py:good --trace a"))
        self._run_in(folder, words("predict work.py:good batch_size=8 --trace b"))
        for arguments in (BENCH, PROBE, PLAN, *([TUNE] if with_tune else [])):
            self._run_in(folder, arguments)
        for name, command in SIMPLE.items():
            text = self._run_in(folder, [*command.split(), "--json"]).stdout
            (folder / f"{name}.json").write_text(text)
        self._run_in(folder, words("calibrate --host"))
        for table in SHIPPED.glob("*.json"):
            copy = Path(shutil.copy(table, folder / "cache" / "calibration"))
            copy.chmod(0o644)  # a checkout may be writable for the group, which a cache must not
        _write_configuration(folder / "config.json")

    def _run_in(self, folder: Path, arguments: list[str]) -> attempts.Ending:
        ending = attempts.run(arguments, folder, self._environment_of(folder))
        if ending.exit_code not in (0, 3) or ending.faults:
            raise RuntimeError(f"{ending.command}: {ending.faults}\n{ending.stderr}")
        return ending

    def half_written(self) -> list[str]:
        """Records that cannot be read; only the last line of a list may be cut short."""
        return [
            str(path.relative_to(self.folder))
            for path in _walk(self.folder)
            if path.suffix in WHOLE and path.is_file() and not WHOLE[path.suffix](path)
        ]

    def temporary(self) -> list[str]:
        """Files that nobody asked for: in the temporary folder, or with a hidden name."""
        found = []
        for path in _walk(self.folder):
            inside = path.relative_to(self.folder)
            if inside.parts[0] == "home":  # of libraries: fonts of matplotlib, ...
                continue
            is_hidden = any(part.startswith(".") for part in inside.parts)
            in_cache = inside.parts[0] == "cache" and path.name.startswith("tmp")
            if is_hidden or in_cache or inside.parts[0] == "tmp":
                found.append(str(inside))
        return found


def _few_rows() -> list[bytes]:
    """One small row of the benchmark with all that was recorded of it."""
    lines = ROWS.read_bytes().splitlines(keepends=True)
    return [line for line in lines if json.loads(line)["row"] == ROW]


def _write_configuration(path: Path) -> None:
    value = {
        "kind": "vramcast configuration",
        "version": 1,
        "knobs": {"batch_size": 2},
        "switches": {"tf32": True},
        "allocator": "expandable_segments:True",
    }
    path.write_text(json.dumps(value))


def _walk(folder: Path) -> list[Path]:
    """Every file below, links not followed; caches of Python and of libraries are not ours."""
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in ("__pycache__", ".cache")]
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        found += [Path(parent, name) for name in (*names, *links)]
    return sorted(found)


def _content(path: Path) -> tuple[int, int, bytes]:
    status = path.lstat()
    data = b""
    if stat.S_ISREG(status.st_mode) and status.st_size < 1 << 20:
        data = path.read_bytes()
    return status.st_mode, status.st_size if stat.S_ISREG(status.st_mode) else 0, data


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


def _are_lines(path: Path) -> bool:
    try:
        for line in path.read_bytes().split(b"\n")[:-1]:
            json.loads(line or b"{}")
    except ValueError:
        return False
    return True


WHOLE: dict[str, Callable[[Path], bool]] = {
    ".json": _is_json,
    ".jsonl": _are_lines,
    ".html": lambda path: path.read_bytes().rstrip().endswith(b"</html>"),
    ".svg": lambda path: path.read_bytes().rstrip().endswith(b"</svg>"),
}
