"""Training steps that a CUDA graph has captured: each replay of it is one.

Before it captures, a program warms up on another stream, as torch's documentation says. What the
graph takes comes on top of that, so these steps are not enough.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.optim import optimizer as optim

from vramcast.programs.watching import Watcher, and_then, replaced

# torch advises 3 steps, and 11 with DistributedDataParallel. Some programs do all their training on
# another stream, such as in the loop of a loader that copies its batches there.
MOST_STEPS_BEFORE_CAPTURE = 11


@contextmanager
def hearing_replays(watcher: Watcher) -> Iterator[None]:
    captured: list[Any] = []
    optimizers_of = weakref.WeakKeyDictionary[Any, list[Any]]()

    def stepped(optimizer: Any) -> None:
        if torch.cuda.is_current_stream_capturing():
            captured.append(optimizer)
        is_early = captured or watcher.num_steps < MOST_STEPS_BEFORE_CAPTURE
        is_before = bool(is_early) and not optimizers_of
        watcher.is_warming_up = is_before and _is_on_another_stream()

    def end_capture(graph: Any) -> None:
        optimizers_of[graph] = captured.copy()
        captured.clear()
        watcher.is_warming_up = False

    def wrap(replay: Callable[[Any], None]) -> Callable[[Any], None]:
        def run(graph: Any) -> None:
            optimizers = optimizers_of.get(graph, [])
            if optimizers:
                watcher.training_forward()
                watcher.num_backwards += 1
            replay(graph)
            for optimizer in optimizers:
                watcher.stepped(optimizer)

        return run

    graphs = torch.cuda.CUDAGraph
    with ExitStack() as stack:
        hook = optim.register_optimizer_step_post_hook(lambda one, *_: stepped(one))
        stack.callback(hook.remove)
        stack.enter_context(replaced(graphs, "capture_end", and_then(end_capture)))
        stack.enter_context(replaced(graphs, "replay", wrap))
        yield


def _is_on_another_stream() -> bool:
    cuda: Any = torch.cuda
    return bool(cuda.is_initialized() and cuda.current_stream() != cuda.default_stream())
