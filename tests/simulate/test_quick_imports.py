"""Dataclasses of torch are made from code that was kept, and are those that Python would make. What
is asked only to compare is not imported."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from vramcast.simulate import quick_imports as module
from vramcast.simulate.patches import dynamo_local_map
from vramcast.simulate.patching import Patcher
from vramcast.simulate.quick_imports import KeptCode, quick_imports

MADE_FOR_A_TEST = "torch.made_for_a_test"


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it to act like a new process."""
    monkeypatch.setenv("VRAMCAST_CACHE", str(tmp_path / "cache"))
    begin = module._opened.cache_clear
    begin()
    return begin


def kept_file() -> Path:
    path = KeptCode.in_use()._path
    assert path.is_relative_to(module.cache_folder())
    return path


def made(package: str = MADE_FOR_A_TEST) -> type[Any]:
    """A dataclass with one field, made by a module of this package."""
    with quick_imports():
        names: dict[str, Any] = {"__name__": package, "dataclasses": dataclasses}
        sys.modules[package] = type(sys)(package)
        vars(sys.modules[package]).update(names)
        exec("@dataclasses.dataclass\nclass Size:\n    bytes: int = 3", names)
        del sys.modules[package]
    size: type[Any] = names["Size"]
    return size


def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are compiled from now on."""
    texts: list[str] = []

    def noted(text: str, *options: Any, **more: Any) -> Any:
        texts.append(text)
        return compile(text, *options, **more)

    monkeypatch.setattr(module, "compile", noted, raising=False)
    return texts


def test_a_dataclass_from_kept_code_is_the_usual_one(begin: Callable[[], None]) -> None:
    made()
    begin()
    size = made()
    assert size() == size(3) != size(4)
    assert repr(size(4)) == "Size(bytes=4)"
    assert size.__init__.__code__.co_filename == "<string>"


def test_its_methods_are_compiled_once_for_all_processes(
    begin: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = compiled(monkeypatch)
    made()
    assert texts
    texts.clear()
    begin()
    made()
    assert not texts


def test_two_classes_never_share_the_code_of_a_method(begin: Callable[[], None]) -> None:
    assert made().__init__.__code__ is not made().__init__.__code__


def test_classes_of_other_packages_are_not_kept(begin: Callable[[], None]) -> None:
    made("somebody.elses")
    assert not kept_file().exists()


@pytest.mark.parametrize("damage", [b"", b"x", b"\0" * 100, "half"])
def test_a_damaged_file_is_not_read_and_is_replaced(
    damage: bytes | str, begin: Callable[[], None]
) -> None:
    made()
    whole = kept_file().read_bytes()
    kept_file().write_bytes(damage if isinstance(damage, bytes) else whole[: len(whole) // 2])
    begin()
    assert made()(4).bytes == 4
    assert kept_file().read_bytes() == whole


def test_a_file_that_others_may_write_is_not_read(
    begin: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    made()
    kept_file().chmod(0o666)
    begin()
    texts = compiled(monkeypatch)
    assert made()(4).bytes == 4
    assert texts


def test_too_many_texts_begin_a_new_file(
    begin: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    made()
    first = KeptCode(kept_file())._read()
    monkeypatch.setattr(module, "MOST_TEXTS", 1)
    kept = KeptCode(kept_file())
    kept.exec("x = 1", {"__name__": MADE_FOR_A_TEST}, {})
    kept.keep()
    assert first.keys() and KeptCode(kept_file())._read().keys() == {"x = 1"}


def test_a_frames_module_is_the_one_that_python_finds() -> None:
    frame = inspect.currentframe()
    usual = inspect.getmodule(frame)
    with quick_imports():
        assert inspect.getmodule(frame) is usual is sys.modules[__name__]
        assert inspect.getmodule(quick_imports) is module


def test_everything_is_as_before_after_the_block(begin: Callable[[], None]) -> None:
    getmodule = inspect.getmodule
    with pytest.raises(ValueError, match="an import failed"), quick_imports():
        assert not gc.isenabled() and inspect.getmodule is not getmodule
        raise ValueError("an import failed")
    assert gc.isenabled() and inspect.getmodule is getmodule
    assert "exec" not in vars(dataclasses)


def test_blocks_within_each_other_or_in_other_threads_end_together(
    begin: Callable[[], None],
) -> None:
    """Two threads that import begin and end in any order."""
    getmodule, is_begun, may_end = inspect.getmodule, threading.Event(), threading.Event()

    def other() -> None:
        with quick_imports():
            is_begun.set()
            may_end.wait(10)

    thread = threading.Thread(target=other)
    with quick_imports(), quick_imports():
        thread.start()
        assert is_begun.wait(10)
    assert not gc.isenabled() and inspect.getmodule is not getmodule
    assert "exec" in vars(dataclasses)
    may_end.set()
    thread.join()
    assert gc.isenabled() and inspect.getmodule is getmodule
    assert "exec" not in vars(dataclasses)


def test_a_program_without_garbage_collection_stays_so(begin: Callable[[], None]) -> None:
    gc.disable()
    try:
        with quick_imports():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_dynamo_asks_whether_a_function_is_local_map_once_that_was_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Owner:
        @classmethod
        def should_wrap_in_hop(cls, value: Any) -> bool:
            return bool(value == "local_map")

    library = SimpleNamespace(LocalMapWrappedHigherOrderVariable=Owner)
    monkeypatch.setitem(sys.modules, dynamo_local_map.LIBRARY, library)  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, dynamo_local_map.WRAPPED_BY, raising=False)
    patcher = Patcher(MagicMock())
    dynamo_local_map.apply(patcher)
    assert not Owner.should_wrap_in_hop("local_map")
    monkeypatch.setitem(sys.modules, dynamo_local_map.WRAPPED_BY, library)  # type: ignore[arg-type]
    assert Owner.should_wrap_in_hop("local_map") and not Owner.should_wrap_in_hop("another")
    patcher.undo()
    monkeypatch.delitem(sys.modules, dynamo_local_map.WRAPPED_BY)
    assert Owner.should_wrap_in_hop("local_map")
