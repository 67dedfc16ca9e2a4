"""Records which kernels cuDNN plans on a GPU for the layers of popular networks. Nothing is run.

    PYTHONPATH=src python benchmarks/convolutions/record_plans.py LAYERS OUT.csv.gz --seconds 120

Without a GPU cuDNN does not plan all its kernels: those by Winograd's algorithm and by Fourier
transforms, products that it leaves to cuBLAS, depthwise ones (src/vramcast/simulate/cudnn). On a
GPU it does, in milliseconds, and needs no memory for it. Several processes ask, each for layers,
batch sizes, precisions and layouts that it draws. One line a convolution and pass:

    layer, batch, form      the number of the layer in LAYERS, and of the precision and layout
    which                   forward, data gradient or weight gradient
    refused                 how many of cuDNN's proposals before the first that can be planned
    engine, knobs, bytes    of that one, and the bytes of its workspace
    engine, knobs, bytes    the same asked with the properties of a GPU instead of the GPU
    asked                   the workspace that src/vramcast/simulate/cudnn says, if it says one
    all                     in one of ten lines: engine and bytes of every proposal

--deterministic leaves out kernels whose results vary, as torch does where it is asked to.
--without-gpu asks as a prediction does: it only shows that the script runs.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import gzip
import json
import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

from vramcast.hardware.gpus import find_gpu
from vramcast.simulate.cudnn import library, plans
from vramcast.simulate.cudnn.convolution import Convolution
from vramcast.simulate.cudnn.library import CudnnError, Descriptor, Kind, Type

HANDLE, PLAN_HANDLE = 0, 400  # the kind of the attribute, and its number
GPU = "h200"
# precision, with TF32 or not, channels last or not, and how often it is drawn
FORMS = (
    ("fp32", True, False, 30),
    ("bf16", False, False, 20),
    ("fp16", False, False, 12),
    ("fp32", True, True, 8),
    ("bf16", False, True, 14),
    ("fp16", False, True, 6),
    ("fp32", False, False, 8),
    ("fp32", False, True, 2),
)
BATCH_SIZES = {1: 10, 2: 10, 4: 12, 8: 16, 16: 16, 32: 16, 64: 16, 128: 12, 256: 6, 512: 3}
MOST_ELEMENTS = 1 << 31
SHARE_WITH_ALL = 0.1


def convolution(layer: dict[str, Any], batch: int, form: int) -> Convolution:
    dtype, tf32, channels_last, _ = FORMS[form]
    names = ("stride", "padding", "dilation")
    stride, padding, dilation = (tuple(layer[name]) for name in names)
    weight, near = tuple(layer["weight"]), (batch, *layer["x"])
    sizes = list(zip(near[2:], weight[2:], stride, padding, dilation, strict=True))
    if layer["transposed"]:
        more = layer["output_padding"]
        far = [
            (size - 1) * s - 2 * p + d * (k - 1) + extra + 1
            for (size, k, s, p, d), extra in zip(sizes, more, strict=True)
        ]
        x, y = (batch, weight[1] * layer["groups"], *far), near
    else:
        far = [(size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, s, p, d in sizes]
        x, y = near, (batch, weight[0], *far)
    return Convolution(
        dtype=dtype,
        tf32=tf32,
        channels_last=channels_last,
        x=x,
        weight=weight,
        y=y,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=layer["groups"],
    )


class Planner:
    """Asks cuDNN with a handle of a GPU, or without."""

    def __init__(self, handle: ctypes.c_void_p | None, deterministic: bool) -> None:
        self.handle, self.deterministic = handle, deterministic
        self.properties = library.device_properties(find_gpu(GPU))

    def first(self, which: int, c: Convolution) -> list[Any]:
        refused = 0
        for engine, knobs, num_bytes in self.proposals(which, c):
            if num_bytes is not None:
                return [refused, engine, knobs, num_bytes]
            refused += 1
        return [refused, "", "", ""]

    def proposals(self, which: int, c: Convolution) -> Any:
        graph = self._graph(which, c)
        for mode in (plans.INSTANTLY, plans.FALLBACK):
            for configuration in self._configurations(graph, mode):
                (engine,) = configuration.get_descriptors(300, Kind.ENGINE, 1)
                if plans._is_left_out(which, engine, c, self.deterministic):
                    continue
                choices = configuration.get_descriptors(302, Kind.KNOB_CHOICE, plans.MAX_KNOBS)
                pairs = [
                    (choice.get(600, Type.KNOB_TYPE, 1)[0], choice.get(601, Type.INT64, 1)[0])
                    for choice in choices
                ]
                (number,) = engine.get(1301, Type.INT64, 1)
                knobs = " ".join(f"{knob}:{value}" for knob, value in pairs)
                yield number, knobs, self._bytes(configuration)

    def _bytes(self, configuration: Descriptor) -> int | None:
        try:
            plan = Descriptor(Kind.PLAN).set(401, Type.DESCRIPTOR, configuration)
            if self.handle is None:
                plan.set(407, Type.DESCRIPTOR, self.properties)
            else:
                plan.set(PLAN_HANDLE, HANDLE, self.handle)
            return int(plan.finished().get(402, Type.INT64, 1)[0])
        except CudnnError:
            return None

    def _graph(self, which: int, c: Convolution) -> Descriptor:
        """On a GPU an operation graph belongs to a handle."""
        if self.handle is None:
            return plans._graph(which, c)
        finished = Descriptor.finished

        def with_handle(descriptor: Descriptor) -> Descriptor:
            if descriptor.kind == Kind.GRAPH:
                descriptor.set(800, HANDLE, self.handle)
            return finished(descriptor)

        Descriptor.finished = with_handle  # type: ignore[method-assign]
        try:
            return plans._graph(which, c)
        finally:
            Descriptor.finished = finished  # type: ignore[method-assign]

    def _configurations(self, graph: Descriptor, mode: int) -> list[Descriptor]:
        if self.handle is None:
            return plans._configurations(graph, mode, find_gpu(GPU))
        heuristics = Descriptor(Kind.HEURISTICS).set(201, Type.DESCRIPTOR, graph)
        heuristics.set(200, Type.HEURISTICS_MODE, mode).finished()
        count = heuristics.count(202, Type.DESCRIPTOR)
        return heuristics.get_descriptors(202, Kind.ENGINE_CONFIGURATION, count) if count else []


def make_handle() -> ctypes.c_void_p:
    import torch

    torch.zeros(1, device="cuda")
    library.C_TYPES[HANDLE] = ctypes.c_void_p  # type: ignore[index]
    handle = ctypes.c_void_p()
    status = library._library().cudnnCreate(ctypes.byref(handle))
    if status:
        raise SystemExit(f"cudnnCreate gave {status}")
    return handle


def drawn(layers: list[dict[str, Any]], source: random.Random) -> tuple[int, int, int]:
    form = source.choices(range(len(FORMS)), [form[3] for form in FORMS])[0]
    (batch,) = source.choices(list(BATCH_SIZES), list(BATCH_SIZES.values()))
    return source.randrange(len(layers)), batch, form


def record(
    worker: int, workers: int, layers_file: str, out: str, options: argparse.Namespace
) -> None:
    with gzip.open(layers_file, "rt") as file:
        content = json.load(file)
    layers, first = content["layers"], [tuple(case) for case in content["first"]]
    source, end = random.Random(worker), time.monotonic() + options.seconds
    handle = None if options.without_gpu else make_handle()
    on_gpu, without = (Planner(each, options.deterministic) for each in (handle, None))
    first, seen = first[worker::workers], set[tuple[int, ...]]()
    with gzip.open(f"{out}.{worker}", "wt", compresslevel=4, newline="") as file:
        writer = csv.writer(file)
        while time.monotonic() < end:
            case = first.pop() if first else drawn(layers, source)
            layer, batch, form = case
            is_wide = FORMS[form][2] and len(layers[layer]["x"]) != 3
            c = convolution(layers[layer], batch, form)
            is_large = max(_elements(c.x), _elements(c.y)) >= MOST_ELEMENTS
            if case in seen or is_wide or is_large or min(c.y) < 1 or min(c.x) < 1:
                continue
            seen.add(case)
            for which in range(3):
                writer.writerow([*case, which, *line(which, c, on_gpu, without, source)])


def _elements(shape: Any) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def line(which: int, c: Convolution, on_gpu: Planner, without: Planner, source: Any) -> list[Any]:
    try:
        found = on_gpu.first(which, c)
    except CudnnError as problem:
        return [f"error {problem}"]
    try:
        found += without.first(which, c)[1:]
    except CudnnError:
        found += ["", "", ""]
    asked = plans.workspace_bytes.__wrapped__(which, c, find_gpu(GPU), without.deterministic)
    found.append("" if asked is None else asked)
    if source.random() < SHARE_WITH_ALL:
        try:
            proposed = [(e, b) for e, _, b in on_gpu.proposals(which, c)]
        except CudnnError:
            proposed = []
        found.append(" ".join(f"{e}:{-1 if b is None else b}" for e, b in proposed))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("layers")
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--workers", type=int, default=15)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--without-gpu", action="store_true")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    arguments = (options.layers, options.out, options)
    workers = [
        context.Process(target=record, args=(number, options.workers, *arguments))
        for number in range(options.workers)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(options.seconds + 60)
        worker.kill()
    parts = [Path(f"{options.out}.{number}") for number in range(options.workers)]
    with open(options.out, "wb") as file:
        for part in parts:
            if part.exists():
                file.write(part.read_bytes())
                part.unlink()
    print(f"{Path(options.out).stat().st_size:,} bytes, cuDNN {library.version()}")


if __name__ == "__main__":
    main()
