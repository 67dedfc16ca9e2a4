"""Measures what bench's training loop costs, against a loop written by hand.

    PYTHONPATH=src python benchmarks/bench/overhead.py e1-50m recurrence=auto \\
        --steps 40 --out overhead.jsonl

Both train the same model on the same batches in one process, each time from the same seed. A is
bench's loop: it makes batches ahead, writes losses, times and memory of every step to disk, and
reports progress. B only trains, with pinned memory and without waiting for the GPU until the end.
The order is A B B A. Equal losses show that both did the same work.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from row import taken_knobs

from vramcast.benching.data import Corpus, default_corpus
from vramcast.benching.protocol import find_protocol
from vramcast.benching.trainer import Trainer, describe_environment
from vramcast.benching.training_step import build_model, make_optimizer
from vramcast.benching.trial_folder import TrialFolder
from vramcast.records.bench import BenchTrial, Protocol
from vramcast.records.store import append_line
from vramcast.workload import split_assignments

GOAL = 1.02
ORDER = "ABBA"
WARM_UP_STEPS = 3
Loop = Callable[[BenchTrial, Corpus], tuple[float, list[float | None]]]


def benchs_loop(trial: BenchTrial, corpus: Corpus) -> tuple[float, list[float | None]]:
    """Seconds of the loop alone, and the losses."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(trial, corpus, TrialFolder(Path(folder)), 60.0, {}, lambda _: None)
        synchronize(trial.device)
        began = time.perf_counter()
        trainer.train()
        return time.perf_counter() - began, trainer.done.losses


def loop_by_hand(trial: BenchTrial, corpus: Corpus) -> tuple[float, list[float | None]]:
    protocol, device = trial.protocol, torch.device(trial.device)
    torch.manual_seed(trial.seed)
    with device:
        model = build_model(trial.model, trial.knobs)
    model.to(device, torch.bfloat16 if protocol.precision == "bf16" else None).train()
    parameters = list(model.parameters())
    optimizer = make_optimizer(protocol, parameters)
    synchronize(trial.device)
    began = time.perf_counter()
    losses = []
    for step in range(protocol.steps or 0):
        windows = torch.from_numpy(corpus.batch(trial, step))
        if device.type == "cuda":
            windows = windows.pin_memory()
        tokens = windows.to(device, non_blocking=True).long()
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, protocol.clip)
        optimizer.step()
        losses.append(loss.detach())
    values: list[float | None] = torch.stack(losses).tolist()
    synchronize(trial.device)
    return time.perf_counter() - began, values


LOOPS: dict[str, Loop] = {"A": benchs_loop, "B": loop_by_hand}


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def make_trial(
    model: str, knobs: dict[str, str], protocol: Protocol, corpus: Corpus, device: str
) -> BenchTrial:
    return BenchTrial(
        model=model,
        knobs=taken_knobs(model, knobs),
        model_hash=None,
        protocol=protocol,
        protocol_hash=protocol.hash,
        seed=protocol.seed,
        data=corpus.identity(),
        device=device,
        batch_size=protocol.batch_size or 1,
    )


def with_steps(protocol: Protocol, steps: int) -> Protocol:
    """The metric is of no interest here, and would ask for more steps."""
    return replace(protocol, name=f"{protocol.name}/{steps}-steps", steps=steps, last_steps=1)


def measure(
    model: str, knobs: dict[str, str], protocol: Protocol, steps: int, data: Path, device: str
) -> dict[str, Any]:
    corpus = Corpus(data)
    trial = make_trial(model, knobs, with_steps(protocol, steps), corpus, device)
    warm = make_trial(model, knobs, with_steps(protocol, WARM_UP_STEPS), corpus, device)
    for loop in LOOPS.values():
        loop(warm, corpus)
    seconds: dict[str, list[float]] = {name: [] for name in LOOPS}
    losses: dict[str, list[list[float | None]]] = {name: [] for name in LOOPS}
    for name in ORDER:
        taken, found = LOOPS[name](trial, corpus)
        seconds[name].append(taken)
        losses[name].append(found)
    ratio = sum(seconds["A"]) / sum(seconds["B"])
    furthest = max(
        abs((a or 0.0) - (b or 0.0)) for a, b in zip(losses["A"][0], losses["B"][0], strict=True)
    )
    again = max(abs((a or 0.0) - (b or 0.0)) for a, b in zip(*losses["B"], strict=True))
    return {
        "model": trial.label,
        "protocol": trial.protocol.name,
        "steps": steps,
        "tokens_per_step": trial.tokens_per_step,
        "order": ORDER,
        "bench_seconds": seconds["A"],
        "by_hand_seconds": seconds["B"],
        "ratio": ratio,
        "goal": GOAL,
        "largest_loss_difference": furthest,
        # a GPU's own: some kernels add in another order each time
        "largest_loss_difference_of_the_same_loop": again,
        "losses": {"bench": losses["A"], "by_hand": losses["B"]},
        "data": vars(trial.data),
        "environment": describe_environment(device),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("knobs", nargs="*", metavar="knob=value")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--out", type=Path, help="a file to append the record to")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--protocol", default="standard-1")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options = parser.parse_args(arguments)
    data = options.data or default_corpus()
    record = measure(
        options.model,
        split_assignments(options.knobs),
        find_protocol(options.protocol),
        options.steps,
        data,
        options.device,
    )
    if options.out:
        append_line(options.out, record)
    shown = {key: value for key, value in record.items() if key not in ("losses", "environment")}
    print(json.dumps(shown))
    return 0 if record["ratio"] <= GOAL else 3


if __name__ == "__main__":
    sys.exit(main())
