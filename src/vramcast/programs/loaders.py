"""Ends data loaders early, so that a program goes on to its evaluation and its saving.

A training loader ends when enough steps were seen, and an evaluation's after a few batches, once
memory no longer grows. A program that evaluates or saves only after its last epoch goes through the
remaining epochs without batches.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch.utils.data.dataloader as loading
from torch.utils.data import Dataset, IterableDataset

from vramcast.programs.garbage import collecting_new_garbage
from vramcast.programs.watching import Watcher, replaced
from vramcast.units import format_bytes

# The maximum is for evaluations that keep their outputs on the GPU until the end.
FEWEST_BATCHES, MOST_BATCHES = 3, 128
# How many batches are prepared ahead, and by how many workers: more would take long. After the
# fewest they are made when asked for, as most programs read no more.
MOST_AHEAD = 2
BY_WORKERS, ITERABLE = loading._MultiProcessingDataLoaderIter, loading._DatasetKind.Iterable
ASK_WORKER = BY_WORKERS._try_put_index
# Programs fail if a stream without a length ends too early.
MOST_BATCHES_OF_STREAM = 256
# A program that starts loaders until it has enough batches would never end.
MOST_EMPTY_LOADERS = 1000
# Attribute of a data loader, the same object for all of the same data. When one was read to its end
# after enough was seen, it holds the number of empty epochs at that time, separately for training
# and evaluation.
ENDED = "vramcast_ended"


class _Early(StopIteration):
    """The end of a loader that has more."""


@dataclass
class _Reading:
    """The state of the watcher when this loader's iteration began, and what was read since."""

    # Returns the loader or None. It is a weak reference, because a loader may keep its iterator. In
    # such a reference cycle the queues to its workers would be closed first, and it would wait for
    # the workers.
    loader: Callable[[], Any]
    is_of_stream: bool
    num_backwards: int
    num_training_forwards: int
    num_evaluation_forwards: int
    ended: dict[bool, int]  # the loader's attribute of that name
    num_batches: int = 0
    # GPU memory when the last batch was asked for
    last_bytes: int = 0
    has_ended: bool = False

    @classmethod
    def begin(cls, watcher: Watcher, loader: Any) -> _Reading:
        watcher.new_loader()
        return cls(
            (lambda: None) if loader is None else weakref.ref(loader),
            _is_stream(loader),
            watcher.num_backwards,
            watcher.num_training_forwards,
            watcher.num_evaluation_forwards,
            {} if loader is None else loader.__dict__.setdefault(ENDED, {}),
        )


@contextmanager
def ending_early(watcher: Watcher) -> Iterator[None]:
    if watcher.rule.whole:
        yield
        return

    # a program may make a loader for each epoch
    ended_of: weakref.WeakKeyDictionary[Any, dict[bool, int]] = weakref.WeakKeyDictionary()

    def begin(original: Any) -> Any:
        def __iter__(self: Any) -> Any:
            if isinstance(self.dataset, Dataset):
                self.__dict__.setdefault(ENDED, ended_of.setdefault(self.dataset, {}))
            if _is_left_out(watcher, self):
                return iter(())
            _note_few_samples(watcher, self)
            given = self.num_workers, self.prefetch_factor
            if self.num_workers and not isinstance(self.dataset, IterableDataset):
                self.num_workers, self.prefetch_factor = min(self.num_workers, MOST_AHEAD), 1
            iterator = original(self)
            self.num_workers, self.prefetch_factor = given
            iterator.vramcast_reading = _Reading.begin(watcher, self)
            watcher.data_iterators.add(iterator)
            return iterator

        return __iter__

    def give(original: Any) -> Any:
        def __next__(self: Any) -> Any:
            if not hasattr(self, "vramcast_reading"):
                # made without a DataLoader, as fastai does
                self.vramcast_reading = _Reading.begin(watcher, None)
            reading: _Reading = self.vramcast_reading
            try:
                if reading.has_ended or _ends(watcher, reading):
                    reading.has_ended = watcher.has_ended_loader = True
                    raise _Early
                reading.num_batches += 1
                if not getattr(self, "_task_info", True):  # its workers have nothing to make
                    for _ in range(min(self._num_workers, MOST_AHEAD)):
                        ASK_WORKER(self)
                return original(self)
            except StopIteration:
                if watcher.is_winding_down:
                    reading.ended[watcher.is_in_training_mode()] = watcher.num_empty_epochs
                raise

        return __next__

    def ask_ahead(original: Any) -> Any:
        def _try_put_index(self: Any) -> None:
            if self._send_idx < FEWEST_BATCHES or self._dataset_kind == ITERABLE:
                original(self)

        return _try_put_index

    def make(original: Any) -> Any:
        def __init__(self: Any, *arguments: Any, **options: Any) -> None:
            own: Any = next(each for each in type(self).__mro__ if "__iter__" in vars(each))
            if inspect.isgeneratorfunction(own.__iter__):
                stack.enter_context(replaced(own, "__iter__", functools.partial(_epochs, watcher)))
            original(self, *arguments, **options)

        return __init__

    with ExitStack() as stack:
        stack.enter_context(replaced(loading.DataLoader, "__init__", make))
        stack.enter_context(replaced(BY_WORKERS, "_try_put_index", ask_ahead))
        stack.enter_context(replaced(loading.DataLoader, "__iter__", begin))
        stack.enter_context(replaced(loading._BaseDataLoaderIter, "__next__", give))
        stack.enter_context(collecting_new_garbage(watcher))
        yield


def _epochs(watcher: Watcher, original: Any) -> Any:
    """Wraps the `__iter__` of a loader that keeps an iterator without end, from which each epoch
    takes some batches: that iterator's early end is the end of the epoch, and no error."""

    def __iter__(self: Any) -> Any:
        kept = [each for each in watcher.data_iterators if each.vramcast_reading.loader() is self]
        if kept and _is_left_out(watcher, self):
            return
        for iterator in kept:
            iterator.vramcast_reading = _Reading.begin(watcher, self)
        try:
            yield from original(self)
        except RuntimeError as error:
            if not isinstance(error.__cause__, _Early):
                raise

    def wrapped(self: Any) -> Any:  # no generator function, so that it is wrapped only once
        return __iter__(self)

    return functools.wraps(original)(wrapped)


def _is_left_out(watcher: Watcher, loader: Any) -> bool:
    if not _is_of_epoch_left(watcher, loader):
        return False
    watcher.num_empty_loaders += 1
    watcher.num_empty_epochs += watcher.is_in_training_mode()
    if watcher.num_empty_loaders > MOST_EMPTY_LOADERS:
        watcher.stop()
    return True


def _is_of_epoch_left(watcher: Watcher, loader: Any) -> bool:
    """Whether this loader belongs to a later epoch, which runs without batches. A second evaluation
    before the next epoch, such as with averaged weights, still belongs to the first."""
    to_train = watcher.is_in_training_mode()
    num_before = getattr(loader, ENDED, {}).get(to_train)
    if num_before is None or not watcher.waits_for_the_end:
        return False
    return to_train or watcher.num_empty_epochs > num_before


def end_workers(watcher: Watcher) -> None:
    """Ends workers that would wait for the next epoch: when Python ends, it waits 5 s for each of
    them."""
    for iterator in [*watcher.data_iterators]:
        if hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()


def _ends(watcher: Watcher, reading: _Reading) -> bool:
    if watcher.num_backwards > reading.num_backwards:
        watcher.trains_from_loader = True
        if watcher.is_enough:
            watcher.is_winding_down = True
        return watcher.is_enough
    is_evaluation = (
        watcher.num_evaluation_forwards > reading.num_evaluation_forwards
        and watcher.num_training_forwards == reading.num_training_forwards
    )
    if not is_evaluation:
        return False
    now_bytes = watcher.memory.allocated_bytes()
    grown_bytes, reading.last_bytes = now_bytes - reading.last_bytes, now_bytes
    # the first batches still load weights, make caches and take workspaces
    fewest = MOST_BATCHES_OF_STREAM if reading.is_of_stream else FEWEST_BATCHES
    if reading.num_batches < fewest:
        return False
    if grown_bytes > 0:
        if reading.num_batches < MOST_BATCHES:
            return False
        _note_growth(watcher, grown_bytes, reading.num_batches)
    _have_no_more(reading.loader(), reading.num_batches)
    return True


def _have_no_more(loader: Any, num_batches: int) -> None:
    """Makes the data set look as short as what was read: programs fail where there are more
    samples."""
    samples = getattr(loader, "dataset", None)
    if not isinstance(samples, Dataset) or loader.batch_size is None:
        return
    methods = {
        "__len__": lambda _: num_batches * loader.batch_size,
        "__reduce_ex__": lambda _, protocol: samples.__reduce_ex__(protocol),
    }
    shorter: Any = object.__new__(type(type(samples).__name__, (type(samples),), methods))
    shorter.__dict__.update(samples.__dict__)
    loader.__dict__["dataset"] = shorter


def _is_stream(loader: Any) -> bool:
    samples = getattr(loader, "dataset", None)
    return isinstance(samples, IterableDataset) and not hasattr(samples, "__len__")


def _note_few_samples(watcher: Watcher, loader: Any) -> None:
    """Notes that a loader has fewer samples than its batch size. Otherwise a search over batch
    sizes would find that memory does not grow."""
    try:
        num_samples, batch_size = len(loader.dataset), loader.batch_size
    except (TypeError, AttributeError, NotImplementedError):  # it is a stream
        return
    if batch_size is not None and num_samples < batch_size:
        watcher.notes.add(
            f"a data loader has fewer samples ({num_samples}) than its batch size ({batch_size}): "
            "a real batch of this size takes more memory"
        )


def _note_growth(watcher: Watcher, grown_bytes: int, num_batches: int) -> None:
    watcher.notes.add(
        f"an evaluation keeps {format_bytes(grown_bytes)} more on the GPU with every batch, and "
        f"{num_batches} batches were seen: --whole runs it to its end"
    )
