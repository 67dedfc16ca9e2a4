"""max-batch: predicted without a GPU, and how an answer is confirmed with one."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import in_process
import numpy as np
import pytest

import vramcast
from vramcast.errors import UsageError, WorkloadError
from vramcast.forecast import largest
from vramcast.hardware import nvml
from vramcast.predicting.max_batch import can_confirm, confirm_by_runs
from vramcast.records.prediction import BatchSizePoint

pytestmark = pytest.mark.usefixtures("warm_simulations")
GPT = "vramcast_zoo.suites.models:gpt"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return in_process.vramcast("max-batch", *arguments)


@pytest.fixture(scope="module")
def at_24_gib() -> dict[str, Any]:
    done = run(
        GPT,
        "autocast=bf16",
        "--gpu",
        "h200",
        "--memory",
        "24GiB",
        "--global-batch",
        "256",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_predicted_largest_batch_is_the_one_an_h200_found_under_this_cap(
    at_24_gib: dict[str, Any],
) -> None:
    """Measured there: 23 fits with one retry, 24 does not."""
    assert (at_24_gib["largest_batch"], at_24_gib["first_failing_batch"]) == (23, 24)
    assert at_24_gib["confirmed"] is False
    assert any("empties its cache" in note for note in at_24_gib["notes"])


def test_the_answer_and_the_next_size_were_simulated_themselves(at_24_gib: dict[str, Any]) -> None:
    attempts = {attempt["batch_size"]: attempt for attempt in at_24_gib["attempts"]}
    assert (attempts[23]["outcome"], attempts[24]["outcome"]) == ("ok", "out_of_memory")
    assert attempts[23]["simulated"] and attempts[24]["simulated"]
    assert {attempt["source"] for attempt in at_24_gib["attempts"]} == {"predicted"}
    assert len(attempts) == len(at_24_gib["attempts"])


def test_the_law_has_a_real_intercept_and_the_choices_stay_below_their_share(
    at_24_gib: dict[str, Any],
) -> None:
    assert 1.5e9 < at_24_gib["allocated_law"]["intercept_bytes"] < 3e9
    assert at_24_gib["conservative"]["batch_size"] <= at_24_gib["recommended"]["batch_size"] < 23
    assert (at_24_gib["micro_batch"], at_24_gib["accumulation_steps"]) == (16, 16)


def test_limits_multiples_and_safety_are_respected() -> None:
    tiny = {"vocabulary": 1000, "width": 128, "heads": 4, "depth": 2, "seq_len": 64}
    free = vramcast.max_batch(GPT, memory="1GiB", **tiny)
    bounded = vramcast.max_batch(GPT, memory="1GiB", maximum=37, multiple_of=8, **tiny)
    careful = vramcast.max_batch(GPT, memory="1GiB", safety=0.3, **tiny)
    assert free.largest_batch is not None and careful.largest_batch is not None
    assert (bounded.largest_batch, bounded.first_failing_batch) == (32, None)
    assert careful.largest_batch < free.largest_batch
    assert all(
        a.peak_reserved_bytes is None or a.peak_reserved_bytes <= 0.7 * 2**30
        for a in careful.attempts
        if a.outcome == "ok"
    )


def test_where_not_even_one_sample_fits_it_says_what_is_in_the_way() -> None:
    done = run(GPT, "autocast=bf16", "--memory", "512MiB", "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 3
    assert (answer["largest_batch"], answer["first_failing_batch"]) == (None, 1)
    assert answer["missing_bytes"] > 0
    assert len(answer["largest_tensors"]) == 3


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([GPT], "--gpu"),
        ([GPT, "batch_size=3", "--gpu", "h200"], "batch_size"),
        ([GPT, "--gpu", "h200", "--safety", "1.5"], "--safety"),
        ([GPT, "--gpu", "h200", "--safety", "0.9999999999999"], "--safety"),
        ([GPT, "--gpu", "h200", "--multiple-of", "9999999"], "--multiple-of 9999999"),
        ([GPT, "--gpu", "h200", "--max", "0"], "--max"),
        ([GPT, "--gpu", "h200", "--max", "4", "--multiple-of", "8"], "--max"),
        ([GPT, "--gpu", "rtx-9999"], "rtx-9999"),
        ([GPT, "--gpu", "rtx-4090", "--memory", "200GiB"], "more than rtx-4090 has"),
        ([GPT, "--gpu", "rtx-4090", "--memory", "0"], "zero"),
        ([GPT, "--gpu", "h200", "--global-batch", "-1"], "--global-batch"),
    ],
)
def test_a_wrong_request_is_answered_with_the_value_and_exit_code_2(
    arguments: list[str], part: str
) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert part in done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


def measurements(fits_up_to: int) -> Any:
    def measure(size: int) -> Any:
        outcome = "ok" if size <= fits_up_to else "out_of_memory"
        fields = dict.fromkeys(
            ("peak_allocated_bytes", "peak_reserved_bytes", "num_alloc_retries", "times")
        )
        return SimpleNamespace(knobs={"batch_size": size}, outcome=outcome, error=None, **fields)

    return measure


@pytest.mark.parametrize(
    ("predicted", "truth", "tried"),
    [
        (23, 23, [23, 24]),
        (23, 24, [23, 24, 25]),
        (23, 22, [23, 22]),
        (23, 20, [23, 22, 20, 21]),
        (1, 0, [1]),
    ],
)
def test_confirming_runs_the_answer_and_its_neighbour_and_more_if_reality_disagrees(
    predicted: int, truth: int, tried: list[int]
) -> None:
    largest, failing, attempts = confirm_by_runs(
        predicted, predicted + 1, measurements(truth), step=1, limit=None
    )
    assert largest == (truth or None)
    assert failing == truth + 1
    assert [attempt.batch_size for attempt in attempts] == tried


def test_at_the_limit_given_no_larger_size_is_run() -> None:
    largest, failing, attempts = confirm_by_runs(32, None, measurements(1000), step=8, limit=32)
    assert (largest, failing, [attempt.batch_size for attempt in attempts]) == (32, None, [32])


def test_a_size_that_crashes_on_the_gpu_is_not_said_not_to_fit() -> None:
    def crashes(size: int) -> Any:
        tried.append(size)
        return SimpleNamespace(
            **{**vars(measurements(1000)(size)), "outcome": "crashed", "error": "cuDNN said no"}
        )

    tried: list[int] = []
    with pytest.raises(WorkloadError, match="batch_size=23 .*crashed: cuDNN said no"):
        confirm_by_runs(23, 24, crashes, step=1, limit=None)
    assert tried == [23], "smaller ones would crash too"


def test_a_prediction_that_is_far_off_costs_few_real_runs() -> None:
    largest, failing, attempts = confirm_by_runs(
        200_000, 200_001, measurements(150_000), step=1, limit=None
    )
    assert (largest, failing) == (150_000, 150_001)
    assert len(attempts) < 40


def from_rows(rows: str, select: str = "True", check: str = "pass") -> str:
    """A workload with a batch of `rows` rows, about half of them used where `select`."""
    return f"""
import torch

def build(*, batch_size: int = 1):
    {check}
    layer = torch.nn.Linear(512, 512, device="cuda")

    def step():
        y = layer(torch.randn({rows}, 512, device="cuda"))
        y = y[y.sum(1) > 0] if {select} else y
        if y.numel():
            y.sum().backward()

    return step
"""


def test_a_search_over_data_dependent_sizes_ends_soon(tmp_path: Path) -> None:
    """Interpolated and simulated sizes differ there: a search one by one would take minutes."""
    (tmp_path / "w.py").write_text(from_rows("batch_size"))
    found = vramcast.max_batch(f"{tmp_path}/w.py:build", memory="1GiB")
    assert found.largest_batch is not None and found.first_failing_batch == found.largest_batch + 1
    assert len(found.attempts) < 200


def test_where_samples_are_small_the_recommended_size_still_comes_near_its_share(
    tmp_path: Path,
) -> None:
    (tmp_path / "w.py").write_text(from_rows("batch_size", select="False"))
    found = vramcast.max_batch(f"{tmp_path}/w.py:build", memory="1GiB")
    assert found.recommended is not None and "takes 92 %" in found.recommended.reason
    assert found.conservative is not None and "takes 85 %" in found.conservative.reason


def test_memory_that_does_not_depend_on_the_batch_is_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(from_rows("8"))
    done = run(f"{tmp_path}/w.py:build", "--memory", "1GiB")
    assert done.returncode == 0
    assert "does the memory depend" in " ".join(done.stdout.split())
    assert "limit given" not in done.stdout


def test_a_size_the_workload_refuses_is_named_with_the_way_around_it(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(
        from_rows("batch_size", check="assert batch_size % 8 == 0 and batch_size < 100")
    )
    with pytest.raises(UsageError, match=r"batch_size=1\. Limit the sizes with --max"):
        vramcast.max_batch(f"{tmp_path}/w.py:build", memory="1GiB")
    with pytest.raises(UsageError, match=r"batch_size=2048\."):
        vramcast.max_batch(f"{tmp_path}/w.py:build", memory="1GiB", multiple_of=8)
    found = vramcast.max_batch(
        f"{tmp_path}/w.py:build", memory="1GiB", multiple_of=8, maximum=99, global_batch=100
    )
    assert (found.largest_batch, found.micro_batch) == (96, None)
    assert "no multiple of 8 up to 96 divides a batch of 100" in found.notes


def test_in_a_narrow_terminal_numbers_stay_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(from_rows("8"))
    lines = run(f"{tmp_path}/w.py:build", "--memory", "1GiB", "--max", "4").stdout.splitlines()
    assert any("MiB" in line and "predicted" in line for line in lines)
    assert all(len(line) <= 80 and "…" not in line for line in lines)


def test_names_in_the_way_are_shown_without_escape_codes(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(
        "import torch\n\ndef build(*, batch_size: int = 1):\n"
        "    layer = torch.nn.Linear(4096, 4096, device='cuda')\n"
        "    model = torch.nn.Sequential()\n    model.add_module('[/b]\\x1b[31m', layer)\n"
        "    return lambda: model(torch.randn(batch_size, 4096, device='cuda')).sum().backward()\n"
    )
    done = run(f"{tmp_path}/w.py:build", "--memory", "10MiB")
    assert done.returncode == 3
    assert "[/b]" in done.stdout and "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        (
            "300MiB",
            ["the parameters alone take 475.5 MiB, 175.5 MiB more than there is", "16 bits"],
        ),
        (
            "1100MiB",
            [
                "parameters and optimizer state are there whatever the batch",
                "optimizer with less state",
            ],
        ),
        ("2300MiB", ["activations and temporaries take", "vramcast advise"]),
    ],
)
def test_a_budget_that_is_too_small_is_answered_with_what_is_missing_and_what_would_help(
    memory: str, words: list[str]
) -> None:
    done = run("examples/gpt.py:build", "--memory", memory)
    text = " ".join(done.stdout.split())
    assert done.returncode == 3
    assert "not even 1 fits" in text and "missing" in text
    assert all(word in text for word in words), text
    assert text.count("float32[") == 3, "the three largest things in memory"


def test_the_maximum_says_what_it_takes_and_leaves(at_24_gib: dict[str, Any]) -> None:
    maximum = at_24_gib["maximum"]
    assert maximum["batch_size"] == 23
    assert (
        "% of the available memory and leaves" in maximum["reason"]
        and "slower" in maximum["reason"]
    )


def test_the_reserved_law_is_not_that_of_sizes_that_empty_the_cache(
    at_24_gib: dict[str, Any],
) -> None:
    """Those reserve what there is; a line through them once had an intercept of 7 GiB."""
    assert at_24_gib["reserved_law"]["intercept_bytes"] < 2e9
    assert at_24_gib["reserved_law"]["largest_residual"] < 0.01


class Budgeted:
    """The real search over batch sizes whose memory follows a rule."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fits: Any, reserved: Any) -> None:
        def point(size: int, *_: Any, simulated: bool, **__: Any) -> BatchSizePoint:
            self.asked.append(size)
            return BatchSizePoint(
                batch_size=size,
                fits=fits(size),
                num_alloc_retries=0,
                simulated=simulated,
                step_seconds=0.1,
                peak_allocated_bytes=reserved(size),
                peak_reserved_bytes=reserved(size),
            )

        self.asked: list[int] = []
        self.simulated: list[int] = []
        monkeypatch.setattr(largest, "batch_size_point", point)

    def search(
        self, capacity: int, guess: int | None = None, **options: Any
    ) -> tuple[largest.Edge, list[int], list[BatchSizePoint]]:
        """(the edge, the sizes beyond it that fit, every point looked at)."""

        def trace_at(size: int) -> Any:
            self.simulated.append(size)
            return SimpleNamespace(events=np.array([1]), sizes=np.array([size]))

        budget: Any = SimpleNamespace(capacity_bytes=capacity)
        search = largest.BatchSearch(trace_at, budget, **options)
        edge = search.run(guess)
        return edge, search.look_around(edge), list(search.points.values())


@pytest.mark.parametrize("edge", [1, 2, 23, 255, 256, 257, 5000, 300_000])
def test_the_search_finds_the_edge_with_few_simulations(
    monkeypatch: pytest.MonkeyPatch, edge: int
) -> None:
    budgeted = Budgeted(monkeypatch, lambda size: size <= edge, lambda size: 1000 + 7 * size)
    found, beyond, _ = budgeted.search(1000 + 7 * edge)
    assert (found, beyond) == ((edge, edge + 1), [])
    assert {edge, edge + 1} <= set(budgeted.simulated)
    assert len(budgeted.simulated) <= 10 and len(budgeted.asked) <= 30


def test_where_sizes_fail_and_larger_ones_fit_the_answer_is_below_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budgeted = Budgeted(
        monkeypatch, lambda size: size <= 100 or size in (102, 103), lambda size: 10 * size
    )
    for guess in (None, 80, 99, 102, 130):
        edge, beyond, _ = budgeted.search(1000, guess)
        assert (edge, beyond) == ((100, 101), [102, 103])


def test_smaller_sizes_are_simulated_for_their_time_in_the_multiples_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budgeted = Budgeted(monkeypatch, lambda size: size <= 100, lambda size: 10 * size)
    edge, _, points = budgeted.search(1000, step=4, maximum=90)
    assert edge == (88, None)
    timed = [point.batch_size for point in points if point.simulated]
    assert all(size % 4 == 0 and size <= 88 for size in timed) and {4, 8, 16, 32, 64, 88} >= set(
        timed
    ) >= {4, 88}
    assert len(timed) >= 4


def test_max_batch_and_plan_take_a_card_by_the_size_on_its_label_and_refuse_more() -> None:
    """An rtx-4090 has 23.99 GiB, less the CUDA context. The two once had two rules."""
    size = {"vocabulary": 100, "width": 32, "heads": 1, "depth": 1}
    card = {"gpu": "rtx-4090", "memory": "24GiB"}
    assert vramcast.max_batch(GPT, **card, maximum=1, seq_len=8, **size).largest_batch == 1
    assert vramcast.plan(GPT, **card, tokens_per_step=8, seq_lens=[8], **size).fits
    for refused in (vramcast.max_batch, partial(vramcast.plan, seq_lens=[8])):
        with pytest.raises(UsageError, match="--memory 27.00 GiB is more than rtx-4090 has"):
            refused(GPT, gpu="rtx-4090", memory="27GiB")


class FakeProber:
    """A GPU on which sizes up to a limit run, and what happened to it in which order."""

    happened: list[str] = []
    fits_up_to = 0

    def __init__(self, preload: list[str]) -> None:
        pass

    def __enter__(self) -> FakeProber:
        return self

    def __exit__(self, *_: object) -> None:
        self.happened.append("closed")

    def start(self) -> None:
        self.happened.append("started")

    def run(self, trial: Any) -> Any:
        size = trial.knobs["batch_size"]
        self.happened.append(f"ran {size} under {trial.memory_cap_bytes}")
        outcome = "ok" if size <= self.fits_up_to else "out_of_memory"
        times = SimpleNamespace(median_seconds=0.01 * size) if outcome == "ok" else None
        peaks = {"peak_allocated_bytes": 10, "peak_reserved_bytes": 20, "num_alloc_retries": 0}
        return SimpleNamespace(
            knobs={"batch_size": size}, outcome=outcome, error=None, times=times, **peaks
        )


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> type[FakeProber]:
    """A machine whose GPU runs batches of up to 24."""
    monkeypatch.setattr("vramcast.predicting.max_batch.Prober", FakeProber)
    monkeypatch.setattr("vramcast.predicting.max_batch.can_confirm", lambda gpu: True)
    monkeypatch.setattr(FakeProber, "happened", [])
    monkeypatch.setattr(FakeProber, "fits_up_to", 24)
    return FakeProber


TINY = {"vocabulary": 1000, "width": 128, "heads": 4, "depth": 2, "seq_len": 64}


def test_the_answer_is_run_under_the_budget_that_was_searched(on_a_gpu: type[FakeProber]) -> None:
    """With `safety` too: otherwise the next size would run in the memory that is to stay free."""
    found = vramcast.max_batch(GPT, gpu="h200", memory="1GiB", safety=0.25, maximum=8, **TINY)
    assert found.confirmed and found.largest_batch == 8
    assert on_a_gpu.happened == ["started", f"ran 8 under {3 << 28}", "closed"]


def test_nothing_is_run_where_no_confirmation_is_wanted(on_a_gpu: type[FakeProber]) -> None:
    found = vramcast.max_batch(GPT, gpu="h200", memory="1GiB", maximum=8, confirm=False, **TINY)
    assert (found.confirmed, on_a_gpu.happened) == (False, [])


def test_where_there_is_the_gpu_the_command_confirms_its_answer_there(
    on_a_gpu: type[FakeProber],
) -> None:
    knobs = [f"{name}={value}" for name, value in TINY.items()]
    options = ["--gpu", "h200", "--memory", "1GiB", "--max", "32", "--multiple-of", "8", "--json"]
    done = run(GPT, *knobs, *options)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert on_a_gpu.happened == [
        "started",
        "ran 32 under 1073741824",
        "ran 24 under 1073741824",
        "closed",
    ]
    assert (found["largest_batch"], found["first_failing_batch"], found["confirmed"]) == (
        24,
        32,
        True,
    )
    assert {
        a["batch_size"]: a["outcome"] for a in found["attempts"] if a["source"] == "measured"
    } == {32: "out_of_memory", 24: "ok"}
    assert [speed["batch_size"] for speed in found["speeds"] if speed["source"] == "measured"] == [
        24
    ]
    assert found["maximum"]["batch_size"] == 24


@pytest.mark.parametrize(
    ("name", "expected"), [("NVIDIA H200", "h200"), ("A GPU of tomorrow", None), (None, None)]
)
def test_a_gpu_in_the_machine_is_meant_where_none_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str | None, expected: str | None
) -> None:
    monkeypatch.setattr(nvml, "gpu_states", lambda: [SimpleNamespace(name=name)] if name else [])
    assert nvml.gpu_here() == expected
    assert can_confirm(None) == (name is not None)
    assert can_confirm("h200") == (expected == "h200")
    assert not can_confirm("a100-80gb")
