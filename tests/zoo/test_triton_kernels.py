"""The Triton kernels against the loops.

On a GPU where there is one, else in Triton's interpreter, which runs one program after the other.

Programs that wait for each other cannot run one after the other, so without a GPU the same kernel
is launched once a step (`steps`); what a wait would do is all that is left out. The interpreter
cannot multiply bfloat16, so products are tested in float16.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from long_tests import long_unless
from torch import Tensor

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
if not ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # asked for when Triton is first imported
pytest.importorskip("triton", reason="needs Triton; CUDA builds of torch bring it")

from vramcast_zoo import fused, launch, scan, selective  # noqa: E402
from vramcast_zoo.launch import Plan  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::RuntimeWarning"
)  # the interpreter is NumPy inside
PLANS = {
    "steps": Plan("steps", 16, 64, 64),
    "rows": Plan("rows", 16, 64, 64),
}
PRECISION = {torch.float16: 1e-3, torch.bfloat16: 8e-3}
SIZES = [(1, 3, 64), (3, 16, 64), (3, 5, 77), (2, 20, 130), (2, 33, 192)]  # steps, samples, width


def random(*shape: int, dtype: torch.dtype = torch.float16, scale: float = 1.0) -> Tensor:
    return (torch.randn(*shape) * scale).to(dtype).to(DEVICE)


def unwritten(like: Tensor) -> Tensor:
    """A place that nobody wrote to shows."""
    return torch.full_like(like, float("nan"))


def error(result: Tensor, wanted: Tensor) -> float:
    return float((result.double().cpu() - wanted.cpu()).norm() / wanted.cpu().norm())


def counters() -> Tensor:
    return torch.zeros(launch.COUNTERS, dtype=torch.int32, device=DEVICE)


@pytest.mark.parametrize("steps, batch, width", long_unless(SIZES[1:3].__contains__, SIZES))
@pytest.mark.parametrize("name", PLANS)
def test_states_and_gradients_are_those_of_the_loop(
    name: str, steps: int, batch: int, width: int
) -> None:
    torch.manual_seed(0)
    drive, grad, weight = (
        random(steps, batch, width),
        random(steps, batch, width),
        random(width, width, scale=width**-0.5),
    )
    states = unwritten(drive)
    launch.elman(states, drive, states, weight, counters(), PLANS[name], backward=False)
    wanted, _ = fused.elman(drive.double().cpu(), weight.double().cpu())
    assert error(states, wanted) < PRECISION[torch.float16]

    grad_drive = unwritten(drive)
    launch.elman(grad_drive, grad, states, weight, counters(), PLANS[name], backward=True)
    wanted, _ = fused.elman_backward(
        grad.double().cpu(), states.double().cpu(), weight.double().cpu()
    )
    assert error(grad_drive, wanted) < PRECISION[torch.float16]


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize(
    "steps, batch, width, banks",
    [(1, 1, 8, 1), (5, 3, 300, 3), (4, 2, 256, 4), (3, 2, 40, fused.MOST_BANKS)],
)
def test_banks_and_gradients_are_those_of_the_loop(
    dtype: torch.dtype, steps: int, batch: int, width: int, banks: int
) -> None:
    torch.manual_seed(0)
    states, decay = random(steps, batch, width, dtype=dtype), torch.rand(banks, width).to(DEVICE)
    memory = unwritten(random(steps, batch, banks, width, dtype=dtype))
    launch.ema_forward(memory, states, decay)
    assert (
        error(memory, fused.ema_banks(states.double().cpu(), decay.double().cpu()))
        < PRECISION[dtype]
    )

    grad, grad_states, grad_rows = (
        random(*memory.shape, dtype=dtype),
        unwritten(states),
        unwritten(decay.expand(batch, -1, -1)),
    )
    launch.ema_backward(grad_states, grad_rows, grad, states, decay, memory)
    wanted = fused.ema_banks_backward(
        *(tensor.double().cpu() for tensor in (grad, states, decay, memory))
    )
    assert error(grad_states, wanted[0]) < PRECISION[dtype]
    assert error(grad_rows, wanted[1]) < 1e-5


@pytest.mark.parametrize(
    "samples, steps, heads, head_dim, state",
    [
        (1, 1, 1, 16, 16),
        (2, 70, 3, 16, 32),
        pytest.param(2, 130, 2, 64, 16, marks=pytest.mark.long),
    ],
)
def test_the_scan_and_its_gradients_are_those_of_the_plain_one(
    samples: int, steps: int, heads: int, head_dim: int, state: int
) -> None:
    torch.manual_seed(0)
    mixed = random(samples, steps, heads * head_dim + 2 * state, scale=0.5)
    dt, a, skip = (
        torch.rand(samples, steps, heads).to(DEVICE),
        -torch.linspace(0.01, 2, heads).to(DEVICE),
        torch.randn(heads).to(DEVICE),
    )
    wide = tuple(tensor.double().cpu() for tensor in (mixed, dt, a, skip))
    y = unwritten(mixed[..., : heads * head_dim].contiguous())
    launch.ssd_forward(y, mixed, dt, a, skip, state, scan.CHUNK)
    assert error(y, scan.ssd(*wide, state)) < PRECISION[torch.float16]

    grad = random(*y.shape)
    results = tuple(
        unwritten(result) for result in scan._ssd_gradients_like(grad, mixed, dt, a, skip, state)
    )
    launch.ssd_backward(results, grad, mixed, dt, a, skip, scan.CHUNK)
    wanted = scan.ssd_backward(grad.double().cpu(), *wide, state)
    for name, result, right in zip(
        ("mixed", "dt", "a", "skip", "states", "their gradients"), results, wanted, strict=True
    ):
        assert error(result, right) < 2e-3 or float(right.norm()) == 0, (
            name
        )  # bounded by float16 states


@pytest.mark.parametrize(
    "samples, steps, width, state",
    [(1, 1, 32, 16), pytest.param(2, 35, 40, 8, marks=pytest.mark.long)],
)
def test_the_selective_scan_and_its_gradients_are_those_of_the_plain_one(
    samples: int, steps: int, width: int, state: int
) -> None:
    torch.manual_seed(0)
    x, b, c = (
        random(samples, steps, width),
        random(samples, steps, state),
        random(samples, steps, state),
    )
    dt, a, skip = (
        torch.rand(samples, steps, width).to(DEVICE),
        -torch.linspace(0.01, 2, width).to(DEVICE),
        torch.randn(width).to(DEVICE),
    )
    wide = tuple(tensor.double().cpu() for tensor in (x, dt, a, b, c, skip))
    y, grad = unwritten(x), random(*x.shape)
    launch.selective_forward(y, x, dt, a, b, c, skip)
    assert error(y, selective.scan(*wide)) < PRECISION[torch.float16]

    results = tuple(
        unwritten(result) for result in selective._gradients_like(grad, x, dt, a, b, c, skip)
    )
    launch.selective_backward(results, grad, x, dt, a, b, c, skip)
    wanted = selective.scan_backward(grad.double().cpu(), *wide)
    for index, name in enumerate(("x", "dt", "a", "skip", "b", "c")):
        result, right = (
            values[index].sum(0) if name in ("b", "c") else values[index]
            for values in (results, wanted)
        )
        assert (
            error(result, right) < (PRECISION[torch.float16] if name == "x" else 1e-5)
            or float(right.norm()) == 0
        ), name


SMALL = [(dtype, *sizes) for dtype in PRECISION for sizes in ((1, 1, 3), (2, 2, 8))]


# Several blocks of steps and channels take long here, and are the same in every precision.
@pytest.mark.parametrize(
    "dtype, samples, steps, width",
    long_unless(SMALL.__contains__, [*SMALL, (torch.float16, 2, 131, 300)]),
)
def test_the_convolution_and_its_gradients_are_those_of_the_plain_one(
    dtype: torch.dtype, samples: int, steps: int, width: int
) -> None:
    torch.manual_seed(0)
    whole = random(samples, steps, width + 5, dtype=dtype)
    u, weight, bias = (
        whole[..., :width],
        random(width, 1, scan.TAPS, dtype=dtype),
        random(width, dtype=dtype),
    )
    wide = tuple(tensor.double().cpu() for tensor in (u, weight, bias))
    out = unwritten(u.contiguous())
    launch.conv_forward(out, u, weight, bias)
    assert error(out, scan.causal_conv(*wide)) < PRECISION[dtype]

    grad = random(*u.shape, dtype=dtype)
    grad_u, parts = (
        unwritten(result) for result in scan._conv_gradients_like(grad, u, weight, bias)
    )
    launch.conv_backward(grad_u, parts, grad, u, weight, bias)
    wanted = scan.causal_conv_backward(grad.double().cpu(), *wide)
    assert error(grad_u, wanted[0]) < PRECISION[dtype]
    assert error(parts.sum(0), wanted[1].sum(0)) < 1e-5


def test_a_drive_that_is_not_a_number_stays_one_and_large_ones_saturate() -> None:
    drive = torch.tensor([-1e4, 1e4, float("nan"), 0.0], dtype=torch.float16, device=DEVICE).view(
        1, 1, 4
    )
    states = torch.ones_like(drive)
    launch.elman(states, drive, states, random(4, 4), counters(), PLANS["steps"], backward=False)
    assert (
        states.flatten().tolist()[:2] == [-1, 1]
        and states[0, 0, 2].isnan()
        and states[0, 0, 3] == 0
    )


# --------------------------------------------------------------------------------------- on a GPU
needs_gpu = pytest.mark.skipif(
    not ON_GPU, reason="needs a GPU: programs that wait for each other run at once"
)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize(
    "steps, batch, width",
    [*SIZES, (64, 256, 768), (20, 114, 2688), (20, 1000, 1536), (20, 257, 960)],
)
def test_on_a_gpu_programs_that_wait_for_each_other_give_the_loops_states_and_gradients(
    dtype: torch.dtype, steps: int, batch: int, width: int
) -> None:
    torch.manual_seed(0)
    drive, weight = (
        random(steps, batch, width, dtype=dtype),
        random(width, width, dtype=dtype, scale=0.5 * width**-0.5),
    )
    grad = random(steps, batch, width, dtype=dtype)
    states, _ = fused.elman(drive, weight)
    assert error(states, fused.elman(drive.double(), weight.double())[0]) < PRECISION[dtype]
    grad_drive, _ = fused.elman_backward(grad, states, weight)
    assert (
        error(grad_drive, fused.elman_backward(grad.double(), states.double(), weight.double())[0])
        < PRECISION[dtype]
    )


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_the_same_input_gives_the_same_bits() -> None:
    """A result that moves is a race."""
    torch.manual_seed(0)
    drive, weight = (
        random(200, 256, 768, dtype=torch.bfloat16),
        random(768, 768, dtype=torch.bfloat16, scale=0.5 * 768**-0.5),
    )
    first, _ = fused.elman(drive, weight)
    for _ in range(10):
        assert torch.equal(fused.elman(drive, weight)[0], first)


@pytest.mark.long
def test_the_kernels_compile_for_an_h200_use_its_tensor_cores_and_fit_into_its_shared_memory() -> (
    None
):
    """Compiling needs no GPU. In a process of its own: this one may interpret."""
    script = Path(__file__).with_name("compile_for_h200.py")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(Path(launch.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    kernels = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(kernels) == 20
    assert all(kernel["shared_bytes"] <= 232448 for kernel in kernels)
    assert all(
        kernel["tensor_cores"] == kernel["kernel"].startswith(("elman", "ssd"))
        for kernel in kernels
    )
