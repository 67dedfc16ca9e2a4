"""A program has the environment of its line and of its user."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast

pytestmark = pytest.mark.usefixtures("warm_simulations")

TRAIN = """
import torch
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model(torch.ones(4, 8, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("start", [["train.py"], ["-m", "train"]])
def test_modules_are_found_in_the_folders_that_the_line_gives(
    folder: Path, start: list[str]
) -> None:
    (folder / "parts").mkdir()
    (folder / "parts" / "my_part.py").write_text("NUMBER = 1\n")
    (folder / "train.py").write_text("import my_part\n" + TRAIN)
    found = vramcast.predict(["PYTHONPATH=parts", "python", *start], gpu="h200")
    assert found.num_parameters == 72


@pytest.mark.parametrize("shown", [None, "2,3"])
def test_which_gpus_are_visible_is_as_the_user_has_set_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, shown: str | None
) -> None:
    if shown is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    seen = f"import os\nassert os.environ.get('CUDA_VISIBLE_DEVICES') == {shown!r}\n"
    (folder / "train.py").write_text(seen + TRAIN)
    assert vramcast.predict(["python", "train.py"], gpu="h200").num_parameters == 72
    (folder / "train.py").write_text(
        "import os\nassert os.environ['CUDA_VISIBLE_DEVICES'] == '1'\n" + TRAIN
    )
    line = ["CUDA_VISIBLE_DEVICES=1", "python", "train.py"]
    assert vramcast.predict(line, gpu="h200").num_parameters == 72
