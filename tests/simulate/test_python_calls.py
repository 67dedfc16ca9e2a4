"""How many Python functions a step calls, without those of the simulation."""

from __future__ import annotations

import functools

import torch
from torch import nn

from vramcast.simulate.python_calls import PythonCalls


def add(a: int, b: int) -> int:
    return a + b


def add_all(numbers: range) -> int:
    return functools.reduce(add, numbers)


def counted(*arguments: range) -> int:
    calls = PythonCalls()
    calls.begin_step()
    for numbers in arguments:
        add_all(numbers)
    calls.stop()
    return calls.of_step


def test_every_function_of_the_program_counts_each_time_it_is_called() -> None:
    assert counted(range(10)) == 1 + 9
    assert counted(range(10), range(10)) == 2 * counted(range(10))


def test_what_the_simulation_calls_does_not_count() -> None:
    calls = PythonCalls()
    calls.begin_step()
    PythonCalls().begin_step()  # a function of vramcast, and what it calls
    calls.stop()
    assert calls.of_step == 0


def test_a_module_of_torch_counts_with_its_own_python() -> None:
    model, x = nn.Linear(4, 4), torch.zeros(4, 4)
    calls = PythonCalls()
    calls.begin_step()
    model(x)
    calls.stop()
    # at least Module.__call__ and forward; the kernel itself is C++
    assert 2 <= calls.of_step < 20
