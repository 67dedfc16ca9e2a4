"""DistributedDataParallel runs as one rank of many.

Why: its reducer is C++ and wants the tensors that a collective has reduced, which the fake process
group does not give. A communication hook that returns the bucket does; where the program has one of
its own, that is called. Parameters are not compared with other ranks, and nothing is timed.
Versions: torch 2.10 to 2.15.
"""

from typing import Any

import torch
import torch.distributed as dist

from vramcast.simulate.patching import Patcher

LIBRARY = "torch.nn.parallel.distributed"


def apply(patcher: Patcher) -> None:
    import torch.distributed.utils as utils
    import torch.nn.parallel.distributed as ddp

    for module in (utils, ddp):
        patcher.put(module, "_verify_param_shape_across_processes", lambda *_, **__: True)
    patcher.put(dist.Logger, "set_runtime_stats_and_log", lambda *_: None)
    parallel = ddp.DistributedDataParallel
    before_forward, register = parallel._pre_forward, parallel.register_comm_hook

    def _pre_forward(self: Any, *inputs: Any, **options: Any) -> Any:
        if not self._comm_hooks:
            register(self, None, _return_bucket)
        return before_forward(self, *inputs, **options)

    patcher.put(parallel, "_pre_forward", _pre_forward)
    patcher.put(
        parallel,
        "_register_builtin_comm_hook",
        lambda self, _: register(self, None, _return_bucket),
    )


def _return_bucket(_, bucket):  # type: ignore[no-untyped-def]  # torch checks annotations
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future
