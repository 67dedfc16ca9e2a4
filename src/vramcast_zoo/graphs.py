"""A whole training step as one CUDA graph: the host launches one thing instead of thousands.

A graph repeats the kernels of the step it was captured from, with the same addresses. So a step can
be captured where the host decides nothing in it: it must not read a value from the GPU. Random
numbers go on as they would without a graph.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS_BEFORE = (
    3  # run as they are: libraries choose kernels and optimizers make their state in the first ones
)


def captured(step: Callable[[], Tensor], model: nn.Module) -> Callable[[], Tensor]:
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    loss: Tensor | None = None
    num_steps = 0

    def aside() -> Tensor:
        """On a stream of its own, as capturing asks for."""
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = step()
        torch.cuda.current_stream().wait_stream(stream)
        return result

    def capture() -> Tensor:
        before = {name: buffer for name, buffer in model.named_buffers() if buffer is not None}
        with torch.cuda.graph(graph):
            result = step()
            _write_back(model, before)
        return result

    def repeated() -> Tensor:
        nonlocal loss, num_steps
        num_steps += 1
        if num_steps <= STEPS_BEFORE:
            return aside()
        if loss is None:
            loss = capture()
        graph.replay()
        return loss.clone()

    return repeated


def _write_back(model: nn.Module, before: dict[str, Tensor]) -> None:
    """A step may have put new tensors in the place of buffers.

    The next replay reads the old places: the new values go there.
    """
    for name, old in before.items():
        new = model.get_buffer(name)
        if new is not old:
            old.copy_(new)
            owner, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(owner), attribute, old)
