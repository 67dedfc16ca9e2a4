"""Records on a GPU what step times still assume: copies over PCIe, large products, norms, scans.

    python benchmarks/step_time/recording/record.py --out FILE.jsonl
    python benchmarks/step_time/recording/record.py --out FILE.jsonl --step dcgan-B128

One call of about two minutes. With --step it profiles the step of a row of the suites, or of a
family of operators (`.../families/operators.py:norms`): profiled.py says what a line has. Without,
the first line has the machine, with the speed of its host as `vramcast calibrate --host` measures
it; every other line one case: its name, its sizes, its bytes and operations, and the median seconds
of a call in a long run, when the GPU has reached the clock that it can keep. Launches are not in
the seconds: many calls are timed together.

fit.py does not read it yet. It is for HOST_STEP_SECONDS and PCIE_SPREAD there, and for the rates of
copies in forecast/timing/kernels.py.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from profiled import kernels_of, profiled

from vramcast.hardware.calibration.host import measure as measure_host
from vramcast.workload.knobs import split_assignments

SECONDS_OF_CASE = 1.0
ROUNDS = 7


class Case(NamedTuple):
    name: str
    sizes: list[int]
    num_bytes: float
    flops: float
    call: Callable[[], Any]


def copies(device: str, scale: int) -> Iterator[Case]:
    """Into memory that is there, and into new memory, whose pages the host must find first."""
    for num_bytes in (
        1 << 2,
        1 << 12,
        1 << 16,
        1 << 18,
        1 << 20,
        1 << 22,
        1 << 24,
        1 << 26,
        1 << 28,
    ):
        num_bytes = max(4, num_bytes // scale)
        on_gpu = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
        for is_pinned in (True, False) if device == "cuda" else (False,):
            on_host = torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=is_pinned)
            kind = "pinned" if is_pinned else "pageable"
            for name, to, source in (("to", on_gpu, on_host), ("from", on_host, on_gpu)):
                for goes_on in (True, False) if is_pinned else (False,):
                    copy = partial(to.copy_, source, non_blocking=goes_on)
                    more = " non_blocking" if goes_on else ""
                    name_of = f"copy {name} the GPU, {kind}{more}"
                    yield Case(name_of, [num_bytes], num_bytes, 0.0, copy)
        yield Case("cpu()", [num_bytes], num_bytes, 0.0, on_gpu.cpu)
        yield Case("to(device)", [num_bytes], num_bytes, 0.0, partial(on_host.to, device))
        if device == "cuda":
            yield Case("pin_memory()", [num_bytes], num_bytes, 0.0, on_host.pin_memory)


def products(device: str, scale: int) -> Iterator[Case]:
    """Up to sizes at which the GPU cannot keep its highest clock."""
    for dtype in (torch.bfloat16, torch.float32):
        for rows in (64, 512, 4096, 32768, 65536):
            for width in (512, 2048, 8192):
                m, k = max(8, rows // scale), max(8, width // scale)
                x = torch.randn(m, k, device=device, dtype=dtype)
                weight = torch.randn(k, 4 * k, device=device, dtype=dtype)
                moved = (x.numel() + weight.numel() + m * 4 * k) * x.element_size()
                product = lambda x=x, weight=weight: x @ weight  # noqa: E731
                flops = 2.0 * m * k * 4 * k
                yield Case(f"product {dtype}", [m, 4 * k, k], moved, flops, product)


def norms_and_attention(device: str, scale: int) -> Iterator[Case]:
    for rows in (1024, 16384, 131072):
        for width in (768, 4096):
            x = torch.randn(max(8, rows // scale), width, device=device, dtype=torch.bfloat16)
            scaled = x.detach().requires_grad_()
            weight = torch.ones(width, device=device, dtype=torch.bfloat16, requires_grad=True)
            for name, norm in (("layer_norm", F.layer_norm), ("rms_norm", F.rms_norm)):
                forward = lambda x=x, norm=norm, w=weight: norm(x, (x.shape[-1],), w)  # noqa: E731
                yield Case(name, list(x.shape), 2.0 * x.nbytes, 0.0, forward)
                y = norm(scaled, (width,), weight)
                backward = _backward(y, [scaled, weight])
                yield Case(f"{name} backward", list(x.shape), 3.0 * x.nbytes, 0.0, backward)
    for length in (256, 1024, 4096):
        q = torch.randn(4, 16, max(8, length // scale), 64, device=device, dtype=torch.bfloat16)
        q.requires_grad_()
        attention = lambda q=q: F.scaled_dot_product_attention(q, q, q, is_causal=True)  # noqa: E731
        flops = 2.0 * 4 * 16 * q.shape[2] ** 2 * 64
        yield Case("attention", list(q.shape), 4.0 * q.nbytes, flops, attention)
        backward = _backward(attention(), [q])
        yield Case("attention backward", list(q.shape), 8.0 * q.nbytes, 2.5 * flops, backward)


def _backward(y: torch.Tensor, inputs: list[torch.Tensor]) -> Callable[[], Any]:
    grad = torch.randn_like(y)
    return lambda: torch.autograd.grad(y, inputs, grad, retain_graph=True)


def seconds_of(call: Callable[[], Any], device: str, budget: float) -> float:
    """Of the median round, which has so many calls that launches do not count."""
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    call()
    synchronize()
    started = time.perf_counter()
    call()
    synchronize()
    once = max(1e-7, time.perf_counter() - started)
    count = max(1, min(10_000, int(budget / ROUNDS / once)))
    found = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(count):
            call()
        synchronize()
        found.append((time.perf_counter() - started) / count)
    return sorted(found)[ROUNDS // 2]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--step", help="profile this row's step, or FILE.py:FUNCTION's")
    parser.add_argument("--kernels", help="only the kernels of FILE.py:FUNCTION's step")
    parser.add_argument("--only", choices=PARTS, help="of the cases only these")
    parser.add_argument("--lock", type=Path, help="a file: who has it uses the GPU alone")
    parser.add_argument("--compiled", type=Path, help="a file: made when the step has compiled")
    parser.add_argument("knobs", nargs="*", help="of the function: key=value")
    options = parser.parse_args()
    given = split_assignments(options.knobs)
    if options.step or options.kernels:
        found = (
            kernels_of(options.kernels, options.lock, given)
            if options.kernels
            else profiled(options.step, options.lock, given, options.compiled)
        )
        options.out.write_text(json.dumps(found) + "\n")
        return
    record_cases(options.out, [options.only] if options.only else list(PARTS))


def record_cases(out: Path, parts: list[str], budget: float = SECONDS_OF_CASE) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # without a GPU only to see that it runs
    scale, budget = (1, budget) if device == "cuda" else (512, 0.01)
    with open(out, "w") as file:
        name = torch.cuda.get_device_name() if device == "cuda" else None
        head = {
            "gpu": name,
            "torch_version": torch.__version__,
            "host": measure_host(None, lambda _: None),
        }
        print(json.dumps(head), file=file)
        for part in parts:
            for case in PARTS[part](device, scale):
                seconds = seconds_of(case.call, device, budget)
                line = {**case._asdict(), "seconds": seconds}
                del line["call"]
                print(json.dumps(line), file=file, flush=True)


PARTS = {"copies": copies, "products": products, "norms": norms_and_attention}


if __name__ == "__main__":
    main()
