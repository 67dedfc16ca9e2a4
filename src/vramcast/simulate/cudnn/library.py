"""cuDNN's own library, through the part of its interface that needs no GPU.

Since version 9.8 it accepts a description of a GPU instead of a GPU. It comes with the CUDA builds
of torch, and as the package nvidia-cudnn-cu13.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from typing import Any

from vramcast.hardware.gpus import Gpu
from vramcast.simulate.build import cublas_substitute
from vramcast.simulate.cudnn.files import installed
from vramcast.simulate.cudnn.refusals import Log

# If this variable is "off", cuDNN is not asked.
SWITCH = "VRAMCAST_CUDNN"
PART_WITH_DRIVER = "libcudnn_engines_runtime_compiled.so.9"
# the first version that can be asked without a GPU
OLDEST_VERSION = 90800
# By compute capability. Other properties of a GPU do not change cuDNN's choices.
SHARED_MEMORY_BYTES = {70: 98304, 75: 65536, 80: 166912, 90: 232448, 100: 232448}
OTHER_SHARED_MEMORY_BYTES = 101376


class Kind(IntEnum):
    """Kinds of descriptors, with their numbers in cudnn_graph.h."""

    CONVOLUTION = 1
    ENGINE = 2
    ENGINE_CONFIGURATION = 3
    HEURISTICS = 4
    PLAN = 5
    KNOB_CHOICE = 7
    FORWARD = 10
    WEIGHT_GRADIENT = 11
    DATA_GRADIENT = 12
    GRAPH = 15
    TENSOR = 17
    DEVICE_PROPERTIES = 38


class Type(IntEnum):
    """Types of attributes, with their numbers in cudnn_graph.h."""

    DATA_TYPE = 1
    BOOLEAN = 2
    INT64 = 3
    FLOAT = 4
    CONVOLUTION_MODE = 7
    HEURISTICS_MODE = 8
    KNOB_TYPE = 9
    NUMERICAL_NOTE = 11
    DESCRIPTOR = 15
    CHARACTER = 24


C_TYPES: dict[Type, Any] = {
    Type.BOOLEAN: ctypes.c_bool,
    Type.INT64: ctypes.c_int64,
    Type.FLOAT: ctypes.c_float,
    Type.DESCRIPTOR: ctypes.c_void_p,
    Type.CHARACTER: ctypes.c_char,
}


class CudnnError(Exception):
    """cuDNN does not support what it was asked for."""


class Descriptor:
    """One of cuDNN's objects. It keeps alive the descriptors that it refers to."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.address = kind, ctypes.c_void_p()
        self.others: list[Any] = []
        library = _library()
        _check(library.cudnnBackendCreateDescriptor(kind, ctypes.byref(self.address)))
        # held here: at the end of the process this module is taken apart before its objects
        self._destroy = library.cudnnBackendDestroyDescriptor

    def __del__(self) -> None:
        if self.address:
            self._destroy(self.address)

    def set(self, attribute: int, kind: Type, *values: Any) -> Descriptor:
        if kind == Type.DESCRIPTOR:
            self.others += values
            values = tuple(value.address for value in values)
        array = (C_TYPES.get(kind, ctypes.c_int) * len(values))(*values)
        count = ctypes.c_int64(len(values))
        _check(_library().cudnnBackendSetAttribute(self.address, attribute, kind, count, array))
        return self

    def finished(self) -> Descriptor:
        _check(_library().cudnnBackendFinalize(self.address))
        return self

    def get(self, attribute: int, kind: Type, max_count: int) -> list[Any]:
        array = (C_TYPES.get(kind, ctypes.c_int) * max_count)()
        return list(array[: self._get(attribute, kind, max_count, array)])

    def get_descriptors(
        self, attribute: int, kind: Kind, max_count: int, into: Sequence[Descriptor] = ()
    ) -> Sequence[Descriptor]:
        found = into or [Descriptor(kind) for _ in range(max_count)]
        array = (ctypes.c_void_p * max_count)(*(each.address for each in found))
        count = self._get(attribute, Type.DESCRIPTOR, max_count, array)
        for each in found[:count]:
            each.others = [self]
        return found[:count]

    def count(self, attribute: int, kind: Type) -> int:
        return self._get(attribute, kind, 0, None)

    def _get(self, attribute: int, kind: Type, max_count: int, array: Any) -> int:
        found = ctypes.c_int64()
        arguments = (attribute, kind, ctypes.c_int64(max_count), ctypes.byref(found), array)
        _check(_library().cudnnBackendGetAttribute(self.address, *arguments))
        return found.value


def _check(status: int) -> None:
    if status:
        raise CudnnError(status)


def version() -> int | None:
    """The version of the library. None if it is not installed or cannot be asked."""
    library = None if os.environ.get(SWITCH) == "off" else _library()
    return None if library is None else int(library.cudnnGetVersion())


@cache
def device_properties(gpu: Gpu) -> Descriptor:
    major, minor = gpu.capability
    capability = 10 * major + minor
    properties = {
        "deviceVer": 10 * capability,
        "driverVer": 13000,
        "deviceName": gpu.full_name,
        "multiProcessorCount": gpu.num_multiprocessors,
        "maxThreadsPerSM": gpu.max_threads_per_multiprocessor,
        "totalGlobalMem": gpu.total_bytes,
        "maxSharedMemoryPerBlockOptin": SHARED_MEMORY_BYTES.get(
            capability, OTHER_SHARED_MEMORY_BYTES
        ),
        # alike on all GPUs, or of no effect
        "maxSharedMemoryPerBlock": 49152,
        "reservedSharedMemoryPerBlock": 1024,
        "maxGridSize": [2**31 - 1, 65535, 65535],
        "maxBlockSize": [1024, 1024, 64],
        "regsPerBlock": 65536,
        "maxRegistersPerSM": 65536,
        "maxThreadsPerBlock": 1024,
        "maxCtasPerSM": 32,
        "warpSize": 32,
        "supportCoopLaunch": 1,
        "isTccDriver": 0,
        "smClockRateKHz": 1_980_000,
        "memClockRateKHz": 3_201_000,
        "l2CacheSize": 62_914_560,
        "cudaDeviceId": 0,
        "pciDeviceId": 0,
    }
    text = json.dumps(properties).encode()
    descriptor = Descriptor(Kind.DEVICE_PROPERTIES)
    return descriptor.set(2702, Type.CHARACTER, *(bytes([each]) for each in text)).finished()


@cache
def _library() -> Any:
    """The loaded library. None where it is not installed, or too old."""
    found = installed()
    if found is None:
        return None
    with log().opened():
        try:
            # cuDNN ends the process where it finds no cuBLAS
            cublas = found.cublas or cublas_substitute(found.cublas_name)
            ctypes.CDLL(str(cublas), mode=ctypes.RTLD_GLOBAL)
            library = ctypes.CDLL(str(found.library))
            # it also ends the process where this part of it cannot be loaded: in 9.27 that needs a
            # GPU's driver
            ctypes.CDLL(str(found.library.parent / PART_WITH_DRIVER))
        except OSError:
            return None
        log().attach(library)
    library.cudnnGetVersion.restype = ctypes.c_size_t
    return library if library.cudnnGetVersion() >= OLDEST_VERSION else None


@cache
def log() -> Log:
    return Log()
