"""`vramcast.predict`: the GPU memory and the time of a training step, simulated without a GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramcast.errors import UsageError
from vramcast.hardware.gpu_names import own_name
from vramcast.processes.progress import OutputLines, Progress, Report, ignore
from vramcast.simulate import build
from vramcast.simulate.runner import simulate
from vramcast.units import MAX_NUMBER, check_whole_number, memory_in_bytes
from vramcast.workload import Workload, joined, name_of, parse_reference, separated
from vramcast.workload.launchers import line_request
from vramcast.workload.world import world_request

if TYPE_CHECKING:
    from vramcast.records.prediction import BatchSizeCurve, Prediction

DEFAULT_TIMEOUT_SECONDS = 300.0
ANSWERS = "vramcast.records.prediction"  # this module is imported while another process simulates
OUTPUT_FOLLOWS = "What the program prints (its numbers are not real: nothing is computed):"
ATTENTION_KERNELS = {"flash", "efficient", "cudnn", "math"}
MAX_BATCH_SIZES = 10_000
BATCH_SIZES_ADVICE = "For example --batch-sizes 1-64 or 8,16,32."


def predict(
    workload: Workload,
    *,
    gpu: str | None = None,
    memory: str | int | None = None,
    allocator: str | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    trace: str | os.PathLike[str] | None = None,
    force: bool = False,
    steps: int | None = None,
    whole: bool = False,
    world_size: int | None = None,
    gpus_per_node: int | None = None,
    ranks: str | Sequence[int] | None = None,
    attention_order: str | Sequence[str] | None = None,
    link: str | None = None,
    network: str | None = None,
    no_compile: bool = False,
    max_memory: str | int | None = None,
    progress: Report = ignore,
    knobs: Mapping[str, Any] | None = None,
    **more_knobs: Any,
) -> Prediction:
    """Predict the memory and the time of one training step with no GPU.

    `predict("train.py:build", batch_size=8, gpu="rtx-4090")`, or `predict(build, memory="24GiB")`.
    `trace="DIR"` keeps every allocation there: trace.json, and snapshot.pickle for memory_viz;
    `force=True` writes over old ones. A launch line is a list of words:
    `predict(["python", "train.py", "--batch_size={batch_size}"], batch_size=8)`; it runs until
    enough was seen, `steps` steps, or to its own end with `whole=True`. Of `world_size` GPUs the
    first and the last are simulated, or `ranks`; `link` connects those of a machine ("pcie-4"),
    `network` the machines ("infiniband-ndr", "100Gb/s"). `attention_order` is the order in which
    scaled_dot_product_attention tries its kernels, such as "flash,cudnn". With `no_compile`
    torch.compile does nothing. With `max_memory` the answer says by how much the peak is larger. A
    knob that has the name of an option goes into `knobs`.
    """
    most_bytes = memory_in_bytes(max_memory, "--max")
    request = full_request(workload, joined(knobs, more_knobs), gpu, memory, allocator)
    request |= stop_rule(request, steps, whole)
    request |= world_request(request["started"], world_size, gpus_per_node, ranks)
    request |= attention_request(attention_order) | links_request(request, link, network)
    request |= {"compiles": not no_compile}
    if trace is not None:
        from vramcast.tracing.files import check_free

        # Absolute: the workload may change the folder it works in.
        folder = Path(trace).absolute()
        check_free(folder, force=force)
        request |= {"trace": str(folder), "force": force}
    answer = simulated(request, timeout, progress)
    from vramcast.records.prediction import Prediction  # already imported, in `simulated`

    found = Prediction.from_dict(answer)
    if most_bytes is None:
        return found
    over_bytes = max(0, found.peak_reserved_bytes - most_bytes)
    return replace(found, max_bytes=most_bytes, over_max_bytes=over_bytes)


def full_request(
    workload: Workload,
    knobs: Mapping[str, Any],
    gpu: str | None = None,
    memory: str | int | None = None,
    allocator: str | None = None,
) -> dict[str, Any]:
    """The request of `predict` with default options."""
    request = make_request(workload, knobs, gpu, memory, allocator)
    # Not for launch lines: the program would have to run a second time.
    return {**request, "compiles": True, "compares_eager": "line" not in request}


def predict_batch_sizes(
    workload: Workload,
    batch_sizes: str | Sequence[int],
    *,
    gpu: str | None = None,
    memory: str | int | None = None,
    allocator: str | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    steps: int | None = None,
    whole: bool = False,
    progress: Report = ignore,
    knobs: Mapping[str, Any] | None = None,
    **more_knobs: Any,
) -> BatchSizeCurve:
    """Predict many batch sizes in little more time than one: only a few of them are simulated.

    `predict_batch_sizes("train.py:build", range(4, 33, 4), memory="24GiB")`; also "4-32:4".
    `steps` and `whole` are for launch lines, as in predict.
    """
    sizes = read_batch_sizes(batch_sizes)
    request = make_request(
        workload, joined(knobs, more_knobs), gpu, memory, allocator, moved=["batch_size"]
    )
    request |= stop_rule(request, steps, whole)
    answer = simulated({**request, "batch_sizes": sizes}, timeout, progress)
    from vramcast.records.prediction import BatchSizeCurve

    return BatchSizeCurve.from_dict(answer)


def read_batch_sizes(given: str | Sequence[int]) -> list[int]:
    """Batch sizes from 1-64, 1-64:4 (every fourth), 8,16,32, or whole numbers."""
    ranges = _ranges(given) if isinstance(given, str) else []
    # The len() of a range fails where it is very large.
    count = sum((r.stop - r.start) // r.step for r in ranges) if ranges else len(given)
    if count > MAX_BATCH_SIZES:
        raise UsageError(
            f"--batch-sizes {str(given)[:40]} is {count:,} sizes; "
            f"at most {MAX_BATCH_SIZES:,} are predicted.",
            "Give fewer, for example every fourth: --batch-sizes 4-64:4.",
        )
    sizes = sorted(set(chain(*ranges))) if isinstance(given, str) else list(given)
    if not sizes or any(type(size) is not int or not 1 <= size <= MAX_NUMBER for size in sizes):
        raise UsageError(
            f"Batch sizes must be whole numbers from 1 to {MAX_NUMBER:,}, not {str(sizes)[:200]}.",
            BATCH_SIZES_ADVICE,
        )
    return sizes


def _ranges(text: str) -> list[range]:
    try:
        ranges = []
        for part in text.split(","):
            span, _, stride = part.partition(":")
            first, dash, last = span.partition("-")
            ranges.append(range(int(first), int(last if dash else first) + 1, int(stride or 1)))
        if all(1 <= sizes.start < sizes.stop and sizes.step > 0 for sizes in ranges):
            return ranges
    except ValueError:
        pass
    raise UsageError(f"--batch-sizes {text!r} is not a list of positive sizes.", BATCH_SIZES_ADVICE)


def make_request(
    workload: Workload,
    knobs: Mapping[str, Any],
    gpu: str | None = None,
    memory: str | int | None = None,
    allocator: str | None = None,
    moved: Sequence[str] = (),
) -> dict[str, Any]:
    """Everything the worker needs, checked as far as that goes without importing torch."""
    from vramcast.allocator.settings import AllocatorSettings, from_environment

    name, line = name_of(workload), line_request(workload, knobs, moved)
    if not line:
        parse_reference(name)
    settings = allocator if allocator is not None else from_environment()
    AllocatorSettings.parse(settings)
    started = line.pop("started", (1, 1))
    return {
        "workload": name,
        **line,
        "started": started,
        **world_request(started, None, None, None),
        "allocator_given": allocator is not None,
        **separated(knobs),
        "gpu": None if gpu is None else own_name(gpu),
        "memory_bytes": memory_in_bytes(memory),
        "allocator": settings,
    }


def attention_request(order: str | Sequence[str] | None) -> dict[str, Any]:
    if order is None:
        return {}
    names = order.split(",") if isinstance(order, str) else list(order)
    if not names or not set(names) <= ATTENTION_KERNELS or len(names) != len(set(names)):
        raise UsageError(
            f"--attention-order {','.join(names)} is not a list of attention kernels.",
            f"Name some of {', '.join(sorted(ATTENTION_KERNELS))}, the first one first.",
        )
    return {"attention_order": names}


def links_request(
    request: Mapping[str, Any], link: str | None, network: str | None
) -> dict[str, Any]:
    given = {name: text for name, text in (("link", link), ("network", network)) if text}
    if given and "world" not in request:
        raise UsageError(
            f"--{next(iter(given))} is for several GPUs, and there is one.",
            "Add --world-size N, or leave it out.",
        )
    for name, text in given.items():
        from vramcast.hardware.links import find_link

        find_link("link" if name == "link" else "network", text)
    return given


def stop_rule(request: dict[str, Any], steps: int | None, whole: bool) -> dict[str, Any]:
    """How much of a program is run, for the request."""
    if steps is None and not whole:
        return {}
    if "line" not in request:
        raise UsageError(
            "--steps and --whole are for launch lines; a function is always stepped four times.",
            "Leave them out; --train-steps N is for the hours that N steps take.",
        )
    if steps is not None and whole:
        raise UsageError("--steps and --whole contradict each other.", "Give one of them.")
    if steps is not None:
        check_whole_number("--steps", steps, 4)
    return {"steps": steps, "whole": whole}


def simulated(
    request: dict[str, Any], timeout: float, progress: Report, name: str = "Simulating"
) -> dict[str, Any]:
    compile_device(progress)
    progress(Progress(name))

    def meanwhile() -> None:
        import_module(ANSWERS)

    def tell(tried: Any) -> None:
        progress(Progress(name, detail=f"batch_size={tried['batch_size']}"))

    # A search runs the program many times, so its output is not shown.
    if "line" not in request or request.keys() & {"search", "batch_sizes"}:
        return simulate(request, timeout, tell, meanwhile=meanwhile)
    progress(Progress(name, line=OUTPUT_FOLLOWS))
    output = OutputLines(lambda line: progress(Progress(name, line=line)))
    try:
        return simulate(request, timeout, on_output=output.receive, meanwhile=meanwhile)
    finally:
        output.end()


def compile_device(progress: Report) -> None:
    if build.needs_building():
        line = "Compiling the simulated GPU for this version of torch, once (up to a minute)."
        progress(Progress("Compiling", line=line))
    build.build()
