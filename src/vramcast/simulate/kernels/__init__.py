"""The CUDA kernels that allocate more than their result, by family.

To add one, write the function in the fitting file, or in a new file that is imported here.
"""

import ctypes
import functools
import inspect
from typing import Any

import torch

from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.kernels import (  # noqa: F401
    activations,
    attention,
    convolution,
    data_dependent,
    detection,
    indexing,
    linear_algebra,
    losses,
    normalisation,
    recurrent,
    reductions,
    resampling,
    sorting,
    spectral,
    without_memory,
)
from vramcast.simulate.kernels.registry import ARGUMENT_NAMES, KERNELS, Kernel, Target, tensors_in
from vramcast.simulate.kernels.work import WITHOUT_KERNEL, kept_work_of

# after these, written values are still known: they do not change, or the kernel sets them itself
KEEPS_VALUES = ("_amp_foreach_non_finite_check_and_unscale_", "_index_put_impl_")
# what .item() does
READ = "_local_scalar_dense"
# the host waits for their result, so the stream has finished then
HOST_WAITS = frozenset(
    (
        READ,
        "bincount",
        "equal",
        "nonzero",
        "repeat_interleave",
        "unique_consecutive",
        "unique_dim",
        "_unique2",
    )
)
# torch's own message
ONE_DEVICE = (
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and "
    "cpu! (in "
)
# under this key the host computes what a kernel would (native/of_kernels.h)
COMPUTE = torch._C.DispatchKeySet(torch._C._dispatch_key_parse("TESTING_ONLY_GenericMode"))
_libraries: dict[str, torch.library.Library] = {}


def install(gpu: SimulatedGpu) -> None:
    """The kernels model this GPU from now on."""
    Target.gpu = gpu
    install_for("aten", gpu.device.library)


def install_for(namespace: str, device: ctypes.CDLL) -> None:
    """Registers the kernels of a library with torch's dispatcher, once, when that library is
    imported."""
    if namespace in _libraries:
        return
    library = _libraries[namespace] = torch.library.Library(namespace, "IMPL")
    for full_name, function in KERNELS.items():
        owner, _, name = full_name.rpartition("::")
        if (owner or "aten") != namespace:
            continue
        operator = getattr(getattr(torch.ops, namespace), name.partition(".")[0], None)
        overload = getattr(operator, name.partition(".")[2] or "default", None)
        if overload is not None:  # else this version of the library does not have it
            run = _wrap(name, overload, function, device)
            (_of_device() if name == READ else library).impl(name, run, "Fake", with_keyset=True)


@functools.cache
def _of_device() -> torch.library.Library:
    """The library "vramcast", whose operators in native/device.cpp leave part of their work to
    Python."""
    return torch.library.Library("vramcast", "IMPL")


def _wrap(name: str, overload: Any, function: Kernel, device: ctypes.CDLL) -> Kernel:
    """The function that the dispatcher calls. Tensors on the host go to torch's own kernel."""
    base_name = name.partition(".")[0]
    full_name = overload._schema.name + name.removeprefix(base_name)
    names = [ARGUMENT_NAMES.get(a.name, a.name) for a in overload._schema.arguments]
    encoded = full_name.encode(), overload._schema.name.encode()
    taken = inspect.signature(function).parameters
    wants_one_device = device.vramcast_wants_one_device(full_name.encode())
    written = [] if base_name in KEEPS_VALUES else _written_names(overload, names)
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in taken.values())
    # torch._dynamo asks for a tensor of its own, which is on Meta but has the GPU's key
    is_computed = base_name not in (READ, "_fused_sdp_choice")
    is_choice, gpu_key = base_name == "_fused_sdp_choice", torch._C.DispatchKey.CUDA

    @functools.wraps(function)
    def run(keys: Any, *arguments: Any, **options: Any) -> Any:
        below, is_for_others = _below(keys.raw_repr())
        if is_for_others:
            return overload.redispatch(below, *arguments, **options)
        tensors = tensors_in(arguments)
        elsewhere = [tensor for tensor in tensors if not tensor.is_cuda]
        on_gpu = len(elsewhere) < len(tensors) or (is_choice and below.has(gpu_key))
        if not on_gpu and getattr(options.get("device"), "type", None) != "cuda":
            excluded = device.vramcast_set_excluded(True)
            try:
                return overload(*arguments, **options)
            finally:
                device.vramcast_set_excluded(excluded)
        if wants_one_device and any(t.is_cpu and t.dim() for t in elsewhere):
            raise RuntimeError(f"{ONE_DEVICE}{overload._schema.name})")
        named = {**dict(zip(names, arguments)), **options}
        computes = is_computed and Target.gpu.computes
        if computes:
            overload.redispatch(COMPUTE, *arguments, **options)
        before = device.vramcast_begin_kernel(encoded[0])
        try:
            result = function(**{name: named[name] for name in named if takes_all or name in taken})
        finally:
            device.vramcast_end_kernel(before)
        for tensor in tensors_in([named.get(name) for name in written]) if written else ():
            torch.ops.vramcast.forget_values(tensor)
        if computes:
            torch.ops.vramcast.keep_computed(tensors_in([result]))
        if base_name not in WITHOUT_KERNEL:
            work = kept_work_of(base_name, arguments, named, result)
            device.vramcast_add_work(encoded[1], *work)
        if base_name in HOST_WAITS:
            device.vramcast_finish_stream()
            device.vramcast_read_result()
        return result

    # After a graph break torch.compile would compile this Python function; in a real run it is C++.
    dynamo = torch._C._dynamo.eval_frame
    skip = dynamo._FrameAction.SKIP
    dynamo.set_code_exec_strategy(run.__code__, dynamo._FrameExecStrategy(skip, skip))
    return run


@functools.cache
def _below(bits: int) -> tuple[Any, bool]:
    """The dispatch keys after this one, and whether one of them handles the operator: modes and
    wrapper tensors (up to torch 2.12), or sparse and nested tensors, which host code makes of dense
    ones."""
    keys, after = torch._C.DispatchKey, torch._C._dispatch_keyset_full_after
    fake = torch._C._dispatch_key_parse("Fake")
    below = torch._C.DispatchKeySet.from_raw_repr(bits) & after(fake)
    others = (keys.Python, keys.SparseCUDA, keys.SparseCsrCUDA, keys.NestedTensorCUDA)
    return below, any(map(below.has, others))


def _written_names(overload: Any, names: list[str]) -> list[str]:
    arguments = zip(names, overload._schema.arguments, strict=True)
    return [name for name, argument in arguments if getattr(argument.alias_info, "is_write", False)]
