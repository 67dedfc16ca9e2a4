"""The recurrences as operators.

The same values and gradients as the loops, and what they allocate is known without a GPU.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from vramcast import predict
from vramcast.simulate.session import STEPS
from vramcast.tracing.files import read_trace
from vramcast_zoo import e1, e5, e10, fused, launch, mamba2, scan, selective
from vramcast_zoo.catalogue import ENTRIES
from vramcast_zoo.recurrence import elman, ema_banks, low_rank_elman

pytestmark = pytest.mark.usefixtures("warm_simulations")
H200 = {"multiprocessors": 132, "shared_bytes": 232448}


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def arguments(name: str, steps: int) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    drive = leaf(steps, 3, 5)
    return {
        "elman": (drive, leaf(5, 5)),
        "low_rank_elman": (drive, leaf(5, 2), leaf(2, 5)),
        "ema_banks": (drive, torch.rand(4, 5, dtype=torch.float64, requires_grad=True)),
    }[name]


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "elman": elman,
    "low_rank_elman": low_rank_elman,
    "ema_banks": ema_banks,
}


@pytest.mark.parametrize("steps", [1, 2, 9])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_operator_and_its_gradients_are_those_of_the_loop(name: str, steps: int) -> None:
    inputs = arguments(name, steps)

    def values_and_gradients(recurrence: str) -> tuple[Tensor, ...]:
        result = FUNCTIONS[name](*inputs, recurrence)
        weight = torch.linspace(-1, 2, result.numel(), dtype=result.dtype).view(result.shape)
        return result, *torch.autograd.grad((result * weight).sum(), inputs)

    torch.testing.assert_close(values_and_gradients("fused"), values_and_gradients("plain"))


def test_a_gradient_that_is_no_dense_tensor_is_taken() -> None:
    """The gradient of a sum is one number seen from every place."""
    drive, weight = arguments("elman", 4)
    grads = [
        torch.autograd.grad(elman(drive, weight, kind).sum(), (drive, weight))
        for kind in ("fused", "plain")
    ]  # type: ignore[arg-type]
    torch.testing.assert_close(grads[0], grads[1])


@pytest.mark.parametrize("steps", [1, 6])
def test_fake_kernels_say_what_the_operators_return(steps: int) -> None:
    torch.manual_seed(0)
    drive, weight = (tensor.detach() for tensor in arguments("elman", steps))
    states, decay = (tensor.detach() for tensor in arguments("ema_banks", steps))
    memory = fused.ema_banks(states, decay)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(fused.elman, (drive.clone().requires_grad_(), weight), test_utils=checks)
    torch.library.opcheck(fused.elman_backward, (drive, drive.tanh(), weight), test_utils=checks)
    torch.library.opcheck(
        fused.ema_banks, (states.clone().requires_grad_(), decay), test_utils=checks
    )
    torch.library.opcheck(
        fused.ema_banks_backward,
        (torch.randn_like(memory), states, decay, memory),
        test_utils=checks,
    )


# ---------------------------------------------------------------------------------------- Mamba-2
HEADS, HEAD_DIM, STATE = 3, 4, 5


def scan_arguments(steps: int) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    dt = torch.rand(2, steps, HEADS, dtype=torch.float64, requires_grad=True)
    a = (-4 * torch.rand(HEADS, dtype=torch.float64)).requires_grad_()
    return leaf(2, steps, HEADS * HEAD_DIM + 2 * STATE), dt, a, leaf(HEADS)


def scan_by_autograd(mixed: Tensor, dt: Tensor, a: Tensor, skip: Tensor) -> Tensor:
    x, b, c = mixed.split((HEADS * HEAD_DIM, STATE, STATE), dim=-1)
    x = x.unflatten(-1, (HEADS, HEAD_DIM))
    return (mamba2.ssd(x, dt, a, b, c) + x * skip[:, None]).flatten(2)


def convolved_by_torch(u: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    padded = torch.nn.functional.conv1d(
        u.transpose(1, 2), weight, bias, padding=scan.TAPS - 1, groups=len(bias)
    )
    return torch.nn.functional.silu(padded[..., : u.shape[1]]).transpose(1, 2)


def selective_arguments(steps: int) -> tuple[Tensor, ...]:
    dt = torch.rand(2, steps, 6, dtype=torch.float64, requires_grad=True)
    a = (-3 * torch.rand(6, dtype=torch.float64)).requires_grad_()
    return leaf(2, steps, 6), dt, a, leaf(2, steps, STATE), leaf(2, steps, STATE), leaf(6)


def selective_by_autograd(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor
) -> Tensor:
    return selective.selective_scan(x, dt, a, b, c) + x * skip


@pytest.mark.parametrize("steps", [1, 5, scan.CHUNK + 6])
def test_scans_and_convolution_and_their_gradients_are_what_autograd_makes_of_the_plain_ones(
    steps: int,
) -> None:
    arguments = scan_arguments(steps)
    channels = (leaf(2, steps, 7), leaf(7, 1, scan.TAPS), leaf(7))
    for operator, plain, inputs in (
        (lambda *tensors: scan.ssd(*tensors, STATE), scan_by_autograd, arguments),
        (scan.causal_conv, convolved_by_torch, channels),
        (selective.scan, selective_by_autograd, selective_arguments(steps)),
    ):
        result, wanted = operator(*inputs), plain(*inputs)
        torch.testing.assert_close(result, wanted)
        grad = torch.randn_like(wanted)
        torch.testing.assert_close(
            torch.autograd.grad(result, inputs, grad), torch.autograd.grad(wanted, inputs, grad)
        )


def test_fake_kernels_of_the_scan_say_what_the_operators_return() -> None:
    mixed, dt, a, skip = (tensor.detach() for tensor in scan_arguments(9))
    u, weight, bias = torch.randn(2, 9, 7), torch.randn(7, 1, scan.TAPS), torch.randn(7)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(scan.ssd, (mixed, dt, a, skip, STATE), test_utils=checks)
    torch.library.opcheck(
        scan.ssd_backward,
        (mixed[..., : HEADS * HEAD_DIM].contiguous(), mixed, dt, a, skip, STATE),
        test_utils=checks,
    )
    torch.library.opcheck(scan.causal_conv, (u, weight, bias), test_utils=checks)
    x, *rest = (tensor.detach() for tensor in selective_arguments(9))
    torch.library.opcheck(selective.scan, (x, *rest), test_utils=checks)
    torch.library.opcheck(selective.scan_backward, (x, x, *rest), test_utils=checks)
    torch.library.opcheck(
        scan.causal_conv_backward, (torch.randn_like(u), u, weight, bias), test_utils=checks
    )


def test_what_an_operator_of_the_scan_returns_is_allocated_in_that_order() -> None:
    """A simulator sees the results of a fake kernel, not when each was made."""
    made: list[tuple[int, ...]] = []

    class Recorder(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if func is Tensor.new_empty:
                made.append(tuple(result.shape))
            return result

    mixed, *others = (tensor.detach() for tensor in scan_arguments(9))
    x, *rest = (tensor.detach() for tensor in selective_arguments(9))
    with Recorder():
        results = (
            *scan._ssd_gradients_like(mixed, mixed, *others, STATE),
            *selective._gradients_like(x, x, *rest),
        )
    assert made == [tuple(result.shape) for result in results]


def test_heads_that_are_no_tile_go_through_the_plain_scan() -> None:
    assert scan.fits(21, torch.empty(1, 1, 21 * 64 + 128), 64)
    assert not scan.fits(3, torch.empty(1, 1, 3 * 64 + 10), 5)


# ----------------------------------------------------------------------------------- the decision
class OnGpu:
    """All that the decision may look at."""

    is_cuda = True

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype


def test_by_itself_the_operator_is_used_for_halves_on_a_gpu_only() -> None:
    for dtype, used in (
        (torch.bfloat16, True),
        (torch.float16, True),
        (torch.float32, False),
        (torch.float64, False),
    ):
        assert fused.wanted("auto", OnGpu(dtype)) is used  # type: ignore[arg-type]
        assert not fused.wanted("auto", torch.zeros(1, dtype=dtype))
    assert not fused.wanted("plain", OnGpu(torch.bfloat16))  # type: ignore[arg-type]
    assert fused.wanted("fused", OnGpu(torch.bfloat16))  # type: ignore[arg-type]


def test_what_the_kernels_cannot_do_is_refused_where_they_are_asked_for() -> None:
    with pytest.raises(ValueError, match="computes in bfloat16 or float16, not in float32"):
        fused.wanted("fused", OnGpu(torch.float32))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="recurrence='fast' is none of auto, fused, plain"):
        fused.wanted("fast", torch.zeros(1))  # type: ignore[arg-type]


def test_more_banks_than_registers_go_through_the_loop() -> None:
    states, decay = torch.randn(3, 2, 4), torch.rand(fused.MOST_BANKS + 1, 4)
    torch.testing.assert_close(ema_banks(states, decay, "fused"), ema_banks(states, decay, "plain"))


@pytest.mark.parametrize("make", [e1.make_model, e5.make_model, e10.make_model])
def test_the_knob_reaches_every_layer(make: Callable[..., torch.nn.Module]) -> None:
    options = {"rank": 4} if make is e5.make_model else {}
    model = make(dim=8, depth=2, recurrence="fused", **options)
    assert [block.layer.recurrence for block in model.blocks] == ["fused", "fused"]  # type: ignore[union-attr]


# --------------------------------------------------------------------------------- the prediction
SMALL = {"dim": 64, "depth": 2, "batch_size": 4, "seq_len": 16}


@pytest.mark.parametrize(
    "name, operators",
    [
        ("e10-50m", {"elman", "elman_backward", "ema_banks", "ema_banks_backward"}),
        ("mamba2-50m", {"causal_conv", "causal_conv_backward", "ssd", "ssd_backward"}),
    ],
)
def test_a_prediction_sees_the_operators_and_never_what_is_inside(
    name: str, operators: set[str], tmp_path: Path
) -> None:
    """No loop over the steps: that would allocate once for each step, in every layer."""
    prediction = predict(name, gpu="h200", trace=str(tmp_path), **SMALL)
    assert [limit.startswith("the time of ") for limit in prediction.limits] == [True]
    allocations = read_trace(tmp_path).allocations
    assert {f"vramcast_zoo::{operator}" for operator in operators} <= {
        allocation.op for allocation in allocations
    }
    passes = 2 * STEPS * SMALL["depth"]
    inside = [
        allocation
        for allocation in allocations
        if allocation.op in ("aten::tanh", "aten::addmm", "aten::lerp", "aten::einsum")
    ]
    assert len(inside) < passes * 4 < passes * SMALL["seq_len"]


# ----------------------------------------------------------------------------------- the launches
class Kernels:
    """In place of a module of Triton kernels.

    Writes down which GPU is the current one at each launch.
    """

    def __init__(self) -> None:
        self.current, self.launched_on = "cuda:0", list[str]()

    def __getattr__(self, name: str) -> Kernels:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return lambda *_, **__: self.launched_on.append(self.current)

    @contextlib.contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        before, self.current = self.current, str(device)
        yield
        self.current = before


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Kernels:
    kernels = Kernels()
    for name in ("elman", "ema", "conv", "ssd", "selective"):
        monkeypatch.setitem(sys.modules, f"vramcast_zoo.kernels_{name}", kernels)
    monkeypatch.setitem(
        sys.modules, "triton.runtime.errors", SimpleNamespace(OutOfResources=MemoryError)
    )
    monkeypatch.setattr(torch.cuda, "device", kernels.device)
    return kernels


def launch_all(device: str) -> list[str]:
    """The names of what was called, each with tensors of this device."""
    states, weight, decay = (
        torch.empty(shape, device=device) for shape in ((4, 2, 64), (64, 64), (3, 64))
    )
    results = tuple(torch.empty(1, 2, 1, 16, 16, device=device) for _ in range(7))
    plan = launch.Plan("rows", 16, 64, 64)
    calls: dict[str, tuple[Any, ...]] = {
        "ema_forward": (states, states, decay),
        "ema_backward": (states, states, states, states, decay, states),
        "conv_forward": (states, states, weight, weight),
        "conv_backward": (states, states, states, states, weight, weight),
        "ssd_forward": (states, states, states, weight, weight, 16, 64),
        "ssd_backward": (results[:6], states, states, states, weight, weight, 64),
        "selective_forward": (states, states, states, weight, states, states, weight),
        "selective_backward": (results, states, states, states, weight, states, states, weight),
    }
    launch.elman(states, states, states, weight, states, plan, backward=False)
    for name, values in calls.items():
        getattr(launch, name)(*values)
    return ["elman", *calls]


def test_kernels_are_launched_on_the_gpu_of_their_tensors(kernels: Kernels) -> None:
    """Triton takes the current one."""
    with FakeTensorMode():
        called = launch_all("cuda:1")
    assert set(kernels.launched_on) == {"cuda:1"} and len(kernels.launched_on) >= len(called)
    assert kernels.current == "cuda:0"
    public = {
        name: value
        for name, value in vars(launch).items()
        if isinstance(value, FunctionType) and not name.startswith("_")
    }
    assert {
        name for name, value in public.items() if value.__annotations__.get("return") == "None"
    } == set(called)  # what only launches


def test_tensors_of_the_cpu_make_no_gpu_the_current_one(kernels: Kernels) -> None:
    """In Triton's interpreter."""
    launch_all("cpu")
    assert set(kernels.launched_on) == {"cuda:0"}


# --------------------------------------------------------------------------------------- the plan
def test_768_channels_of_256_samples_are_96_programs() -> None:
    assert launch.plan_for(256, 768, **H200) == launch.Plan(
        "slices", rows=32, columns=64, chunk=128, warps=4, stages=4
    )


WIDTHS = sorted(
    {
        int(entry.all_sizes["dim"] * entry.all_sizes.get("expansion", 1))
        for entry in ENTRIES
        if entry.family in ("e1", "e5", "e10")
    }
)


@pytest.mark.parametrize("batch", [1, 17, 114, 256, 1000])
@pytest.mark.parametrize("width", [1, 77, *WIDTHS])
def test_what_waits_for_each_other_runs_at_once_and_fits_into_shared_memory(
    width: int, batch: int
) -> None:
    plan = launch.plan_for(batch, width, **H200)
    assert plan.variant == "slices" and plan.columns == 64
    slices = -(-width // plan.columns)
    assert slices <= H200["multiprocessors"]
    assert plan.rows == 128 or -(-batch // plan.rows) * slices <= H200["multiprocessors"]
    assert 2 * plan.stages * plan.chunk * (plan.columns + plan.rows) <= H200["shared_bytes"]
    assert H200["multiprocessors"] // slices * 32 <= launch.COUNTERS


def test_a_width_with_more_slices_than_multiprocessors_waits_for_nobody() -> None:
    assert launch.plan_for(256, 3584, multiprocessors=46, shared_bytes=101376).variant == "rows"


def test_a_gpu_with_less_shared_memory_gets_fewer_or_smaller_chunks() -> None:
    plan = launch.plan_for(256, 1536, multiprocessors=142, shared_bytes=101376)
    assert (plan.chunk, plan.stages) == (128, 3)
