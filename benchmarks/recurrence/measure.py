"""Measures one case of cases.py and prints its record as one line of JSON.

Waits for a line on its input before it uses the GPU.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from cases import ALL, BATCH, LENGTH, Case
from torch import Tensor, nn

from vramcast_zoo import launch, mamba2, names, recurrence, scan

DTYPE = torch.bfloat16
WARM_UPS, REPEATS = 3, 15
SLOW_MS, SLOW_REPEATS = 60.0, 10


@dataclass
class Way:
    """`forward()` gives the states; `both()` the states and the gradients of all inputs."""

    forward: Callable[[], Tensor]
    both: Callable[[], tuple[Tensor, ...]]


# ---- the inputs
def inputs_of(case: Case) -> tuple[tuple[Tensor, ...], Tensor]:
    """The recurrence's arguments, and the gradient of its result. Decaying, as trained ones are:
    chaos would make any two ways differ.
    """
    torch.manual_seed(0)
    if case.recurrence == "scan":
        return _scan_inputs(**case.sizes)
    width, shape = case.sizes["width"], (LENGTH, BATCH, case.sizes["width"])

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(*shape, device="cuda") * scale).to(DTYPE).requires_grad_()

    drive = normal(*shape, scale=0.5)
    if case.recurrence == "low-rank":
        rank = case.sizes["rank"]
        return (
            drive,
            normal(width, rank, scale=0.7 * width**-0.5),
            normal(rank, width, scale=0.7 * width**-0.5),
        ), normal(*shape)
    if case.recurrence == "ema":
        decay = (
            torch.empty(case.sizes["banks"], width, device="cuda")
            .uniform_(0.8, 0.99)
            .requires_grad_()
        )
        return (drive, decay), normal(LENGTH, BATCH, *decay.shape)
    return (drive, normal(width, width, scale=0.5 * width**-0.5)), normal(*shape)


def _scan_inputs(heads: int, head_dim: int, state: int) -> tuple[tuple[Tensor, ...], Tensor]:
    """As in a fresh model: time steps of 0.001 to 0.1, rates of 1 to 16."""
    mixed = (
        torch.randn(BATCH, LENGTH, heads * head_dim + 2 * state, device="cuda")
        .to(DTYPE)
        .requires_grad_()
    )
    dt = (
        torch.empty(BATCH, LENGTH, heads, device="cuda").uniform_(-6.9, -2.3).exp().requires_grad_()
    )
    a = (-torch.empty(heads, device="cuda").uniform_(1, 16)).requires_grad_()
    return (mixed, dt, a, torch.ones(heads, device="cuda", requires_grad=True)), torch.randn_like(
        mixed[..., : heads * head_dim]
    )


def scan_of(way: str, sizes: dict[str, int]) -> Callable[..., Tensor]:
    inner, state = sizes["heads"] * sizes["head_dim"], sizes["state"]

    def taken_apart(mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, b, c = mixed.split((inner, state, state), dim=-1)
        return x.unflatten(-1, (sizes["heads"], -1)), b, c

    def plain(mixed: Tensor, dt: Tensor, a: Tensor, skip: Tensor) -> Tensor:
        x, b, c = taken_apart(mixed)
        return (mamba2.ssd(x, dt, a, b, c) + x * skip.to(x.dtype)[:, None]).flatten(2)

    def fla(mixed: Tensor, dt: Tensor, a: Tensor, skip: Tensor) -> Tensor:
        from fla.ops.simple_gla import chunk_simple_gla

        x, b, c = taken_apart(mixed)
        keys, queries = (
            t.unsqueeze(2).expand(-1, -1, sizes["heads"], -1).contiguous() for t in (b, c)
        )
        y, _ = chunk_simple_gla(queries, keys, x * dt.to(x.dtype).unsqueeze(-1), dt * a, scale=1.0)
        return (y + x * skip.to(x.dtype)[:, None]).flatten(2)

    return {"plain": plain, "fla": fla, "fused": lambda *tensors: scan.ssd(*tensors, state)}[way]


def fla_unguarded() -> None:
    """flash-linear-attention 0.6 refuses its backward pass with Triton 3.4 to 3.7.0, which may
    compile it wrongly. Results are checked.
    """
    from fla.ops.common import chunk_o

    chunk_o.TRITON_ABOVE_3_7_1 = True


def fla_alone(sizes: dict[str, int]) -> Way:
    """Its kernels only: keys and queries of every head, inputs times dt and decays are there
    already, and D x is left out.
    """
    from fla.ops.simple_gla import chunk_simple_gla

    shape = (BATCH, LENGTH, sizes["heads"])
    queries, keys = (
        torch.randn(*shape, sizes["state"], device="cuda").to(DTYPE).requires_grad_()
        for _ in range(2)
    )
    values = torch.randn(*shape, sizes["head_dim"], device="cuda").to(DTYPE).requires_grad_()
    decays = (-torch.rand(shape, device="cuda")).requires_grad_()
    inputs = (queries, keys, values, decays)
    return through_autograd(
        lambda *tensors: chunk_simple_gla(*tensors, scale=1.0)[0], inputs, torch.randn_like(values)
    )


FUNCTIONS = {
    "elman": recurrence.elman,
    "low-rank": recurrence.low_rank_elman,
    "ema": recurrence.ema_banks,
}


# ---- the ways
def through_autograd(
    function: Callable[..., Tensor], inputs: tuple[Tensor, ...], grad: Tensor
) -> Way:
    def forward() -> Tensor:
        with torch.no_grad():
            return function(*inputs)

    def both() -> tuple[Tensor, ...]:
        result = function(*inputs)
        return result.detach(), *torch.autograd.grad(result, inputs, grad)

    return Way(forward, both)


def cudnn(inputs: tuple[Tensor, ...], grad: Tensor) -> Way:
    """cuDNN multiplies its input by a matrix too; with the identity it is the same function, and
    that product is in its times.
    """
    drive, weight = inputs
    width = drive.shape[-1]
    rnn = nn.RNN(width, width, bias=False, device="cuda", dtype=DTYPE)
    with torch.no_grad():
        rnn.weight_ih_l0.copy_(torch.eye(width))
        rnn.weight_hh_l0.copy_(weight)

    def both() -> tuple[Tensor, ...]:
        result = rnn(drive)[0]
        return result.detach(), *torch.autograd.grad(result, (drive, rnn.weight_hh_l0), grad)

    def forward() -> Tensor:
        with torch.no_grad():
            return rnn(drive)[0]

    return Way(forward, both)


def graphed(case: Case, inputs: tuple[Tensor, ...], grad: Tensor) -> Way:
    """Both passes captured once. Addresses are fixed: a model would have to copy its tensors in and
    out, which is not in these times.
    """
    drive, weight = (tensor.detach() for tensor in inputs)
    states, grad_drive = torch.empty_like(drive), torch.empty_like(drive)
    grad_weight = torch.empty_like(weight)

    def loop(backward: bool) -> None:
        if case.way == "graph-steps":
            counters = torch.zeros(launch.COUNTERS, dtype=torch.int32, device="cuda")
            out, source = (grad_drive, grad) if backward else (states, drive)
            launch.elman(
                out,
                source,
                states,
                weight,
                counters,
                launch.Plan(**(case.plan or {})),
                backward=backward,
            )
        elif backward:
            _torch_backward(grad_drive, grad, states, weight)
        else:
            _torch_forward(states, drive, weight)

    def all_of_it() -> None:
        loop(False)
        loop(True)
        torch.mm(grad_drive[1:].flatten(0, 1).t(), states[:-1].flatten(0, 1), out=grad_weight)

    graphs = [_capture(lambda: loop(False)), _capture(all_of_it)]

    def forward() -> Tensor:
        graphs[0].replay()
        return states

    def both() -> tuple[Tensor, ...]:
        graphs[1].replay()
        return states, grad_drive, grad_weight

    return Way(forward, both)


def _torch_forward(states: Tensor, drive: Tensor, weight: Tensor) -> None:
    torch.tanh(drive[0], out=states[0])
    for t in range(1, len(drive)):
        torch.tanh(torch.addmm(drive[t], states[t - 1], weight.t()), out=states[t])


def _torch_backward(grad_drive: Tensor, grad: Tensor, states: Tensor, weight: Tensor) -> None:
    torch.ops.aten.tanh_backward.grad_input(grad[-1], states[-1], grad_input=grad_drive[-1])
    for t in reversed(range(len(grad) - 1)):
        torch.ops.aten.tanh_backward.grad_input(
            torch.addmm(grad[t], grad_drive[t + 1], weight), states[t], grad_input=grad_drive[t]
        )


def _capture(function: Callable[[], None]) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(side):
        function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        function()
    return graph


def way_of(case: Case, inputs: tuple[Tensor, ...], grad: Tensor) -> Way:
    if case.way == "cudnn":
        return cudnn(inputs, grad)
    if case.way.startswith("graph"):
        return graphed(case, inputs, grad.detach())
    if case.way == "fla":
        fla_unguarded()
    if case.recurrence == "scan":
        return through_autograd(scan_of(case.way, case.sizes), inputs, grad)
    if (
        case.plan
    ):  # instead of the one it would choose, in this process, which measures nothing else
        plan = launch.Plan(**case.plan)
        launch.plan_on = lambda device, batch, width: plan
    function = FUNCTIONS[case.recurrence]
    return through_autograd(lambda *tensors: function(*tensors, case.way), inputs, grad)


# ---- measuring
def median_ms(call: Callable[[], object]) -> tuple[float, list[float]]:
    for _ in range(WARM_UPS):
        call()
    torch.cuda.synchronize()
    times: list[float] = []
    while len(times) < (SLOW_REPEATS if times and times[0] > SLOW_MS else REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times), times


def reference(case: Case, inputs: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, ...]:
    """The plain loop in float32 on the same numbers."""
    wide = tuple(tensor.detach().float().requires_grad_() for tensor in inputs)
    if case.recurrence == "scan":
        return _scan_reference(case, wide, grad.detach().float())
    return through_autograd(
        lambda *tensors: FUNCTIONS[case.recurrence](*tensors, "plain"), wide, grad.detach().float()
    ).both()


def _scan_reference(case: Case, inputs: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, ...]:
    """A few samples at a time: in float32 the matrices of all of them take more than a GPU has."""
    function, parts = scan_of("plain", case.sizes), []
    for rows in torch.arange(BATCH).split(32):
        some = (
            inputs[0][rows].detach().requires_grad_(),
            inputs[1][rows].detach().requires_grad_(),
            *inputs[2:],
        )
        parts.append(through_autograd(function, some, grad[rows]).both())
    y, mixed, dt, a, skip = zip(*parts, strict=True)
    return torch.cat(y), torch.cat(mixed), torch.cat(dt), sum(a), sum(skip)


def error(result: Tensor, wanted: Tensor) -> float:
    return float((result.float() - wanted).norm() / wanted.norm())


def measure_recurrence(case: Case) -> dict[str, Any]:
    inputs, grad = inputs_of(case)
    way = way_of(case, inputs, grad)
    results = tuple(result.clone() for result in way.both())
    repeatable = (
        all(all(map(torch.equal, way.both(), results)) for _ in range(3))
        if case.way != "plain"
        else None
    )
    wanted = reference(case, inputs, grad)
    keys = ("states", *(f"grad{index}" for index in range(len(inputs))))
    errors = {
        key: error(*pair) for key, pair in zip(keys, zip(results, wanted, strict=True), strict=True)
    }
    largest = {
        key: float((r.float() - w).abs().max() / w.abs().max())
        for key, r, w in zip(keys, results, wanted, strict=True)
    }
    del wanted, results
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    way.both()
    peak_bytes = torch.cuda.max_memory_allocated() - before
    if case.way == "fla":
        whole_ms, _ = median_ms(way.both)
        way = fla_alone(case.sizes)
    forward_ms, forward_times = median_ms(way.forward)
    both_ms, both_times = median_ms(way.both)
    return {
        "forward_ms": forward_ms,
        "forward_backward_ms": both_ms,
        "relative_errors": errors,
        "largest_relative_errors": largest,
        "peak_above_inputs_bytes": peak_bytes,
        **({"with_expansion_ms": whole_ms} if case.way == "fla" else {}),
        "repeatable": repeatable,
        "forward_times_ms": forward_times,
        "forward_backward_times_ms": both_times,
    }


def measure_product(case: Case) -> dict[str, Any]:
    """The same arithmetic without the order: what no recurrence can beat."""
    (drive, weight), _ = inputs_of(case)
    flat, weight = drive.detach().flatten(0, 1), weight.detach()
    forward_ms, times = median_ms(lambda: flat @ weight)
    both_ms, _ = median_ms(lambda: (flat @ weight, flat @ weight, flat.t() @ flat))
    flops = 2 * flat.shape[0] * weight.numel()
    return {
        "forward_ms": forward_ms,
        "forward_backward_ms": both_ms,
        "tflops": flops / forward_ms / 1e9,
        "forward_times_ms": times,
    }


def measure_model(case: Case) -> dict[str, Any]:
    step = getattr(names, case.model.replace("-", "_"))(
        batch_size=BATCH, seq_len=LENGTH, precision="bf16", recurrence=case.way
    )
    warm_ups, repeats = (1, 2) if case.way == "plain" else (3, 10)
    losses = [float(step()) for _ in range(warm_ups)]
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(repeats):
        loss = step()
    losses.append(float(loss))
    seconds = (time.perf_counter() - began) / repeats
    tokens = BATCH * LENGTH
    return {
        "step_ms": seconds * 1e3,
        "tokens_per_second": tokens / seconds,
        "losses": losses,
        "steps": repeats,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
    }


def main() -> None:
    case = ALL[sys.argv[1]]
    sys.stdin.readline()
    measure = {"model": measure_model, "product": measure_product}.get(
        case.recurrence, measure_recurrence
    )
    began = time.monotonic()
    record = measure(case)
    about = {
        "recurrence": case.recurrence,
        "way": case.way,
        "sizes": {"batch": BATCH, "length": LENGTH, **case.sizes},
        "plan": case.plan,
    }
    versions = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "seconds": time.monotonic() - began,
    }
    print(json.dumps({**about, **record, **versions}), flush=True)


if __name__ == "__main__":
    main()
