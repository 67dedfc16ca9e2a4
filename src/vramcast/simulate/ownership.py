"""What belongs to the model and the optimizer, recognised from what a program does: parameters are registered, optimizers step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules import module as nn_module
from torch.optim import optimizer as optim


class Ownership:
    """Watches registrations and optimizer steps; afterwards says which allocation is a parameter, a gradient or optimizer state."""

    def __init__(self, block_id: Callable[[int], int], *, watching: bool = True) -> None:
        self._watching = watching
        self._block_id = block_id
        self._modules: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._optimizers: dict[int, Any] = {}
        self._parameters_before = 0  # when stock was last taken
        self.category_of: dict[int, str] = {}
        self.name_of: dict[int, str] = {}
        self._handles: list[Any] = []
        if watching:
            self._handles = self._watch()

    def _watch(self) -> list[Any]:
        return [
            nn_module.register_module_parameter_registration_hook(self._saw_module),
            nn_module.register_module_buffer_registration_hook(self._saw_module),
            nn_module.register_module_module_registration_hook(self._saw_module),
            optim.register_optimizer_step_pre_hook(self._before_update),
            optim.register_optimizer_step_post_hook(self._after_update),
            _Copies(self._saw_module),
        ]

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _saw_module(self, module: torch.nn.Module, *_: Any) -> None:
        self._modules[id(module)] = weakref.ref(module)

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        self._optimizers[id(optimizer)] = optimizer
        for group in optimizer.param_groups:  # those of modules have their names already
            for parameter in group["params"]:
                self._put(parameter, "parameters", "")
        self._note_gradients()

    def _after_update(self, optimizer: Any, *_: Any) -> None:
        self._note_state()

    def look(self) -> None:
        """Take stock between steps."""
        if not self._watching:
            return
        for name, tensor, kind in self._module_tensors():
            self._put(tensor, kind, name)
        self._note_gradients()
        self._note_state()
        self._parameters_before = self.num_parameters()

    def num_parameters(self) -> int:
        """Distinct trainable and frozen parameters of every module and optimizer seen, also of those that have ended with the step."""
        now = sum(p.numel() for p in {id(p): p for p in self._parameters()}.values())
        return max(self._parameters_before, now)

    def _parameters(self) -> Iterator[torch.Tensor]:
        for _, tensor, kind in self._module_tensors():
            if kind == "parameters":
                yield tensor
        for optimizer in self._optimizers.values():
            for group in optimizer.param_groups:
                yield from group["params"]

    def _module_tensors(self) -> Iterator[tuple[str, torch.Tensor, str]]:
        names = self.module_names()
        for key, reference in list(self._modules.items()):
            module = reference()
            if module is None:
                continue
            prefix = names.get(key, "")
            for kind, tensors in (("parameters", module._parameters), ("buffers", module._buffers)):
                for name, tensor in tensors.items():
                    if tensor is not None:
                        yield f"{prefix}.{name}" if prefix else name, tensor, kind

    def module_names(self) -> dict[int, str]:
        """Dotted names from the outermost modules down."""
        alive = {
            key: module
            for key, reference in self._modules.items()
            if (module := reference()) is not None
        }
        names: dict[int, str] = {}
        for module in self.outermost(list(alive.values())):
            for name, child in module.named_modules():
                names.setdefault(id(child), name)
        return names

    @staticmethod
    def outermost(modules: list[torch.nn.Module]) -> list[torch.nn.Module]:
        children = {id(child) for module in modules for child in module.children()}
        return [module for module in modules if id(module) not in children]

    def _note_gradients(self) -> None:
        for parameter in self._parameters():
            if parameter.grad is not None:
                self._put(parameter.grad, "gradients", self.name_of.get(self._id(parameter), ""))

    def _note_state(self) -> None:
        for optimizer in self._optimizers.values():
            for parameter, state in optimizer.state.items():
                owner = (
                    self.name_of.get(self._id(parameter), "")
                    if isinstance(parameter, torch.Tensor)
                    else ""
                )
                for key, value in state.items() if isinstance(state, dict) else ():
                    for tensor in value if isinstance(value, list | tuple) else (value,):
                        if isinstance(tensor, torch.Tensor):
                            self._put(tensor, "optimizer_state", f"{owner} {key}".strip())

    def _id(self, tensor: torch.Tensor) -> int:
        return self._block_id(tensor.untyped_storage().data_ptr()) if tensor.is_cuda else 0

    def _put(self, tensor: torch.Tensor, category: str, name: str) -> None:
        if tensor.layout is not torch.strided:
            return
        number = self._id(tensor)
        if number and self.category_of.get(number) != "parameters":
            self.category_of[number] = category
            if name:
                self.name_of[number] = name


class _Copies:
    """Sees modules that are copied or loaded as a whole: nothing is registered then. torch's own nn.TransformerEncoder copies its layers."""

    def __init__(self, saw: Callable[[torch.nn.Module], None]) -> None:
        original = self._original = torch.nn.Module.__setstate__

        def restored(module: torch.nn.Module, state: dict[str, Any]) -> None:
            original(module, state)
            saw(module)

        torch.nn.Module.__setstate__ = restored  # type: ignore[method-assign]

    def remove(self) -> None:
        torch.nn.Module.__setstate__ = self._original  # type: ignore[method-assign]
