"""torch.distributed runs one rank of many: every backend is answered by torch's fake process group.

Why: there are no other ranks, and no NCCL. Collectives return this rank's data, as if every rank
had the same. Objects are passed on directly, not as tensors, whose contents are not known on the
simulated GPU. An asynchronous collective has ended at once, with its result.
"""

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.distributed import device_mesh

from vramcast.simulate.device import Device
from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.kept_by_nccl import Shelf
from vramcast.simulate.patching import Patcher
from vramcast.workload.world import USUAL_GPUS_PER_NODE

LIBRARY = "torch.distributed.distributed_c10d"
NCCL_VERSION = (2, 27, 5)  # that of torch 2.10
TIME_NOT_MEASURED = (
    "the time of communication between GPUs is predicted from data sheets: it was not measured"
)
MEMORY_NOT_MEASURED = "what NCCL takes in the memory of the whole process is an estimate"
# The argument that holds the result of a collective.
RESULTS = {
    "all_reduce": "tensor",
    "broadcast": "tensor",
    "reduce": "tensor",
    "all_gather": "tensor_list",
    "all_gather_into_tensor": "output_tensor",
    "all_gather_single": "output_tensor",
    "reduce_scatter": "output",
    "reduce_scatter_tensor": "output",
    "reduce_scatter_single": "output",
    "all_to_all": "output_tensor_list",
    "all_to_all_single": "output",
}


def apply(patcher: Patcher) -> None:
    if not dist.is_available():
        return
    answers: dict[str, Callable[..., Any]] = {
        "init_process_group": _with_fake_backend(c10d.init_process_group, patcher.gpu),
        "new_group": _new_group(c10d.new_group, patcher.gpu),
        "all_gather_object": _all_gather_object,
        "gather_object": _gather_object,
        "broadcast_object_list": _nothing,
        "scatter_object_list": _scatter_object_list,
        "monitored_barrier": _nothing,
        "_set_pg_timeout": _nothing,
        "is_nccl_available": lambda: True,
        **{
            name: _finished(getattr(c10d, name), result, patcher.gpu)
            for name, result in RESULTS.items()
            if hasattr(c10d, name)
        },
    }
    for name, answer in answers.items():
        patcher.put(c10d, name, answer)
        patcher.put(dist, name, answer)
    patcher.put(device_mesh, "init_process_group", answers["init_process_group"])
    for module in (c10d, dist):
        if not hasattr(module, "ProcessGroupNCCL"):
            patcher.put(module, "ProcessGroupNCCL", _ProcessGroupNCCL, add=True)
    patcher.put(
        c10d,
        "_new_process_group_helper",
        _counted(c10d._new_process_group_helper, patcher.gpu),
    )
    # only for the program: torch itself asks distributed_c10d, which still says that the backend is
    # fake
    patcher.put(dist, "get_backend", lambda *_: "nccl")
    patcher.put(torch.cuda.nccl, "version", lambda: NCCL_VERSION)


class _ProcessGroupNCCL:
    """Stands in where torch has no NCCL: programs use its options, and no group is an instance of
    it."""

    class Options:
        def __init__(self, **options: Any) -> None:
            vars(self).update(options)
            self.config = self


def _with_fake_backend(init: Callable[..., Any], gpu: SimulatedGpu) -> Callable[..., Any]:
    def init_process_group(
        backend: Any = None,
        init_method: Any = None,
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        store: Any = None,
        **options: Any,
    ) -> None:
        """The variables of a launcher say how many ranks there are and which one this is."""
        from torch.testing._internal.distributed.fake_pg import FakeStore

        if world_size < 1:
            world_size = int(os.environ.get("WORLD_SIZE", 1))
        if rank < 0:
            rank = int(os.environ.get("RANK", 0))
        gpu.world_size = world_size
        gpu.has_nccl = "nccl" in str(backend or "nccl")
        if world_size > 1:
            gpu.note(TIME_NOT_MEASURED)
            if gpu.has_nccl:
                gpu.note(MEMORY_NOT_MEASURED)
        name = options.get("group_name", "")
        init("fake", world_size=world_size, rank=rank, store=FakeStore(), group_name=name)

    return init_process_group


def _counted(make: Callable[..., Any], gpu: SimulatedGpu) -> Callable[..., Any]:
    """Counts NCCL's communicators: one for every group of several ranks. Its speed depends on how
    many of them are in one machine."""

    def make_group(
        group_size: int, group_rank: int, ranks: list[int], *arguments: Any, **options: Any
    ) -> Any:
        made = make(group_size, group_rank, ranks, *arguments, **options)
        if made[0] is dist.GroupMember.NON_GROUP_MEMBER:
            return made
        gpu.num_communicators += group_size > 1 and gpu.has_nccl
        in_machine = int(os.environ.get("LOCAL_WORLD_SIZE", 0)) or USUAL_GPUS_PER_NODE
        ranks = ranks or list(range(group_size))
        machine = ranks[group_rank] // in_machine
        count = sum(rank // in_machine == machine for rank in ranks)
        gpu.device.library.vramcast_note_group(made[0].group_name.encode(), count)
        return made

    return make_group


def _new_group(new: Callable[..., Any], gpu: SimulatedGpu) -> Callable[..., Any]:
    def new_group(
        ranks: Any = None,
        timeout: Any = None,
        backend: Any = None,
        pg_options: Any = None,
        use_local_synchronization: bool = False,
        group_desc: Any = None,
        device_id: Any = None,
        **_: Any,
    ) -> Any:
        before = gpu.num_communicators
        made = new(
            ranks,
            backend="fake",
            use_local_synchronization=use_local_synchronization,
            group_desc=group_desc,
        )
        if "gloo" in str(backend) and "cuda" not in str(backend):
            gpu.num_communicators = before  # gloo communicates through the host
        return made

    return new_group


def _all_gather_object(object_list: list[Any], obj: Any, *_: Any, **__: Any) -> None:
    object_list[:] = [obj] * len(object_list)


def _gather_object(obj: Any, object_gather_list: Any = None, *_: Any, **__: Any) -> None:
    if object_gather_list is not None:
        object_gather_list[:] = [obj] * len(object_gather_list)


def _scatter_object_list(outputs: list[Any], inputs: Any = None, *_: Any, **__: Any) -> None:
    outputs[0] = inputs[dist.get_rank()] if inputs else None


class _Finished(dist.Work):
    """The handle of an asynchronous collective. Its future has the result, because communication
    hooks compute with it."""

    def __init__(self, result: list[Any], shelf: Shelf, device: Device) -> None:
        super().__init__()
        self._result, self._shelf, self._device = result, shelf, device
        self._number = device.library.vramcast_num_work() - 1
        self._future: Any = torch.futures.Future()
        self._future.set_result(result)

    def wait(self, timeout: Any = None) -> bool:
        self.synchronize()
        return True

    def synchronize(self) -> None:
        self._device.library.vramcast_wait_for_collective(self._number)
        self._shelf.clear()

    def is_completed(self) -> bool:
        return True

    is_success = is_completed

    def result(self) -> list[Any]:
        return self._result

    def get_future(self) -> Any:
        return self._future


def _finished(collective: Callable[..., Any], result: str, gpu: SimulatedGpu) -> Callable[..., Any]:
    signature = inspect.signature(collective)

    @functools.wraps(collective)
    def run(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options)
        tensors = given.arguments[result]
        used = _tensors(given.arguments)
        if any(tensor.is_cuda for tensor in used):
            gpu.start_nccl()
        _flatten(given.arguments)
        work = collective(*given.args, **given.kwargs)
        finished = None
        if work is not None:
            results = tensors if isinstance(tensors, list) else [tensors]
            finished = _Finished(results, gpu.kept_by_nccl.keep(used), gpu.device)
        gpu.kept_by_nccl.let_go()
        return finished

    return run


def _tensors(arguments: dict[str, Any]) -> list[Any]:
    lists = (given if isinstance(given, list) else [given] for given in arguments.values())
    return [each for given in lists for each in given if isinstance(each, torch.Tensor)]


def _flatten(arguments: dict[str, Any]) -> None:
    """Makes input and output of a gather one-dimensional: the fake group copies values only between
    tensors of the same number of dimensions."""
    if "input_tensor" not in arguments:
        return
    pair = [arguments[name] for name in ("input_tensor", "output_tensor")]
    if all(tensor.is_contiguous() for tensor in pair) and pair[0].dim() != pair[1].dim():
        for name, tensor in zip(("input_tensor", "output_tensor"), pair, strict=True):
            arguments[name] = tensor.view(-1)


def _nothing(*_: Any, **__: Any) -> None: ...
