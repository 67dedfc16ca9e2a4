"""Times the steps of one model, or trains it, as run.py asks. Runs in a process of its own.

Requests are lines of JSON on stdin, answers are lines of JSON on stdout. The GPU is used only while
a request is answered.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from vramcast.benching.data import Corpus
from vramcast.benching.trainer import Trainer, Training, describe_environment
from vramcast.benching.trial_folder import TrialFolder
from vramcast.records.bench import BenchTrial
from vramcast_zoo.catalogue import BY_NAME

WARM_UPS, TIMED = 3, 4
CHECKPOINT_SECONDS = 30.0


def taken_knobs(model: str, knobs: dict[str, str]) -> dict[str, str]:
    """Those that the model has: Mamba-2 lacks some of the recurrent models' knobs."""
    known = inspect.signature(
        importlib.import_module(f"vramcast_zoo.{BY_NAME[model].family}").make_model
    ).parameters
    return {name: value for name, value in knobs.items() if name in known}


def step_seconds(trial: BenchTrial, corpus: Corpus) -> dict[str, Any]:
    """The time of a warm step, and of building the model and the first step, which compiles."""
    began = time.perf_counter()
    training = Training(trial)
    windows = corpus.batch(replace(trial, seed=0), step=0)
    tokens = torch.from_numpy(windows).to(training.device).long()

    run_steps(training, tokens, 1)
    first = time.perf_counter() - began
    run_steps(training, tokens, WARM_UPS - 1)
    began = time.perf_counter()
    run_steps(training, tokens, TIMED)
    found = {
        "first_step_and_build_seconds": first,
        "step_seconds": (time.perf_counter() - began) / TIMED,
    }
    del training, tokens
    gc.collect()
    if trial.device == "cuda":
        torch.cuda.empty_cache()  # for the others, which wait in processes of their own
    return found


def run_steps(training: Training, tokens: torch.Tensor, steps: int) -> None:
    for _ in range(steps):
        loss = training.step(tokens)
    loss.item()


def train(trial: BenchTrial, corpus: Corpus, folder: TrialFolder) -> dict[str, Any]:
    folder.check(trial, force=False)
    folder.begin(trial)
    environment = describe_environment(trial.device)
    with folder.lock():
        run = Trainer(
            trial,
            corpus,
            folder,
            CHECKPOINT_SECONDS,
            environment,
            lambda news: say({"progress": news}),
        ).run()
    folder.write_result(run)
    return {"trained": run.summary()}


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def main() -> None:
    # The first optimizer would import it: better now, while another model has the GPU.
    importlib.import_module("torch._dynamo")
    for line in sys.stdin:
        request = json.loads(line)
        trial, corpus = BenchTrial.from_dict(request["trial"]), Corpus(Path(request["data_path"]))
        trial = replace(trial, knobs=taken_knobs(trial.model, trial.knobs))
        if request["do"] == "time":
            say({"timed": step_seconds(trial, corpus)})
        else:
            say(train(trial, corpus, TrialFolder(Path(request["folder"]))))


if __name__ == "__main__":
    main()
