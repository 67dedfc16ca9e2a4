"""What cuDNN answered is kept on disk, and never taken from a file that is not ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramcast.hardware.gpus import Gpu, find_gpu
from vramcast.simulate.cudnn import kept
from vramcast.simulate.cudnn.convolution import Convolution
from vramcast.simulate.cudnn.files import Installed

SIZES = (2, 4, 8, 8), (4, 4, 3, 3), (2, 4, 8, 8), (1, 1), (1, 1), (1, 1)
CONVOLUTION = Convolution("bf16", False, False, *SIZES, groups=1)
DAMAGED = ("", "{", "[]", "[" * 100_000, '{"a": ["1"]}', '{"a": [true]}', '{"a": -1}', "\0")


class Asked:
    """cuDNN, as often as it is opened anew."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "lib").mkdir()
        self.library = folder / "lib" / "libcudnn.so.9"
        self.library.write_text("9.19")
        self.questions: list[tuple[Any, ...]] = []
        found = Installed(self.library, "libcublasLt.so.13", None)
        monkeypatch.setenv("VRAMCAST_CACHE", str(folder / "cache"))
        monkeypatch.setattr(kept, "installed", lambda: found)
        monkeypatch.setattr(kept, "version", lambda: 91900)
        monkeypatch.setattr(kept, "_files", {})

    def again(self, gpu: Gpu, *, deterministic: bool = False) -> Any:
        """In a new process."""
        kept._files.clear()

        def sizes(*question: Any) -> list[int]:
            self.questions.append(question)
            return [512, len(self.questions)]

        answer = kept.kept(sizes)(0, CONVOLUTION, gpu, deterministic)
        kept.keep()
        return answer

    def file(self) -> Path:
        (path,) = (self.library.parents[1] / "cache" / kept.FOLDER).iterdir()
        return path


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(tmp_path, monkeypatch)


H200, H100 = find_gpu("h200"), find_gpu("h100")


def test_the_same_is_asked_once(asked: Asked) -> None:
    assert asked.again(H200) == asked.again(H200) == [512, 1]
    assert asked.again(H100) == [512, 2]
    assert asked.again(H200, deterministic=True) == [512, 3]
    assert asked.again(H200) == [512, 1]


def test_another_library_is_asked_anew(asked: Asked) -> None:
    asked.again(H200)
    asked.library.write_text("9.20.0")
    assert asked.again(H200) == [512, 2]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_not_used_and_replaced(asked: Asked, content: str) -> None:
    asked.again(H200)
    asked.file().write_text(content)
    assert asked.again(H200) == [512, 2]
    assert list(json.loads(asked.file().read_text()).values()) == [[512, 2]]


def test_a_file_that_others_can_write_is_not_used(asked: Asked) -> None:
    asked.again(H200)
    asked.file().chmod(0o666)
    assert asked.again(H200) == [512, 2]


def test_where_nothing_can_be_kept_the_answer_is_the_same(asked: Asked) -> None:
    (asked.library.parents[1] / "cache").write_text("a file")
    assert asked.again(H200) == [512, 1]


def test_a_file_does_not_grow_for_ever(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_ANSWERS", 1)
    asked.again(H200)
    asked.again(H200, deterministic=True)
    assert len(json.loads(asked.file().read_text())) == 1


def test_what_two_processes_asked_at_once_is_kept_of_both(asked: Asked) -> None:
    kept.kept(lambda *_: [0])(0, CONVOLUTION, H200, False)
    first = dict(kept._files)
    asked.again(H200, deterministic=True)
    kept._files.update(first)
    kept.keep()
    assert len(json.loads(asked.file().read_text())) == 2
