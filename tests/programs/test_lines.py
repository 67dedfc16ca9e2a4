"""Whole programs, started by their line, on the simulated GPU."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import vramcast
from vramcast.errors import WorkloadError
from vramcast.processes.progress import Progress
from vramcast.records.prediction import PhaseName, Prediction
from vramcast.reporting.prediction import _phases

SMALL = Path(__file__).parent / "small"
EPOCHS, LOOPS = SMALL / "epochs.py", SMALL / "loops.py"
pytestmark = pytest.mark.usefixtures("warm_simulations")


class Output:
    """What the program printed."""

    def __init__(self) -> None:
        self.text = ""

    def __call__(self, progress: Progress) -> None:
        self.text += progress.line + "\n" if progress.line else ""


def predict(*words: Any, **options: Any) -> tuple[Prediction, str]:
    output = Output()
    line = ["python", *map(str, words)]
    found = vramcast.predict(line, gpu="h200", progress=output, **options)
    return found, output.text


def steps_of(prediction: Prediction) -> int:
    return next(p.num_steps for p in prediction.phases if p.name is PhaseName.TRAIN)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_program_is_seen_to_train_evaluate_and_save_and_then_ends(folder: Path) -> None:
    found, printed = predict(EPOCHS, "--batch_size={batch_size}", batch_size=16)
    assert [phase.name for phase in found.phases] == ["build", "train", "evaluate", "save"]
    assert steps_of(found) == 3
    assert "started as __main__ ['--batch_size=16'] NVIDIA H200" in printed
    assert "loaded again 0 True" in printed and "loaded again 1" not in printed
    assert found.workload == f"python {EPOCHS} --batch_size={{batch_size}}"
    assert found.knobs == {"batch_size": 16}
    assert found.step_seconds is not None


def test_the_peak_may_be_in_the_evaluation(folder: Path) -> None:
    found, _ = predict(EPOCHS, "--width=2048")
    by_name = {phase.name: phase for phase in found.phases}
    train, evaluate = by_name[PhaseName.TRAIN], by_name[PhaseName.EVALUATE]
    small, _ = predict(EPOCHS, "--width=64")
    assert small.peak_phase == "evaluate"
    assert train.peak_allocated_bytes == found.peak_allocated_bytes > evaluate.peak_allocated_bytes
    assert found.peak_phase.startswith("step")


def test_weights_are_not_written_and_a_real_checkpoint_stays(folder: Path) -> None:
    found, _ = predict(EPOCHS, "--out=new.pt")
    assert not (folder / "new.pt").exists()
    assert "weights were not written: new.pt" in found.notes
    (folder / "real.pt").write_text("weights of days")
    predict(EPOCHS, "--out=real.pt")
    assert (folder / "real.pt").read_text() == "weights of days"
    assert os.listdir(folder) == ["real.pt"]


def test_a_folder_that_was_made_for_weights_is_not_left_as_an_empty_checkpoint(
    folder: Path,
) -> None:
    (folder / "train.py").write_text(
        "import pathlib, torch\n"
        "model = torch.nn.Linear(8, 8).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "pathlib.Path('logs').mkdir()\n"
        "for _ in range(3):\n"
        "    model(torch.randn(4, 8, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n"
        "made = pathlib.Path('out/checkpoint-3')\n"
        "made.mkdir(parents=True)\n"
        "(made / 'state.json').write_text('{}')\n"
        "torch.save(model.state_dict(), made / 'weights.pt')\n"
    )
    predict("train.py")
    assert sorted(path.name for path in folder.rglob("*")) == ["logs", "out", "train.py"]


@pytest.mark.parametrize("width", [8, 1024])
def test_weights_that_a_program_writes_as_bytes_are_removed_and_real_ones_stay(
    folder: Path, width: int
) -> None:
    (folder / "train.py").write_text(
        "import io, os, torch\n"
        "data = io.BytesIO()\n"
        f"torch.save(torch.ones({width}, {width}), data)\n"
        "open('data.pt', 'wb').write(data.getvalue())\n"
        f"model = torch.nn.Linear({width}, {width}).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(3):\n"
        f"    model(torch.randn(4, {width}, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n"
        "weights = io.BytesIO()\n"
        "torch.save(model.state_dict(), weights)\n"
        "for name in ('new.pt', 'old.pt', 'part.tmp'):\n"
        "    open(name, 'wb').write(weights.getvalue())\n"
        "    assert torch.load(name)['weight'].shape == model.weight.shape\n"
        "os.replace('part.tmp', 'older.pt')\n"
        "with open('opened.pt', 'wb') as file:\n"
        "    torch.save(model.state_dict(), file)\n"
        "open('other.zip', 'wb').write(b'PK of the program')\n"
        "open('log.txt', 'w').write('done')\n"
    )
    for name in ("old.pt", "older.pt", "opened.pt", "other.zip"):
        (folder / name).write_bytes(b"PK weights of days")
    found, _ = predict("train.py")
    kept = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "train.py"}
    assert len(kept.pop("data.pt")) > width * width * 4
    assert kept == {
        **dict.fromkeys(("old.pt", "older.pt", "opened.pt"), b"PK weights of days"),
        "other.zip": b"PK of the program",
        "log.txt": b"done",
    }
    assert any("new.pt" in note for note in found.notes)


def test_data_workers_and_pinned_memory_do_not_matter(folder: Path) -> None:
    plain, _ = predict(EPOCHS)
    with_workers, _ = predict(EPOCHS, "--workers=1")
    assert with_workers.peak_reserved_bytes == plain.peak_reserved_bytes


def test_allocator_settings_that_the_program_makes_itself_hold(folder: Path) -> None:
    inside, _ = predict(EPOCHS, "--settings=expandable_segments:True")
    before, _ = predict(EPOCHS, allocator="expandable_segments:True")
    assert inside.allocator_settings == "expandable_segments:True"
    assert inside.peak_reserved_bytes == before.peak_reserved_bytes
    overruled, _ = predict(EPOCHS, "--settings=expandable_segments:True", allocator="")
    assert overruled.peak_reserved_bytes == predict(EPOCHS)[0].peak_reserved_bytes


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("loop", 3),
        ("by-hand", 3),
        ("accumulation", 3),
        ("in-backward", 3),
        ("critic", 10),
        ("catches", 3),
        ("thread", 3),
        ("leaves", 2),
        ("closes", 3),
    ],
)
def test_a_program_of_any_shape_is_stopped_when_enough_was_seen(kind: str, steps: int) -> None:
    found, _ = predict(LOOPS, kind)
    assert steps_of(found) == steps


def test_as_many_steps_as_are_asked_for_and_the_whole_program() -> None:
    assert steps_of(predict(LOOPS, "loop", steps=5)[0]) == 5
    found, printed = predict(LOOPS, "whole", whole=True)
    assert steps_of(found) == 12 and "all steps done" in printed
    assert found.notes == []


def test_several_batch_sizes_are_each_run_for_so_many_steps(tmp_path: Path) -> None:
    program = tmp_path / "grows.py"
    program.write_text(
        "import sys, torch\n"
        "weight = torch.nn.Parameter(torch.zeros(int(sys.argv[1]), 1 << 18, device='cuda'))\n"
        "update, kept = torch.optim.SGD([weight]), []\n"
        "while True:\n"
        "    kept.append(torch.zeros(1 << 18, device='cuda'))\n"
        "    weight.sum().backward()\n"
        "    update.step()\n"
    )
    line = ["python", str(program), "{batch_size}"]
    few, many = (vramcast.predict_batch_sizes(line, [1, 2], steps=n) for n in (4, 6))
    for one, other in zip(few.points, many.points, strict=True):
        assert other.peak_allocated_bytes - one.peak_allocated_bytes == 2 * 2**20


def test_what_was_not_seen_is_said_and_what_was_seen_is_shown() -> None:
    found = predict(LOOPS, "loop")[0]
    assert "build" in (shown := str(_phases(found))) and "decides" in shown
    notes = found.notes
    assert any(note.startswith("evaluation was not seen") for note in notes)
    assert any(note.startswith("saving was not seen") for note in notes)


def test_a_penalty_of_every_few_steps_is_seen_beside_the_optimizer_state(folder: Path) -> None:
    (folder / "train.py").write_text(
        "import torch\n"
        "model = torch.nn.Linear(1024, 1024).cuda()\n"
        "optimizer = torch.optim.Adam(model.parameters())\n"
        "for i in range(100):\n"
        "    x = torch.randn(4096, 1024, device='cuda', requires_grad=i % 16 == 0)\n"
        "    loss = model(x).square().mean()\n"
        "    if i % 16 == 0:\n"
        "        slopes = torch.autograd.grad(loss, x, create_graph=True)\n"
        "        loss = loss + slopes[0].square().mean()\n"
        "        del slopes\n"
        "    optimizer.zero_grad()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
    )
    found, whole = predict("train.py")[0], predict("train.py", whole=True)[0]
    assert (steps_of(found), steps_of(whole)) == (18, 100)
    assert found.peak_phase.startswith("step 17")
    assert found.peak_reserved_bytes == whole.peak_reserved_bytes


def test_a_model_on_two_gpus_of_one_process_is_said_to_be_simulated_on_one(folder: Path) -> None:
    (folder / "train.py").write_text(
        "import sys, torch\n"
        "first, second = (torch.nn.Linear(8, 8).to(device) for device in sys.argv[1:])\n"
        "optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], 0.1)\n"
        "for _ in range(3):\n"
        "    x = first(torch.ones(4, 8, device=sys.argv[1])).to(sys.argv[2])\n"
        "    second(x).sum().backward()\n"
        "    optimizer.step()\n"
    )
    for second, is_said in (("cuda:1", True), ("cuda:0", False)):
        found, _ = predict("train.py", "cuda:0", second)
        assert any("other GPUs than cuda:0" in limit for limit in found.limits) == is_said


def test_a_program_may_ask_how_wide_the_terminal_is_in_which_nothing_is_typed(
    folder: Path,
) -> None:
    (folder / "train.py").write_text(
        "import os, sys\n"
        "print('terminal', os.popen('stty size').read().split(), os.get_terminal_size().columns)\n"
        "print('typed', repr(sys.stdin.read()))\n" + EPOCHS.read_text()
    )
    _, printed = predict("train.py")
    assert "terminal ['24', '80'] 80" in printed and "typed ''" in printed


def test_a_file_that_ends_too_early_is_not_what_would_be_typed(folder: Path) -> None:
    (folder / "train.py").write_text(
        "import io, pickle, torch\ntorch.ones(2).cuda()\npickle.load(io.BytesIO())"
    )
    with pytest.raises(WorkloadError, match="EOFError: Ran out of input") as error:
        predict("train.py")
    assert "asks for input" not in error.value.advice


@pytest.mark.parametrize(
    ("kind", "message", "advice"),
    [
        ("exit", "ended itself with exit code 3, before it trained", "What it printed"),
        ("message", "no data here", ""),
        ("raises", "ValueError: wrong value 7", "The program itself raised it, at loops.py:"),
        ("no-file", "No such file or directory: 'weights.pt'", "itself raised it, at loops.py:"),
        ("no-attribute", "no attribute 'pictures'", "itself raised it, at loops.py:"),
        ("no-name", "no attribute 'boolean'", "itself raised it, at "),
        ("wordless", "Wordless", "The program itself raised it, at loops.py:"),
        ("interrupts", "KeyboardInterrupt", "The program itself raised it, at loops.py:"),
        ("loads-wrong", "ValueError: no picture 3", "in a process that loads data"),
        ("input", "EOFError", "It asks for input"),
        ("killed", "ended by SIGKILL", "host's memory"),
        ("forward", "no training step was seen", "If it printed"),
        ("leaves-early", "ended by os._exit and no training step was seen", "If it printed"),
        ("leaves-badly", "ended itself by os._exit with exit code 7, before it trained", ""),
        ("forks-away", "no training step was seen", "It has forked itself"),
        ("talks", "no training step was seen", "started others with multiprocessing"),
        ("missing", "a_package_that_is_not_there", "Install what provides"),
        ("downloads", "words.zip is not here", "from http://data.example/words.zip, which"),
        ("fetches", "URLError", "from http://127.0.0.1:9/words.zip, which"),
        ("cpu", "never used the GPU", "--device cuda"),
    ],
)
def test_what_is_no_training_has_one_message(kind: str, message: str, advice: str) -> None:
    with pytest.raises(WorkloadError) as error:
        predict(LOOPS, kind)
    assert message in error.value.message and advice in error.value.advice


def test_of_a_crash_the_programs_own_lines_are_shown(folder: Path) -> None:
    output = Output()
    with pytest.raises(WorkloadError, match="ended by SIGSEGV"):
        vramcast.predict(["python", str(LOOPS), "crashes"], gpu="h200", progress=output)
    assert "loops.py" in output.text and "vramcast/programs/running.py" not in output.text


def test_a_program_that_is_no_python_is_named(folder: Path) -> None:
    Path("train.py").write_text("def f(:\n")
    with pytest.raises(WorkloadError, match=r"train\.py:1 is not valid Python"):
        predict("train.py")
    Path("binary.py").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(WorkloadError, match=r"binary\.py is not valid Python"):
        predict("binary.py")
    with pytest.raises(WorkloadError, match="There is no module 'no_such_module'"):
        predict("-m", "no_such_module")


def test_the_evaluation_of_a_compiled_model_is_seen_and_its_settings_hold(folder: Path) -> None:
    """Compiling once put the modules' own method back in place of the one that is watched; and a
    setting was one of a module that was then imported a second time."""
    Path("train.py").write_text(
        "import torch, torch._dynamo.config, torch._dynamo.utils as utils\n"
        "torch._dynamo.config.suppress_errors = True\n"
        "import torch._dynamo.convert_frame as compiles\n"
        "assert compiles.config.suppress_errors and compiles.counters is utils.counters\n"
        "model = torch.compile(torch.nn.Linear(8, 8).cuda(), backend='eager')\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "loader = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4)\n"
        "for batch in loader:\n"
        "    model(batch.cuda()).sum().backward()\n"
        "    optimizer.step()\n"
        "with torch.no_grad():\n"
        "    model.eval()(batch.cuda())\n"
    )
    found, _ = predict("train.py")
    assert [phase.name for phase in found.phases] == ["build", "train", "evaluate"]


def test_a_rank_that_compiles_nothing_does_not_import_what_compiles(folder: Path) -> None:
    Path("train.py").write_text(
        "import sys, torch, torch.distributed as dist\n"
        "dist.init_process_group('nccl')\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda())\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "torch._dynamo.config.suppress_errors = True\n"
        "while 'torch._dynamo.symbolic_convert' not in sys.modules:\n"
        "    model(torch.randn(4, 8, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n"
    )
    line = ["torchrun", "--nproc-per-node=2", "train.py"]
    assert vramcast.predict(line, gpu="h200", ranks=[0]).phases[-1].num_steps >= 3


def test_a_module_finds_its_neighbours(folder: Path) -> None:
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "sizes.py").write_text("WIDTH = 32\n")
    (package / "train.py").write_text(
        "import torch\nfrom .sizes import WIDTH\n"
        "model = torch.nn.Linear(WIDTH, WIDTH).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "while True:\n"
        "    model(torch.randn(4, WIDTH, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n"
    )
    assert steps_of(predict("-m", "package.train")[0]) == 3


def test_the_largest_batch_of_a_program(folder: Path) -> None:
    found = vramcast.max_batch(
        ["python", str(EPOCHS), "--batch_size={batch_size}"], memory="160MiB", maximum=512
    )
    assert found.largest_batch is not None
    with pytest.raises(WorkloadError, match="This command changes batch_size"):
        vramcast.max_batch(["python", str(EPOCHS), "--batch_size=8"], memory="160MiB")


def test_a_prediction_of_a_program_is_a_record(folder: Path) -> None:
    found, _ = predict(EPOCHS)
    again = Prediction.from_json(found.to_json())
    assert again.phases == found.phases
    named = json.loads(found.to_json())["phases"][1]
    assert set(named) == {"name", "num_steps", "peak_allocated_bytes", "peak_reserved_bytes"}


def test_plan_needs_the_length_of_a_line_only_where_the_line_has_one(folder: Path) -> None:
    Path("train.py").write_text(
        "import sys, torch\n"
        "model = torch.nn.Linear(512, 512).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "while True:\n"
        "    model(torch.randn(int(sys.argv[1]), 512, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n"
    )
    line = ["python", "train.py", "{batch_size}"]
    found = vramcast.plan(line, gpu="h200", memory="128MiB")
    assert found.gpus[0].stages[0].batch_size
    with pytest.raises(WorkloadError, match=r"\{seq_len\}, and no value for it was given"):
        vramcast.plan([*line, "{seq_len}"], gpu="h200", memory="128MiB")


TRAINING = """
import torch
from torch import nn

def build(batch_size: int = 8):
    layers = [nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(50)]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        loss = model(torch.randn(batch_size, 64, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step

if __name__ == "__main__":
    step = build()
    for _ in range(9):
        step()
"""


def test_the_host_takes_as_long_for_a_line_as_for_its_function(folder: Path) -> None:
    (folder / "training.py").write_text(TRAINING)
    line, _ = predict("training.py")
    function = vramcast.predict("training.py:build", gpu="h200")
    assert line.step is not None and function.step is not None
    # the function's own call is one of hundreds
    assert line.step.host_seconds == pytest.approx(function.step.host_seconds, rel=0.01)
