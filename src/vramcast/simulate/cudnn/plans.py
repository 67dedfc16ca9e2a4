"""The kernels that cuDNN would choose for a convolution, in its order, as torch asks for them."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache

from vramcast.hardware.gpus import Gpu
from vramcast.simulate.cudnn import gpu_only
from vramcast.simulate.cudnn.convolution import (
    DATA_GRADIENT,
    FORWARD,
    WEIGHT_GRADIENT,
    Convolution,
)
from vramcast.simulate.cudnn.gpu_only import Unknown
from vramcast.simulate.cudnn.kept import kept
from vramcast.simulate.cudnn.library import (
    CudnnError,
    Descriptor,
    Kind,
    Type,
    device_properties,
    log,
    version,
)
from vramcast.simulate.cudnn.partial_sums import (
    COUNTER_WITHOUT_GPU_BYTES,
    WITHOUT_SUMS,
    WORKSPACE,
    sums_bytes,
)
from vramcast.simulate.cudnn.refusals import Refusal

DATA_TYPES = {"fp32": 0, "fp16": 2, "bf16": 9}
CROSS_CORRELATION = 1
INSTANTLY, FALLBACK = 0, 2
TENSOR_CORES, LESS_PRECISE_INPUTS, NOT_DETERMINISTIC = 0, 1, 4
# torch tells cuDNN the alignment of its memory, up to this
ALIGNMENT_BYTES = 32
MAX_NOTES = MAX_KNOBS = 50
# copies of tensors in another layout are a multiple of this
COPIES_MULTIPLE = 16
# by pass: the operation, and its attributes: two factors, the convolution, weight, x and y
OPERATIONS = {
    FORWARD: (Kind.FORWARD, range(700, 706)),
    DATA_GRADIENT: (Kind.DATA_GRADIENT, range(706, 712)),
    WEIGHT_GRADIENT: (Kind.WEIGHT_GRADIENT, range(712, 718)),
}
# Kernels of convolutions in three dimensions that torch avoids, by pass: from and to which version.
FAULTY_IN_3D = {FORWARD: (23, 90800, 91500), DATA_GRADIENT: (23, 8000, 1_000_000)}


def workspace_bytes(
    which: int, convolution: Convolution, gpu: Gpu, deterministic: bool
) -> int | None:
    """The workspace of the kernel that torch runs without cudnn.benchmark. None if cuDNN cannot
    say."""
    found = chosen_bytes(which, convolution, gpu, deterministic)
    return found[0] if found else None


@kept
def chosen_bytes(
    which: int, convolution: Convolution, gpu: Gpu, deterministic: bool
) -> list[int] | None:
    """A list with one number: the workspace of the kernel that cuDNN chooses on a GPU."""
    try:
        found = _proposed(which, convolution, gpu, deterministic)
        return [next(size for size in found if size is not None)]
    except (CudnnError, Unknown, StopIteration):
        return None


@kept
def tried_bytes(
    which: int, convolution: Convolution, gpu: Gpu, deterministic: bool
) -> list[int] | None:
    """The workspaces of all kernels that cudnn.benchmark tries."""
    try:
        found = _all_proposed(which, convolution, gpu, deterministic)
        return [size for size in found if size is not None]
    except CudnnError:
        return None


def _proposed(
    which: int, convolution: Convolution, gpu: Gpu, deterministic: bool
) -> Iterator[int | None]:
    """Workspaces of kernels in cuDNN's order, up to the first of each mode that can be planned
    here. None for a kernel that cannot run."""
    graph = _graph(which, convolution)

    def size_of(proposal: Descriptor) -> int | None:
        return _planned_bytes(which, graph, proposal, convolution, gpu, deterministic)

    for mode in (INSTANTLY, FALLBACK):
        first, refusals = _all_answers(graph, mode, 1, gpu)
        size = next(map(size_of, first), None)
        if size is None:  # rarely needed; asking for all takes long
            sizes = enumerate(map(size_of, _configurations(graph, mode, gpu)), 1)
            count, size = next((each for each in sizes if each[1] is not None), (0, None))
            refusals = _all_answers(graph, mode, count, gpu)[1]
        for refusal in refusals:
            yield gpu_only.workspace_bytes(which, refusal, convolution)
        yield size


def _all_proposed(
    which: int, convolution: Convolution, gpu: Gpu, deterministic: bool
) -> Iterator[int | None]:
    graph = _graph(which, convolution)
    for mode in (INSTANTLY, FALLBACK):
        configurations, refusals = _all_answers(graph, mode, 0, gpu)
        for configuration in configurations:
            yield _planned_bytes(which, graph, configuration, convolution, gpu, deterministic)
        for refusal in refusals:
            with suppress(Unknown):
                yield gpu_only.workspace_bytes(which, refusal, convolution, is_tried=True)


def _all_answers(
    graph: Descriptor, mode: int, count: int, gpu: Gpu
) -> tuple[Sequence[Descriptor], list[Refusal]]:
    """The first `count` proposals (0: all), and the kernels that cuDNN refused without a GPU before
    them."""
    with log().refusals() as refused:
        proposed = _configurations(graph, mode, gpu, count)
    return proposed, refused


def _planned_bytes(
    which: int,
    graph: Descriptor,
    configuration: Descriptor,
    convolution: Convolution,
    gpu: Gpu,
    deterministic: bool,
) -> int | None:
    (engine,) = configuration.get_descriptors(300, Kind.ENGINE, 1)
    if _is_left_out(which, engine, convolution, deterministic):
        return None
    try:
        return _workspace_bytes(which, graph, configuration, engine, convolution, gpu)
    except CudnnError:
        return None  # torch also goes on to the next kernel then


def _graph(which: int, c: Convolution) -> Descriptor:
    shapes, sizes = [list(c.x), list(c.y), list(c.weight)], [c.stride, c.padding, c.dilation]
    if len(c.x) == 3:  # torch computes it in two dimensions
        shapes = [[*shape[:2], 1, *shape[2:]] for shape in shapes]
        sizes = [[one, *size] for one, size in zip((1, 0, 1), sizes, strict=True)]
    stride, padding, dilation = sizes
    x, y, weight = (_tensor(c, name, shape) for name, shape in zip("xyw", shapes, strict=True))
    description = Descriptor(Kind.CONVOLUTION)
    description.set(100, Type.DATA_TYPE, DATA_TYPES["fp32"])
    description.set(101, Type.CONVOLUTION_MODE, CROSS_CORRELATION)
    description.set(106, Type.INT64, len(stride))
    for attribute, size in ((102, dilation), (103, stride), (104, padding), (105, padding)):
        description.set(attribute, Type.INT64, *size)
    kind, attributes = OPERATIONS[which]
    operation = Descriptor(kind)
    for attribute, factor in zip(attributes, (1.0, 0.0), strict=False):
        operation.set(attribute, Type.FLOAT, factor)
    for attribute, part in zip(attributes[2:], (description.finished(), weight, x, y), strict=True):
        operation.set(attribute, Type.DESCRIPTOR, part)
    graph = Descriptor(Kind.GRAPH).set(801, Type.DESCRIPTOR, operation.finished())
    return graph.finished()


def _tensor(c: Convolution, name: str, shape: Sequence[int]) -> Descriptor:
    tensor = Descriptor(Kind.TENSOR)
    tensor.set(901, Type.DATA_TYPE, DATA_TYPES[c.dtype])
    tensor.set(902, Type.INT64, *shape)
    tensor.set(903, Type.INT64, *_strides(shape, c.channels_last))
    tensor.set(906, Type.INT64, ord(name))
    tensor.set(900, Type.INT64, ALIGNMENT_BYTES)
    return tensor.set(907, Type.BOOLEAN, False).finished()


def _strides(shape: Sequence[int], channels_last: bool) -> list[int]:
    inner = range(len(shape) - 1, 1, -1)
    strides, distance = [0] * len(shape), 1
    for axis in (1, *inner, 0) if channels_last else (*inner, 1, 0):
        strides[axis] = distance
        distance *= shape[axis]
    return strides


def _configurations(graph: Descriptor, mode: int, gpu: Gpu, count: int = 0) -> Sequence[Descriptor]:
    """The first `count` configurations that cuDNN proposes (0: all)."""
    heuristics = Descriptor(Kind.HEURISTICS).set(201, Type.DESCRIPTOR, graph)
    heuristics.set(200, Type.HEURISTICS_MODE, mode)
    heuristics.set(204, Type.DESCRIPTOR, device_properties(gpu)).finished()
    count = count or heuristics.count(202, Type.DESCRIPTOR)
    return heuristics.get_descriptors(202, Kind.ENGINE_CONFIGURATION, count) if count else []


def _is_left_out(which: int, engine: Descriptor, c: Convolution, deterministic: bool) -> bool:
    notes = engine.get(1303, Type.NUMERICAL_NOTE, MAX_NOTES)
    if LESS_PRECISE_INPUTS in notes or (deterministic and NOT_DETERMINISTIC in notes):
        return True
    if c.dtype == "fp32" and not c.tf32 and TENSOR_CORES in notes:
        return True
    number, first, last = FAULTY_IN_3D.get(which, (-1, 0, 0))
    is_faulty = first <= (version() or 0) < last and number in engine.get(1301, Type.INT64, 1)
    return is_faulty and len(c.x) > 4


def _workspace_bytes(
    which: int,
    graph: Descriptor,
    configuration: Descriptor,
    engine: Descriptor,
    convolution: Convolution,
    gpu: Gpu,
) -> int:
    knobs = {
        choice.get(600, Type.KNOB_TYPE, 1)[0]: choice.get(601, Type.INT64, 1)[0]
        for choice in configuration.get_descriptors(302, Kind.KNOB_CHOICE, MAX_KNOBS, _choices())
    }
    more_bytes = sums_bytes(convolution, which, knobs, gpu)
    if more_bytes is None:
        return _plan_bytes(configuration, gpu)
    knobs[WORKSPACE] = WITHOUT_SUMS
    (number,) = engine.get(1301, Type.INT64, 1)
    copies_bytes = _plan_bytes(_configured(graph, number, knobs, gpu), gpu)
    if (copies_bytes - COUNTER_WITHOUT_GPU_BYTES) % COPIES_MULTIPLE == 0:
        copies_bytes -= COUNTER_WITHOUT_GPU_BYTES
    return copies_bytes + more_bytes


@cache
def _choices() -> list[Descriptor]:
    """Descriptors for cuDNN to fill in, used again and again: making them takes long, and cuDNN
    does not say how many it needs."""
    return [Descriptor(Kind.KNOB_CHOICE) for _ in range(MAX_KNOBS)]


def _configured(graph: Descriptor, number: int, knobs: dict[int, int], gpu: Gpu) -> Descriptor:
    engine = Descriptor(Kind.ENGINE).set(1300, Type.DESCRIPTOR, graph)
    engine.set(1301, Type.INT64, number).set(1307, Type.DESCRIPTOR, device_properties(gpu))
    choices = [
        Descriptor(Kind.KNOB_CHOICE)
        .set(600, Type.KNOB_TYPE, knob)
        .set(601, Type.INT64, value)
        .finished()
        for knob, value in knobs.items()
    ]
    configuration = Descriptor(Kind.ENGINE_CONFIGURATION)
    configuration.set(300, Type.DESCRIPTOR, engine.finished())
    return configuration.set(302, Type.DESCRIPTOR, *choices).finished()


def _plan_bytes(configuration: Descriptor, gpu: Gpu) -> int:
    plan = Descriptor(Kind.PLAN).set(401, Type.DESCRIPTOR, configuration)
    plan.set(407, Type.DESCRIPTOR, device_properties(gpu)).finished()
    return int(plan.get(402, Type.INT64, 1)[0])
