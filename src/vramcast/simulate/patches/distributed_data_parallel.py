"""DistributedDataParallel runs as one rank of many.

Why: its reducer is C++ and needs the tensors that a collective has reduced, which the fake process
group does not return. So a communication hook returns the bucket. If the program has a hook of its
own, that one is called. And the one GPU that is simulated is cuda:0: batches would be copied for a
process that calls its GPU by its rank.
"""

import functools
import weakref
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from vramcast.simulate.patching import Patcher

LIBRARY = "torch.nn.parallel.distributed"


def apply(patcher: Patcher) -> None:
    import torch.distributed.utils as utils
    import torch.nn.parallel.distributed as ddp

    def verify(*_: Any, **__: Any) -> bool:
        patcher.gpu.start_nccl()
        return True

    for module in (utils, ddp):
        patcher.put(module, "_verify_param_shape_across_processes", verify)
    patcher.put(dist.Logger, "set_runtime_stats_and_log", lambda *_: None)
    patcher.put(ddp, "_get_device_index", lambda *_: 0)
    parallel = ddp.DistributedDataParallel
    before_forward, register = parallel._pre_forward, parallel.register_comm_hook
    kept, library = patcher.gpu.kept_by_nccl, patcher.gpu.device.library
    num_reduced: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # backward passes
    accumulates: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()  # in its buckets

    def reduce_bucket(group, bucket):  # type: ignore[no-untyped-def]  # torch checks annotations
        dist.all_reduce(bucket.buffer(), group=group, async_op=True)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    def waited_for(hook: Callable[..., Any], model: Any) -> Callable[..., Any]:
        """The hook, but at the end of the backward pass the stream waits for all buckets."""
        whose = weakref.ref(model)

        @functools.wraps(hook)
        def run(state, bucket):  # type: ignore[no-untyped-def]
            model: Any = whose()
            if hook is reduce_bucket and accumulates[model]:
                # without a hook, DDP divides each gradient when it is ready
                for gradient in bucket.gradients():
                    gradient.div_(1)
            if bucket.is_last():
                num_reduced[model] = num_reduced.get(model, 0) + 1
            if bucket.is_last() and torch._C._current_autograd_node() is not None:
                engine: Any = torch.autograd.Variable._execution_engine
                engine.queue_callback(library.vramcast_wait_for_groups)
            return hook(state, bucket)

        return run

    def register_comm_hook(self: Any, state: Any, hook: Callable[..., Any]) -> None:
        register(self, state, waited_for(hook, self))

    def _pre_forward(self: Any, *inputs: Any, **options: Any) -> Any:
        if not self._comm_hooks:
            register_comm_hook(self, self.process_group, reduce_bucket)
        first = next(each for each in self.module.parameters() if each.requires_grad)
        accumulates[self] = self.gradient_as_bucket_view and first.grad is not None
        rebuilds = self.static_graph or not self.find_unused_parameters
        if rebuilds and torch.is_grad_enabled() and num_reduced.get(self) == 1 + self.static_graph:
            # now the ranks agree on new buckets, and wait for that, before they drop the old ones
            kept.let_go(waits=True)
        return before_forward(self, *inputs, **options)

    patcher.put(parallel, "_pre_forward", _pre_forward)
    patcher.put(parallel, "register_comm_hook", register_comm_hook)
    patcher.put(
        parallel,
        "_register_builtin_comm_hook",
        lambda self, _: register_comm_hook(self, self.process_group, reduce_bucket),
    )
