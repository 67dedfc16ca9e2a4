"""The recurrences as operators: the same values and gradients as the loops, and what they allocate is known without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from vramcast import predict
from vramcast.simulate.session import STEPS
from vramcast.tracing.files import read_trace
from vramcast_zoo import e1, e5, e10, fused, launch
from vramcast_zoo.catalogue import ENTRIES
from vramcast_zoo.recurrence import elman, ema_banks, low_rank_elman

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


FUNCTIONS: dict[str, Callable[..., Tensor]] = {"elman": elman, "low_rank_elman": low_rank_elman, "ema_banks": ema_banks}


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
    grads = [torch.autograd.grad(elman(drive, weight, kind).sum(), (drive, weight)) for kind in ("fused", "plain")]  # type: ignore[arg-type]
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
    torch.library.opcheck(fused.ema_banks, (states.clone().requires_grad_(), decay), test_utils=checks)
    torch.library.opcheck(fused.ema_banks_backward, (torch.randn_like(memory), states, decay, memory), test_utils=checks)


# ------------------------------------------------------------------------------------------------------------------- the decision
class OnGpu:
    """All that the decision may look at."""

    is_cuda = True

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype


def test_by_itself_the_operator_is_used_for_halves_on_a_gpu_only() -> None:
    for dtype, used in ((torch.bfloat16, True), (torch.float16, True), (torch.float32, False), (torch.float64, False)):
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


# ------------------------------------------------------------------------------------------------------------------- the prediction
SMALL = {"dim": 64, "depth": 2, "batch_size": 4, "seq_len": 16}


@pytest.mark.parametrize("name, sizes, operators", [
    ("e10-50m", SMALL, {"elman", "elman_backward", "ema_banks", "ema_banks_backward"}),
    ("e5-d1536-r270", {**SMALL, "rank": 16}, {"elman", "elman_backward"}),
])  # fmt: skip
def test_a_prediction_sees_the_operators_and_never_what_is_inside(
    name: str, sizes: dict[str, int], operators: set[str], tmp_path: Path
) -> None:
    """No loop over the steps either: that would be as many allocations as there are steps."""
    traces = {}
    for kind in ("auto", "plain"):
        prediction = predict(name, gpu="h200", recurrence=kind, trace=str(tmp_path / kind), **sizes)
        assert [limit.startswith("the time of ") for limit in prediction.limits] == ([True] if kind == "auto" else [])
        traces[kind] = read_trace(tmp_path / kind).allocations
    seen = {allocation.op for allocation in traces["auto"]}
    assert {f"vramcast_zoo::{operator}" for operator in operators} <= seen
    assert len(traces["plain"]) - len(traces["auto"]) > STEPS * sizes["depth"] * sizes["seq_len"]


# ------------------------------------------------------------------------------------------------------------------------ the plan
def test_768_channels_of_256_samples_are_96_programs() -> None:
    assert launch.plan_for(256, 768, **H200) == launch.Plan("slices", rows=32, columns=64, chunk=128, warps=4, stages=4)


WIDTHS = sorted(
    {int(entry.all_sizes["dim"] * entry.all_sizes.get("expansion", 1)) for entry in ENTRIES if entry.family in ("e1", "e5", "e10")}
)


@pytest.mark.parametrize("batch", [1, 17, 114, 256, 1000])
@pytest.mark.parametrize("width", [1, 77, *WIDTHS])
def test_what_waits_for_each_other_runs_at_once_and_fits_into_shared_memory(width: int, batch: int) -> None:
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
