"""Watches a training program: its steps, its phases, and when enough of it was seen.

The rules are the same on the simulated GPU and on a real one. An optimizer's step ends a training
step; where several take turns, the one that steps most often counts. Without an optimizer of torch,
backward passes count.
"""

import functools
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.optim import optimizer as optim

from vramcast.programs.held_bytes import HeldBytes
from vramcast.programs.helpers import Helpers, is_training
from vramcast.programs.settling import Memory, Settling
from vramcast.records.prediction import PhaseName
from vramcast.units import format_bytes

# All memory is allocated after the second step; the third shows whether it still grows.
FEWEST_STEPS, MOST_STEPS = 3, 8
# To see what comes less often, such as the steps of a GAN's second optimizer.
MOST_STEPS_FOR_ALL_OPTIMIZERS = 24
# After so many backward passes without an optimizer step, backward passes count as steps.
MOST_BACKWARDS_WITHOUT_STEP = 64
# Forward passes that may come before a data loader is asked again: the rest of a GAN's iteration,
# batches that were read ahead.
MOST_READ_AHEAD = 8
# An evaluation or a sample is ended after so many forward passes in which memory did not grow.
MOST_FORWARDS_ALIKE = 256
ENDED_EVALUATION = (
    f"an evaluation was ended after {MOST_FORWARDS_ALIKE} forward passes in which memory did not "
    "grow: --whole runs it to its end"
)
STEPS_DIFFER = (
    "training steps differ: {} to {} were held as backward passes began; others may hold more"
)
# Attribute of our Module.__call__: the function that wraps another method in the same way.
AROUND = "vramcast_around"


class Enough(BaseException):
    """Ends the program: enough was seen. Not an Exception, so that few programs catch it."""


@dataclass(frozen=True)
class StopRule:
    steps: int | None = None  # stop after exactly so many
    whole: bool = False  # run to the program's own end


@dataclass
class Watcher:
    memory: Memory
    rule: StopRule
    # a training step begins a phase
    on_phase: Callable[[PhaseName], None]
    # called when the program should end, to describe what was seen before any of it is undone
    on_enough: Callable[[], None] = lambda: None
    on_step: Callable[[], None] = lambda: None
    evaluate: Callable[..., Any] = lambda call, *arguments, **options: call(*arguments, **options)
    phase: PhaseName = PhaseName.BUILD
    num_steps: int = 0
    num_backwards: int = 0
    num_training_forwards: int = 0
    num_evaluation_forwards: int = 0
    num_saves: int = 0
    is_enough: bool = False
    # a data loader was ended early, or a trainer was asked to stop, so the program may go on
    is_winding_down: bool = False
    # the program trains with batches of a data loader, which can be ended early
    trains_from_loader: bool = False
    # the data loader that was begun last was ended early
    has_ended_loader: bool = False
    # a library's trainer ends itself after this epoch, so no epochs are left
    ends_itself: bool = False
    # loaders that were begun after winding down, without batches: epochs in which nothing is done
    num_empty_loaders: int = 0
    is_warming_up: bool = False  # for a CUDA graph, which is to capture the next steps
    has_started_others: bool = False  # processes, which are not watched
    num_empty_epochs: int = 0  # empty epochs of training
    data_iterators: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    trained: Callable[[], torch.nn.Module | None] = lambda: None
    notes: set[str] = field(default_factory=set)
    # what a class had as `forward`, where its passes are heard although they are no calls
    forwards: dict[type, Callable[..., Any]] = field(default_factory=dict)
    helpers: Helpers = field(default_factory=Helpers)
    _read_ahead: int = 0
    # of the current evaluation
    _num_alike: int = 0
    _most_bytes: int = 0
    _step_ended: bool = True
    _settling: Settling = field(default_factory=Settling)
    _held: HeldBytes = field(default_factory=HeldBytes)
    _steps_of: weakref.WeakKeyDictionary[Any, int] = field(
        default_factory=weakref.WeakKeyDictionary
    )

    # the number of backward passes when each optimizer last stepped
    _backwards_of: weakref.WeakKeyDictionary[Any, int] = field(
        default_factory=weakref.WeakKeyDictionary
    )

    # -- what the program does

    def training_forward(self) -> None:
        self.num_training_forwards += 1
        is_captured = self.rule.steps is None and torch.cuda.is_current_stream_capturing()
        if self.is_enough and not is_captured:
            self._read_ahead += 1
            may_go_on = self.is_winding_down or self.trains_from_loader
            if not may_go_on or self._read_ahead > MOST_READ_AHEAD:
                self.stop()
        if self._step_ended or self.phase is not PhaseName.TRAIN:
            self._begin(PhaseName.TRAIN)
            self._step_ended = False

    def evaluation_forward(self) -> None:
        self.num_evaluation_forwards += 1
        if self.phase is not PhaseName.EVALUATE:
            self._begin(PhaseName.EVALUATE)
            self._next_epoch()
            self._num_alike = self._most_bytes = 0
        if self.is_enough:
            now_bytes = self.memory.allocated_bytes()
            self._num_alike = 0 if now_bytes > self._most_bytes else self._num_alike + 1
            self._most_bytes = max(now_bytes, self._most_bytes)
            if self._num_alike >= MOST_FORWARDS_ALIKE:
                self.notes.add(ENDED_EVALUATION)
                self.stop()

    def backward(self) -> None:
        if self.phase is not PhaseName.TRAIN or self._step_ended:
            self.training_forward()
        self.num_backwards += 1
        self.helpers.backward()
        self._held.begin(self.num_steps, self.memory.allocated_bytes(), self._steps_of)

    def after_backward(self) -> None:
        waits = self._steps_of and self.num_backwards <= MOST_BACKWARDS_WITHOUT_STEP
        if not any(self._steps_of.values()) and not waits:
            self._end_step(self.num_backwards)

    def made_optimizer(self, optimizer: Any) -> None:
        self._steps_of.setdefault(optimizer, 0)
        self.helpers.are_not_in(optimizer)

    def stepped(self, optimizer: Any) -> None:
        # DeepSpeed steps once for every group of parameters
        is_part = 0 < self.num_backwards == self._backwards_of.get(optimizer, 0)
        self._backwards_of[optimizer] = self.num_backwards
        if not self.num_backwards and self._step_ended:  # its gradients are made by hand
            self.training_forward()
        self._steps_of[optimizer] = self._steps_of.get(optimizer, 0) + (not is_part)
        self._end_step(max(self._steps_of.values()))
        # of several optimizers, this may be the last one that we were waiting for
        self.is_enough = self._has_seen_enough()

    @contextmanager
    def saving(self) -> Iterator[None]:
        # a file saved before the training, such as prepared data, is no checkpoint
        self.num_saves += self.num_backwards > 0
        if self.num_saves and self.phase is not PhaseName.SAVE:
            self._begin(PhaseName.SAVE)
            self._next_epoch()
        yield

    def new_loader(self) -> None:
        """A data loader begins: training after this belongs to the next epoch."""
        self.has_ended_loader = False
        if self.is_winding_down:
            self._next_epoch()

    def limits(self) -> list[str]:
        """A note where steps held different amounts of memory. Two kinds of steps are normal where
        optimizers take turns."""
        held = self._held.values()[1:]  # the first step has no optimizer state
        kinds = {round(100 * held_bytes / max(held)) for held_bytes in held}
        if len(kinds) < max(2, min(3, len(held))):
            return []
        return [STEPS_DIFFER.format(*map(format_bytes, (min(held), max(held))))]

    @property
    def is_building(self) -> bool:
        return not self._steps_of and not self.num_backwards

    def is_in_training_mode(self) -> bool:
        module = self.trained()
        return torch.is_grad_enabled() and (module is None or is_training(module))

    # -- when to stop

    @property
    def waits_for_the_end(self) -> bool:
        """Whether the program's evaluation or saving may still come after its last epoch."""
        seen_all = self.num_evaluation_forwards and self.num_saves
        return self.is_winding_down and not self.ends_itself and not seen_all

    def stop(self) -> None:
        self.on_enough()
        raise Enough

    def _end_step(self, count: int) -> None:
        if count <= self.num_steps:
            return
        self.num_steps, self._step_ended = count, True
        self.on_step()
        self._settling.step_ended(count, self.memory)
        self.is_enough = self._has_seen_enough()

    def _has_seen_enough(self) -> bool:
        if self.rule.whole:
            return False
        if self.rule.steps is not None:
            return self.num_steps >= self.rule.steps
        if self.num_steps < FEWEST_STEPS:
            return False
        waits = self.is_warming_up or any(count < 2 for count in self._steps_of.values())
        waits = waits or self._held.first_was_most(self._steps_of)
        if waits and self.num_steps < MOST_STEPS_FOR_ALL_OPTIMIZERS:
            return False
        return self._settling.is_settled or self.num_steps >= MOST_STEPS

    def _next_epoch(self) -> None:
        """The phase changes: a training forward pass after this would only repeat what was seen, so
        it ends the program."""
        if self.is_enough:
            self._read_ahead = MOST_READ_AHEAD

    def _begin(self, phase: PhaseName) -> None:
        while self.forwards:
            owner, forward = self.forwards.popitem()
            owner.forward = forward  # type: ignore[attr-defined]
        self.phase = phase
        self.on_phase(phase)


class _InModule(threading.local):
    depth = 0


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    with ExitStack() as stack:
        heard = _disable_dynamo(lambda optimizer, *_: watcher.stepped(optimizer))
        hook = optim.register_optimizer_step_post_hook(heard)
        stack.callback(hook.remove)
        stack.enter_context(
            replaced(torch.optim.Optimizer, "__init__", and_then(watcher.made_optimizer))
        )
        stack.enter_context(replaced(torch.nn.Module, "__call__", _modules(watcher)))
        stack.enter_context(replaced(torch.autograd, "backward", _backwards(watcher)))
        yield


Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


@contextmanager
def replaced(owner: Any, name: str, wrap: Wrap) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def and_then(call: Callable[[Any], None]) -> Wrap:
    """Wraps a method so that `call` is called with the object after it."""

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        def both(self: Any, *arguments: Any, **options: Any) -> None:
            method(self, *arguments, **options)
            call(self)

        return both

    return wrap


def _modules(watcher: Watcher) -> Wrap:
    """Wraps Module.__call__ to notice calls of outermost modules, in the program's first thread
    only."""
    inside, main = _InModule(), threading.get_ident()

    def hear_forward_of(module: torch.nn.Module) -> None:
        """From the next pass on."""
        owner = next(one for one in type(module).__mro__ if "forward" in vars(one))
        if owner in watcher.forwards:
            return
        watcher.forwards[owner] = forward = owner.forward  # type: ignore[attr-defined]
        owner.forward = functools.wraps(forward)(wrap(forward))  # type: ignore[attr-defined]

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def __call__(self: torch.nn.Module, *arguments: Any, **options: Any) -> Any:
            if _is_traced():
                return call(self, *arguments, **options)
            is_outermost = inside.depth == 0 and threading.get_ident() == main
            if is_outermost:
                _heard_forward(watcher, self)
            # a sample may be made with gradients, which nobody uses
            is_evaluated = is_outermost and (
                watcher.phase is PhaseName.EVALUATE
                or (not is_training(self) and torch.is_grad_enabled())
            )
            if is_evaluated and (outer := _forward_around(sys._getframe(1))):
                hear_forward_of(outer)
            inside.depth += 1
            try:
                if is_evaluated:
                    return watcher.evaluate(call, self, *arguments, **options)
                return call(self, *arguments, **options)
            finally:
                inside.depth -= 1

        setattr(__call__, AROUND, wrap)
        return __call__

    return wrap


def _is_traced() -> bool:
    """Here, so that it does not count as a call of the program (simulate/python_calls.py)."""
    return torch.compiler.is_dynamo_compiling()


def _forward_around(frame: FrameType | None) -> torch.nn.Module | None:
    """The module whose `forward` was not called by the module's own call, as a loop that makes a
    sample does."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "forward" and code.co_argcount:
            module = frame.f_locals.get(code.co_varnames[0])
            if isinstance(module, torch.nn.Module):
                found = inspect.unwrap(type(module).forward)
                if getattr(found, "__code__", None) is code:
                    return module
        frame = frame.f_back
    return None


def _heard_forward(watcher: Watcher, module: torch.nn.Module) -> None:
    parameter = next(module.parameters(), None)
    if parameter is None:
        return  # a loss or a metric
    if watcher.is_building and parameter.is_cpu:
        return  # what it would return is asked for, before it is moved to the GPU
    if not torch.is_grad_enabled():
        # A teacher is part of the training step. Some programs make samples in between, with a
        # model that stays in training mode.
        is_evaluation = not is_training(module) or watcher.is_winding_down
        if is_evaluation and not watcher.helpers.have(module, watcher.num_steps == 0):
            watcher.evaluation_forward()
    elif is_training(module) or not watcher.is_enough:
        watcher.trained = weakref.ref(module)
        watcher.training_forward()
    else:
        # Some programs evaluate without torch.no_grad(). If this is training after all, a backward
        # pass follows.
        watcher.evaluation_forward()


def _backwards(watcher: Watcher) -> Wrap:
    depth = 0

    def wrap(backward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            nonlocal depth
            # checkpointing starts backward passes inside of one
            if depth == 0:
                watcher.backward()
            depth += 1
            try:
                return backward(*arguments, **options)
            finally:
                depth -= 1
                if depth == 0:
                    watcher.after_backward()

        return run

    return wrap
