"""The models that `bench` trains: a name of the zoo, or `file.py:function` that returns one. Runs in the worker process."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vramcast.benching.protocol import VOCABULARY
from vramcast.errors import WorkloadError
from vramcast.workload import Text, bind_knobs, load_function, parse_reference
from vramcast_zoo.catalogue import BY_NAME

EXPECTED = f"A model turns tokens [batch, length] into logits [batch, length, {VOCABULARY}]."


def build_model(name: str, knobs: Mapping[str, str]) -> nn.Module:
    """On torch's default device. Knobs are text, as on the command line."""
    function, sizes = _maker(name)
    given = {key: Text(value) for key, value in knobs.items()}
    model = function(**bind_knobs(function, {**sizes, **given}))
    if not isinstance(model, nn.Module):
        raise WorkloadError(
            f"{name} returned a value of type {type(model).__name__}, not a model.",
            f"Give a model of the zoo, or file.py:function that returns a torch module. {EXPECTED}",
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise WorkloadError(f"The model {name} has no parameters to train.", EXPECTED)
    return model


def _maker(name: str) -> tuple[Callable[..., Any], Mapping[str, Any]]:
    entry = BY_NAME.get(name)
    if entry is None:
        return load_function(parse_reference(name)), {}
    return importlib.import_module(f"vramcast_zoo.{entry.family}").make_model, entry.sizes


def next_byte_loss(model: nn.Module, tokens: Tensor) -> Tensor:
    """The mean cross entropy, in float32, of windows [batch, length + 1]."""
    logits = model(tokens[:, :-1])
    expected = (tokens.shape[0], tokens.shape[1] - 1, VOCABULARY)
    if not isinstance(logits, Tensor) or logits.shape != expected:
        found = (
            list(logits.shape)
            if isinstance(logits, Tensor)
            else f"a value of type {type(logits).__name__}"
        )
        # the baselines of the zoo come with vocabularies of their own
        wide = isinstance(logits, Tensor) and logits.shape[:2] == expected[:2]
        raise WorkloadError(
            f"The model returned {found} where the logits {list(expected)} are expected.",
            f"Add the knob vocabulary={VOCABULARY}, if it has one. {EXPECTED}"
            if wide
            else EXPECTED,
        )
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def make_optimizer(
    name: str, parameters: list[nn.Parameter], lr: float, weight_decay: float
) -> torch.optim.Optimizer:
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay)
    try:
        import schedulefree  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise WorkloadError(
            "The protocol's optimizer AdamWScheduleFree needs the package schedulefree, which is not installed.",
            'Install it with: pip install schedulefree. Or train under a protocol of your own with optimizer = "adamw".',
        ) from None
    optimizer: torch.optim.Optimizer = schedulefree.AdamWScheduleFree(
        parameters, lr=lr, weight_decay=weight_decay
    )
    optimizer.train()  # type: ignore[attr-defined]  # it has a mode, as models have
    return optimizer
