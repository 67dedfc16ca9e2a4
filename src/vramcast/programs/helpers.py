"""Networks that a training step asks and does not train: the encoder of pictures, a teacher."""

import weakref
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

# More passes than these before a backward pass are an evaluation or a sample.
MOST_PASSES = 32


def is_training(module: torch.nn.Module) -> bool:
    """DeepSpeed's engine hands train() and eval() to the network in it, and stays as it is."""
    inner = getattr(module, "module", None)
    return module.training and getattr(inner, "training", True) is not False


class Helpers:
    """They are first asked before the first step, when the optimizers have other parameters than
    theirs. An evaluation before the training asks the network that is trained."""

    def __init__(self) -> None:
        self._trained: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._found = weakref.WeakSet[torch.nn.Module]()
        self._num_passes = 0

    def are_not_in(self, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            self._trained.update(dict.fromkeys(group["params"]))

    def backward(self) -> None:
        self._num_passes = 0

    def have(self, module: torch.nn.Module, may_be_new: bool) -> bool:
        if not self._trained:  # so far, no optimizer of torch was made
            return not any(parameter.requires_grad for parameter in module.parameters())
        is_trained = any(parameter in self._trained for parameter in module.parameters())
        if may_be_new and not is_trained:
            self._found.add(module)
        self._num_passes += module in self._found
        return module in self._found and self._num_passes <= MOST_PASSES
