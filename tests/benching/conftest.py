"""A model small enough to train in a moment, and trials of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from vramcast.benching.data import Corpus
from vramcast.benching.protocol import STANDARD_1, checked
from vramcast.records.bench import BenchTrial, OptimizerName, Precision, Protocol
from vramcast.records.measurement import Device

MODELS = """\
import os, random, signal, time
import numpy as np
import torch
from torch import nn

class Tiny(nn.Module):
    def __init__(self, width, holds):
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.mix = nn.GRU(width, width, batch_first=True)
        self.drop = nn.Dropout(0.1)  # a random state that a checkpoint has to hold
        self.head = nn.Linear(width, 256)
        self.holds, self.num_forwards = holds, 0

    def forward(self, tokens):
        self.num_forwards += 1
        # stands still from its fifth step on, for as long as there is the file `hold`
        while self.holds and self.num_forwards >= 5 and os.path.exists("hold"):
            time.sleep(0.02)
        return self.head(self.drop(self.mix(self.embedding(tokens))[0]))

def tiny(*, width: int = 8, holds: bool = False):
    return Tiny(width, holds)

class Diverging(Tiny):
    def forward(self, tokens):
        return super().forward(tokens) * float("nan")

def diverging():
    return Diverging(8, False)

class Narrow(Tiny):
    def forward(self, tokens):
        return super().forward(tokens)[..., :100]

def narrow():
    return Narrow(8, False)

def no_model():
    return lambda: None

class Dying(Tiny):
    def forward(self, tokens):
        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

def dying():
    return Dying(8, False)

class Waiting(Tiny):
    # at its tenth step it writes down its ancestors (guard, fork server, Ray's worker, raylet)
    # and waits for the file "go"
    def forward(self, tokens):
        self.step = getattr(self, "step", 0) + 1
        folder = os.path.dirname(os.path.abspath(__file__))
        if self.step == 10 and not os.path.exists(f"{folder}/go"):
            pids = [os.getpid()]
            for _ in range(4):
                stat = open(f"/proc/{pids[-1]}/stat").read()
                pids.append(int(stat.rpartition(")")[2].split()[1]))
            with open(f"{folder}/.reached", "w") as file:
                file.write(" ".join(map(str, pids)))
            os.rename(f"{folder}/.reached", f"{folder}/reached-{os.getpid()}")
            while not os.path.exists(f"{folder}/go"):
                time.sleep(0.05)
        return super().forward(tokens)

def waiting():
    return Waiting(8, 0.0)

class Noisy(Tiny):
    # draws from Python's and numpy's generators, whose states a checkpoint has to hold too
    def forward(self, tokens):
        return super().forward(tokens) * (1 + random.random() + np.random.rand())

def noisy():
    return Noisy(8, False)

class Forking(Tiny):
    # the fork comes back into vramcast, as a second trainer of the same trial
    def forward(self, tokens):
        if not getattr(self, "has_forked", False):
            self.has_forked = True
            os.fork()
        return super().forward(tokens)

def forking():
    os.fork()
    return Forking(8, 0.0)

class Hanging(Tiny):
    def forward(self, tokens):
        time.sleep(3600)

def hanging():
    return Hanging(8, 0.0)

class Raising(Tiny):
    def forward(self, tokens):
        raise RuntimeError("no such luck")

def raising():
    return Raising(8, False)
"""

TINY = checked(
    replace(
        STANDARD_1,
        name="tiny-1",
        batch_size=4,
        seq_len=16,
        steps=30,
        last_steps=10,
        lr=0.01,
        optimizer=OptimizerName.ADAMW,
        precision=Precision.FP32,
    )
)


@pytest.fixture
def protocol() -> Protocol:
    return TINY


@pytest.fixture
def models(tmp_path: Path) -> Path:
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "text.bin"
    path.write_bytes(b"the quick brown fox jumps over the lazy dog. " * 200)
    return path


@pytest.fixture
def make_trial(models: Path, data: Path) -> Callable[..., BenchTrial]:
    def make(
        function: str = "tiny", seed: int = 42, protocol: Protocol = TINY, **knobs: str
    ) -> BenchTrial:
        return BenchTrial(
            model=f"{models}:{function}",
            knobs=knobs,
            model_hash="0",
            protocol=protocol,
            protocol_hash=protocol.hash,
            seed=seed,
            data=Corpus(data).identity(),
            device=Device.CPU,
            batch_size=protocol.batch_size or 1,
        )

    return make
