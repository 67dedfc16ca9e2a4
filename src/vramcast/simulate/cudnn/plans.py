"""The kernels that cuDNN would choose for a convolution, in its order, as torch asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain

from vramcast.hardware.gpus import Gpu
from vramcast.simulate.cudnn.convolution import (
    DATA_GRADIENT,
    FORWARD,
    WEIGHT_GRADIENT,
    Convolution,
)
from vramcast.simulate.cudnn.library import (
    CudnnError,
    Descriptor,
    Kind,
    Type,
    device_properties,
    version,
)
from vramcast.simulate.cudnn.partial_sums import partial_sums_bytes
from vramcast.simulate.cudnn.transforms import transform_bytes

DATA_TYPES = {"fp32": 0, "fp16": 2, "bf16": 9}
CROSS_CORRELATION = 1
INSTANTLY, FALLBACK = 0, 2
TENSOR_CORES, LESS_PRECISE_INPUTS, NOT_DETERMINISTIC = 0, 1, 4
# torch says how its memory is aligned, up to this
ALIGNMENT_BYTES = 32
MAX_NOTES = MAX_KNOBS = 50
# whether a kernel may add up partial sums in a workspace
WORKSPACE_KNOB, WITH_WORKSPACE, WITHOUT_WORKSPACE = 25, 0, 1
# by pass: the operation, and its attributes: two factors, the convolution, weight, x and y
OPERATIONS = {
    FORWARD: (Kind.FORWARD, range(700, 706)),
    DATA_GRADIENT: (Kind.DATA_GRADIENT, range(706, 712)),
    WEIGHT_GRADIENT: (Kind.WEIGHT_GRADIENT, range(712, 718)),
}
# Kernels of convolutions in three dimensions that torch avoids, by pass: from and to which version.
FAULTY_IN_3D = {FORWARD: (23, 90800, 91500), DATA_GRADIENT: (23, 8000, 1_000_000)}


@cache
def workspace_bytes(
    which: int, convolution: Convolution, gpu: Gpu, deterministic: bool
) -> int | None:
    """Of the kernel that torch runs without cudnn.benchmark. None if cuDNN cannot say."""
    if version() is None or _is_planned_on_a_gpu_only(convolution):
        return None
    try:
        return next(_workspaces(which, convolution, gpu, deterministic), None)
    except CudnnError:
        return None


@cache
def tried_bytes(
    which: int, convolution: Convolution, gpu: Gpu, deterministic: bool
) -> Sequence[int] | None:
    """The workspaces of all kernels that cudnn.benchmark tries."""
    if version() is None:
        return None
    try:
        found = _workspaces(which, convolution, gpu, deterministic)
        return tuple(chain(found, transform_bytes(which, convolution)))
    except CudnnError:
        return None


def _is_planned_on_a_gpu_only(c: Convolution) -> bool:
    """By cuBLAS; for exact products by Winograd's algorithm; and channels that are each alone."""
    is_exact = c.dtype == "fp32" and not c.tf32
    return c.is_matrix_product or is_exact or 1 < c.groups == c.x[1]


def _workspaces(
    which: int, convolution: Convolution, gpu: Gpu, deterministic: bool
) -> Iterator[int]:
    properties = device_properties(gpu)
    graph = _graph(which, convolution)
    for mode in (INSTANTLY, FALLBACK):
        for configuration in _configurations(graph, mode, properties):
            (engine,) = configuration.get_descriptors(300, Kind.ENGINE, 1)
            if _is_left_out(which, engine, convolution, deterministic):
                continue
            try:
                yield _workspace_bytes(which, graph, configuration, engine, convolution, gpu)
            except CudnnError:
                continue  # torch, too, goes on to the next


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


def _configurations(graph: Descriptor, mode: int, properties: Descriptor) -> list[Descriptor]:
    heuristics = Descriptor(Kind.HEURISTICS).set(201, Type.DESCRIPTOR, graph)
    heuristics.set(200, Type.HEURISTICS_MODE, mode).set(204, Type.DESCRIPTOR, properties)
    heuristics.finished()
    count = heuristics.count(202, Type.DESCRIPTOR)
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
    choices = configuration.get_descriptors(302, Kind.KNOB_CHOICE, MAX_KNOBS)
    knobs = {
        choice.get(600, Type.KNOB_TYPE, 1)[0]: choice.get(601, Type.INT64, 1)[0]
        for choice in choices
    }
    sums_bytes = None
    if knobs.get(WORKSPACE_KNOB) == WITH_WORKSPACE:
        sums_bytes = partial_sums_bytes(convolution, which, knobs, gpu)
    if sums_bytes is None:
        return _plan_bytes(configuration, gpu)
    # cuDNN would have to ask a GPU how many of its blocks run at once
    knobs[WORKSPACE_KNOB] = WITHOUT_WORKSPACE
    (number,) = engine.get(1301, Type.INT64, 1)
    return sums_bytes + _plan_bytes(_configured(graph, number, knobs, gpu), gpu)


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
