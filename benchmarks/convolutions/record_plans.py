"""Records which kernels cuDNN plans on a GPU, in its order, for convolutions that nothing runs.

    PYTHONPATH=src python benchmarks/convolutions/record_plans.py --out FILE.jsonl --seconds 120

Without a GPU cuDNN does not plan all its kernels: those by Winograd's algorithm and by Fourier
transforms, products that it leaves to cuBLAS, depthwise ones (src/vramcast/simulate/cudnn). On a
GPU it does, in milliseconds, and needs no memory for it. One line a convolution and pass:

    plans       for each of cuDNN's proposals, in its order: the kernel's number, its knobs, and the
                bytes of its workspace, or null where the plan is refused
    asked       the workspace that src/vramcast/simulate/cudnn says without a GPU, or null

--without-gpu asks as a prediction does: it only shows that the script runs.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import json
import random
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vramcast.hardware.gpus import find_gpu
from vramcast.simulate.cudnn import library, plans
from vramcast.simulate.cudnn.convolution import NUM_PASSES, Convolution
from vramcast.simulate.cudnn.library import CudnnError, Descriptor, Kind, Type

RECORDED = Path(__file__).with_name("h200-torch-2.11.jsonl.gz")
HANDLE, PLAN_HANDLE = 0, 400  # the kind of the attribute, and its number
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
MOST_PLANS = 12


def shapes() -> list[dict[str, Any]]:
    """Of the recorded networks, each once."""
    with gzip.open(RECORDED, "rt") as file:
        lines = [json.loads(line) for line in file][1:]
    names = ("x", "weight", "stride", "padding", "dilation", "groups")
    plain = (line for line in lines if "error" not in line and not line["transposed"])
    found = {json.dumps([line[name] for name in names]): line for line in plain}
    return [{name: line[name] for name in names} for line in found.values()]


def drawn(shape: dict[str, Any], source: random.Random) -> Convolution:
    """In a random precision, layout and batch size; single precision is the least known."""
    sizes = {name: tuple(v) if isinstance(v, list) else v for name, v in shape.items()}
    x = (source.choice(BATCH_SIZES), *sizes.pop("x"))
    numbers = zip(
        *(x[2:], sizes["weight"][2:], sizes["stride"], sizes["padding"], sizes["dilation"]),
        strict=True,
    )
    y = [(size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, s, p, d in numbers]
    dtype = source.choice(("fp32", "fp32", "bf16", "fp16"))
    return Convolution(
        dtype=dtype,
        tf32=dtype == "fp32" and source.random() < 0.8,
        channels_last=source.random() < 0.3,
        x=x,
        y=(x[0], sizes["weight"][0], *y),
        **sizes,
    )


def planned(which: int, c: Convolution, handle: ctypes.c_void_p | None) -> list[list[Any]]:
    gpu = find_gpu("h200")
    graph, found = plans._graph(which, c), []
    for mode in (plans.INSTANTLY, plans.FALLBACK):
        for configuration in _configurations(graph, mode, handle):
            (engine,) = configuration.get_descriptors(300, Kind.ENGINE, 1)
            if plans._is_left_out(which, engine, c, False):
                continue
            choices = configuration.get_descriptors(302, Kind.KNOB_CHOICE, plans.MAX_KNOBS)
            knobs = {
                choice.get(600, Type.KNOB_TYPE, 1)[0]: choice.get(601, Type.INT64, 1)[0]
                for choice in choices
            }
            try:
                plan = Descriptor(Kind.PLAN).set(401, Type.DESCRIPTOR, configuration)
                if handle is None:
                    plan.set(407, Type.DESCRIPTOR, library.device_properties(gpu))
                else:
                    plan.set(PLAN_HANDLE, HANDLE, handle)
                num_bytes = plan.finished().get(402, Type.INT64, 1)[0]
            except CudnnError:
                num_bytes = None
            found.append([engine.get(1301, Type.INT64, 1)[0], knobs, num_bytes])
    return found[:MOST_PLANS]


def _configurations(
    graph: Descriptor, mode: int, handle: ctypes.c_void_p | None
) -> list[Descriptor]:
    if handle is None:
        return plans._configurations(graph, mode, library.device_properties(find_gpu("h200")))
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


def graph_with_handle(handle: ctypes.c_void_p) -> None:
    """On a GPU an operation graph belongs to a handle."""
    finished = Descriptor.finished

    def with_handle(self: Descriptor) -> Descriptor:
        if self.kind == Kind.GRAPH:
            self.set(800, HANDLE, handle)
        return finished(self)

    Descriptor.finished = with_handle  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-gpu", action="store_true")
    options = parser.parse_args()
    source, all_shapes = random.Random(options.seed), shapes()
    gpu = find_gpu("h200")
    cases = [drawn(source.choice(all_shapes), source) for _ in range(100_000)]
    asked = plans.workspace_bytes
    handle = None if options.without_gpu else make_handle()
    end, num_lines = time.monotonic() + options.seconds, 0
    with open(options.out, "w") as file:
        for c in cases:
            if time.monotonic() > end:
                break
            for which in range(NUM_PASSES):
                line = {"which": which, **asdict(replace(c)), "asked": asked(which, c, gpu, False)}
                try:
                    line["plans"] = _with(handle, which, c)
                except CudnnError as problem:
                    line["error"] = str(problem)
                file.write(json.dumps(line) + "\n")
                num_lines += 1
    print(f"{num_lines} lines, cuDNN {library.version()}")


def _with(handle: ctypes.c_void_p | None, which: int, c: Convolution) -> list[list[Any]]:
    if handle is None:
        return planned(which, c, None)
    finished = Descriptor.finished
    graph_with_handle(handle)
    try:
        return planned(which, c, handle)
    finally:
        Descriptor.finished = finished  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
