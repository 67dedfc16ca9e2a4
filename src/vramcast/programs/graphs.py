"""Training steps that a CUDA graph has captured: each replay of it is one.

Before it captures, a program warms up on another stream, as torch's documentation says. What the
graph takes comes on top of that, so these steps are not enough.
"""

import os
import re
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.optim import optimizer as optim

from vramcast.programs.watching import Watcher, and_then, replaced

# torch advises 3 steps, and 11 with DistributedDataParallel. Some programs do all their training on
# another stream, such as in the loop of a loader that copies its batches there.
MOST_STEPS_BEFORE_CAPTURE = 11
# What code that captures a graph names.
NAMES = re.compile(r"CUDAGraph|cuda\.graphs?\b|graphed_callable|torch\.cuda import [^\n]*\bgraph\b")
TORCH = os.path.dirname(torch.__file__)
OWN_FOLDER = str(Path(__file__).resolve().parents[1])


@contextmanager
def hearing_replays(watcher: Watcher) -> Iterator[None]:
    captured: list[Any] = []
    optimizers_of = weakref.WeakKeyDictionary[Any, list[Any]]()
    backwards_before = weakref.WeakKeyDictionary[Any, int]()  # when it was captured
    with_backward = weakref.WeakSet[Any]()

    def stepped(optimizer: Any) -> None:
        if torch.cuda.is_current_stream_capturing():
            captured.append(optimizer)
        is_early = captured or watcher.num_steps < MOST_STEPS_BEFORE_CAPTURE
        is_before = bool(is_early) and not optimizers_of and _is_on_another_stream()
        watcher.is_warming_up = is_before and _may_capture(sys._getframe(1))

    def capture(begin: Callable[..., None]) -> Callable[..., None]:
        def run(graph: Any, *arguments: Any, **options: Any) -> None:
            backwards_before[graph] = watcher.num_backwards
            begin(graph, *arguments, **options)

        return run

    def end_capture(graph: Any) -> None:
        optimizers_of[graph] = captured.copy()
        if watcher.num_backwards > backwards_before[graph]:
            with_backward.add(graph)
        captured.clear()
        watcher.is_warming_up = False

    def wrap(replay: Callable[[Any], None]) -> Callable[[Any], None]:
        def run(graph: Any) -> None:
            optimizers = optimizers_of.get(graph, [])
            if optimizers or graph in with_backward:
                watcher.training_forward()
                watcher.num_backwards += 1
            replay(graph)
            if graph in with_backward:
                watcher.after_backward()
            for optimizer in optimizers:
                watcher.stepped(optimizer)

        return run

    graphs = torch.cuda.CUDAGraph
    with ExitStack() as stack:
        heard = _disable_dynamo(lambda optimizer, *_: stepped(optimizer))
        hook = optim.register_optimizer_step_post_hook(heard)
        stack.callback(hook.remove)
        stack.enter_context(replaced(graphs, "capture_begin", capture))
        stack.enter_context(replaced(graphs, "capture_end", and_then(end_capture)))
        stack.enter_context(replaced(graphs, "replay", wrap))
        yield


def _is_on_another_stream() -> bool:
    cuda: Any = torch.cuda
    return bool(cuda.is_initialized() and cuda.current_stream() != cuda.default_stream())


def _may_capture(frame: FrameType | None) -> bool:
    """Whether the code that trains, or other code of its packages, names CUDA graphs."""
    folders = set[str]()
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        folders.add(_folder_of(frame.f_code.co_filename, name))
        frame = frame.f_back
    files = [getattr(module, "__file__", None) or "" for module in [*sys.modules.values()]]
    own = (file for file in files if file.startswith(tuple(filter(None, folders))))
    return any(map(_names_graphs, own))


def _folder_of(file: str, name: str) -> str:
    """The folder of the outermost package that a file belongs to, or of the main program; else the
    file. Empty for torch and vramcast."""
    if file.startswith(("<", TORCH + os.sep, OWN_FOLDER + os.sep)):
        return ""
    path = Path(file).resolve()
    is_folder = path.name == "__init__.py" or name == "__main__"
    above = name.count(".") + is_folder
    return f"{path.parents[above - 1]}{os.sep}" if above else str(path)


@cache
def _names_graphs(file: str) -> bool:
    if not file.endswith(".py") or file.startswith((TORCH + os.sep, OWN_FOLDER + os.sep)):
        return False
    try:
        return NAMES.search(Path(file).read_text(errors="replace")) is not None
    except OSError:
        return True
