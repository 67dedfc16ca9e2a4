"""vramcast from Python: the functions of the commands, and their records."""

from __future__ import annotations

import importlib.util
import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer.main import get_command
from waiting import PATIENCE_SECONDS

import vramcast
from vramcast import Prediction, UsageError
from vramcast.cli import sharing
from vramcast.cli.commands import app
from vramcast.predicting.predict import predict, predict_batch_sizes, read_batch_sizes

pytestmark = pytest.mark.usefixtures("warm_simulations")

# torch is imported inside: the tests' own process reads this file too and need not
WORKLOAD = """\
def build(*, batch_size: int = 8, width: int = 256):
    import torch
    from torch import nn

    layers = nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(batch_size, width, device="cuda")

    def step():
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("api") / "train.py"
    path.write_text(WORKLOAD)
    return path


@pytest.fixture(scope="module")
def at_64(file: Path) -> Prediction:
    return predict(f"{file}:build", gpu="h200", batch_size=64)


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_of_the_user", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_function_object_and_its_name_give_the_same_prediction(
    file: Path, at_64: Prediction
) -> None:
    by_object = predict(imported(file).build, gpu="h200", batch_size=64)
    assert by_object.breakdown_bytes == at_64.breakdown_bytes
    assert by_object.peak_reserved_bytes == at_64.peak_reserved_bytes > 2**20
    assert by_object.knobs == {"batch_size": 64, "width": 256}
    assert by_object.num_parameters == 256 * 1024 + 1024 + 1024 * 256 + 256


@pytest.mark.parametrize(
    "workload", [lambda: None, 7, "".join], ids=["lambda", "number", "method of C"]
)
def test_what_the_worker_could_not_find_again_is_refused(workload: object) -> None:
    with pytest.raises(UsageError) as caught:
        predict(workload)  # type: ignore[arg-type]
    assert "file.py:function" in caught.value.advice or "train.py:build" in caught.value.advice


def test_a_knob_that_is_wrong_is_refused_from_python_too(file: Path) -> None:
    with pytest.raises(UsageError, match="'many'"):
        predict(f"{file}:build", batch_size="many")


def test_a_prediction_comes_back_from_json_as_it_was(at_64: Prediction) -> None:
    again = Prediction.from_json(at_64.to_json())
    assert again == at_64
    assert again.largest_tensors[0].num_bytes >= again.largest_tensors[-1].num_bytes > 0
    assert again.to_json() == at_64.to_json()


def test_a_record_that_was_cut_short_is_refused(at_64: Prediction) -> None:
    text = at_64.to_json()
    for end in (0, 1, len(text) // 2, len(text) - 1):
        with pytest.raises(UsageError, match="is not JSON"):
            Prediction.from_json(text[:end])


def test_a_record_of_another_version_or_kind_is_refused_with_what_it_is(at_64: Prediction) -> None:
    record = json.loads(at_64.to_json())
    with pytest.raises(UsageError, match="version 99"):
        Prediction.from_json(json.dumps({**record, "version": 99}))
    with pytest.raises(UsageError, match="version None"):
        Prediction.from_json("{}")
    with pytest.raises(UsageError, match="list"):
        Prediction.from_json("[1, 2]")


def test_a_record_that_lacks_a_field_is_refused_by_the_name_of_the_field(at_64: Prediction) -> None:
    record = json.loads(at_64.to_json())
    for name in ("peak_reserved_bytes", "largest_tensors", "limits"):
        with pytest.raises(UsageError, match=name):
            Prediction.from_json(
                json.dumps({key: value for key, value in record.items() if key != name})
            )


def test_a_record_whose_tensors_lack_a_field_is_refused(at_64: Prediction) -> None:
    record = json.loads(at_64.to_json())
    del record["largest_tensors"][0]["shape"]
    with pytest.raises(UsageError, match="shape"):
        Prediction.from_json(json.dumps(record))


def test_a_field_this_version_does_not_know_is_no_obstacle(at_64: Prediction) -> None:
    assert (
        Prediction.from_json(json.dumps({**json.loads(at_64.to_json()), "added_later": 1})) == at_64
    )


def test_every_public_name_resolves_and_no_other_does() -> None:
    assert vramcast.__all__ == sorted({*vramcast._HOME, "__version__"})
    assert {
        "predict",
        "predict_batch_sizes",
        "Prediction",
        "UsageError",
        "find_gpu",
        "register",
    } <= set(vramcast.__all__)
    assert all(getattr(vramcast, name) is not None for name in vramcast.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = vramcast.no_such_name


@pytest.mark.parametrize(
    "first",
    [
        "vramcast.predict_batch_sizes",
        "__import__('vramcast.predicting.predict')",
        "vramcast.predict",
    ],
)
def test_predict_is_the_function_whichever_name_is_used_first(first: str) -> None:
    code = (
        f"import vramcast; {first}; "
        "print(callable(vramcast.predict), callable(vramcast.predict_batch_sizes))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.stdout == "True True\n", done.stderr


def test_many_batch_sizes_equal_single_predictions_to_the_byte(
    file: Path, at_64: Prediction
) -> None:
    curve = predict_batch_sizes(f"{file}:build", range(1, 129), gpu="h200")
    points = {point.batch_size: point for point in curve.points}
    assert list(points) == list(range(1, 129))
    assert not points[50].simulated, "choose a size that is interpolated"
    singles = {
        64: at_64,
        **{size: predict(f"{file}:build", gpu="h200", batch_size=size) for size in (50, 113)},
    }
    for size, single in singles.items():
        assert points[size].peak_reserved_bytes == single.peak_reserved_bytes
        assert points[size].peak_allocated_bytes == single.peak_allocated_bytes
        assert points[size].fits is single.fits is True
    assert points[50].peak_reserved_bytes < points[64].peak_reserved_bytes, "or every size would do"


def test_a_step_may_say_something_about_itself(tmp_path: Path) -> None:
    file = tmp_path / "told.py"
    file.write_text(
        "import torch\n"
        "def build():\n"
        "    def step():\n"
        "        return torch.ones(8, device='cuda', requires_grad=True).sum().backward()\n"
        "    step.remarks = ['its experts are\\x1b[31m wide']\n"
        "    return step\n"
    )
    assert predict(f"{file}:build", gpu="h200").notes == ["its experts are\ufffd[31m wide"]


def test_what_does_not_fit_shows_the_same_need_in_a_curve_and_alone(file: Path) -> None:
    single = predict(f"{file}:build", memory="60MiB", batch_size=64)
    (point,) = predict_batch_sizes(f"{file}:build", [64], memory="60MiB").points
    assert (point.fits, single.fits) == (False, False)
    assert point.peak_reserved_bytes == single.peak_reserved_bytes


def test_no_batch_sizes_are_refused_and_so_are_bad_ones(file: Path) -> None:
    for sizes in ([], [0], [8, -1], [True]):
        with pytest.raises(UsageError, match="[Bb]atch sizes"):
            predict_batch_sizes(f"{file}:build", sizes)


def test_a_knob_may_have_the_name_of_an_option(tmp_path: Path) -> None:
    file = tmp_path / "named.py"
    file.write_text(WORKLOAD.replace("width: int", "memory: int").replace("width", "memory"))
    found = predict(f"{file}:build", memory="1GiB", knobs={"memory": 128}, batch_size=4)
    assert found.knobs == {"batch_size": 4, "memory": 128}
    with pytest.raises(UsageError, match="'batch_size' is given twice"):
        predict(f"{file}:build", memory="1GiB", knobs={"batch_size": 8}, batch_size=4)


def test_a_number_of_bytes_that_no_gpu_has_is_refused(file: Path) -> None:
    with pytest.raises(UsageError, match="--memory 24 is 24 B"):
        predict(f"{file}:build", memory=24)


def test_batch_sizes_are_text_as_on_the_command_line_or_numbers() -> None:
    assert read_batch_sizes("8,4,1-3") == [1, 2, 3, 4, 8]
    assert read_batch_sizes("4-16:4") == read_batch_sizes(range(4, 17, 4)) == [4, 8, 12, 16]


@pytest.mark.parametrize("sizes", ["1-999999999999", f"1-1{'0' * 40}", range(1, 10**12)])
def test_more_batch_sizes_than_anyone_wants_are_refused_at_once(sizes: str | range) -> None:
    with pytest.raises(UsageError, match="at most 10,000 are predicted"):
        read_batch_sizes(sizes)


def test_every_command_has_a_function_that_takes_its_options() -> None:
    """What the command line shows or asks of a person (--json, --open, --advice) is its own."""
    of_people = {"as_json", "show", "version", "advice", "lists_knobs"}
    of_people |= {name for name, *_ in sharing.OPTIONS}
    renamed = {"form": "format", "term": "own_terms", "row": "only", "suite": "suites", "at": ""}
    renamed |= {"most": "max_memory"}
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        if name in ("gpus", "zoo"):
            continue
        accepted = set(inspect.signature(getattr(vramcast, name.replace("-", "_"))).parameters)
        if name == "predict":
            accepted |= set(inspect.signature(vramcast.predict_batch_sizes).parameters)
            accepted |= set(inspect.signature(vramcast.predict_many).parameters)
            accepted |= {vramcast.sensitivity.__name__}
        if name == "calibrate" and callable(vramcast.calibrate_host):  # another kind of record
            accepted.add("host")
        shown = {one.name for one in command.params} - of_people
        options = {renamed.get(one, one) for one in shown} - {""}
        assert options <= accepted, name


def test_progress_is_reported_to_the_function_that_is_given(file: Path) -> None:
    reported: list[vramcast.Progress] = []
    predict(f"{file}:build", memory="1GiB", progress=reported.append)
    assert [one.name for one in reported] == ["Simulating"]


def test_records_are_shown_from_python_as_text_and_as_a_page(tmp_path: Path) -> None:
    record = Path(__file__).parent / "reporting" / "records" / "tune.json"
    assert vramcast.report(record, format="md").text.startswith("<!-- vramcast report")
    page = vramcast.report(record, out=tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page.text and "<html" in page.text
    with pytest.raises(UsageError, match="--format 'pdf' is not known"):
        vramcast.report(record, format="pdf")


def test_a_law_is_fitted_to_a_table_from_python_and_asked(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    rows = [f"{size},{1 + size},{2 + size}" for size in (1, 2, 4, 8)]
    table.write_text("\n".join(["batch_size,allocated_gib,reserved_gib", *rows]) + "\n")
    (law,) = vramcast.fit(table, terms=["constant", "per_sample"])
    assert vramcast.law_at(law, {"batch_size": 6}) == pytest.approx(8 * 2**30, rel=1e-6)
    with pytest.raises(UsageError, match="given twice"):
        vramcast.fit(table, table)


def test_a_trace_compared_with_itself_is_the_same(tmp_path: Path, file: Path) -> None:
    predict(f"{file}:build", memory="1GiB", trace=tmp_path)
    assert vramcast.diff(tmp_path, tmp_path / "trace.json").same
