from __future__ import annotations

import pickle
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from vramcast.errors import WorkloadError
from vramcast.workload import parse_reference, register
from vramcast.workload import reference as references


@pytest.fixture(autouse=True)
def no_registrations(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(references, "_registered", {})
    monkeypatch.setattr(metadata, "entry_points", lambda group: [])
    monkeypatch.setattr(references, "_from_zoo", dict)
    references._from_entry_points.cache_clear()
    yield
    references._from_entry_points.cache_clear()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("def build(): ...\n")
    return tmp_path


def failure(text: str) -> WorkloadError:
    with pytest.raises(WorkloadError) as caught:
        parse_reference(text)
    return caught.value


def test_a_file_and_a_function_are_told_apart_at_the_colon(here: Path) -> None:
    reference = parse_reference("train.py:make")
    assert (reference.path, reference.function) == (here / "train.py", "make")


def test_a_file_alone_means_its_function_build(here: Path) -> None:
    assert parse_reference("./train.py").function == "build"


def test_a_path_may_start_at_home(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(here))
    assert parse_reference("~/train.py").path == here / "train.py"


def test_a_linked_file_is_taken_where_it_really_is(here: Path) -> None:
    (here / "links").mkdir()
    (here / "links" / "link.py").symlink_to(here / "train.py")
    assert parse_reference("links/link.py").path == here / "train.py"


def test_a_module_and_its_function_need_no_file() -> None:
    reference = parse_reference("package.module:make")
    assert (reference.module, reference.function) == ("package.module", "make")


def test_a_package_is_a_module_even_if_a_folder_has_its_name(here: Path) -> None:
    (here / "package").mkdir()
    assert parse_reference("package:make").module == "package"


def test_a_registered_name_says_where_its_function_is() -> None:
    register("tiny", "zoo.tiny:make")
    reference = parse_reference("tiny")
    assert reference.portable == "zoo.tiny:make"


def test_a_registered_name_may_have_a_slash_and_wins_over_a_file(here: Path) -> None:
    register("zoo/tiny", "zoo.tiny:make")
    register("plain", "zoo.plain:make")
    (here / "plain").write_text("")
    assert parse_reference("zoo/tiny").module == "zoo.tiny"
    assert parse_reference("plain").module == "zoo.plain"


def test_a_reference_can_be_sent_to_another_process(here: Path) -> None:
    reference = parse_reference("train.py")
    assert pickle.loads(pickle.dumps(reference)) == reference


@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_name_is_refused(text: str) -> None:
    assert "empty" in failure(text).message


def test_a_missing_file_is_shown_with_the_files_that_are_there(here: Path) -> None:
    error = failure("trian.py:build")
    assert "'trian.py'" in error.message and str(here / "trian.py") in error.message
    assert "Did you mean 'train.py'?" in error.advice and "Python files" in error.advice


def test_a_missing_file_among_many_gets_no_list(here: Path) -> None:
    for number in range(30):
        (here / f"other_{number}.py").write_text("")
    assert failure("zzz.py").advice == "Check the path."


def test_a_missing_folder_is_said(here: Path) -> None:
    assert "'nowhere' does not exist" in failure("nowhere/train.py").advice


def test_a_folder_without_python_files_is_said(here: Path) -> None:
    (here / "empty").mkdir()
    assert "no .py files" in failure("empty/train.py").advice


@pytest.mark.parametrize("text", ["sub", "sub/", "./sub", "./sub:build"])
def test_a_folder_is_no_workload(here: Path, text: str) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "inner.py").write_text("")
    error = failure(text)
    assert "is a folder" in error.message and "inner.py" in error.advice


@pytest.mark.parametrize("text", ["notes.txt", "notes.txt:build", "./notes.txt"])
def test_a_file_that_is_not_python_is_refused(here: Path, text: str) -> None:
    (here / "notes.txt").write_text("")
    assert "does not end in .py" in failure(text).message


def test_a_colon_without_a_function_is_refused(here: Path) -> None:
    error = failure("train.py:")
    assert "names no function" in error.message and "train.py:build" in error.advice


@pytest.mark.parametrize("text", ["train.py:12", "package:my-function"])
def test_a_function_that_is_no_name_is_refused(here: Path, text: str) -> None:
    assert "not a function's name" in failure(text).message


@pytest.mark.parametrize("text", [".sibling:build", "a..b:build", "a-b:build", ":build"])
def test_a_module_that_is_no_name_is_refused(text: str) -> None:
    assert "nor a module's name" in failure(text).message


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B", "Llama-3.1-8B"])
def test_the_name_of_a_known_model_without_hf_is_recognised(name: str) -> None:
    assert "Did you mean hf:meta-llama/Llama-3.1-8B" in failure(name).advice


def test_an_unknown_name_lists_the_known_ones_and_a_close_one() -> None:
    register("gpt-small", "zoo.gpt:small")
    register("mamba", "zoo.mamba:build")
    error = failure("gpt-smal")
    assert "'gpt-smal'" in error.message
    assert "Did you mean 'gpt-small'?" in error.advice and "gpt-small, mamba" in error.advice


def test_an_unknown_name_that_lacks_only_its_ending_is_helped(here: Path) -> None:
    assert "train.py:build" in failure("train").advice


def test_a_name_too_long_for_a_file_is_just_missing() -> None:
    assert "no file" in failure("x" * 5000 + ".py").message


def test_registering_the_same_twice_is_harmless_but_something_else_is_refused() -> None:
    register("tiny", "zoo:tiny")
    register("tiny", "zoo:tiny")
    with pytest.raises(WorkloadError, match="is taken by zoo:tiny"):
        register("tiny", "zoo:other")


@pytest.mark.parametrize(
    ("name", "target"), [("", "a:b"), ("a:b", "a:b"), ("x", "a"), ("x", "a.py:"), ("x", "a b:c")]
)
def test_a_registration_is_checked_at_once(name: str, target: str) -> None:
    with pytest.raises(WorkloadError):
        register(name, target)


def test_installed_packages_add_names_by_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        metadata.EntryPoint("theirs", "their.module:make [extra]", references.ENTRY_POINT_GROUP)
    ]
    entries += [metadata.EntryPoint("broken", "not a module", references.ENTRY_POINT_GROUP)]
    monkeypatch.setattr(metadata, "entry_points", lambda group: entries)
    register("ours", "our.module:make")
    assert list(references.registered_workloads()) == ["ours", "theirs"]
    reference = parse_reference("theirs")
    assert (reference.module, reference.function) == ("their.module", "make")


def test_entry_points_are_read_only_when_a_name_needs_them(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda group: pytest.fail("read without need"))
    register("ours", "our.module:make")
    for text in ("train.py:build", "package.module:build", "ours"):
        parse_reference(text)
