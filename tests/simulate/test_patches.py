"""Libraries are patched while a GPU is simulated, and are as before afterwards."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from vramcast.simulate import patches
from vramcast.simulate.patches import inductor_template_texts, triton_sources
from vramcast.simulate.patching import Patcher

GPU: Any = None  # these patches do not ask it


@pytest.mark.parametrize("patch", patches.PATCHES, ids=lambda patch: patch.__name__)
def test_every_patch_says_why_it_is_there_and_for_which_versions(patch: ModuleType) -> None:
    assert patch.__doc__ is not None
    is_of_torch = patch.LIBRARY.partition(".")[0] == "torch"  # all versions of it, if none are said
    assert "Why:" in patch.__doc__ and ("Versions:" in patch.__doc__ or is_of_torch)
    assert callable(patch.apply) and patch.LIBRARY


def test_what_was_replaced_is_put_back() -> None:
    library = SimpleNamespace(version=1)
    patcher = Patcher(GPU)
    patcher.put(library, "version", 2)
    patcher.put(library, "of_a_newer_version", 2)
    patcher.put(library, "added", 2, add=True)
    assert vars(library) == {"version": 2, "added": 2}
    patcher.undo()
    assert vars(library) == {"version": 1}


def test_a_static_method_is_put_back_as_one() -> None:
    class Library:
        @staticmethod
        def double(number: int) -> int:
            return 2 * number

    patcher = Patcher(GPU)
    patcher.put(Library, "double", staticmethod(lambda number: 3 * number))
    assert Library().double(2) == 6
    patcher.undo()
    assert Library().double(2) == 4


def test_the_source_of_a_function_is_found_by_the_lines_of_its_code() -> None:
    """Of all functions of a file that has decorators, classes and comments after the last line."""
    given = triton_sources._Inspect("inspect")
    functions = [f for f in vars(functools).values() if isinstance(f, FunctionType)]
    functions += [
        vars(functools.partialmethod)[name] for name in ("__init__", "_make_unbound_method")
    ]
    assert len(functions) > 10
    for function in map(inspect.unwrap, functions):
        if function.__code__.co_filename == functools.__file__:
            assert given.getsourcelines(function) == inspect.getsourcelines(function)
    assert given.signature is inspect.signature
    with pytest.raises(OSError):
        given.getsourcelines(eval("lambda: 1"))


def test_a_template_is_read_when_it_is_used() -> None:
    read: list[str] = []

    def reader(source: str) -> Any:
        read.append(source)
        return SimpleNamespace(render=lambda **values: source.format(**values))

    template = inductor_template_texts._Later(reader, "a {name}")
    assert template and not read
    assert [template.render(name=name) for name in "bc"] == ["a b", "a c"]
    assert read == ["a {name}"]


def test_a_library_that_is_imported_later_is_patched_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a_library.py").write_text("version = 1")
    monkeypatch.syspath_prepend(tmp_path)

    def apply(patcher: Patcher) -> None:
        patcher.put(sys.modules["a_library"], "version", 2)

    patch = SimpleNamespace(LIBRARY="a_library", apply=apply)
    monkeypatch.setattr(patches, "PATCHES", [patch])
    with patches.installed(GPU):
        library = importlib.import_module("a_library")
        assert library.version == 2
    assert library.version == 1
    assert not any(type(finder).__name__ == "_AfterImport" for finder in sys.meta_path)
    monkeypatch.delitem(sys.modules, "a_library")
