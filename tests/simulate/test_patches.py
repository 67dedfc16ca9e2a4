"""Libraries are patched while a GPU is simulated, and are as before afterwards."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from vramcast.simulate import patches
from vramcast.simulate.patching import Patcher

GPU: Any = None  # these patches do not ask it


@pytest.mark.parametrize("patch", patches.PATCHES, ids=lambda patch: patch.__name__)
def test_every_patch_says_why_it_is_there_and_for_which_versions(patch: ModuleType) -> None:
    assert patch.__doc__ is not None
    assert "Why:" in patch.__doc__ and "Versions:" in patch.__doc__
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
