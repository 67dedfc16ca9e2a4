"""Records how fast products are in a long run and in a short one, with clock and power.

    PYTHONPATH=src python benchmarks/step_time/recording/sustained.py --out FILE.jsonl

A GPU that does nothing but products on its tensor cores needs more power than it may have, and
lowers its clock within a second. Kernels that were recorded one by one never met that. Every line
is one load: how long a call took in short bursts after a pause, how long in each quarter of a
second of a long run, and clock, power and temperature meanwhile (NVML). Loads that are switched on
for a part of the time keep the highest clock: what they need more than an idle GPU says how much a
load needs there. Needs pynvml.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import torch
import torch.nn.functional as F

QUARTER = 0.25
PAUSE = 0.25


class Watch:
    """Samples of the GPU while something runs."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        self.handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.samples: list[list[float]] = []
        self._stop = threading.Event()

    def limits(self) -> dict[str, Any]:
        found = {}
        for name, call in {
            "power_limit_watts": pynvml.nvmlDeviceGetEnforcedPowerLimit,
            "max_clock": lambda h: pynvml.nvmlDeviceGetMaxClockInfo(h, pynvml.NVML_CLOCK_SM),
            "memory_clock": lambda h: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_MEM),
        }.items():
            try:
                found[name] = call(self.handle)
            except pynvml.NVMLError as error:
                found[name] = repr(error)
        return found

    def millijoules(self) -> int | None:
        try:
            return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(self.handle))
        except pynvml.NVMLError:
            return None

    def _sample(self, started: float) -> list[float]:
        row = [round(time.perf_counter() - started, 3)]
        for call in (
            lambda: pynvml.nvmlDeviceGetClockInfo(self.handle, pynvml.NVML_CLOCK_SM),
            lambda: pynvml.nvmlDeviceGetPowerUsage(self.handle) / 1e3,
            lambda: self._instant(),
            lambda: pynvml.nvmlDeviceGetTemperature(self.handle, pynvml.NVML_TEMPERATURE_GPU),
            lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(self.handle),
        ):
            try:
                row.append(call())
            except (pynvml.NVMLError, AttributeError):
                row.append(-1)
        return row

    def _instant(self) -> float:
        value = pynvml.nvmlDeviceGetFieldValues(self.handle, [pynvml.NVML_FI_DEV_POWER_INSTANT])[0]
        return value.value.uiVal / 1e3

    def __enter__(self) -> Watch:
        self.samples, self._stop = [], threading.Event()
        started = time.perf_counter()

        def watch() -> None:
            while not self._stop.wait(0.04):
                self.samples.append(self._sample(started))

        self._thread = threading.Thread(target=watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def timed(call: Callable[[], Any], count: int) -> float:
    """Seconds of one call, on the GPU."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / count


def bursts(call: Callable[[], Any], count: int, number: int = 4) -> list[float]:
    found = []
    for _ in range(number):
        time.sleep(PAUSE)
        found.append(timed(call, count))
    return found


def long_run(call: Callable[[], Any], once: float, seconds: float) -> list[float]:
    count = max(1, int(QUARTER / once))
    ends, started = [], time.perf_counter()
    while time.perf_counter() - started < seconds:
        ends.append(timed(call, count))
    return ends


def part_of_the_time(call: Callable[[], Any], once: float, share: float, seconds: float) -> float:
    """Calls for about 4 ms, then none; returns the share of the time that was calls."""
    count = max(1, round(4e-3 / once))
    busy, started = 0.0, time.perf_counter()
    while (passed := time.perf_counter() - started) < seconds:
        busy += timed(call, count) * count
        time.sleep(max(0.0, count * once / share - count * once))
    return busy / passed


def record(
    watch: Watch, name: str, call: Callable[[], Any], flops: float, seconds: float, count: int = 0
) -> dict[str, Any]:
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    once = timed(call, 3)
    in_bursts = bursts(call, count or max(1, int(0.008 / once)))
    before, started = watch.millijoules(), time.perf_counter()
    with watch:
        quarters = long_run(call, once, seconds)
    taken, after = time.perf_counter() - started, watch.millijoules()
    watts = (after - before) / 1e3 / taken if before is not None and after is not None else None
    return {
        "load": name,
        "flops": flops,
        "bursts": in_bursts,
        "quarters": quarters,
        "watts": watts,
        "samples": watch.samples,
    }


def partly(watch: Watch, name: str, call: Callable[[], Any], share: float) -> dict[str, Any]:
    once = timed(call, 3)
    part_of_the_time(call, once, share, 0.5)
    before, started = watch.millijoules(), time.perf_counter()
    with watch:
        busy = part_of_the_time(call, once, share, 1.6)
    taken, after = time.perf_counter() - started, watch.millijoules()
    watts = (after - before) / 1e3 / taken if before is not None and after is not None else None
    return {"load": name, "share": busy, "watts": watts, "samples": watch.samples}


class Block(torch.nn.Module):
    """Of a Llama with 8 billion parameters."""

    def __init__(self, width: int = 4096, hidden: int = 14336, heads: int = 32, of_keys: int = 8):
        super().__init__()
        self.heads, self.of_keys, self.head = heads, of_keys, width // heads
        both = {"bias": False, "device": "cuda", "dtype": torch.bfloat16}
        self.q = torch.nn.Linear(width, width, **both)
        self.k, self.v = (torch.nn.Linear(width, of_keys * self.head, **both) for _ in range(2))
        self.o = torch.nn.Linear(width, width, **both)
        self.gate, self.up = (torch.nn.Linear(width, hidden, **both) for _ in range(2))
        self.down = torch.nn.Linear(hidden, width, **both)
        norm = {"device": "cuda", "dtype": torch.bfloat16}
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(width, **norm) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        y = self.norms[0](x)
        q, k, v = (
            each(y).view(batch, length, -1, self.head).transpose(1, 2)
            for each in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, -1))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def block_step(num: int = 2, length: int = 8192) -> tuple[Callable[[], Any], float]:
    torch.manual_seed(0)
    blocks = torch.nn.Sequential(*(Block() for _ in range(num)))
    x = torch.randn(1, length, 4096, device="cuda", dtype=torch.bfloat16)
    weights = sum(p.numel() for p in blocks.parameters())

    def step() -> None:
        y = blocks(x)
        y.backward(y.detach())
        for parameter in blocks.parameters():
            parameter.grad = None

    attention = num * 3.5 * 2 * 2 * 32 * length**2 * 128 / 2
    return step, 6.0 * weights * length + attention


def products(m: int, n: int, k: int, kind: str = "normal") -> tuple[Callable[[], Any], float]:
    """`kind` is of the numbers, or of the precision."""
    dtype = torch.float32 if kind in ("fp32", "tf32") else torch.bfloat16
    torch.set_float32_matmul_precision("high" if kind == "tf32" else "highest")
    make = {"zeros": torch.zeros}.get(kind, torch.randn)
    x, w = (make(*s, device="cuda", dtype=dtype) for s in ((m, k), (n, k)))
    if kind.startswith("sparse"):  # so many of ten elements are zero
        for each in (x, w):
            each.mul_((torch.rand_like(each) > int(kind[-1]) / 10).to(dtype))
    out = torch.empty(m, n, device="cuda", dtype=dtype)
    return lambda: torch.mm(x, w.t(), out=out), 2.0 * m * n * k


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--more", action="store_true", help="TF32, attention and convolutions")
    options = parser.parse_args()
    (record_more if options.more else record_all)(options.out)


def attention_step() -> tuple[Callable[[], Any], float]:
    q, k, v = (torch.randn(2, 32, 8192, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    flops = 4.0 * 2 * 32 * 8192**2 * 128 / 2
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), flops


def convolution_step() -> tuple[Callable[[], Any], float]:
    x = torch.randn(128, 256, 56, 56, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(256, 256, 3, 3, device="cuda", dtype=torch.bfloat16)
    x, w = (t.to(memory_format=torch.channels_last) for t in (x, w))
    return lambda: F.conv2d(x, w, None, 1, 1), 2.0 * x.numel() * 256 * 9


def record_more(out: Path) -> None:
    watch = Watch()
    loads = {
        "product": products(8192, 14336, 4096),
        "product tf32": products(8192, 14336, 4096, "tf32"),
        "attention": attention_step(),
        "convolution": convolution_step(),
    }
    with open(out, "w") as file:
        for name, (call, flops) in loads.items():
            torch.set_float32_matmul_precision("high" if "tf32" in name else "highest")
            for line in (
                record(watch, name, call, flops, 2.0),
                *(partly(watch, name, call, share) for share in (0.15, 0.3)),
            ):
                print(json.dumps(line), file=file, flush=True)


def record_all(out: Path) -> None:
    watch = Watch()
    with open(out, "w") as file:

        def put(line: dict[str, Any]) -> None:
            print(json.dumps(line), file=file, flush=True)

        put({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, **watch.limits()})
        time.sleep(1.0)
        before = watch.millijoules()
        with watch:
            time.sleep(1.0)
        idle = (watch.millijoules() or 0) - (before or 0)
        put({"load": "idle", "watts": idle / 1e3, "samples": watch.samples})
        step, flops = block_step()
        put(record(watch, "block", step, flops, 9.0, count=1))
        put(partly(watch, "block", step, 0.3))
        del step
        call, flops = products(8192, 14336, 4096)
        put(record(watch, "product", call, flops, 5.0))
        for share in (0.15, 0.3, 0.45):
            put(partly(watch, "product", call, share))
        for kind in ("zeros", "sparse5"):
            call, flops = products(8192, 14336, 4096, kind)
            put(record(watch, f"product {kind}", call, flops, 2.2))
            put(partly(watch, f"product {kind}", call, 0.3))
        for sizes in ((4096, 4096, 4096), (8192, 8192, 28672)):
            call, flops = products(*sizes)
            put(record(watch, f"product {sizes}", call, flops, 2.2))
        call, flops = products(8192, 4096, 4096, "fp32")
        put(record(watch, "product fp32", call, flops, 2.0))
        x, y = (torch.randn(1 << 28, device="cuda") for _ in range(2))
        put(record(watch, "copy", lambda: y.copy_(x), 0.0, 1.5))
        put(record(watch, "exp", lambda: torch.exp(x, out=y), 0.0, 1.5))


if __name__ == "__main__":
    main()
