from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vramcast.errors import WorkloadError
from vramcast.workload import check_step, load_function, parse_reference
from vramcast.workload.loading import missing_module_advice


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def write(name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def failure(text: str) -> WorkloadError:
    with pytest.raises(WorkloadError) as caught:
        load_function(parse_reference(text))
    return caught.value


def test_a_function_is_loaded_from_a_file() -> None:
    write("work.py", "def make(): return 7\n")
    assert load_function(parse_reference("work.py:make"))() == 7


def test_a_file_may_import_its_neighbours_at_once_and_later() -> None:
    write("sub/neighbour_one.py", "value = 1\n")
    write("sub/neighbour_two.py", "value = 2\n")
    write(
        "sub/work.py",
        "import neighbour_one\ndef build():\n    import neighbour_two\n"
        "    return neighbour_one.value + neighbour_two.value\n",
    )
    assert load_function(parse_reference("sub/work.py"))() == 3


def test_a_file_may_be_called_like_a_module_that_exists() -> None:
    write("json.py", "def build(): return 'mine'\n")
    import json

    assert load_function(parse_reference("json.py"))() == "mine"
    assert sys.modules["json"] is json


def test_two_files_of_one_name_do_not_meet() -> None:
    write("a/work.py", "def build(): return 'a'\n")
    write("b/work.py", "def build(): return 'b'\n")
    functions = [load_function(parse_reference(f"{folder}/work.py")) for folder in "ab"]
    assert [function() for function in functions] == ["a", "b"]


def test_a_file_may_define_dataclasses_with_late_annotations() -> None:
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    write("work.py", head + "@dataclass\nclass A:\n    x: int = 1\ndef build(): return A().x\n")
    assert load_function(parse_reference("work.py"))() == 1


def test_a_module_is_found_from_the_current_folder() -> None:
    write("package_here/__init__.py", "")
    write("package_here/part.py", "from .other import value\ndef make(): return value\n")
    write("package_here/other.py", "value = 5\n")
    assert load_function(parse_reference("package_here.part:make"))() == 5


def test_a_syntax_error_is_shown_with_file_line_and_text() -> None:
    write("work.py", "import os\ndef build(:\n    pass\n")
    error = failure("work.py")
    assert (
        error.message.startswith("work.py:2 is not valid Python: ")
        and "def build(:" in error.message
    )


def test_a_syntax_error_in_a_neighbour_is_shown_there() -> None:
    write("bad_neighbour.py", "x = = 1\n")
    write("work.py", "import bad_neighbour\n")
    assert failure("work.py").message.startswith("bad_neighbour.py:1 is not valid Python")


def test_an_exception_at_import_shows_the_users_lines_only() -> None:
    write("helper_that_fails.py", "def check(x):\n    raise ValueError(f'bad {x}')\n")
    write("work.py", "import helper_that_fails\n\nhelper_that_fails.check(3)\n")
    assert failure("work.py").message.splitlines() == [
        "work.py cannot be imported:",
        "work.py:3 in <module>: helper_that_fails.check(3)",
        "helper_that_fails.py:2 in check: raise ValueError(f'bad {x}')",
        "ValueError: bad 3",
    ]


def test_a_missing_dependency_says_what_to_install() -> None:
    write("work.py", "import surely_not_there.part\n")
    error = failure("work.py")
    assert "work.py:1 in <module>: import surely_not_there.part" in error.message
    assert "Install what provides 'surely_not_there'" in error.advice


def test_flash_attn_is_installed_without_its_kernels() -> None:
    advice = missing_module_advice("flash_attn.flash_attn_interface")
    assert "FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE" in advice
    assert "pip install --no-build-isolation flash-attn" in advice


def test_a_part_that_a_package_no_longer_has_is_not_called_a_missing_package() -> None:
    advice = missing_module_advice("json.surely_not_there")
    assert advice.startswith("json is installed") and "another version" in advice


def test_a_missing_dependency_of_a_module_is_not_taken_for_the_module() -> None:
    write("module_with_need.py", "import surely_not_there\n")
    assert (
        "the module module_with_need cannot be imported"
        in failure("module_with_need:build").message
    )


@pytest.mark.parametrize("text", ["no_such_module:build", "no_such_package.part:build"])
def test_a_missing_module_is_said_with_the_folder_that_was_searched(text: str, here: Path) -> None:
    error = failure(text)
    assert (
        error.message.startswith(f"There is no module {text.partition(':')[0]!r}")
        and str(here) in error.advice
    )


def test_a_file_with_relative_imports_is_sent_to_its_module_name() -> None:
    write("package_rel/__init__.py", "")
    write("package_rel/work.py", "from .other import x\n")
    assert "package.module:function" in failure("package_rel/work.py").advice


def test_a_script_that_exits_at_import_is_told_about_main() -> None:
    write("work.py", "import sys\nsys.exit(2)\n")
    error = failure("work.py")
    assert (
        "ended the program" in error.message
        and "exit code 2" in error.message
        and "__main__" in error.advice
    )


def test_running_out_of_memory_at_import_is_no_mistake_of_the_file() -> None:
    write(
        "work.py", "class OutOfMemoryError(RuntimeError): ...\nraise OutOfMemoryError('no room')\n"
    )
    with pytest.raises(RuntimeError, match="no room"):
        load_function(parse_reference("work.py"))


def test_a_file_that_failed_leaves_no_half_made_module_behind() -> None:
    write("work.py", "raise RuntimeError\n")
    before = set(sys.modules)
    failure("work.py")
    assert not [name for name in set(sys.modules) - before if name.startswith("vramcast_workload_")]


def test_a_missing_function_lists_the_public_ones_defined_there() -> None:
    write(
        "work.py",
        "from os.path import join\ndef build_gpt(): ...\ndef train(): ...\n"
        "def _hidden(): ...\nclass Model: ...\nSIZE = 3\n",
    )
    error = failure("work.py")
    assert error.message == "There is no function 'build' in work.py."
    assert error.advice == "Did you mean 'build_gpt'? Functions there: build_gpt, train."


def test_a_file_without_functions_says_what_to_write() -> None:
    write("work.py", "x = 1\n")
    assert "def build(" in failure("work.py").advice


def test_a_name_that_is_no_function_is_refused() -> None:
    write("work.py", "build = 3\ndef make(): ...\n")
    error = failure("work.py")
    assert (
        "'build' in work.py is not a function but a value of type int" in error.message
        and "make" in error.advice
    )


def test_a_step_is_returned_as_it_is() -> None:
    def step() -> float:
        return 1.0

    assert check_step(step) is step


@pytest.mark.parametrize(
    ("value", "said", "advice"),
    [
        (None, "returned None", "`return step` missing"),
        (0.5, "a value of type float", "without calling it"),
        ((object(), print), "a value of type tuple", "step alone"),
        ("step", "a value of type str", "without arguments"),
    ],
)
def test_a_build_that_returns_no_step_says_what_it_returned(
    value: object, said: str, advice: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        check_step(value)
    assert (
        said in caught.value.message
        and advice in caught.value.advice
        and "one training step" in caught.value.advice
    )


def test_a_model_is_no_step_although_it_can_be_called() -> None:
    nn = pytest.importorskip("torch").nn
    with pytest.raises(WorkloadError, match=r"returned a model \(Linear\)"):
        check_step(nn.Linear(1, 1))


def test_a_step_that_needs_arguments_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"needs arguments \(batch\)"):
        check_step(lambda batch, scale=1: batch)
    check_step(lambda *batch, scale=1, **rest: batch)


def test_the_package_does_not_import_torch() -> None:
    code = "import sys, vramcast.workload; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
            check=False,
        ).returncode
        == 0
    )


def test_a_file_without_the_function_is_answered_with_a_template(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text("print('training')\n")
    with pytest.raises(WorkloadError, match="There is no function 'build'") as caught:
        load_function(parse_reference(f"{file}:build"))
    assert "def build(*, batch_size=8):" in caught.value.advice
    assert "return step" in caught.value.advice


def test_a_script_that_trains_is_not_imported_but_sent_to_its_launch_line() -> None:
    write("script.py", "for step in range(3):\n    open('trained', 'w').close()\n")
    error = failure("script.py")
    assert error.message == "There is no function 'build' in script.py."
    assert "vramcast predict -- python script.py" in error.advice and "def build" in error.advice
    assert not Path("trained").exists()
    write("made.py", "for i in range(1):\n    globals()['bu' + 'ild'] = lambda: None\n")
    assert callable(load_function(parse_reference("made.py")))
