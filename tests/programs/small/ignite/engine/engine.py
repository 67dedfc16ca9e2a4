"""Stands for ignite, which tests do not install: an epoch has as many batches as the loader says,
and the loader is begun again where it ends before that."""

from collections import defaultdict
from enum import Enum, auto


class Events(Enum):
    DATALOADER_STOP_ITERATION = auto()
    EPOCH_COMPLETED = auto()


class Handler:
    def __init__(self, handlers, call):
        self.remove = lambda: handlers.remove(call)


class Engine:
    def __init__(self, process):
        self.process, self.handlers, self.epoch = process, defaultdict(list), 0
        self.ends_epoch = self.ends = False

    def add_event_handler(self, event, handler, *arguments):
        def call():
            handler(self, *arguments)

        self.handlers[event].append(call)
        return Handler(self.handlers[event], call)

    def fire(self, event):
        for call in self.handlers[event]:
            call()

    def terminate_epoch(self):
        self.ends_epoch = True

    def terminate(self):
        self.ends = True

    def run(self, loader, max_epochs):
        while self.epoch < max_epochs and not self.ends:
            self.epoch += 1
            self.run_epoch(loader)
            self.fire(Events.EPOCH_COMPLETED)

    def run_epoch(self, loader):
        self.ends_epoch, num_batches, batches = False, 0, iter(loader)
        while num_batches < len(loader):
            batch = next(batches, None)
            if batch is None:
                self.fire(Events.DATALOADER_STOP_ITERATION)
                if self.ends_epoch:
                    return
                batches = iter(loader)
                continue
            num_batches += 1
            self.process(self, batch)
