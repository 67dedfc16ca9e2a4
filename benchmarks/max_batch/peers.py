"""Other tools' search for the largest batch of the same step, in a process of its own.

Run as `python peers.py METHOD` with a pair as JSON on stdin. Every trial is printed as a line when
it ends, and the answer is the last line: a search that is stopped has still told its trials.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

# a trial; Lightning's own default. The first step has no optimizer state yet, the third finds
# everything in place
STEPS = 3
START = 128  # accelerate's own default
Build = Callable[[int], Callable[[], Any]]  # a batch size -> its step
Say = Callable[[dict[str, Any]], None]


def by_accelerate(build: Build, say: Say) -> int:
    """`find_executable_batch_size`, used as its documentation says: everything is made anew inside,
    after the old is let go.
    """
    import torch
    from accelerate.utils import find_executable_batch_size

    @find_executable_batch_size(starting_batch_size=START)
    def train(batch_size: int) -> int:
        gc.collect()  # these two are Accelerator.free_memory()
        torch.cuda.empty_cache()
        with _told(batch_size, say):
            step = build(batch_size)
            for _ in range(STEPS):
                step()
            _wait_for_the_gpu()
        return batch_size

    return int(train())


def by_lightning(build: Build, say: Say, mode: str) -> int:
    """`Tuner.scale_batch_size` with its defaults: one module, whose batch size changes."""
    import lightning.pytorch as lightning
    from lightning.pytorch.tuner import Tuner, batch_size_scaling

    module = _module(build)
    attempt = batch_size_scaling._try_loop_run

    def told(trainer: Any, params: Any) -> None:
        with _told(module.batch_size, say):
            attempt(trainer, params)

    batch_size_scaling._try_loop_run = told
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            accelerator="auto",
            devices=1,
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        return int(Tuner(trainer).scale_batch_size(module, mode=mode, steps_per_trial=STEPS))


def _module(build: Build) -> Any:
    """The workload's own step as a LightningModule: it optimises by itself, and its batch is as
    large as the loader's.
    """
    import lightning.pytorch as lightning
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    class Steps(IterableDataset):  # type: ignore[type-arg]
        """As many samples as a trial's steps need. The workload makes its own data; these only
        carry the size.
        """

        def __init__(self, batch_size: int) -> None:
            self._batch_size = batch_size

        def __iter__(self) -> Iterator[int]:
            return iter(range(STEPS * self._batch_size))

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.batch_size = 2
            self.automatic_optimization = False
            self._step = build(self.batch_size)
            self._inside = Inside(self._step)
            self.model = torch.nn.ModuleList(self._inside.modules)

        def training_step(self, batch: Any, _: int) -> None:
            self._inside.set_batch_size(len(batch))
            self._step()

        def configure_optimizers(self) -> Any:
            return self._inside.optimizers

        def train_dataloader(self) -> Any:
            return DataLoader(Steps(self.batch_size), batch_size=self.batch_size)

    return Module()


class Inside:
    """What a step holds on to: its models, its optimizers, and the variable with its batch size."""

    def __init__(self, step: Callable[[], Any]) -> None:
        import torch

        self._cells: list[Any] = []
        found: dict[int, Any] = {}
        self._look_into(step, found, set())
        self.modules = [o for o in found.values() if isinstance(o, torch.nn.Module)]
        self.optimizers = [o for o in found.values() if isinstance(o, torch.optim.Optimizer)]
        if not self._cells or not self.optimizers:
            raise ValueError("this step keeps no variable batch_size, or no optimizer")

    def _look_into(self, function: Any, found: dict[int, Any], seen: set[int]) -> None:
        if id(function) in seen or not hasattr(function, "__closure__"):
            return
        seen.add(id(function))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            if name == "batch_size":
                self._cells.append(cell)
            found[id(cell.cell_contents)] = cell.cell_contents
            self._look_into(cell.cell_contents, found, seen)

    def set_batch_size(self, size: int) -> None:
        for cell in self._cells:
            cell.cell_contents = size


@contextlib.contextmanager
def _told(size: int, say: Say) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        say(
            {
                "trial": size,
                "outcome": "out_of_memory" if "out of memory" in str(error) else "failed",
            }
        )
        raise
    say({"trial": size, "outcome": "ok"})


def _wait_for_the_gpu() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


METHODS: dict[str, Callable[[Build, Say], int]] = {
    "lightning-power": lambda build, say: by_lightning(build, say, "power"),
    "lightning-binsearch": lambda build, say: by_lightning(build, say, "binsearch"),
    "accelerate": by_accelerate,
}


def main() -> None:
    pair = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the workload and Lightning print must not mix with the answer
    import torch

    from vramcast.probing.on_gpu import fraction_for
    from vramcast.workload import bind_knobs, load_function, parse_reference

    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(fraction_for(pair["memory_bytes"], total))
    function = load_function(parse_reference(pair["workload"]))

    def say(news: dict[str, Any]) -> None:
        print(json.dumps(news), file=answers, flush=True)

    answer = METHODS[sys.argv[1]](
        lambda size: function(**bind_knobs(function, {}, {**pair["knobs"], "batch_size": size})),
        say,
    )
    say({"answer": answer})
    os._exit(0)  # the answer is there; what is left to tidy up is not part of the search


if __name__ == "__main__":
    main()
