"""One trial: a model trained under a protocol, step by step.

Losses are fetched from the GPU for several steps at a time, so that no step waits for it. A
checkpoint holds everything that a step depends on besides its batch: an interrupted run goes on
with the same losses, as far as the GPU's kernels are deterministic.
"""

import math
import resource
import time
from collections import deque
from collections.abc import Callable
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
from vramcast.processes.lifetime import end_if_forked
from vramcast.records.bench import (
    BenchTrial,
    TrainedRun,
    TrainingOutcome,
    last_losses,
    mean_loss,
)
from vramcast.records.measurement import Device
from vramcast.units import format_bytes, format_seconds

# Losses are fetched when a block of steps has taken this long or has so many steps.
BLOCK_SECONDS, MAX_BLOCK_STEPS = 1.0, 100
# A GPU works on one block while this process records the block before.
BLOCKS_BEHIND = {Device.CUDA: 1, Device.CPU: 0}
MEMORY_KINDS = {Device.CUDA: "GPU, allocated", Device.CPU: "process, resident"}
Mark = tuple[Any, int]


def mark(device: torch.device) -> Mark:
    """The time, and the peak memory since the last mark. It does not wait for the GPU."""
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

    def __post_init__(self) -> None:
        """Restores the state that an interrupted run has left."""
        self.training, self.done, self._resumed = Training(self.trial), Steps(), list[int]()
        self._blocks: deque[Block] = deque()  # blocks that were started and are not finished
        end_if_forked()
        checkpoint = self.folder.checkpoint
        state = load_checkpoint(checkpoint)
        if state is not None:
            with of_this_model(checkpoint):
                found = self.folder.steps(most=state["step"])
                # A checkpoint is useless without the losses of the steps before it.
                if len(found) == state["step"]:
                    self.training.restore(state)
                    self.done, self._resumed = found, [*state["resumed_at_steps"], len(found)]
        self.folder.keep_steps(self.done)

    def run(self) -> TrainedRun:
        self.train()
        return TrainedRun(
            trial=self.trial,
            outcome=TrainingOutcome.DIVERGED if None in self.done.losses else TrainingOutcome.OK,
            environment=self.environment,
            parameters=sum(p.numel() for p in self.training.model.parameters()),
            memory_kind=MEMORY_KINDS[self.trial.device],
            resumed_at_steps=self._resumed,
            **vars(self.done),
        )

    def train(self) -> None:
        saved, make = time.monotonic(), partial(self.corpus.batch, self.trial)
        with (
            self._board() as board,
            Checkpoints(self.folder.checkpoint) as checkpoints,
            Batches(make, len(self.done), self.training.device) as batches,
        ):
            while not self._has_ended():
                self._blocks.append(self._block(batches))
                is_due = time.monotonic() - saved >= self.checkpoint_seconds
                is_last = self._fraction_done(*self._reached()) >= 1
                num_behind = 0 if is_due or is_last else BLOCKS_BEHIND[self.trial.device]
                while len(self._blocks) > num_behind and not self._has_ended():
                    self._finish(self._blocks.popleft(), board)
                if is_due and not self._has_ended():
                    checkpoints.save(self.training, len(self.done), self._resumed)
                    saved = time.monotonic()

    def _board(self) -> AbstractContextManager[Board | None]:
        if not self.tensorboard:
            return nullcontext()
        return Board(self.folder.board, self.trial.tokens_per_step, self.done)

    def _block(self, batches: Batches) -> Block:
        """Starts steps until it is time to look at them."""
        steps_before, seconds_before = self._reached()
        began, waited = time.perf_counter(), batches.wait_seconds
        losses, marks, is_full = list[Tensor](), [mark(self.training.device)], False
        while not is_full:
            losses.append(self.training.step(batches.next()))
            marks.append(mark(self.training.device))
            seconds = time.perf_counter() - began
            is_full = (
                len(losses) >= MAX_BLOCK_STEPS
                or seconds >= min(BLOCK_SECONDS, self.checkpoint_seconds)
                or self._fraction_done(steps_before + len(losses), seconds_before + seconds) >= 1
            )
        return Block(losses, marks, began, batches.wait_seconds - waited)

    def _reached(self) -> tuple[int, float]:
        """Steps and seconds so far. The seconds of unfinished steps are by this process's clock."""
        running = time.perf_counter() - self._blocks[0].began if self._blocks else 0.0
        return len(self.done) + sum(map(len, self._blocks)), self.done.seconds + running

    def _fraction_done(self, steps: int, seconds: float) -> float:
        protocol = self.trial.protocol
        return steps / protocol.steps if protocol.steps else seconds / (protocol.seconds or 1.0)

    def _has_ended(self) -> bool:
        diverged = None in self.done.losses[-MAX_BLOCK_STEPS:]
        return diverged or self._fraction_done(len(self.done), self.done.seconds) >= 1

    def _finish(self, block: Block, board: Board | None) -> None:
        steps = block.finish()
        end_if_forked()
        self.folder.add_steps(len(self.done), steps)
        if board is not None:
            board.add(self.done, steps)
        self.done.add(steps)
        self.tell(self.progress(steps))

    def progress(self, last: Steps) -> dict[str, Any]:
        protocol, step_seconds = self.trial.protocol, last.seconds / len(last)
        fraction = self._fraction_done(len(self.done), self.done.seconds)
        total_seconds = protocol.seconds or (protocol.steps or 0) * step_seconds
        losses = last_losses(self.done.losses, protocol)
        detail = [
            f"step {len(self.done)}",
            f"loss {losses[-1]:.4f}",
            f"{protocol.metric} {mean_loss(losses):.4f}",
            f"{self.trial.tokens_per_step / step_seconds:,.0f} tok/s",
            format_bytes(max(last.step_memory_bytes)),
            f"{format_seconds(max(0.0, 1 - fraction) * total_seconds)} left",
        ]
        return {"step": len(self.done), "fraction": fraction, "detail": "  ".join(detail)}


def train_trial(request: dict[str, Any], tell: Callable[[Any], None]) -> str:
    trial, folder = BenchTrial.from_dict(request["trial"]), TrialFolder(Path(request["folder"]))
    where = describe_environment(trial.device)
    try:
        with folder.lock(request["lock_seconds"]):
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
    end_if_forked()
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
