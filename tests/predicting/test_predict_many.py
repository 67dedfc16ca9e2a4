"""One workload on several GPUs, and with several values of its knobs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import in_process
import pytest

import vramcast
from vramcast.errors import UsageError, WorkloadError
from vramcast.predicting import predict_many as module
from vramcast.processes.progress import Progress
from vramcast.records.prediction import PredictionTable
from vramcast.simulate import many, runner

pytestmark = pytest.mark.usefixtures("warm_simulations")
WORKLOAD = """
import torch

def build(*, batch_size: int = 64, width: int = 1024, ask: str = ""):
    if width == 13:
        raise ValueError("an unlucky width")
    if ask:
        width *= 1 + (torch.cuda.get_device_properties(0).total_memory > 2**36)
    layer = torch.nn.Linear(width, width, device="cuda")
    data = torch.zeros(batch_size, width, device="cuda")
    return lambda: layer(data).sum().backward()
"""


@pytest.fixture
def workload(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text(WORKLOAD)
    return f"{tmp_path / 'train.py'}:build"


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Every request that is really simulated."""
    asked: list[dict[str, object]] = []

    def simulate(request: dict[str, object], *rest: object) -> dict[str, object]:
        asked.append(request)
        return runner.simulate(request, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(many, "simulate", simulate)
    return asked


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return in_process.vramcast("predict", *arguments)


def test_every_gpu_has_the_prediction_it_has_alone(
    workload: str, simulated: list[dict[str, object]]
) -> None:
    gpus = ["a100-40gb", "rtx-4090", "a100-80gb"]
    table = vramcast.predict_many(workload, gpu=gpus)
    assert [case.gpu for case in table.cases] == gpus
    # Steps on both A100 are the same: only memory and speed differ.
    assert len(simulated) == 2
    for case in table.cases:
        alone = vramcast.predict(workload, gpu=case.gpu)
        for name in (
            "capacity_bytes",
            "peak_allocated_bytes",
            "peak_reserved_bytes",
            "process_bytes",
            "num_parameters",
            "step_seconds",
            "step_seconds_low",
            "step_seconds_high",
            "limits",
        ):
            assert getattr(case, name) == getattr(alone, name), (case.gpu, name)


def test_a_program_that_asks_which_gpu_it_is_on_is_simulated_for_each(
    workload: str, simulated: list[dict[str, object]]
) -> None:
    small, large = vramcast.predict_many(workload, gpu="a100-40gb,a100-80gb", ask="yes").cases
    assert len(simulated) == 2
    assert small.num_parameters != large.num_parameters
    alone = vramcast.predict(workload, gpu="a100-80gb", ask="yes")
    assert large.peak_reserved_bytes == alone.peak_reserved_bytes


def test_values_that_vary_make_a_row_for_every_combination(workload: str) -> None:
    vary = ["--vary", "batch_size=64,4096", "--vary", "width=1024,512", "--gpu", "h200"]
    done = run(workload, *vary, "--json")
    assert done.returncode == 0, done.stderr
    table = PredictionTable.from_json(done.stdout)
    chosen = [(case.knobs["batch_size"], case.knobs["width"]) for case in table.cases]
    assert chosen == [(64, 1024), (64, 512), (4096, 1024), (4096, 512)]
    first, *others = table.cases
    assert (first.more_bytes, first.more_percent) == (0, 0.0)
    assert first.peak_reserved_bytes and first.step_seconds
    for case in others:
        assert case.peak_reserved_bytes and case.step_seconds
        assert case.more_bytes == case.peak_reserved_bytes - first.peak_reserved_bytes
        assert case.more_percent == pytest.approx(100 * case.more_bytes / first.peak_reserved_bytes)
        assert case.more_seconds == pytest.approx(case.step_seconds - first.step_seconds)
    by_memory = vramcast.predict_many(
        workload, gpu="h200", vary={"batch_size": [4096, 64]}, sort="memory"
    )
    assert [case.knobs["batch_size"] for case in by_memory.cases] == [64, 4096]
    shown = run(workload, *vary).stdout
    assert "4 of 4 fit" in shown and "batch_size" in shown


def test_batch_sizes_on_several_gpus_are_a_table_too(workload: str) -> None:
    table = vramcast.predict_many(workload, gpu="h200,t4", batch_sizes="8-16:8")
    assert [(case.knobs["batch_size"], case.gpu) for case in table.cases] == [
        *((8, "h200"), (8, "t4")),
        *((16, "h200"), (16, "t4")),
    ]


def test_it_is_a_no_only_where_nothing_fits(workload: str) -> None:
    vary = ["--vary", "batch_size=64,16000", "--gpu", "t4", "--memory", "100MiB"]
    some = run(workload, *vary)
    assert some.returncode == 0
    assert "1 of 2 fit" in some.stdout
    none = run(workload, "--memory", "5MiB", "--gpu", "t4,h200")
    assert none.returncode == 3
    assert "none of 2 fits" in none.stdout


def test_a_combination_that_fails_is_a_row_and_all_that_fail_are_an_error(workload: str) -> None:
    table = vramcast.predict_many(workload, gpu="h200", vary={"width": [13, 64]})
    failed, good = table.cases
    assert "an unlucky width" in failed.error and failed.peak_reserved_bytes is None
    # The first that is there is what others are compared with.
    assert good.more_bytes == 0
    assert "an unlucky width" in run(workload, "--vary", "width=13,64", "--gpu", "h200").stdout
    with pytest.raises(WorkloadError, match="unlucky"):
        vramcast.predict_many(workload, gpu="h200,t4", width=13)


def test_what_a_folder_holds_is_not_simulated_again(
    workload: str, tmp_path: Path, simulated: list[dict[str, object]]
) -> None:
    out, vary = tmp_path / "out", {"batch_size": [8, 16, 32]}
    first = vramcast.predict_many(workload, gpu="h200", vary=vary, out=out)
    # A call that was killed has left the beginning of a line.
    with (out / many.ANSWERS_FILE).open("a") as file:
        file.write('{"key": "')
    told: list[Progress] = []
    more = {"batch_size": [8, 16, 32, 64]}
    second = vramcast.predict_many(workload, gpu="h200", vary=more, out=out, progress=told.append)
    assert len(simulated) == 4
    assert (told[0].done, told[-1].done, told[-1].total) == (3, 4, 4)
    assert second.cases[:3] == first.cases
    assert PredictionTable.from_file(out / module.TABLE_FILE) == second
    # Another file is another program.
    Path(workload.partition(":")[0]).write_text(WORKLOAD + "\n")
    vramcast.predict_many(workload, gpu="h200", vary=vary, out=out)
    assert len(simulated) == 7
    vramcast.predict_many(workload, gpu="h200", vary=vary, out=out, force=True)
    assert len(simulated) == 10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--vary", "width"], ["'width'", "--vary batch_size=8,16"]),
        (["--vary", "width=8,,16"], ["width=8,,16"]),
        (["--vary", "width=8,8"], ["'width'", "twice"]),
        (["--vary", "width=8", "--vary", "width=9"], ["'width' is varied twice"]),
        (["--vary", "width=8", "width=9"], ["'width' is given, and varied too"]),
        (["--vary", "batch_size=8", "--batch-sizes", "1-4"], ["'batch_size' is varied twice"]),
        (["--vary", "batch_size=8", "--sort", "colour"], ["'colour'", "given, memory, time"]),
        (["--gpu", "h200,t4", "--batch-sizes", "1-9999"], ["19,998 combinations"]),
        (["--gpu", "h200,h200"], ["h200 is given twice"]),
        (["--gpu", "h200,t4", "--trace", "here"], ["--trace is for one run"]),
        (["--gpu", "h200", "--out", "here"], ["--out is for several predictions"]),
        (["--vary", "wdith=8,16"], ["Did you mean 'width'"]),
    ],
)
def test_wrong_options_are_said_with_what_to_do(
    workload: str, options: list[str], words: list[str]
) -> None:
    done = run(workload, *options)
    assert done.returncode == 2
    assert all(word in done.stderr for word in words), done.stderr


def test_one_that_fails_does_not_end_the_others(workload: str) -> None:
    def request(width: int) -> dict[str, object]:
        from vramcast.predicting.predict import make_request

        return make_request(workload, {"width": width}, "h200")

    kinds = [type(one) for one in many.try_all([request(13), request(64)], 60.0)]
    assert kinds == [WorkloadError, dict]


def test_a_table_can_be_drawn(workload: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    vramcast.predict_many(workload, gpu="h200,t4", vary={"batch_size": [8, 16]}, out=out)
    page = vramcast.report(out, format="md")
    assert "4 of 4 fit" in page.text
    json.loads((out / module.TABLE_FILE).read_text())
    with pytest.raises(UsageError):
        vramcast.predict_many(workload, gpu="h200", out=tmp_path)
