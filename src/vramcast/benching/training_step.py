"""The model that `bench` trains, and its training step. Runs in the worker process."""

import importlib
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vramcast.benching.protocol import VOCABULARY
from vramcast.errors import WorkloadError
from vramcast.hardware.environment import require_package
from vramcast.records.bench import BenchTrial, OptimizerName, Precision, Protocol
from vramcast.records.measurement import Device
from vramcast.workload import Text, bind_knobs, load_function, parse_reference
from vramcast_zoo.catalogue import BY_NAME

EXPECTED = f"A model turns tokens [batch, length] into logits [batch, length, {VOCABULARY}]."
State = dict[str, Any]


class Training:
    """Everything that a step depends on besides its batch."""

    def __init__(self, trial: BenchTrial) -> None:
        self._protocol = protocol = trial.protocol
        self.device = torch.device(trial.device)
        random.seed(trial.seed)
        np.random.seed(trial.seed % 2**32)
        torch.manual_seed(trial.seed)
        with self.device:
            self.model = build_model(trial.model, trial.knobs)
        dtype = torch.bfloat16 if protocol.precision == Precision.BF16 else None
        self.model.to(self.device, dtype).train()
        self._trained = [p for p in self.model.parameters() if p.requires_grad]
        self._optimizer = make_optimizer(protocol, self._trained)

    def step(self, tokens: Tensor) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        is_mixed = self._protocol.precision == Precision.AMP_BF16
        with torch.autocast(self.device.type, torch.bfloat16, enabled=is_mixed):
            loss = next_byte_loss(self.model, tokens)
        loss.backward()  # type: ignore[no-untyped-call]
        if self._protocol.clip:
            nn.utils.clip_grad_norm_(self._trained, self._protocol.clip)
        self._optimizer.step()
        return loss.detach()

    def state(self) -> State:
        """The state for a checkpoint. torch.load reads only tensors, numbers, text and lists of
        them."""
        name, key, *rest = cast(Any, np.random.get_state(legacy=True))
        return {
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "gpu_random": torch.cuda.get_rng_state() if self.device.type == "cuda" else None,
            "python_random": random.getstate(),
            "numpy_random": [name, key.tolist(), *rest],
        }

    def restore(self, state: State) -> None:
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        random.setstate(state["python_random"])
        np.random.set_state(state["numpy_random"])
        if state["gpu_random"] is not None:
            torch.cuda.set_rng_state(state["gpu_random"])


def build_model(name: str, knobs: Mapping[str, str]) -> nn.Module:
    """The model, on torch's default device. Knobs are text."""
    given: dict[str, Any] = {key: Text(value) for key, value in knobs.items()}
    if name in BY_NAME:
        function = importlib.import_module(f"vramcast_zoo.{BY_NAME[name].family}").make_model
        given = {**BY_NAME[name].sizes, **given}
    else:
        function = load_function(parse_reference(name))
    model = function(**bind_knobs(function, given))
    if not isinstance(model, nn.Module):
        raise WorkloadError(
            f"{name} returned a value of type {type(model).__name__}, not a model.",
            f"Give a model of the zoo, or file.py:function that returns a torch module. {EXPECTED}",
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise WorkloadError(f"The model {name} has no parameters to train.", EXPECTED)
    return model


def next_byte_loss(model: nn.Module, tokens: Tensor) -> Tensor:
    """The mean cross entropy, in float32, of windows [batch, length + 1]."""
    logits = model(tokens[:, :-1])
    expected = (tokens.shape[0], tokens.shape[1] - 1, VOCABULARY)
    shape = logits.shape if isinstance(logits, Tensor) else None
    if shape != expected:
        found = f"a value of type {type(logits).__name__}" if shape is None else list(shape)
        is_vocabulary = shape is not None and shape[:2] == expected[:2]
        hint = f"Add the knob vocabulary={VOCABULARY}, if it has one. " if is_vocabulary else ""
        raise WorkloadError(
            f"The model returned {found} where the logits {list(expected)} are expected.",
            f"{hint}{EXPECTED}",
        )
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def make_optimizer(protocol: Protocol, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    options: dict[str, Any] = {"lr": protocol.lr, "weight_decay": protocol.weight_decay}
    if protocol.optimizer == OptimizerName.ADAMW:
        return torch.optim.AdamW(parameters, **options)
    require_package(
        "schedulefree",
        "The protocol's optimizer AdamWScheduleFree",
        ' Or train under a protocol of your own with optimizer = "adamw".',
    )
    from schedulefree import AdamWScheduleFree  # type: ignore[import-untyped]

    optimizer: torch.optim.Optimizer = AdamWScheduleFree(parameters, **options)
    optimizer.train()  # type: ignore[attr-defined]
    return optimizer


def build(*, trial: str, batch_size: int = 1) -> Callable[[], Tensor]:
    """The step as a workload, for predictions. `trial` is JSON, because knobs are plain values."""
    asked = replace(BenchTrial.from_json(trial), device=Device.CUDA, batch_size=batch_size)
    training = Training(asked)
    shape = (batch_size, asked.protocol.seq_len + 1)

    def step() -> Tensor:
        windows = torch.randint(VOCABULARY, shape, dtype=torch.uint8, device="cuda")
        return training.step(windows.long())

    return step
