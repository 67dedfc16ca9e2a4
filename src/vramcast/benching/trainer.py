"""One trial: a model trained under a protocol. Losses stay on the device and are fetched some steps at a time.

A checkpoint holds everything a step depends on, and a batch depends on the seed and the step alone: a run that was interrupted goes on
to the losses of one that was not. (On a GPU, as far as its kernels give the same result twice.)
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vramcast.benching.data import Corpus
from vramcast.benching.meters import meter_for
from vramcast.benching.models import build_model, count_parameters, make_optimizer, next_byte_loss
from vramcast.benching.prefetch import Batches
from vramcast.benching.records import TrainedRun, Trial, last_mean
from vramcast.benching.trial_folder import Steps, TrialFolder
from vramcast.errors import EnvironmentProblem

BLOCK_SECONDS = 1.0  # between two fetches of losses
MOST_BLOCK_STEPS = 100
Tell = Callable[[dict[str, Any]], None]


class Training:
    """Model, optimizer and random state: all that a step depends on besides its batch."""

    def __init__(self, trial: Trial) -> None:
        self._protocol = trial.protocol
        self.device = torch.device(trial.device)
        random.seed(trial.seed)
        np.random.seed(trial.seed % 2**32)
        torch.manual_seed(trial.seed)
        with self.device:
            self.model = build_model(trial.model, trial.knobs)
        self.model.to(self.device, torch.bfloat16 if trial.protocol.precision == "bf16" else None).train()
        self._trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self._optimizer = make_optimizer(trial.protocol.optimizer, self._trained, trial.protocol.lr, trial.protocol.weight_decay)

    def step(self, tokens: Tensor) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            loss = next_byte_loss(self.model, tokens)
        loss.backward()  # type: ignore[no-untyped-call]
        if self._protocol.clip:
            nn.utils.clip_grad_norm_(self._trained, self._protocol.clip)
        self._optimizer.step()
        return loss.detach()

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self._protocol.precision != "amp-bf16":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def save(self, path: Path, step: int, resumed_at_steps: list[int]) -> None:
        """The old checkpoint or the new one is there at every moment. Not through memory: it may be as large as the GPU's."""
        state = {
            "step": step,
            "resumed_at_steps": resumed_at_steps,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "gpu_random": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }
        temporary = path.with_name(f".{path.name}.new")
        try:
            with open(temporary, "wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as problem:
            what = f"The checkpoint {path} cannot be written: {problem.strerror or problem}."
            raise EnvironmentProblem(what, "Make room and start the same bench again: it goes on from its last checkpoint.") from None

    def load(self, path: Path) -> tuple[int, list[int]]:
        """The step after which it was saved, and those at which the run had been resumed before; step 0 where there is none to use."""
        if not path.exists():
            return 0, []
        try:
            state = torch.load(path, map_location=self.device, weights_only=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, ValueError):
            return 0, []  # it was damaged on disk: from the beginning, to the same losses
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"].cpu())
        if state["gpu_random"] is not None:
            torch.cuda.set_rng_state(state["gpu_random"].cpu(), self.device)
        return state["step"], state["resumed_at_steps"]


@dataclass
class Trainer:
    trial: Trial
    corpus: Corpus
    folder: TrialFolder
    checkpoint_seconds: float
    environment: dict[str, Any]
    tell: Tell

    def run(self) -> TrainedRun:
        self.corpus.check_window(self._window_bytes)
        training, done, resumed = self._prepare()
        meter = meter_for(training.device)
        saved = time.monotonic()
        with Batches(self._batch, len(done), training.device) as batches:
            while not self._ended(done):
                block = self._block(training, batches, meter, done)
                self.folder.add_steps(len(done), block)
                done.add(block)
                self._report(done, block)
                if time.monotonic() - saved >= self.checkpoint_seconds and not self._ended(done):
                    training.save(self.folder.checkpoint, len(done), resumed)
                    saved = time.monotonic()
        return TrainedRun(
            trial=self.trial,
            outcome="diverged" if None in done.losses else "ok",
            environment=self.environment,
            parameters=count_parameters(training.model),
            memory_kind=meter.memory_kind,
            resumed_at_steps=resumed,
            **vars(done),
        )

    @property
    def _window_bytes(self) -> int:
        return self.trial.protocol.seq_len + 1

    def _batch(self, step: int) -> Any:
        return self.corpus.batch(
            seed=self.trial.seed,
            step=step,
            batch_size=self.trial.batch_size or 1,
            window_bytes=self._window_bytes,
            respect_documents=self.trial.protocol.respect_documents,
        )

    def _prepare(self) -> tuple[Training, Steps, list[int]]:
        """As an interrupted run of the trial left it; and the steps at which it was resumed."""
        training = Training(self.trial)
        step, resumed = training.load(self.folder.checkpoint)
        done = self.folder.steps(most=step)
        if len(done) != step:  # a checkpoint without its steps is of no use
            training, done, step = Training(self.trial), Steps(), 0
        self.folder.keep_steps(done)
        return training, done, [*resumed, step] if step else []

    def _block(self, training: Training, batches: Batches, meter: Any, done: Steps) -> Steps:
        """Steps until it is time to look at them: nothing in here waits for the GPU."""
        started, waited = time.perf_counter(), batches.wait_seconds
        losses: list[Tensor] = []
        meter.start()
        while not losses or (not self._is_full(len(losses), time.perf_counter() - started, done)):
            losses.append(training.step(batches.next()))
            meter.after_step()
        values = torch.stack(losses).float().tolist()
        seconds, memory = meter.finish()
        finite = [value if math.isfinite(value) else None for value in values]
        return Steps(finite, seconds, memory, batches.wait_seconds - waited)

    def _is_full(self, steps: int, seconds: float, done: Steps) -> bool:
        protocol = self.trial.protocol
        if protocol.steps is not None and len(done) + steps >= protocol.steps:
            return True
        if protocol.seconds is not None and done.seconds + seconds >= protocol.seconds:
            return True
        return steps >= MOST_BLOCK_STEPS or seconds >= min(BLOCK_SECONDS, self.checkpoint_seconds)

    def _ended(self, done: Steps) -> bool:
        protocol = self.trial.protocol
        if done.losses and None in done.losses[-MOST_BLOCK_STEPS:]:
            return True
        return len(done) >= protocol.steps if protocol.steps is not None else done.seconds >= (protocol.seconds or 0.0)

    def _report(self, done: Steps, block: Steps) -> None:
        protocol = self.trial.protocol
        a_step = block.seconds / len(block)
        left = (protocol.steps - len(done)) * a_step if protocol.steps is not None else (protocol.seconds or 0.0) - done.seconds
        last = last_mean(done.losses, protocol)
        self.tell(
            {
                "step": len(done),
                "loss": done.losses[-1],
                "last_loss": last if math.isfinite(last) else None,
                "tokens_per_second": self.trial.tokens_per_step / a_step,
                "memory_bytes": max(block.step_memory_bytes),
                "seconds_left": max(0.0, left),
            }
        )
