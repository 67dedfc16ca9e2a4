"""The comparison of largest-batch searches: what is recorded, what is resumed, what the page says.
No GPU.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import PATIENCE_SECONDS, Clock, comes_true

FOLDER = Path(__file__).parents[2] / "benchmarks" / "max_batch"
NAMES = ("pairs", "run", "table", "peers")


@pytest.fixture(scope="module")
def bench() -> Iterator[SimpleNamespace]:
    """The folder's scripts as modules; they find each other the way they do when run."""
    sys.path.insert(0, str(FOLDER))
    # other benchmarks have scripts of the same names
    for name in NAMES:
        sys.modules.pop(name, None)
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
    finally:
        sys.path.remove(str(FOLDER))
        for name in NAMES:
            sys.modules.pop(name, None)


def record(
    answer: int | None, seconds: float, trials: list[list[Any]], at_once: int = 1
) -> dict[str, Any]:
    ooms = sum(outcome == "out_of_memory" for _, outcome in trials)
    return {
        "outcome": "ok" if answer else "timeout",
        "answer": answer,
        "trials": trials,
        "num_trials": len(trials),
        "num_out_of_memory": ooms,
        "wall_seconds": seconds,
        "at_once": at_once,
    }


def a_run(
    bench: SimpleNamespace, out: Path, do: Any, seconds: float = 100.0, at_once: int = 2
) -> bool:
    return bool(
        bench.run.run(
            bench.run.phases(bench.pairs.PAIRS[:3], at_once), out, do, bench.run.Deadline(seconds)
        )
    )


def test_ten_pairs_with_different_workloads_and_valid_knobs(bench: SimpleNamespace) -> None:
    from vramcast.workload import bind_knobs, load_function, parse_reference

    assert len(bench.pairs.PAIRS) == 10 == len({pair.name for pair in bench.pairs.PAIRS})
    for pair in bench.pairs.PAIRS:
        bind_knobs(load_function(parse_reference(pair.workload)), {**pair.knobs, "batch_size": 1})
    largest = sorted(pair.memory_gib for pair in bench.pairs.PAIRS)[-bench.run.AT_ONCE :]
    assert sum(largest) < 135, "those that run at once share one GPU"


def test_ours_and_the_truth_come_first_then_the_peers_of_the_first_pair(
    bench: SimpleNamespace,
) -> None:
    pairs = bench.pairs.PAIRS
    order = [
        (pair.name, method, phase.at_once)
        for phase in bench.run.phases(pairs, 4)
        for pair, method in phase.jobs
    ]
    assert [method for _, method, _ in order[:20]] == ["ours"] * 10 + ["truth"] * 10
    assert {name for name, _, _ in order[20:24]} == {pairs[0].name}
    assert all(
        at_once == 1
        for name, method, at_once in order
        if method.startswith("ours") or (name == pairs[0].name and method != "truth")
    )
    assert len(order) == len(set(order)) == 10 * 6


def test_what_is_recorded_is_not_done_again_and_what_breaks_costs_one_record(
    bench: SimpleNamespace, tmp_path: Path
) -> None:
    done: list[tuple[str, str]] = []

    def do(pair: Any, method: str, known: Any) -> dict[str, Any]:
        done.append((pair.name, method))
        if method == "accelerate":
            raise RuntimeError("the child died")
        return record(7, 1.0, [])

    out = tmp_path / "records.jsonl"
    assert a_run(bench, out, do)
    first = len(done)
    assert first == 3 * 6
    with open(out, "a") as file:
        file.write('{"pair": {"name": "gpt124')  # a crash in the middle of a line
    assert a_run(bench, out, do)
    assert {method for _, method in done[first:]} == {"accelerate"}, (
        "only what had failed is tried again"
    )
    assert (
        bench.run.read(out)[bench.pairs.PAIRS[0].name, "accelerate"]["error"]
        == "RuntimeError: the child died"
    )


def test_when_time_is_over_nothing_half_done_is_recorded(
    bench: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, bench.run, goes_on=False)

    def do(pair: Any, method: str, known: Any) -> dict[str, Any]:
        clock.put_forward(60.0)
        return record(7, 1.0, [])

    out = tmp_path / "records.jsonl"
    assert not a_run(bench, out, do, seconds=100.0)
    assert len(bench.run.read(out)) == 1
    assert a_run(bench, out, do, seconds=1e9)
    assert len(out.read_text().splitlines()) == 3 * 6


def test_a_child_that_hangs_is_stopped_and_what_it_had_said_is_kept(
    bench: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Popen(subprocess.Popen):  # type: ignore[type-arg]
        def communicate(self, *arguments: Any, **options: Any) -> Any:
            """Its time begins when the child has spoken, however long that took."""
            assert comes_true((tmp_path / "has spoken").exists)
            return super().communicate(*arguments, **options)

    monkeypatch.setattr(bench.run.subprocess, "Popen", Popen)
    script = (
        'import time; print(\'{"trial": 128, "outcome": "out_of_memory"}\', flush=True);'
        f" open({str(tmp_path / 'has spoken')!r}, 'w').close(); time.sleep(600)"
    )
    out, err, seconds, stopped = bench.run.child([sys.executable, "-c", script], "", 0.1)
    found = bench.run.from_peer(out, err, seconds, stopped)
    assert (found["outcome"], found["answer"], found["num_trials"], found["num_out_of_memory"]) == (
        "timeout",
        None,
        1,
        1,
    )
    assert 0.1 <= seconds < PATIENCE_SECONDS


def test_a_child_that_dies_is_a_failure_with_its_last_words(bench: SimpleNamespace) -> None:
    found = bench.run.from_peer(
        *bench.run.child(
            [sys.executable, "-c", "raise SystemExit('no such thing')"], "", PATIENCE_SECONDS
        )
    )
    assert (found["outcome"], found["error"].strip()) == ("failed", "no such thing")


class FakeProber:
    def __init__(self, fits: Any) -> None:
        self._fits, self.sizes = fits, []  # type: ignore[var-annotated]

    def __enter__(self) -> FakeProber:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, trial: Any) -> Any:
        size = trial.knobs["batch_size"]
        self.sizes.append(size)
        outcome = "ok" if self._fits(size) else "out_of_memory"
        return SimpleNamespace(
            outcome=outcome, error=None, times=None, peak_reserved_bytes=1, num_alloc_retries=0
        )


@pytest.mark.parametrize(("start", "true"), [(23, 23), (23, 21), (23, 26)])
def test_the_truth_is_found_from_our_answer_whatever_that_was(
    bench: SimpleNamespace, start: int, true: int
) -> None:
    prober = FakeProber(lambda size: size <= true or size == true + 3)
    found = bench.run.find_truth(bench.pairs.PAIRS[0], start, bench.run.Deadline(60), prober)
    assert (found["answer"], found["first_failing"], found["fit_again_beyond"]) == (
        true,
        true + 1,
        [true + 3],
    )
    assert {true, true + 1} <= set(prober.sizes)


def written(
    bench: SimpleNamespace, out: Path, records: dict[tuple[str, str], dict[str, Any]]
) -> Any:
    pairs = {pair.name: pair.to_dict() for pair in bench.pairs.PAIRS}
    lines = [
        {"pair": pairs[name], "method": method, "record": found}
        for (name, method), found in records.items()
    ]
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return bench.table.read(out)


def test_the_page_shows_answers_shares_costs_and_goals(
    bench: SimpleNamespace, tmp_path: Path
) -> None:
    one, two = (pair.name for pair in bench.pairs.PAIRS[:2])
    results = written(
        bench,
        tmp_path / "r.jsonl",
        {
            (one, "ours"): record(23, 8.0, [[23, "ok"], [24, "out_of_memory"]]),
            (one, "truth"): {"outcome": "ok", "answer": 23, "fit_again_beyond": []},
            (one, "accelerate"): record(19, 8.8, [[128, "out_of_memory"], [19, "ok"]]),
            (two, "ours"): record(24, 9.0, [[24, "ok"], [25, "out_of_memory"]]),
            (two, "truth"): {"outcome": "ok", "answer": 23, "fit_again_beyond": [26]},
            (two, "accelerate"): record(None, 60.0, [[128, "out_of_memory"]], at_once=4),
        },
    )
    text = bench.table.page(results, "r.jsonl")
    assert f"| {one} | 24 GiB | 23 | **23** | not run | not run | 19 (83 %) |" in text
    assert f"| {two} | 32 GiB | 23 (and 26) | 24 (104 %) | not run | not run | timeout |" in text
    assert "8.8 s (1.1 x), 2, 1" in text and "60.0 s\\* (6.7 x), 1, 1 timeout" in text
    assert "goal **missed**: never above it: 1" in text
    assert f"goal met: no slower than the fastest of them, {one}: 8.0 s, accelerate 8.8 s" in text
    assert "vramcast: right in 1 of 2, above the true answer in 1" in text


def test_a_page_of_a_run_that_was_stopped_early_is_made_too(
    bench: SimpleNamespace, tmp_path: Path
) -> None:
    name = bench.pairs.PAIRS[0].name
    failed = {"outcome": "failed", "error": "Error: no GPU\n", "wall_seconds": 1.0, "at_once": 1}
    text = bench.table.page(
        written(bench, tmp_path / "r.jsonl", {(name, "ours"): failed}), "r.jsonl"
    )
    assert f"{name}, vramcast: Error: no GPU" in text
    assert "| unknown |" in text


def build_with_limit(limit: int) -> Any:
    """A step on the CPU that says what a GPU would above a batch size."""
    import torch

    def build(first: int) -> Any:
        batch_size = first
        model = torch.nn.Linear(4, 4)
        update = torch.optim.AdamW(model.parameters())

        def loss() -> Any:
            if batch_size > limit:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.07 GiB.")
            return model(torch.randn(batch_size, 4)).sum()

        def step() -> Any:
            update.zero_grad()
            value = loss()
            value.backward()
            update.step()
            return value.detach()

        return step

    return build


@pytest.mark.long
def test_accelerate_is_asked_as_documented(bench: SimpleNamespace) -> None:
    pytest.importorskip("accelerate")
    said: list[dict[str, Any]] = []
    assert bench.peers.by_accelerate(build_with_limit(100), said.append) == 92
    assert [news["outcome"] for news in said] == ["out_of_memory"] * 3 + ["ok"]


@pytest.mark.parametrize(
    ("mode", "answer", "trials", "ooms"), [("power", 16, 5, 1), ("binsearch", 21, 9, 2)]
)
@pytest.mark.filterwarnings("ignore")
def test_lightning_is_asked_with_the_same_step(
    bench: SimpleNamespace, mode: str, answer: int, trials: int, ooms: int
) -> None:
    """The numbers that issue 4 measured for a true 23."""
    pytest.importorskip("lightning")
    said: list[dict[str, Any]] = []
    assert bench.peers.by_lightning(build_with_limit(23), said.append, mode) == answer
    assert (len(said), sum(news["outcome"] == "out_of_memory" for news in said)) == (trials, ooms)


def test_the_parent_never_imports_torch() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import run, table; print('torch' in"
        " sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.stdout.strip() == "False", done.stderr
