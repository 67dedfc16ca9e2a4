"""The measured side, on what torch's allocator and profiler would say; the profiler's tree is also
taken from a real run on the CPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vramcast.errors import EnvironmentProblem
from vramcast.probing import allocation_history as subject
from vramcast.probing.allocation_history import (
    History,
    Maker,
    Mark,
    is_composite,
    makers_by_address,
    rows_of,
    source_of,
)
from vramcast.tracing.files import from_rows

CUDA = torch.device("cuda", 0)


def entry(action: str, addr: int, size: int = 100, frames: Any = ()) -> dict[str, Any]:
    return {
        "action": action,
        "addr": addr,
        "size": size,
        "frames": list(frames),
        "stream": 0,
        "time_us": 0,
    }


def event(name: str, *children: Any, overload: str = "") -> Any:
    return SimpleNamespace(
        name=name,
        children=list(children),
        overload_name=overload,
        extra_fields=None,
        start_time_ns=0,
    )


def memory(ptr: int, size: int, time: int = 0, device: torch.device = CUDA) -> Any:
    return SimpleNamespace(
        name="[memory]",
        children=[],
        start_time_ns=time,
        extra_fields=SimpleNamespace(ptr=ptr, alloc_size=size, device=device),
    )


def rows(
    entries: list[Any],
    marks: list[Mark] | None = None,
    makers: dict[int, list[Maker]] | None = None,
) -> list[Any]:
    return rows_of(entries, marks or [], makers or {})


def test_allocations_are_numbered_and_frees_name_them_though_an_address_is_used_again() -> None:
    entries = [
        *(entry("segment_alloc", 0, 2**21), entry("alloc", 8, 5), entry("alloc", 16, 6)),
        *(
            entry("free_requested", 8),
            entry("free_completed", 8),
            entry("alloc", 8, 7),
            entry("free_completed", 8),
            entry("snapshot", 0),
        ),
    ]
    assert rows(entries) == [
        ["alloc", 1, 5, ""],
        ["alloc", 2, 6, ""],
        ["free", 1],
        ["alloc", 3, 7, ""],
        ["free", 3],
    ]


def test_a_free_of_something_older_than_the_history_is_left_out() -> None:
    assert rows([entry("free_completed", 64), entry("alloc", 64, 5)]) == [["alloc", 1, 5, ""]]


def test_a_mark_stands_where_it_was_made_also_between_two_frees() -> None:
    entries = [
        entry("alloc", 8),
        entry("alloc", 16),
        entry("free_completed", 8),
        entry("free_completed", 16),
        entry("alloc", 8),
    ]
    marks = [
        Mark(0, 0, ["step", 1]),
        Mark(2, 1, ["step", 2]),
        Mark(2, 1, ["empty_cache"]),
        Mark(3, 2, ["step", 3]),
    ]
    assert [row[:2] for row in rows(entries, marks)] == [
        *(
            ["step", 1],
            ["alloc", 1],
            ["alloc", 2],
            ["free", 1],
            ["step", 2],
            ["empty_cache"],
            ["free", 2],
            ["alloc", 3],
            ["step", 3],
        )
    ]


def test_a_mark_never_moves_behind_an_allocation_that_came_after_it() -> None:
    """The free was counted when it was asked for, but is done only later: another stream still used
    the tensor."""
    entries = [entry("alloc", 8), entry("alloc", 16), entry("free_completed", 8)]
    assert [row[0] for row in rows(entries, [Mark(1, 1, ["step", 1])])] == [
        "alloc",
        "step",
        "alloc",
        "free",
    ]


def test_operators_are_joined_by_address_and_left_out_where_the_counts_disagree() -> None:
    entries = [entry("alloc", 8), entry("free_completed", 8), entry("alloc", 8), entry("alloc", 16)]
    makers = {
        8: [Maker("aten::mm"), Maker("aten::add", "AddBackward0")],
        16: [Maker("aten::a"), Maker("aten::b")],
    }
    found = [row[3:] for row in rows(entries, makers=makers) if row[0] == "alloc"]
    assert found == [["aten::mm"], ["aten::add", {"node": "AddBackward0"}], [""]]


def test_the_outermost_operator_with_a_kernel_names_the_allocation() -> None:
    tree = [
        event("aten::reshape", event("aten::clone", event("aten::empty_strided", memory(8, 512)))),
        event("user's range", event("aten::linear", event("aten::addmm", memory(16, 512)))),
        event(
            f"{subject.ENGINE}MmBackward0",
            event("MmBackward0", event("aten::mm", memory(24, 512), memory(24, -512))),
        ),
        memory(32, 512),
    ]
    assert makers_by_address(tree, CUDA) == {
        8: [Maker("aten::clone")],
        16: [Maker("aten::addmm")],
        24: [Maker("aten::mm", "MmBackward0")],
        32: [Maker()],
    }


def test_allocations_at_one_address_are_taken_in_order_of_time_and_other_devices_not_at_all() -> (
    None
):
    elsewhere = [
        memory(8, 512, device=torch.device("cpu")),
        memory(8, 512, device=torch.device("cuda", 1)),
    ]
    tree = [
        event("aten::mm", memory(8, 512, time=20)),
        event("aten::addmm", memory(8, 512, time=10), *elsewhere),
    ]
    assert makers_by_address(tree, CUDA) == {8: [Maker("aten::addmm"), Maker("aten::mm")]}


@pytest.mark.parametrize(
    ("name", "overload", "answer"),
    [
        *(
            ("aten::linear", "", True),
            ("aten::reshape", "", True),
            ("aten::to", "dtype", True),
            ("aten::max", "other", True),
        ),
        *(
            ("aten::max", "", False),
            ("aten::addmm", "", False),
            ("aten::zeros_like", "", False),
            ("nobody::knows", "", True),
        ),
        *(
            ("aten::empty", "memory_format", False),
            ("aten::empty", "", False),
            ("aten::to", "", True),
        ),  # "": the profiler did not say
    ],
)
def test_whether_an_operator_is_only_made_of_others_depends_on_its_overload(
    name: str, overload: str, answer: bool
) -> None:
    assert is_composite(name, overload) is answer


def test_a_real_profile_of_the_cpu_names_what_a_simulation_names() -> None:
    profiler = subject._profiler()
    weight = torch.randn(64, 64, requires_grad=True)
    profiler.start()
    x = torch.randn(32, 64)
    hidden = torch.nn.functional.linear(x, weight)
    best = torch.max(hidden, x).t().reshape(-1)
    best.sum().backward()
    profiler.stop()
    tree = profiler.profiler.kineto_results.experimental_event_tree()
    made = [
        maker
        for makers in makers_by_address(tree, torch.device("cpu")).values()
        for maker in makers
    ]
    operators = {maker.op for maker in made}
    assert {"aten::randn", "aten::maximum", "aten::clone", "aten::sum"} <= operators
    assert operators & {"aten::mm", "aten::addmm"}
    assert not operators & {"aten::linear", "aten::reshape", "aten::max", "aten::empty_strided"}
    assert "MaximumBackward0" in {maker.node for maker in made}


def test_the_source_is_the_innermost_line_of_the_users_own() -> None:
    frames = [
        {"filename": torch.__file__, "line": 1, "name": "inside"},
        {"filename": "/home/me/train.py", "line": 12, "name": "step"},
        {"filename": "/home/me/train.py", "line": 30, "name": "main"},
    ]
    assert source_of(frames) == "/home/me/train.py:12 in step"
    assert source_of(frames[:1]) == source_of([]) == ""


class Machine:
    """As much of torch.cuda.memory as History touches; allocations go up in address."""

    def __init__(self) -> None:
        self.entries = [entry("alloc", 1)]  # from before
        self.recording: list[Any] = []

    def _record_memory_history(self, **options: Any) -> None:
        self.recording.append(options)
        if options.get("clear_history"):
            self.entries.clear()

    def _snapshot(self) -> dict[str, Any]:
        return {"device_traces": [self.entries], "segments": []}

    def empty_cache(self) -> None:
        self.entries.append(entry("segment_free", 0))

    def stats(self, device: int) -> dict[str, Any]:
        """The extension's own: torch.cuda.memory_stats() is empty while CUDA starts."""
        num_allocs = 41 + sum(entry["action"] == "alloc" for entry in self.entries)
        return {"allocation": {"all": {"allocated": num_allocs, "freed": 7}}}

    def empty(self, *size: int, device: str) -> None:
        self.entries.append(entry("alloc", 8 * len(self.entries), 4 * size[0]))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    machine.entries.clear()
    tree = [event("aten::empty", memory(8 * index, 512)) for index in range(2)]
    results = SimpleNamespace(kineto_results=SimpleNamespace(experimental_event_tree=lambda: tree))
    profiler = SimpleNamespace(start=lambda: None, stop=lambda: None, profiler=results)
    monkeypatch.setattr(subject, "_profiler", lambda: profiler)
    monkeypatch.setattr(torch.cuda, "memory", machine)
    monkeypatch.setattr(torch.cuda, "empty_cache", machine.empty_cache)
    monkeypatch.setattr(torch._C, "_cuda_memoryStats", machine.stats, raising=False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch, "empty", machine.empty)
    return machine


def test_a_history_is_a_trace_with_its_steps_and_emptied_caches(machine: Machine) -> None:
    history = History()
    history.start()
    history.mark_step(1)
    torch.empty(25, device="cuda")
    torch.cuda.empty_cache()
    found, snapshot = history.finish()
    assert found == [
        ["alloc", 1, 4, "aten::empty"],
        ["step", 1],
        ["alloc", 2, 100, "aten::empty"],
        ["empty_cache"],
    ]
    assert from_rows(
        found,
        source="measured",
        workload="",
        knobs={},
        gpu=None,
        torch_version="",
        allocator_settings="",
    ).steps == [1]
    assert snapshot["device_traces"] == [machine.entries]
    assert machine.recording[0] == {
        "max_entries": 4_000_000,
        "stacks": "python",
        "context": "alloc",
        "clear_history": True,
    }
    assert machine.recording[1] == {"enabled": None}
    assert torch.cuda.empty_cache == machine.empty_cache


def test_a_history_that_lost_its_beginning_is_an_error_not_a_short_trace(machine: Machine) -> None:
    history = History()
    history.start()
    torch.empty(25, device="cuda")
    history._base = (history._base[0] - 3, 0)
    with pytest.raises(EnvironmentProblem, match="5 allocations"):
        history.finish()
