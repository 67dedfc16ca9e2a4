"""One trial: a model trained under a protocol. Losses stay on the device and are fetched some steps at a time.

A checkpoint holds everything a step depends on, and a batch depends on the seed and the step alone: a run that was interrupted goes on
to the losses of one that was not. (On a GPU, as far as its kernels give the same result twice.)
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vramcast.benching.checkpoints import Checkpoints, State, load
from vramcast.benching.data import Corpus
from vramcast.benching.meters import Meter, memory_kind, meter_for
from vramcast.benching.models import build_model, count_parameters, make_optimizer, next_byte_loss
from vramcast.benching.prefetch import Batches
from vramcast.benching.tensorboard import Board
from vramcast.benching.trial_folder import Steps, TrialFolder
from vramcast.records.bench import TrainedRun, Trial, last_mean

BLOCK_SECONDS = 1.0  # between two fetches of losses
MOST_BLOCK_STEPS = 100
BLOCKS_BEHIND = {
    "cuda": 1,
    "cpu": 0,
}  # a GPU works on one while this process writes down the one before
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
        self.model.to(
            self.device, torch.bfloat16 if trial.protocol.precision == "bf16" else None
        ).train()
        self._trained = [
            parameter for parameter in self.model.parameters() if parameter.requires_grad
        ]
        self._optimizer = make_optimizer(
            trial.protocol.optimizer, self._trained, trial.protocol.lr, trial.protocol.weight_decay
        )

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

    def state(self) -> State:
        return {
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "gpu_random": torch.cuda.get_rng_state(self.device)
            if self.device.type == "cuda"
            else None,
        }

    def restore(self, state: State) -> None:
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        if state["gpu_random"] is not None:
            torch.cuda.set_rng_state(state["gpu_random"], self.device)


class Block:
    """Steps that have been started. Their losses are on their way to the host, and nothing waits for them until `finish`."""

    def __init__(
        self, losses: list[Tensor], meter: Meter, began: float, data_wait_seconds: float
    ) -> None:
        self.began = began  # by this process's clock
        self._meter, self._data_wait_seconds = meter, data_wait_seconds
        values = torch.stack(losses).float()
        self._values = torch.empty_like(values, device="cpu", pin_memory=values.is_cuda)
        self._values.copy_(values, non_blocking=True)
        self._arrived = (
            torch.cuda.current_stream(values.device).record_event() if values.is_cuda else None
        )

    def __len__(self) -> int:
        return len(self._values)

    def finish(self) -> Steps:
        if self._arrived is not None:
            self._arrived.synchronize()
        seconds, memory = self._meter.finish()
        finite = [value if math.isfinite(value) else None for value in self._values.tolist()]
        return Steps(finite, seconds, memory, self._data_wait_seconds)


@dataclass
class Trainer:
    trial: Trial
    corpus: Corpus
    folder: TrialFolder
    checkpoint_seconds: float
    environment: dict[str, Any]
    tell: Tell
    board: Board | None = None

    def run(self) -> TrainedRun:
        training, done, resumed = self.prepare()
        self.train(training, done, resumed)
        return TrainedRun(
            trial=self.trial,
            outcome="diverged" if None in done.losses else "ok",
            environment=self.environment,
            parameters=count_parameters(training.model),
            memory_kind=memory_kind(training.device),
            resumed_at_steps=resumed,
            **vars(done),
        )

    def prepare(self) -> tuple[Training, Steps, list[int]]:
        """As an interrupted run of the trial left it; and the steps at which it was resumed."""
        self.corpus.check_window(self._window_bytes)
        training = Training(self.trial)
        state = load(self.folder.checkpoint)
        done = self.folder.steps(most=state["step"]) if state else Steps()
        if (
            state is None or len(done) != state["step"]
        ):  # a checkpoint without its steps is of no use
            self.folder.keep_steps(Steps())
            return training, Steps(), []
        training.restore(state)
        self.folder.keep_steps(done)
        return training, done, [*state["resumed_at_steps"], len(done)]

    def train(self, training: Training, done: Steps, resumed: list[int]) -> None:
        """To the end of the protocol; `done` gets the steps."""
        blocks: deque[Block] = deque()  # started and not yet looked at
        saved = time.monotonic()
        board = self.board.begin(done) if self.board else contextlib.nullcontext()
        with (
            board,
            Checkpoints(self.folder.checkpoint) as checkpoints,
            Batches(self._batch, len(done), training.device) as batches,
        ):
            while not self._ended(done):
                blocks.append(self._block(training, batches, *_reached(done, blocks)))
                is_due = time.monotonic() - saved >= self.checkpoint_seconds
                is_last = is_due or self._reaches_end(*_reached(done, blocks))
                while len(blocks) > (
                    0 if is_last else BLOCKS_BEHIND[training.device.type]
                ) and not self._ended(done):
                    self._take(blocks.popleft(), done)
                if is_due and not self._ended(done):
                    checkpoints.save(
                        {"step": len(done), "resumed_at_steps": resumed, **training.state()}
                    )
                    saved = time.monotonic()

    @property
    def _window_bytes(self) -> int:
        return self.trial.protocol.seq_len + 1

    def _batch(self, step: int) -> Any:
        return self.corpus.batch(
            seed=self.trial.seed,
            step=step,
            batch_size=self.trial.batch_size,
            window_bytes=self._window_bytes,
            respect_documents=self.trial.protocol.respect_documents,
        )

    def _block(
        self, training: Training, batches: Batches, steps_before: int, seconds_before: float
    ) -> Block:
        """Steps until it is time to look at them: nothing in here waits for the GPU."""
        began, waited = time.perf_counter(), batches.wait_seconds
        losses: list[Tensor] = []
        meter = meter_for(training.device)
        while not losses or not self._is_full(
            len(losses), time.perf_counter() - began, steps_before, seconds_before
        ):
            losses.append(training.step(batches.next()))
            meter.after_step()
        return Block(losses, meter, began, batches.wait_seconds - waited)

    def _is_full(
        self, steps: int, seconds: float, steps_before: int, seconds_before: float
    ) -> bool:
        if self._reaches_end(steps_before + steps, seconds_before + seconds):
            return True
        return steps >= MOST_BLOCK_STEPS or seconds >= min(BLOCK_SECONDS, self.checkpoint_seconds)

    def _reaches_end(self, steps: int, seconds: float) -> bool:
        protocol = self.trial.protocol
        return (
            steps >= protocol.steps
            if protocol.steps is not None
            else seconds >= (protocol.seconds or 0.0)
        )

    def _take(self, block: Block, done: Steps) -> None:
        steps = block.finish()
        self.folder.add_steps(len(done), steps)
        if self.board:
            self.board.add(len(done), done.seconds, steps)
        done.add(steps)
        self._report(done, steps)

    def _ended(self, done: Steps) -> bool:
        return None in done.losses[-MOST_BLOCK_STEPS:] or self._reaches_end(len(done), done.seconds)

    def _report(self, done: Steps, block: Steps) -> None:
        protocol = self.trial.protocol
        a_step = block.seconds / len(block)
        left = (
            (protocol.steps - len(done)) * a_step
            if protocol.steps is not None
            else (protocol.seconds or 0.0) - done.seconds
        )
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


def _reached(done: Steps, blocks: Sequence[Block]) -> tuple[int, float]:
    """How many steps and seconds it has been; of steps that are not finished, by this process's clock."""
    running = time.perf_counter() - blocks[0].began if blocks else 0.0
    return len(done) + sum(map(len, blocks)), done.seconds + running
