"""Passes that repeat and the Python functions that programs call: run by test_device_programs.py.

python tests/simulate/repeating_programs.py
"""

from __future__ import annotations

from program_device import SESSION, run_programs, taken_by

# isort: split
# the device is loaded before torch
import ctypes
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from vramcast.simulate.patches import bitsandbytes_library
from vramcast.simulate.python_calls import PythonCalls
from vramcast.simulate.same_passes import (
    FEWEST_GROWING,
    GROWING,
    NOTE,
    RUN_AT_LEAST_ONE_IN,
    SamePasses,
)
from vramcast.units import format_bytes

# forward passes of an evaluation


def _passes(note: Callable[[str], None] = lambda _: None) -> SamePasses:
    return SamePasses(SESSION.device, note, SESSION.gpu.reads)


def _evaluated(module: nn.Module, num_passes: int, run: Callable[..., Any]) -> list[int]:
    """What passes take, each with its own autocast, which gives its weights back in any order."""

    def evaluate() -> None:
        for _ in range(num_passes):
            x = torch.randn(1024, 32, device="cuda")
            with torch.autocast("cuda", torch.bfloat16):
                y = run(type(module).__call__, module, x)
            assert y.shape == (1024, 8) and y.dtype is torch.bfloat16

    with torch.no_grad():
        taken = taken_by(evaluate)
    parts = itertools.groupby(taken, lambda size: size > 0)
    return [size for is_new, part in parts for size in (part if is_new else sorted(part))]


def a_pass_that_vmap_makes_is_run_each_time() -> None:
    passes, layer = _passes(), torch.nn.Linear(2, 3, device="cuda")
    x = torch.ones(5, 2, device="cuda")
    with torch.no_grad():
        for _ in range(9):
            made = torch.func.vmap(lambda row: passes.run(torch.nn.Linear.forward, layer, row))(x)
            assert made.shape == (5, 3)


def passes_that_are_alike_take_the_same_whether_they_run_or_not() -> None:
    notes: set[str] = set()
    passes = _passes(notes.add)
    module = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).cuda().eval()
    _evaluated(module, 1, lambda call, *arguments: call(*arguments))  # takes cuBLAS' workspace
    num_calls = 0

    def count(*_: object) -> None:
        nonlocal num_calls
        num_calls += 1

    module[1].forward = lambda x: count() or nn.functional.gelu(x)
    expected = _evaluated(module, 20, lambda call, *arguments: call(*arguments))
    with passes.repeating():
        assert _evaluated(module, 20, passes.run) == expected
    assert 20 < num_calls < 30 and len(notes) == 1


def of_passes_whose_input_grows_some_run_and_all_results_have_their_size() -> None:
    notes: set[str] = set()
    lengths: list[int] = []
    module = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).cuda().eval()
    module[1].forward = lambda x: lengths.append(len(x)) or nn.functional.gelu(x)

    def sample(run: Callable[..., Any]) -> None:
        for length in range(1024, 1124 + FEWEST_GROWING):
            y = run(type(module).__call__, module, torch.randn(length, 32, device="cuda"))
            assert y.shape == (length, 8) and y.is_contiguous()

    def run_all(call: Callable[..., Any], *arguments: Any) -> Any:
        return call(*arguments)

    with torch.no_grad():
        sample(run_all)  # takes cuBLAS' workspace
        expected = taken_by(lambda: sample(run_all))
        lengths.clear()
        taken = taken_by(lambda: sample(_passes(notes.add).run))
    assert notes == {GROWING} and FEWEST_GROWING <= len(lengths) < FEWEST_GROWING + 12
    assert lengths[-1] > 1123 + FEWEST_GROWING - RUN_AT_LEAST_ONE_IN
    assert taken == expected


class _Scores(nn.Linear):
    """Square in its length, and written to what it was given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = (x @ x.T).softmax(-1)
        return x.add_(super().forward(scores @ x))


def passes_that_return_their_input_take_what_they_would_if_they_ran() -> None:
    num_run: list[int] = []
    module = _Scores(32, 32).cuda().eval()

    def sample(run: Callable[..., Any]) -> None:
        for length in range(700, 900):
            x = torch.randn(length, 32, device="cuda")
            assert run(type(module).__call__, module, x) is x

    def run_all(call: Callable[..., Any], *arguments: Any) -> Any:
        return num_run.append(0) or call(*arguments)

    def run_some(call: Callable[..., Any], *arguments: Any) -> Any:
        return passes.run(lambda *given: run_all(call, *given), *arguments)

    passes = _passes()
    with torch.no_grad():
        sample(run_all)  # takes cuBLAS' workspace
        expected = taken_by(lambda: sample(run_all))
        num_run.clear()
        assert taken_by(lambda: sample(run_some)) == expected
    assert FEWEST_GROWING < len(num_run) < FEWEST_GROWING + 12


def parts_of_a_sample_that_begin_anew_take_what_they_would_if_they_ran() -> None:
    lengths: list[int] = []
    module = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).cuda().eval()
    module[1].forward = lambda x: lengths.append(len(x)) or nn.functional.gelu(x)

    def sample(run: Callable[..., Any]) -> None:
        for length in [*range(1000, 1064)] * 5:
            y = run(type(module).__call__, module, torch.randn(length, 32, device="cuda"))
            assert y.shape == (length, 8)

    def run_all(call: Callable[..., Any], *arguments: Any) -> Any:
        return call(*arguments)

    passes = _passes()
    with torch.no_grad():
        sample(run_all)  # takes cuBLAS' workspace
        expected = taken_by(lambda: sample(run_all))
        lengths.clear()
        assert taken_by(lambda: sample(passes.run)) == expected
        # four show that the second part does what the first did
        assert len(lengths) < FEWEST_GROWING + 16
        lengths.clear()
        module[0].weight.mul_(2)  # nothing is known of the new weights
        passes.run(type(module).__call__, module, torch.randn(1001, 32, device="cuda"))
    assert lengths == [1001]


def sizes_that_were_seen_in_another_pattern_do_not_grow_by_it() -> None:
    module = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).cuda().eval()
    passes = _passes()
    with torch.no_grad():
        for length in (
            [1020] * 20 + [*range(1000, 1040)] * 3 + [1020] * 20 + [*range(1000, 1080, 2)]
        ):
            x = torch.randn(length, 32, device="cuda")
            assert passes.run(type(module).__call__, module, x).shape == (length, 8)


def a_pass_that_is_given_a_sparse_matrix_is_run_each_time() -> None:
    passes, num_run = _passes(), 0
    matrix = torch.eye(5).to_sparse().cuda()

    def product(module: nn.Linear, given: torch.Tensor) -> torch.Tensor:
        nonlocal num_run
        num_run += 1
        return given @ module.weight

    layer = nn.Linear(2, 5, device="cuda")
    with torch.no_grad():
        for _ in range(9):
            assert passes.run(product, layer, matrix).shape == (5, 2)
    assert num_run == 9


def a_sample_with_gradients_that_nobody_uses_takes_what_it_would_if_it_ran() -> None:
    num_run: list[int] = []
    module = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)).cuda().eval()

    def sample(run: Callable[..., Any]) -> None:
        x = torch.randn(1024, 32, device="cuda")
        for _ in range(100):
            y = run(type(module).__call__, module, x)  # the graph before it is still there
            assert y.requires_grad and y.shape == x.shape
            x = torch.cat([x, y[-1:].detach()])

    def run_all(call: Callable[..., Any], *arguments: Any) -> Any:
        return num_run.append(0) or call(*arguments)

    def run_some(call: Callable[..., Any], *arguments: Any) -> Any:
        return passes.run(lambda *given: run_all(call, *given), *arguments)

    passes = _passes()
    sample(run_all)  # takes cuBLAS' workspace
    expected = taken_by(lambda: sample(run_all))
    num_run.clear()
    assert sorted(taken_by(lambda: sample(run_some))) == sorted(expected)
    assert len(num_run) < FEWEST_GROWING + 12


def passes_whose_graphs_are_kept_for_a_backward_pass_all_run() -> None:
    module = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)).cuda().eval()
    passes = _passes()
    num_run: list[int] = []
    module[1].forward = lambda x: num_run.append(0) or nn.functional.gelu(x)
    x = torch.randn(1024, 32, device="cuda")
    for _ in range(3):  # all at the end, as for the rewards of an episode
        kept = [passes.run(type(module).__call__, module, x).sum() for _ in range(20)]
        torch.stack(kept).sum().backward()
    assert len(num_run) == 60
    for _ in range(20):
        passes.run(type(module).__call__, module, x).sum().backward()
    assert len(num_run) == 80


def gradients_of_a_pass_that_was_not_run_are_there_if_somebody_wants_them() -> None:
    num_run: list[int] = []
    module = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)).cuda().eval()
    module[1].forward = lambda x: num_run.append(0) or nn.functional.gelu(x)
    passes = _passes()
    x = torch.randn(1024, 32, device="cuda")
    for _ in range(20):
        y = passes.run(type(module).__call__, module, x)
    assert len(num_run) < 10 and module[0].weight.grad is None
    y.sum().backward()
    assert module[0].weight.grad.shape == module[0].weight.shape


class _Padding(nn.Linear):
    """As kernels do that want multiples of eight."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        more = -len(x) % 8
        return super().forward(nn.functional.pad(x, (0, 0, 0, more)) if more else x)[: len(x)]


def sizes_that_are_not_padded_do_not_begin_a_sample_anew() -> None:
    lengths: list[int] = []
    module = nn.Sequential(_Padding(32, 64), nn.GELU(), nn.Linear(64, 8)).cuda().eval()
    module[1].forward = lambda x: lengths.append(len(x)) or nn.functional.gelu(x)
    passes = _passes()
    with torch.no_grad():
        for length in range(1024, 1424 + FEWEST_GROWING):
            x = torch.randn(length, 32, device="cuda")
            assert passes.run(type(module).__call__, module, x).shape == (length, 8)
    # five more for each of those whose length is a multiple of eight would be 60
    assert len([length for length in lengths if length > 1030 + FEWEST_GROWING]) < 35


def blocks_of_a_sample_between_the_growing_one_are_known_too() -> None:
    notes: set[str] = set()
    num_run: list[int] = []
    module = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).cuda().eval()
    module[1].forward = lambda x: num_run.append(len(x)) or nn.functional.gelu(x)
    passes = _passes(notes.add)
    with torch.no_grad():
        for length in range(1, 101 + FEWEST_GROWING):
            for size in (512, length):
                x = torch.randn(size, 32, device="cuda")
                assert passes.run(type(module).__call__, module, x).shape == (size, 8)
    assert notes == {NOTE, GROWING} and len(num_run) < FEWEST_GROWING + 32


class _Pairs(nn.Linear):
    """A hierarchy of which the upper part has half the length: an odd one is padded."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = nn.functional.pad(x, (0, 0, 0, 1)) if len(x) % 2 else x
        return super().forward(padded.unflatten(0, (-1, 2)).mean(1)).repeat(2, 1)[: len(x)]


def a_sample_in_which_every_second_pass_is_alike_does_not_run_each() -> None:
    num_run: list[int] = []
    module = _Pairs(32, 32).cuda().eval()

    def sample(run: Callable[..., Any]) -> None:
        for length in range(1024, 1424):
            x = torch.randn(length, 32, device="cuda")
            assert run(run_all, module, x).shape == x.shape

    def run_all(module: nn.Module, x: torch.Tensor) -> Any:
        return num_run.append(0) or module(x)

    with torch.no_grad():
        sample(lambda call, *arguments: call(*arguments))  # takes cuBLAS' workspace
        expected = taken_by(lambda: sample(lambda call, *arguments: call(*arguments)))
        num_run.clear()
        taken = taken_by(lambda: sample(_passes().run))
    assert taken == expected
    assert len(num_run) < 60


@dataclass
class _Cache:
    keys: torch.Tensor
    length: int


class _WithCache(nn.Module):
    def __init__(self, is_changed: bool) -> None:
        super().__init__()
        self.layer, self.is_changed, self.num_run = nn.Linear(32, 32), is_changed, [0]

    def forward(self, x: torch.Tensor, cache: _Cache) -> tuple[torch.Tensor, _Cache]:
        self.num_run[0] += 1
        keys = torch.cat([cache.keys, self.layer(x)])
        if not self.is_changed:
            return keys.sum(0, keepdim=True), _Cache(keys, cache.length + 1)
        cache.keys, cache.length = keys, len(keys)
        return keys.sum(0, keepdim=True), cache


def a_sample_with_a_cache_that_is_given_back_does_not_run_every_pass() -> None:
    """One that is changed in place is: nobody else would change it."""
    for is_changed in (False, True):
        module, num_passes = _WithCache(is_changed).cuda().eval(), FEWEST_GROWING + 100

        def sample(run: Callable[..., Any], module: nn.Module, num_passes: int) -> list[int]:
            x, cache = torch.randn(1, 32, device="cuda"), _Cache(torch.ones(1, 32).cuda(), 1)
            lengths = []
            for _ in range(num_passes):
                x, cache = run(type(module).__call__, module, x, cache)
                lengths.append(cache.length)
                assert cache.keys.shape == (cache.length, 32) and x.shape == (1, 32)
            return lengths

        notes: set[str] = set()
        with torch.no_grad():
            found = sample(_passes(notes.add).run, module, num_passes)
        assert found == list(range(2, num_passes + 2))
        assert notes == (set() if is_changed else {GROWING})
        assert (module.num_run[0] == num_passes) is is_changed


def passes_that_keep_something_or_draw_numbers_all_run() -> None:
    class Keeps(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.last = x
            return super().forward(x)

    class Draws(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + torch.rand(1).item()

    class Reads(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if x.sum().item() > -1e9 else x

    for kind in (Keeps, Draws, Reads):
        notes: set[str] = set()
        module = kind(32, 8).cuda().eval()
        _evaluated(module, 20, _passes(notes.add).run)
        assert not notes


# Python functions that the program calls


def _add(a: int, b: int) -> int:
    return a + b


def _num_calls_in(run: Callable[[], object]) -> int:
    calls = PythonCalls(SESSION.device.library)
    calls.begin_step()
    run()
    calls.stop()
    return calls.of_step


def python_of_torch_cuda_counts_as_on_a_gpu() -> None:
    """24 or 25 for each on an H200 (host_pieces.jsonl in benchmarks/step_time)."""
    again = lambda: [torch.cuda.synchronize() for _ in range(10)]  # noqa: E731
    assert 200 <= _num_calls_in(again) <= 270


def a_pointer_given_to_bitsandbytes_stands_for_its_tensor() -> None:
    library = bitsandbytes_library._Library(SESSION.gpu)
    x = torch.empty(1000, device="cuda")
    managed = library.cget_managed_ptr(ctypes.c_size_t(100))
    library.cadam(ctypes.c_void_p(x.data_ptr()), managed, None, ctypes.c_int32(7), 0.5)
    works = map(SESSION.device.operator_work, SESSION.device.work(0))
    found = [work for work in works if work.operator.startswith("bitsandbytes")]
    assert [(w.operator, w.num_bytes) for w in found] == [("bitsandbytes::cadam", 4100)]


def every_function_of_the_program_counts_each_time_it_is_called() -> None:
    def add_all() -> int:
        return functools.reduce(_add, range(10))

    assert _num_calls_in(add_all) == 1 + 9
    assert _num_calls_in(lambda: (add_all(), add_all())) == 1 + 2 * (1 + 9)


def functions_that_a_backward_pass_calls_count_too() -> None:
    x = torch.ones(8, device="cuda", requires_grad=True)
    (x * 2).sum().backward()  # autograd's thread is known from its first operator on

    def step(times: int) -> None:
        y = x * 2
        y.register_hook(lambda grad: functools.reduce(_add, range(times)) and grad)
        y.sum().backward()

    few, many = (_num_calls_in(lambda n=n: step(n)) for n in (10, 30))
    assert many - few == 20


def what_a_function_calls_that_is_kept_from_compilation_counts_too() -> None:
    kept = torch._disable_dynamo(lambda: functools.reduce(_add, range(10)))
    kept()
    assert _num_calls_in(kept) >= 1 + 9


def what_the_simulation_calls_does_not_count() -> None:
    assert _num_calls_in(lambda: format_bytes(5 << 20)) == 1


def a_module_of_torch_counts_with_its_own_python() -> None:
    model, x = nn.Linear(4, 4), torch.zeros(4, 4)
    # at least Module.__call__ and forward; the kernel itself is C++
    assert 2 <= _num_calls_in(lambda: model(x)) < 20


if __name__ == "__main__":
    run_programs()
