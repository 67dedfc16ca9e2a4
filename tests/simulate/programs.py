"""What programs do with a GPU, done on the simulated one: run by test_programs.py.

    python tests/simulate/programs.py

Prints the name of every function below and, where it failed, why. Each is recorded on its own.
"""

from __future__ import annotations

import copy
import io
import json
import os
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from vramcast.hardware.gpus import find_gpu
from vramcast.simulate import device
from vramcast.simulate.session import Session

SESSION = Session(device.Device(), find_gpu("h200"))

import torch  # noqa: E402
from torch import nn  # noqa: E402

KIB = 1 << 10


def _taken_by(run: Callable[[], object]) -> list[int]:
    """Bytes that it allocates and, negative, frees; what it returns is kept for the while."""
    before = len(SESSION.device.events())
    kept = run()
    events, allocations = SESSION.device.events()[before:], SESSION.device.allocations()
    del kept
    return [allocations[abs(e) - 1].num_bytes * (1 if e > 0 else -1) for e in events]


def _live_bytes() -> int:
    return SESSION.device.allocated_bytes()


# storages


def a_deep_copy_takes_the_whole_storage_and_views_stay_views() -> None:
    x = torch.zeros(KIB, device="cuda")
    scalar = [4, -4]  # torch makes a tensor of no dimensions, and gives it the copied storage
    assert _taken_by(lambda: copy.deepcopy(x)) == [4 * KIB, *scalar]
    whole, part = copy.deepcopy((x, x[8:16]))
    assert part.data_ptr() == whole.data_ptr() + 8 * 4


def tied_weights_stay_tied_in_a_deep_copy() -> None:
    embedding, head = nn.Embedding(64, 16), nn.Linear(16, 64, bias=False)
    head.weight = embedding.weight
    model = nn.ModuleList([embedding, head, nn.BatchNorm1d(16)]).cuda()
    before = _live_bytes()
    copied = copy.deepcopy(model)
    assert copied[0].weight is copied[1].weight and copied[2].running_mean.is_cuda
    assert _live_bytes() == 2 * before


def a_checkpoint_can_be_loaded_where_its_reader_wants_it() -> None:
    model = nn.Linear(256, 256).cuda()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "step": torch.tensor(3, device="cuda")}, file)
    cuda = torch.device("cuda", 0)
    for where, expected in (
        ("cuda", cuda),
        (cuda, cuda),
        ("cpu", torch.device("cpu")),
        ({"cuda:0": "cpu"}, torch.device("cpu")),
        (lambda storage, _: storage.cuda(), cuda),
        (None, cuda),
    ):
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert loaded["model"]["weight"].device == expected
        assert loaded["step"].item() == 3
        model.load_state_dict(loaded["model"])


def a_checkpoint_takes_no_place_on_the_disk() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.pt"
        torch.save(nn.Linear(1 << 10, 1 << 10).cuda(), file)
        assert file.stat().st_size > 4 << 20 and file.stat().st_blocks * 512 < 1 << 20
        assert torch.load(file, weights_only=False).weight.is_cuda


def storages_can_be_made_filled_copied_and_resized() -> None:
    storage = torch.UntypedStorage(KIB, device="cuda")
    copied = storage.clone().fill_(3)
    assert copied.device == torch.device("cuda", 0) and copied.cpu()[5] == 3
    # the new memory is taken before the old is given back
    assert _taken_by(lambda: copied.resize_(2 * KIB)) == [2 * KIB, -KIB]
    assert copied.nbytes() == 2 * KIB and copied[5] == 3
    assert _taken_by(lambda: copied.resize_(0)) == [-2 * KIB]
    x = torch.empty(0, device="cuda").set_(storage, 4, (8, 2), (2, 1))
    assert x.data_ptr() == storage.data_ptr() + 4 * 4 and x.shape == (8, 2)


def safetensors_are_loaded_onto_the_gpu() -> None:
    from safetensors.torch import load_file, save_file

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.safetensors")
        save_file(nn.Linear(16, 16).cuda().state_dict(), file)
        assert _taken_by(lambda: load_file(file, device="cuda")) == [64, 4 * 256]


# inference mode


def inference_mode_makes_inference_tensors_and_ordinary_views_of_ordinary_tensors() -> None:
    model = nn.Linear(16, 16).cuda()
    with torch.inference_mode():
        y = model(torch.zeros(4, 16, device="cuda"))
        assert y.is_inference() and y.view(-1)[3:7].is_inference()
        view = model.weight.view(-1)
        assert not view.is_inference()
        view.add_(1)
        assert model.weight._version == view._version > 0
    assert not y.clone().is_inference()
    try:
        y.add_(1)
    except RuntimeError as error:
        assert "Inplace update to inference tensor" in str(error)
    else:
        raise AssertionError("an inference tensor was changed outside inference mode")


def evaluation_in_inference_mode_between_training_steps_leaves_nothing() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU()).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    after = []
    for _ in range(3):
        model(torch.zeros(4, 16, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.inference_mode(), torch.no_grad():
            model(torch.zeros(64, 16, device="cuda")).mean().item()
            with torch.inference_mode(False), torch.enable_grad():
                model(torch.zeros(4, 16, device="cuda")).sum().backward()
                optimizer.zero_grad()
        after.append(_live_bytes())
    assert after[1] == after[2]


def main() -> None:
    programs = [f for f in globals().values() if getattr(f, "__module__", "") == "__main__"]
    for program in programs:
        if program is main or program.__name__.startswith("_"):
            continue
        error = ""
        try:
            with SESSION.recording():
                program()
        except Exception:
            error = traceback.format_exc()
        print(json.dumps([program.__name__, error]), flush=True)


if __name__ == "__main__":
    main()
