"""Changes of a training step that are made from outside, for workloads without a knob for them.

Nothing of the program is edited: this uses torch's own hooks, and replaces two of its methods.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

AUTOCAST_DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
# The changes in force, by name; each is installed once.
_in_force: dict[str, Any] = {}


def in_force() -> dict[str, Any]:
    return dict(_in_force)


def force(name: str, value: Any) -> None:
    """Makes one of the changes in FORCED. A second call only changes the value."""
    is_new = name not in _in_force
    _in_force[name] = value
    if is_new:
        FORCED[name]()


def _optimizers_ask() -> None:
    """Sets how an optimizer goes over the weights, where the program leaves that to torch."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    if "foreach" in _in_force and "fused" in _in_force:
        return

    def choose(optimizer: Any, *_: Any) -> None:
        for group in optimizer.param_groups:
            if "fused" in _in_force and "fused" in group and not group.get("foreach"):
                group["fused"] = _in_force["fused"]
            elif "foreach" in _in_force and "foreach" in group and not group.get("fused"):
                group["foreach"] = _in_force["foreach"]

    register_optimizer_step_pre_hook(choose)


def _gradients_are_set_to_none() -> None:
    import torch

    for owner in (torch.optim.Optimizer, torch.nn.Module):
        real = owner.zero_grad

        def zero_grad(self: Any, set_to_none: bool = True, real: Any = real) -> Any:
            return real(self, set_to_none=bool(_in_force["set_to_none"]))

        owner.zero_grad = functools.wraps(real)(zero_grad)  # type: ignore[method-assign]


def _blocks_are_checkpointed() -> None:
    """When a model is first called, checkpoints every n-th of the blocks that it repeats."""
    from torch.nn.modules.module import register_module_forward_pre_hook

    def look(module: Any, _: Any) -> None:
        if module in seen:
            return
        for block in _repeated_blocks(module, seen):
            _checkpoint(block)

    seen: Any = _weak_set()
    register_module_forward_pre_hook(look)


def _weak_set() -> Any:
    import weakref

    return weakref.WeakSet()


def _repeated_blocks(module: Any, seen: Any) -> Iterator[Any]:
    """Children of one type in a list, with layers of their own; not those inside such a block."""
    import torch

    seen.add(module)
    children = list(module.children())
    is_list = isinstance(module, torch.nn.ModuleList | torch.nn.Sequential)
    blocks = [one for one in children if _is_block(one)] if is_list else []
    if len(blocks) > 1 and len({type(one) for one in blocks}) == 1:
        for block in blocks:
            seen.update(block.modules())
        yield from blocks[:: _in_force["checkpoint_every"]]
        return
    for child in children:
        if child not in seen:
            yield from _repeated_blocks(child, seen)


def _is_block(module: Any) -> bool:
    return len(list(module.modules())) > 2 and any(True for _ in module.parameters())


def _checkpoint(block: Any) -> None:
    import torch
    from torch.utils.checkpoint import checkpoint

    real = block.forward

    @functools.wraps(real)
    def forward(*arguments: Any, **options: Any) -> Any:
        if not torch.is_grad_enabled() or not block.training:
            return real(*arguments, **options)
        return checkpoint(real, *arguments, use_reentrant=False, **options)

    block.forward = forward


def _forward_passes_are_autocast() -> None:
    """Autocasts from the first call of a model until its backward pass, which includes most
    losses."""
    import torch
    from torch.nn.modules.module import (
        register_module_forward_hook,
        register_module_forward_pre_hook,
    )

    open_contexts = contextlib.ExitStack()
    calls: list[int] = []

    def enter(module: Any, _: Any) -> None:
        calls.append(id(module))
        if len(calls) == 1 and not torch.is_autocast_enabled("cuda"):
            dtype = getattr(torch, AUTOCAST_DTYPES[_in_force["autocast"]])
            open_contexts.enter_context(torch.autocast("cuda", dtype=dtype))

    def leave(module: Any, *_: Any) -> None:
        while calls and calls.pop() != id(module):
            pass
        if not calls and not torch.is_grad_enabled():
            open_contexts.close()

    register_module_forward_pre_hook(enter)
    register_module_forward_hook(leave, always_call=True)

    def after_closing(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def backward(*arguments: Any, **options: Any) -> Any:
            open_contexts.close()
            return real(*arguments, **options)

        return backward

    torch.autograd.backward = after_closing(torch.autograd.backward)
    torch.autograd.grad = after_closing(torch.autograd.grad)


FORCED: dict[str, Callable[[], None]] = {
    "foreach": _optimizers_ask,
    "fused": _optimizers_ask,
    "set_to_none": _gradients_are_set_to_none,
    "checkpoint_every": _blocks_are_checkpointed,
    "autocast": _forward_passes_are_autocast,
}
