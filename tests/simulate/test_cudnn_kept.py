"""What cuDNN answered is kept on disk, for each library and each GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramcast.hardware.gpus import Gpu, find_gpu
from vramcast.records.answers import keep_all
from vramcast.simulate.cudnn import kept
from vramcast.simulate.cudnn.convolution import Convolution
from vramcast.simulate.cudnn.files import Installed

SIZES = (2, 4, 8, 8), (4, 4, 3, 3), (2, 4, 8, 8), (1, 1), (1, 1), (1, 1)
CONVOLUTION = Convolution("bf16", False, False, *SIZES, groups=1)


class Asked:
    """cuDNN, as often as it is opened anew."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "lib").mkdir()
        self.library = folder / "lib" / "libcudnn.so.9"
        self.library.write_text("9.19")
        self.questions: list[tuple[Any, ...]] = []
        self.version: int | None = 91900
        found = Installed(self.library, "libcublasLt.so.13", None)
        monkeypatch.setenv("VRAMCAST_CACHE", str(folder / "cache"))
        monkeypatch.setattr(kept, "installed", lambda: found)
        monkeypatch.setattr(kept, "version", lambda: self.version)

    def again(self, gpu: Gpu, *, deterministic: bool = False) -> Any:
        """In a new process."""
        kept.answers_of.cache_clear()

        def sizes(*question: Any) -> list[int]:
            self.questions.append(question)
            return [512, len(self.questions)]

        answer = kept.kept(sizes)(0, CONVOLUTION, gpu, deterministic)
        keep_all()
        return answer


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


@pytest.mark.parametrize("wrong", [[True], [-1], [1.5], "512", 512, {}])
def test_what_is_no_answer_is_asked_again(asked: Asked, wrong: Any) -> None:
    asked.again(H200)
    (file,) = (asked.library.parents[1] / "cache" / kept.FOLDER).iterdir()
    file.write_text(json.dumps(dict.fromkeys(json.loads(file.read_text()), wrong)))
    assert asked.again(H200) == [512, 2]


def test_a_library_that_cannot_be_opened_is_not_asked(asked: Asked) -> None:
    asked.again(H200)
    asked.version = None
    assert asked.again(H200) == [512, 1]  # it was asked before
    assert asked.again(H100) is None
    asked.version = 91900
    assert asked.again(H100) == [512, 2]
