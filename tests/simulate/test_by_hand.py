"""Triton kernels that people wrote take the time that their blocks tell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import vramcast
from vramcast.forecast.timing.kernels import kernel_class
from vramcast.forecast.timing.rates import shipped
from vramcast.hardware.gpus import find_gpu
from vramcast.simulate.fused.rules import OF_INDUCTOR
from vramcast.tracing.work import FORWARD, JIT, PLAIN, OperatorWork

GPU = find_gpu("h200")
INTERPRET = "TRITON_INTERPRET"


def test_blocks_of_recorded_kernels_tell_their_times() -> None:
    """In a process of its own: other tests run Triton's interpreter, and with that it is imported
    otherwise."""
    pytest.importorskip("triton")
    checks = Path(__file__).with_name("checks_by_hand.py")
    others = {name: value for name, value in os.environ.items() if name != INTERPRET}
    run = [sys.executable, "-m", "pytest", str(checks)]
    done = subprocess.run(run, env=others, cwd=checks.parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_such_kernels_have_a_spread_of_their_own_and_are_no_arithmetic_of_a_model() -> None:
    work = OperatorWork(f"{JIT}attention", 6, 1e9, 1e9, (0, 0, 0, 0), FORWARD, PLAIN)
    assert work.is_known and work.is_generated and work.counted_flops == 0
    assert kernel_class(work, shipped()) == "by_hand"
    assert shipped().spread["by_hand"] > shipped().spread["generated"]


def test_rules_of_inductor_know_nothing_of_what_it_does_not_do() -> None:
    assert OF_INDUCTOR.read_seconds == OF_INDUCTOR.spilled == OF_INDUCTOR.pass_bytes == 0


PROGRAM = """
import torch, triton, triton.language as tl
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 1024})], key=["n"])
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

def step():
    x, out = (torch.empty(1 << 26, device="cuda") for _ in range(2))
    def go():
        doubled[(1 << 16,)](x, out, x.numel(), BLOCK=1024)
        tuned[lambda given: (triton.cdiv(given["n"], given["BLOCK"]),)](x, out, x.numel())
        small, few = torch.arange(64, device="cuda"), torch.zeros(64, device="cuda").long()
        doubled[(1,)](small, few, 64, BLOCK=64)
        if few.max().item() == 0:
            raise RuntimeError("what a kernel wrote is taken to be zeros")
        assert tuned.best_config.kwargs["BLOCK"] == 1024
    return go

@triton.jit
def scaled(x, apart, out, n, SCALE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at * apart, mask=at < n) * SCALE, mask=at < n)

@torch.compile
def applied(x):
    out = torch.empty_like(x)
    scaled[(1 << 16,)](x, 1, out, x.numel(), SCALE=2, BLOCK=1024)
    return out

def compiled():
    x = torch.empty(1 << 26, device="cuda")
    return lambda: applied(x)
"""
ONCE = 2 * 4 * (1 << 26) / GPU.bandwidth_bytes_per_second


@pytest.mark.parametrize(("name", "times"), [("step", 2), ("compiled", 1)])
def test_a_program_that_launches_them_has_a_time_and_no_note_of_bytes(
    name: str, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.delenv(INTERPRET, raising=False)
    (tmp_path / "program.py").write_text(PROGRAM)
    found = vramcast.predict(f"{tmp_path / 'program.py'}:{name}", gpu="h200")
    assert found.step is not None
    assert times < found.step.device_seconds / ONCE < 1.25 * times
    assert not any("bytes moved" in note for note in found.limits)


@pytest.mark.parametrize(
    ("launch", "error"),
    [
        ("doubled[(1,)](x, x, BLOCK=16)", "doubled() is launched without its argument n"),
        ("doubled[(1,)](x, x, 16, 16, 16)", "doubled() takes 4 arguments, not 5"),
        ("doubled[(1,)](x, x.cpu(), 16, BLOCK=16)", "Pointer argument (at 1) cannot be accessed"),
    ],
)
def test_a_launch_that_fails_on_a_gpu_fails(
    launch: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.delenv(INTERPRET, raising=False)
    build = f"""
def wrong():
    x = torch.empty(16, device="cuda")
    return lambda: {launch}
"""
    (tmp_path / "program.py").write_text(PROGRAM + build)
    with pytest.raises(vramcast.VramcastError, match=re.escape(error)):
        vramcast.predict(f"{tmp_path / 'program.py'}:wrong", gpu="h200")
