"""What is applied, what is rejected and why, what failed and its likely cause."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from invented import run

from vramcast.tuning.judging import (
    CAUSES,
    compare,
    judge,
    likely_cause,
    loss_difference,
    missing_bytes_of,
    work_of_step,
)
from vramcast.tuning.optimisations import Losses, Optimisation
from vramcast.tuning.runner import steps_for
from vramcast.units import GiB

PLAIN = Optimisation(name="x", what="something")


def runs(*seconds: float, **more: Any) -> list[Any]:
    return [run(s, **more) for s in seconds]


BASELINE = runs(0.1, 0.1005, 0.0998)


@pytest.mark.parametrize(
    ("candidate", "optimisation", "expected", "words"),
    [
        (runs(0.05, 0.0502), PLAIN, "applied", "2.0"),
        (runs(0.05), PLAIN, "rejected", "too few runs"),
        (runs(0.099, 0.0992), PLAIN, "rejected", "too little gain"),
        (runs(0.12, 0.121), PLAIN, "rejected", "slower: 0.83"),
        (runs(0.06, 0.09), PLAIN, "rejected", "not distinguishable from noise"),
        (
            runs(0.05, 0.05, losses=(5.0, 4.9, 4.8, 4.6)),
            PLAIN,
            "rejected",
            "other losses: they differ by 2.1 %, and 0.1 % is allowed",
        ),
        (runs(0.05, 0.05, losses=(5.0, 4.9, 4.8, 4.69)), PLAIN, "rejected", "other losses"),
        (
            runs(0.05, 0.05, losses=(5.0, 4.9, 4.8, 4.69)),
            Optimisation(name="x", what="", losses=Losses.ROUNDED),
            "applied",
            "2.0",
        ),
        (runs(0.05, 0.05, losses=(5.0, 4.9, math.nan, 4.7)), PLAIN, "rejected", "not finite"),
        (
            runs(0.05, 0.05, losses=(5.0, 4.9, math.inf, 4.7)),
            Optimisation(name="x", what="", losses=Losses.NOT_COMPARED),
            "rejected",
            "not finite",
        ),
        (runs(0.05, 0.05, losses=()), PLAIN, "rejected", "no losses that could be compared"),
        (
            runs(0.05, 0.05, losses=(None, None)),
            PLAIN,
            "rejected",
            "no losses that could be compared",
        ),
        (
            runs(0.05, 0.05, losses=()),
            Optimisation(name="x", what="", losses=Losses.NOT_COMPARED),
            "applied",
            "2.0",
        ),
        (runs(0.05, 0.05, reserved=135 * GiB), PLAIN, "rejected", "leaves too little"),
        (
            [run(outcome="crashed", error="RuntimeError: boom")],
            PLAIN,
            "failed",
            "crashed: RuntimeError: boom",
        ),
        (
            [run(outcome="timeout", error="It did not end within 300 s")],
            PLAIN,
            "failed",
            "did not end within 300 s",
        ),
        (
            [run(0.05), run(outcome="crashed", error="x\nValueError: late")],
            PLAIN,
            "failed",
            "ValueError: late",
        ),
        (
            runs(0.05, 0.05),
            Optimisation(name="other", what="", changes_training=True),
            "rejected",
            "--only other",
        ),
    ],
)
def test_verdicts(
    candidate: list[Any], optimisation: Optimisation, expected: str, words: str
) -> None:
    judged = judge(BASELINE, candidate, optimisation)
    assert judged.verdict == expected
    assert words in judged.reason


def test_without_losses_on_either_side_there_is_nothing_to_compare() -> None:
    assert judge(runs(0.1, 0.1, losses=()), runs(0.05, 0.05, losses=()), PLAIN).verdict == "applied"


def test_a_difference_is_of_finite_losses_only() -> None:
    assert loss_difference(runs(0.1, losses=(1.0, math.nan)), runs(0.1, losses=(1.0, 5.0))) == 0.0
    assert loss_difference(runs(0.1, losses=(math.nan,)), runs(0.1, losses=(1.0,))) is None


@pytest.mark.parametrize(
    ("batch_size", "seq_len", "work"),
    [(4, 16, (64, "tokens")), (4, 0, (4, "samples")), (0, 16, (1, "steps"))],
)
def test_a_size_that_is_nothing_is_not_known(
    batch_size: int, seq_len: int, work: tuple[float, str]
) -> None:
    assert work_of_step(run(knobs={"batch_size": batch_size, "seq_len": seq_len})) == work


def test_out_of_memory_is_rejected_with_the_missing_bytes() -> None:
    error = (
        "OutOfMemoryError: Tried to allocate 2.00 GiB. "
        "GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is free."
    )
    broken = run(outcome="out_of_memory", error=error, reserved=20 * GiB)
    judged = judge(BASELINE, [broken], PLAIN)
    assert (judged.verdict, judged.missing_bytes) == ("rejected", GiB)
    assert "1.00 GiB are missing" in judged.reason
    without_words = judge(
        BASELINE, [run(outcome="out_of_memory", error="CUDA error: out of memory")], PLAIN
    )
    assert (without_words.verdict, without_words.missing_bytes) == ("rejected", None)


def test_noise_alone_is_not_applied() -> None:
    """Of 400 candidates that do nothing, hardly one looks like a gain under 10 % of noise."""
    source = random.Random(1)

    def noisy(spread: float, count: int) -> list[Any]:
        return runs(*(0.1 * math.exp(source.gauss(0, spread)) for _ in range(count)))

    def applied(spread: float, count: int) -> int:
        return sum(judge(noisy(spread, 3), noisy(spread, 2), PLAIN).is_gain for _ in range(count))

    assert applied(0.1, 400) <= 8  # one side of a test at the level of 1 % would let 2 through
    assert applied(0.003, 100) == 0


def test_a_baseline_whose_own_losses_differ_does_not_reject_others_for_that() -> None:
    baseline = [run(0.1, losses=(5.0, 4.9)), run(0.1, losses=(5.0, 4.8))]
    assert judge(baseline, runs(0.05, 0.05, losses=(5.0, 4.82)), PLAIN).verdict == "applied"
    judged = judge(baseline, runs(0.05, 0.05, losses=(5.0, 4.0)), PLAIN)
    assert judged.verdict == "rejected" and "differ by 2.0e-02 themselves" in judged.reason


def test_steps_of_another_size_are_compared_by_throughput() -> None:
    small, large = {"batch_size": 4, "seq_len": 8}, {"batch_size": 16, "seq_len": 8}
    found = compare(runs(0.1, 0.1, knobs=small), runs(0.2, 0.2, knobs=large))
    assert (found.ratio, found.by) == (pytest.approx(2.0), "tokens a second")
    samples = compare(runs(0.1, knobs={"batch_size": 4}), runs(0.2, knobs={"batch_size": 8}))
    assert (samples.ratio, samples.by) == (pytest.approx(1.0), "samples a second")
    assert compare(runs(0.1, knobs=small), runs(0.05, knobs=small)).by == "step time"


def test_the_interval_holds_the_ratio_and_is_wider_with_more_noise() -> None:
    calm, wild = compare(BASELINE, runs(0.05, 0.0501)), compare(BASELINE, runs(0.045, 0.055))
    for found in (calm, wild):
        assert (
            found.low is not None
            and found.high is not None
            and found.low < found.ratio < found.high
        )
    assert wild.high - wild.low > 10 * (calm.high - calm.low)  # type: ignore[operator]
    assert compare(BASELINE[:1], runs(0.05)).low is None


def test_losses_that_are_missing_are_not_compared() -> None:
    assert loss_difference([run(losses=())], [run(losses=())]) is None
    assert loss_difference([run(losses=(2.0, 4.0))], [run(losses=(2.0, 3.0, 9.0))]) == 0.25


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("PermissionError: [Errno 13] Permission denied: '/mnt/c/CUDA/bin/nvcc'", "WSL"),
        ("RuntimeError: Windows not yet supported for torch.compile: Triton on Windows", "Windows"),
        (
            "torch._inductor.exc.TritonMissing: Cannot find a working triton installation",
            "pip install triton",
        ),
        ("ModuleNotFoundError: No module named 'triton'", "pip install triton"),
        (
            "RuntimeError: Failed to find C compiler. Please specify via CC environment variable",
            "set CC",
        ),
        ("fatal error: Python.h: No such file or directory", "python3-dev"),
        (
            "RuntimeError: CUDA error: operation not permitted when stream is capturing",
            "waits for the GPU",
        ),
        (
            "RuntimeError: Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture",
            "random numbers",
        ),
        ("RuntimeError: No available kernel. Aborting execution.", "16-bit floats only"),
        (
            "ValueError: recurrence='fused' computes in bfloat16 or float16, not in float32",
            "16-bit floats",
        ),
        (
            "torch._dynamo.exc.Unsupported: call_function BuiltinVariable(print)",
            "does not understand",
        ),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied", "shapes"),
        ("It did not end within 300 s (last phase: warm-up).", "hangs"),
        ("The worker was ended by SIGSEGV.", "native code crashed"),
        (
            "The program ended itself with exit code 2, before it trained.",
            "does not take this value",
        ),
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            "this GPU",
        ),
    ],
)
def test_likely_causes(error: str, words: str) -> None:
    assert words in likely_cause(error)


def test_what_is_not_recognised_gets_no_cause() -> None:
    assert likely_cause("ZeroDivisionError: division by zero") == "" == likely_cause(None)
    traceback = (
        'Traceback (most recent call last):\n  File "w.py", line 3, in step\n'
        "    x.reshape(2, 2) / 0\nZeroDivisionError: by zero"
    )
    assert likely_cause(traceback) == ""
    assert len({one["cause"] for one in CAUSES}) == len(CAUSES)


IN_USE = (
    "this process has 139.12 GiB memory in use. "
    "Of the allocated memory 10.50 GiB is allocated by PyTorch, "
    "and 1.00 GiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("Tried to allocate 20.00 MiB. GPU", 20 * 2**20),
        ("tried to allocate 512 bytes", 512),
        (
            "Tried to allocate 1024.00 MiB. GPU 0 has 139.80 GiB of which 685.00 MiB is free. "
            f"Including {IN_USE}",
            339 * 2**20,
        ),
        (
            "Tried to allocate 2.00 GiB. GPU 0 has 139.80 GiB of which 99.00 GiB is free. "
            f"12.00 GiB allowed; Including {IN_USE}",
            3 * 2**29,
        ),
        ("out of memory", None),
        (None, None),
    ],
)
def test_what_is_missing_is_read_from_the_error(error: str | None, expected: int | None) -> None:
    assert missing_bytes_of(error) == expected


@pytest.mark.parametrize(
    ("seconds", "steps"), [(0.001, 20), (0.1, 10), (0.2, 5), (0.5, 3), (10.0, 3)]
)
def test_about_a_second_is_measured(seconds: float, steps: int) -> None:
    assert steps_for(run(seconds)) == steps


def test_a_run_that_failed_is_repeated_with_few_steps() -> None:
    assert steps_for(run(outcome="crashed")) == 3
