"""Launch lines that name another interpreter than vramcast's own."""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import vramcast
from vramcast.errors import EnvironmentProblem
from vramcast.workload.interpreters import check, interpreter_of
from vramcast.workload.launchers import read_line

LOOPS = Path(__file__).parents[1] / "programs" / "small" / "loops.py"
SOURCES = Path(vramcast.__file__).parents[1]


@pytest.fixture(autouse=True)
def _without_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    check.cache_clear()


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment without any package."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of an environment that has vramcast and what it needs."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    places = [str(SOURCES), sysconfig.get_path("purelib")]
    (packages / "others.pth").write_text("\n".join(places) + "\n")
    return folder / "bin" / "python"


def test_an_interpreter_that_lacks_vramcast_is_named_with_what_to_install(empty: Path) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        vramcast.predict([str(empty), str(LOOPS), "loop"], gpu="h200")
    assert f"The line is run by {empty}, which lacks vramcast, torch" in caught.value.message
    assert f"{empty} -m pip install vramcast==" in caught.value.advice


def test_another_version_of_vramcast_is_refused(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vramcast.workload.interpreters.__version__", "99.0")
    with pytest.raises(EnvironmentProblem, match=r"has vramcast .*; this is 99\.0"):
        check((str(whole),))


def test_a_program_runs_in_the_interpreter_of_its_line_with_its_flags(
    whole: Path, tmp_path: Path
) -> None:
    program = tmp_path / "shows.py"
    shown = "import sys\nprint('by', sys.executable, sys.flags.optimize, sys.warnoptions)\n"
    program.write_text(shown + LOOPS.read_text())
    lines: list[str] = []
    found = vramcast.predict(
        [str(whole), "-O", "-W", "ignore", str(program), "loop"],
        gpu="h200",
        progress=lambda progress: lines.append(progress.line),
    )
    assert found.peak_reserved_bytes > 0
    assert f"by {whole} 1 ['ignore']" in lines


def test_flags_that_change_nothing_need_no_other_process() -> None:
    def of(*words: str) -> list[str]:
        return interpreter_of(read_line([*words, str(LOOPS)]))

    assert of("python", "-u") == of(sys.executable, "-uq") == []
    assert of("python", "-uB") == [sys.executable, "-B"]
    assert of("python", "-X", "dev") == [sys.executable, "-X", "dev"]
