from __future__ import annotations

from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import vramcast
from vramcast.processes import imported
from vramcast.workload import user_traceback
from vramcast.workload.tracebacks import shown_path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compiled(path: Path, text: str) -> CodeType:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return compile(text, str(path), "exec")


def define(path: Path, text: str, **names: Any) -> dict[str, Any]:
    exec(compiled(path, text), names)  # noqa: S102
    return names


def caught(function: Any) -> BaseException:
    try:
        function()
    except Exception as error:  # noqa: BLE001
        # Below this test's own frame: the worker's frame, in real use, is vramcast's and hidden.
        return error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None)
    raise AssertionError("nothing was raised")


def library(here: Path) -> Any:
    text = "def outer():\n    inner()\ndef inner():\n    raise RuntimeError('shapes differ')\n"
    return define(here / "venv/site-packages/lib/core.py", text)["outer"]


def test_the_users_frames_are_shown_oldest_first(here: Path) -> None:
    build = define(
        here / "work.py", "def build():\n    helper()\ndef helper():\n    return 1 / 0\n"
    )["build"]
    assert user_traceback(caught(build)).splitlines() == [
        "work.py:2 in build: helper()",
        "work.py:4 in helper: return 1 / 0",
        "ZeroDivisionError: division by zero",
    ]


def test_of_a_library_only_the_frame_that_raised_is_shown(here: Path) -> None:
    build = define(here / "work.py", "def build():\n    outer()\n", outer=library(here))["build"]
    assert user_traceback(caught(build)).splitlines() == [
        "work.py:2 in build: outer()",
        "lib/core.py:4 in inner: raise RuntimeError('shapes differ')",
        "RuntimeError: shapes differ",
    ]


def test_an_error_entirely_in_a_library_shows_where_it_was_raised(here: Path) -> None:
    assert (
        user_traceback(caught(library(here))).splitlines()[0].startswith("lib/core.py:4 in inner")
    )


def test_a_library_that_calls_the_user_back_is_left_out(here: Path) -> None:
    call = define(here / "venv/site-packages/lib/core.py", "def call(f):\n    f()\n")["call"]
    build = define(
        here / "work.py",
        "def build():\n    call(forward)\ndef forward():\n    raise KeyError('x')\n",
        call=call,
    )["build"]
    assert [line.partition(":")[0] for line in user_traceback(caught(build)).splitlines()] == [
        "work.py",
        "work.py",
        "KeyError",
    ]


def test_the_zoo_is_not_hidden_although_its_name_begins_like_vramcast(here: Path) -> None:
    names: dict[str, Any] = {}
    file = Path(vramcast.__file__).parents[1] / "vramcast_zoo/work.py"
    exec(compile("def build():\n    1 / 0\n", str(file), "exec"), names)  # noqa: S102
    assert "vramcast_zoo/work.py:2" in user_traceback(caught(names["build"]))


def test_frames_of_vramcast_and_of_python_are_left_out(here: Path) -> None:
    from vramcast.workload import bind_knobs

    names = {"bind_knobs": bind_knobs, "json": __import__("json")}
    build = define(
        here / "work.py",
        "def a():\n    bind_knobs(a, {'x': '1'})\ndef b():\n    json.loads('{')\n",
        **names,
    )
    for name in "ab":
        lines = user_traceback(caught(build[name])).splitlines()
        assert [line.startswith("work.py") for line in lines[:2]] == [
            True,
            False,
        ] and "vramcast/" not in lines[1]


def test_causes_are_named(here: Path) -> None:
    build = define(
        here / "work.py", "def build():\n    raise RuntimeError('failed') from ValueError('why')\n"
    )["build"]
    assert user_traceback(caught(build)).splitlines()[-2:] == [
        "RuntimeError: failed",
        "caused by ValueError: why",
    ]


def test_an_error_without_a_message_or_a_traceback_is_its_type() -> None:
    assert user_traceback(KeyError()) == "KeyError"


def test_a_runaway_recursion_is_cut(here: Path) -> None:
    build = define(here / "work.py", "def build():\n    build()\n")["build"]
    assert len(user_traceback(caught(build)).splitlines()) < 20


def test_a_program_may_remove_the_folder_that_it_stands_in(here: Path) -> None:
    file = here / "train.py"
    assert shown_path(str(file)) == "train.py"
    here.rmdir()
    assert shown_path(str(file)) == str(file)
    assert "pytest" in imported.names()


def test_frames_of_cpp_are_left_out() -> None:
    error = RuntimeError("No room.\nException raised from f at g.cpp:7:\nframe #0: c10::Error")
    assert user_traceback(error) == "RuntimeError: No room."
