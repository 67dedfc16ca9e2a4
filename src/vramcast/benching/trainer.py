"""One trial: a model trained under a protocol, step by step.

Losses are fetched from the GPU some steps at a time: no step waits for it. A checkpoint holds all
that a step depends on besides its batch. So a run that was interrupted goes on to the losses of one
that was not, as far as the GPU's kernels give the same result twice.
"""

from __future__ import annotations

import math
import resource
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vramcast.benching.data import Corpus
from vramcast.benching.tensorboard import Board
from vramcast.benching.threads import Batches, Checkpoints, load_checkpoint, of_this_model
from vramcast.benching.training_step import Training
from vramcast.benching.trial_folder import Steps, TrialFolder
from vramcast.errors import EnvironmentProblem, VramcastError
from vramcast.hardware import environment
from vramcast.probing.worker import failure
from vramcast.records.bench import (
    BenchTrial,
    TrainedRun,
    TrainingOutcome,
    last_losses,
    mean_loss,
)
from vramcast.units import format_bytes, format_seconds

# Losses are fetched when a block of steps has taken this long or has so many steps.
BLOCK_SECONDS, MAX_BLOCK_STEPS = 1.0, 100
# A GPU works on one block while this process writes down the block before.
BLOCKS_BEHIND = {"cuda": 1, "cpu": 0}
MEMORY_KINDS = {"cuda": "GPU, allocated", "cpu": "process, resident"}
Mark = tuple[Any, int]


def mark(device: torch.device) -> Mark:
    """The time, and the peak memory since the last mark. Nothing waits for the GPU."""
    if device.type == "cpu":
        return time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    # max_memory_allocated() sorts all statistics first, which takes several times as long.
    statistics = torch.cuda.memory_stats_as_nested_dict(device)
    torch.cuda.reset_peak_memory_stats(device)
    return event, statistics["allocated_bytes"]["all"]["peak"]


class Block:
    """Steps that were started; only `finish` waits for them."""

    def __init__(
        self, losses: list[Tensor], marks: list[Mark], began: float, data_wait_seconds: float
    ) -> None:
        self.began = began  # by this process's clock
        self._marks, self._data_wait_seconds = marks, data_wait_seconds
        values = torch.stack(losses).float()
        self._values = torch.empty_like(values, device="cpu", pin_memory=values.is_cuda)
        self._values.copy_(values, non_blocking=True)
        self._copied = torch.cuda.current_stream().record_event() if values.is_cuda else None

    def __len__(self) -> int:
        return len(self._values)

    def finish(self) -> Steps:
        times, memory_bytes = zip(*self._marks, strict=True)
        if self._copied is None:
            seconds = [after - before for before, after in pairwise(times)]
        else:
            self._copied.synchronize()
            seconds = [before.elapsed_time(after) / 1000 for before, after in pairwise(times)]
        losses = [value if math.isfinite(value) else None for value in self._values.tolist()]
        return Steps(losses, seconds, list(memory_bytes[1:]), self._data_wait_seconds)


@dataclass
class Trainer:
    trial: BenchTrial
    corpus: Corpus
    folder: TrialFolder
    checkpoint_seconds: float
    environment: dict[str, Any]
    tell: Callable[[dict[str, Any]], None]
    tensorboard: bool = False

    def run(self) -> TrainedRun:
        training, done, resumed = self.prepare()
        self.train(training, done, resumed)
        return TrainedRun(
            trial=self.trial,
            outcome=TrainingOutcome.DIVERGED if None in done.losses else TrainingOutcome.OK,
            environment=self.environment,
            parameters=training.num_parameters,
            memory_kind=MEMORY_KINDS[training.device.type],
            resumed_at_steps=resumed,
            **vars(done),
        )

    def prepare(self) -> tuple[Training, Steps, list[int]]:
        """As an interrupted run left it; and the steps at which it was continued."""
        training, done, resumed = Training(self.trial), Steps(), []
        state = load_checkpoint(self.folder.checkpoint)
        if state is not None:
            with of_this_model(self.folder.checkpoint):
                found = self.folder.steps(most=state["step"])
                # A checkpoint is of no use without the losses of the steps before it.
                if len(found) == state["step"]:
                    training.restore(state)
                    done, resumed = found, [*state["resumed_at_steps"], len(found)]
        self.folder.keep_steps(done)
        return training, done, resumed

    def train(self, training: Training, done: Steps, resumed: list[int]) -> None:
        """The steps are added to `done`."""
        blocks: deque[Block] = deque()  # started and not yet finished
        saved = time.monotonic()
        with (
            self._board(done) as board,
            Checkpoints(self.folder.checkpoint) as checkpoints,
            Batches(partial(self.corpus.batch, self.trial), len(done), training.device) as batches,
        ):
            while not self._ended(done):
                blocks.append(self._block(training, batches, *_reached(done, blocks)))
                is_due = time.monotonic() - saved >= self.checkpoint_seconds
                is_last = self._fraction_done(*_reached(done, blocks)) >= 1
                num_behind = 0 if is_due or is_last else BLOCKS_BEHIND[training.device.type]
                while len(blocks) > num_behind and not self._ended(done):
                    self._finish(blocks.popleft(), done, board)
                if is_due and not self._ended(done):
                    checkpoints.save(training, len(done), resumed)
                    saved = time.monotonic()

    def _board(self, done: Steps) -> AbstractContextManager[Board | None]:
        if not self.tensorboard:
            return nullcontext()
        return Board(self.folder.board, self.trial.tokens_per_step, done)

    def _block(
        self, training: Training, batches: Batches, steps_before: int, seconds_before: float
    ) -> Block:
        """Steps until it is time to look at them, without waiting for the GPU."""
        began, waited = time.perf_counter(), batches.wait_seconds
        losses: list[Tensor] = []
        marks = [mark(training.device)]
        is_full = False
        while not is_full:
            losses.append(training.step(batches.next()))
            marks.append(mark(training.device))
            seconds = time.perf_counter() - began
            is_full = (
                len(losses) >= MAX_BLOCK_STEPS
                or seconds >= min(BLOCK_SECONDS, self.checkpoint_seconds)
                or self._fraction_done(steps_before + len(losses), seconds_before + seconds) >= 1
            )
        return Block(losses, marks, began, batches.wait_seconds - waited)

    def _fraction_done(self, steps: int, seconds: float) -> float:
        protocol = self.trial.protocol
        return steps / protocol.steps if protocol.steps else seconds / (protocol.seconds or 1.0)

    def _ended(self, done: Steps) -> bool:
        diverged = None in done.losses[-MAX_BLOCK_STEPS:]
        return diverged or self._fraction_done(len(done), done.seconds) >= 1

    def _finish(self, block: Block, done: Steps, board: Board | None) -> None:
        steps = block.finish()
        self.folder.add_steps(len(done), steps)
        if board is not None:
            board.add(done, steps)
        done.add(steps)
        self.tell(self.progress(done, steps))

    def progress(self, done: Steps, last: Steps) -> dict[str, Any]:
        """How far it is, in numbers and in words. `last` are the last steps of those done."""
        protocol, step_seconds = self.trial.protocol, last.seconds / len(last)
        fraction = self._fraction_done(len(done), done.seconds)
        total_seconds = protocol.seconds or (protocol.steps or 0) * step_seconds
        loss = math.nan if done.losses[-1] is None else done.losses[-1]
        detail = [
            f"step {len(done)}",
            f"loss {loss:.4f}",
            f"{protocol.metric} {mean_loss(last_losses(done.losses, protocol)):.4f}",
            f"{self.trial.tokens_per_step / step_seconds:,.0f} tok/s",
            format_bytes(max(last.step_memory_bytes)),
            f"{format_seconds(max(0.0, 1 - fraction) * total_seconds)} left",
        ]
        return {"step": len(done), "fraction": fraction, "detail": "  ".join(detail)}


def _reached(done: Steps, blocks: Sequence[Block]) -> tuple[int, float]:
    """Steps and seconds so far; those of unfinished steps by this process's clock."""
    running = time.perf_counter() - blocks[0].began if blocks else 0.0
    return len(done) + sum(map(len, blocks)), done.seconds + running


def train_trial(request: dict[str, Any], tell: Callable[[Any], None]) -> str:
    """The task of a worker process; its results are files."""
    trial, folder = BenchTrial.from_dict(request["trial"]), TrialFolder(Path(request["folder"]))
    where = describe_environment(trial.device)
    try:
        with folder.lock():
            corpus = Corpus(Path(request["data_path"]))
            if corpus.identity() != trial.data:
                raise EnvironmentProblem(
                    f"The data file {corpus.path} is not the one that was given.",
                    "Leave it as it is while it is in use.",
                )
            seconds, tensorboard = request["checkpoint_seconds"], request["tensorboard"]
            run = Trainer(trial, corpus, folder, seconds, where, tell, tensorboard).run()
    except VramcastError:
        raise
    except BaseException as problem:
        # also SystemExit: a model that ends the program has not done its work
        found, _, error = failure(problem)
        outcome = TrainingOutcome(found)
        run = TrainedRun(trial=trial, outcome=outcome, environment=where, error=error)
    folder.write_result(run)
    return run.outcome


def describe_environment(device: str) -> dict[str, Any]:
    return {
        **environment.describe(Path.cwd()),
        "device": device,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "torch_version": torch.__version__,
        "schedulefree_version": environment.package_version("schedulefree"),
    }
