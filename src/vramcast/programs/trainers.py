"""Asks trainers of libraries for one evaluation and one save, and then to stop.

This works through their own callbacks: Hugging Face's Trainer and everything based on it (TRL,
sentence-transformers), Lightning's Trainer, and ignite's engines.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vramcast.programs.after_import import after_import
from vramcast.programs.watching import Watcher, and_then


@contextmanager
def stopping_trainers(watcher: Watcher) -> Iterator[None]:
    if watcher.rule.whole:
        yield
        return
    added = {
        "transformers.trainer": lambda: _hugging_face(watcher),
        "lightning.pytorch.trainer.trainer": lambda: _lightning(watcher, "lightning.pytorch"),
        "pytorch_lightning.trainer.trainer": lambda: _lightning(watcher, "pytorch_lightning"),
        "ignite.engine.engine": lambda: _ignite(watcher),
    }
    with after_import(added, lambda name: added[name]()):
        yield


def _hugging_face(watcher: Watcher) -> None:
    module = sys.modules["transformers.trainer"]
    from transformers.trainer_callback import TrainerCallback

    class StopWhenSeen(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            if watcher.is_enough:
                watcher.is_winding_down = watcher.ends_itself = True
                control.should_evaluate = str(args.eval_strategy.value) != "no"
                control.should_save = str(args.save_strategy.value) != "no"
                control.should_training_stop = True
            return control

    make = and_then(lambda trainer: trainer.add_callback(StopWhenSeen))
    module.Trainer.__init__ = make(module.Trainer.__init__)


def _lightning(watcher: Watcher, package: str) -> None:
    class StopWhenSeen(sys.modules[f"{package}.callbacks"].Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            if watcher.is_enough:
                watcher.is_winding_down = watcher.ends_itself = True
                trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None
                trainer.should_stop = True

    made = sys.modules[f"{package}.trainer.trainer"].Trainer
    make = and_then(lambda trainer: trainer.callbacks.append(StopWhenSeen()))
    made.__init__ = make(made.__init__)


def _ignite(watcher: Watcher) -> None:
    """Ends ignite's engines, which start their data loader again until they have had as many
    batches as they expect."""
    module = sys.modules["ignite.engine.engine"]
    events = module.Events
    run = module.Engine.run

    def end_epoch(engine: Any) -> None:
        if watcher.has_ended_loader:
            engine.terminate_epoch()

    def end_training(engine: Any, num_backwards: int) -> None:
        if watcher.is_enough and watcher.num_backwards > num_backwards:
            watcher.is_winding_down = True
            engine.terminate()

    def run_until_seen(self: Any, *arguments: Any, **options: Any) -> Any:
        watcher.ends_itself = True
        added = [
            self.add_event_handler(events.DATALOADER_STOP_ITERATION, end_epoch),
            self.add_event_handler(events.EPOCH_COMPLETED, end_training, watcher.num_backwards),
        ]
        try:
            return run(self, *arguments, **options)
        finally:
            for handler in added:
                handler.remove()

    module.Engine.run = run_until_seen
