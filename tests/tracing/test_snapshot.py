"""The snapshot of a simulated run is one that torch's own tools, and the page that draws it, can
read."""

from __future__ import annotations

import pickle
import pickletools
from typing import Any

import pytest
import torch.cuda._memory_viz as viz
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_examples import MIB, ROWS, of, to_rows, trace, traces

from vramcast.allocator.model import CachingAllocator
from vramcast.allocator.replay import replay
from vramcast.allocator.settings import AllocatorSettings
from vramcast.tracing.files import PICKLE_PROTOCOL
from vramcast.tracing.snapshot import FIRST_ADDRESS, make_snapshot
from vramcast.tracing.trace import Trace

# What the unpickler of MemoryViz.js knows.
KNOWN_OPCODES = {
    *(
        "APPEND",
        "APPENDS",
        "BINFLOAT",
        "BINGET",
        "BININT",
        "BININT1",
        "BININT2",
        "BINPUT",
        "BINUNICODE",
        "DICT",
        "EMPTY_DICT",
    ),
    *("EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1", "LONG_BINGET"),
    *("LONG_BINPUT", "MARK", "MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "PROTO"),
    *("SETITEM", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
}
LARGEST_EXACT_IN_A_BROWSER = 2**53
SETTINGS = ("", "expandable_segments:True", "max_split_size_mb:20", "roundup_power2_divisions:8")


def lines(text: str) -> str:
    return text  # in place of the Perl script that draws a flame graph


def actions(snapshot: dict[str, Any]) -> list[str]:
    return [entry["action"] for entry in snapshot["device_traces"][0]]


def test_each_event_is_noted_as_torch_notes_it() -> None:
    assert actions(make_snapshot(trace())) == [
        *("segment_alloc", "alloc", "free_requested", "free_completed"),
        *(
            "segment_alloc",
            "alloc",
            "segment_alloc",
            "alloc",
            "segment_alloc",
            "alloc",
            "free_requested",
            "free_completed",
        ),
        *("segment_free", "segment_free"),
        *("segment_alloc", "alloc", "snapshot"),
    ]


def test_an_expandable_segment_is_mapped_and_unmapped() -> None:
    snapshot = make_snapshot(
        of("mm:30000000 -1 ! mm:100", allocator_settings="expandable_segments:True")
    )
    freed = ("free_requested", "free_completed", "segment_unmap")
    assert actions(snapshot) == ["segment_map", "alloc", *freed, "segment_map", "alloc", "snapshot"]
    assert [segment["is_expandable"] for segment in snapshot["segments"]] == [True]
    assert snapshot["allocator_settings"]["expandable_segments"] is True


def test_a_frame_names_operator_node_module_and_line_innermost_first() -> None:
    entries = [
        entry for entry in make_snapshot(trace())["device_traces"][0] if entry["action"] == "alloc"
    ]
    assert entries[2]["frames"] == [
        {"filename": "<operator>", "line": 0, "name": "aten::addmm"},
        {"filename": "<module>", "line": 0, "name": "mlp.up"},
        {"filename": "train.py", "line": 12, "name": "step"},
    ]
    assert [frame["name"] for frame in entries[4]["frames"]] == ["aten::mm", "AddmmBackward0"]
    assert entries[2]["category"] == "activations"


def test_the_page_needs_the_category_unknown_wherever_there_are_categories() -> None:
    """Its code for adding it has a misspelt name and throws."""
    categories = {entry.get("category") for entry in make_snapshot(trace())["device_traces"][0]}
    assert {"unknown", "parameters", "activations"} <= categories


def test_steps_are_annotations() -> None:
    noted = make_snapshot(trace())["external_annotations"]
    assert [note["name"] for note in noted] == ["step 1", "step 1", "step 2", "step 2"]
    assert [note["stage"] for note in noted] == ["START", "END", "START", "END"]


def test_what_does_not_fit_ends_with_an_oom() -> None:
    snapshot = make_snapshot(trace(), capacity_bytes=40 * MIB)
    *_, oom, last = snapshot["device_traces"][0]
    assert (oom["action"], oom["size"], oom["device_free"]) == ("oom", 5 * MIB, 10 * MIB)
    assert last["action"] == "snapshot"
    assert "raise OutOfMemoryError # 5.0MiB requested, 10.0MiB free" in viz.trace(snapshot)


def replayed(example: Trace) -> CachingAllocator:
    allocator = CachingAllocator(AllocatorSettings.parse(example.allocator_settings))
    for event in example.events.tolist():
        if event > 0:
            allocator.malloc(event, int(example.sizes[event - 1]))
        elif event < -(2**60):
            allocator.empty_cache()
        elif event:
            allocator.free(-event)
    return allocator


@given(traces(), st.sampled_from(SETTINGS))
def test_blocks_tile_their_segment_and_the_sums_are_those_of_the_replay(
    example: Trace, setting: str
) -> None:
    example = trace(to_rows(example), allocator_settings=setting)
    snapshot, allocator = make_snapshot(example), replayed(example)
    for segment in snapshot["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address
            address += block["size"]
        assert address == segment["address"] + segment["total_size"]
        assert segment["active_size"] == viz.calc_active(segment) == segment["allocated_size"]
    assert (
        sum(segment["total_size"] for segment in snapshot["segments"]) == allocator.reserved_bytes
    )
    assert (
        sum(segment["allocated_size"] for segment in snapshot["segments"])
        == allocator.allocated_bytes
    )


@given(traces(), st.sampled_from(SETTINGS))
def test_the_history_adds_up_to_the_segments_at_the_end_and_to_the_peak(
    example: Trace, setting: str
) -> None:
    example = trace(to_rows(example), allocator_settings=setting)
    snapshot = make_snapshot(example)
    reserved = peak = 0
    alive: set[int] = set()
    for entry in snapshot["device_traces"][0]:
        if entry["action"] in ("segment_alloc", "segment_map"):
            reserved += entry["size"]
        elif entry["action"] in ("segment_free", "segment_unmap"):
            reserved -= entry["size"]
        elif entry["action"] == "alloc":
            assert entry["addr"] not in alive
            alive.add(entry["addr"])
        elif entry["action"] == "free_completed":
            alive.remove(entry["addr"])
        peak = max(peak, reserved)
    active = {
        block["address"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    }
    assert reserved == sum(segment["total_size"] for segment in snapshot["segments"])
    assert alive == active
    assert (
        peak
        == replay(
            example.events, example.sizes, AllocatorSettings.parse(setting)
        ).peak_reserved_bytes
    )


@settings(max_examples=30)
@given(traces(), st.sampled_from(SETTINGS))
def test_torchs_own_readers_accept_it(example: Trace, setting: str) -> None:
    snapshot = make_snapshot(trace(to_rows(example), allocator_settings=setting))
    assert f"segments: {len(snapshot['segments'])}" in viz.segsum(
        snapshot
    )  # raises where sums do not agree
    viz.trace(snapshot)
    viz.memory(snapshot, format_flamegraph=lines)
    viz.segments(snapshot, format_flamegraph=lines)
    for plot in (
        viz.trace_plot(snapshot),
        viz.trace_plot(snapshot, plot_segments=True),
        viz.segment_plot(snapshot),
    ):
        assert "snapshot.pickle" in plot


def test_torchs_flame_graph_and_comparison_show_our_frames(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, after = make_snapshot(trace(ROWS[:3])), make_snapshot(trace())
    assert (
        f"stream_0;active_allocated;train.py:7:build;<operator>:0:aten::empty {30 * MIB}"
        in viz.memory(after, format_flamegraph=lines)
    )
    compared = viz.compare(before["segments"], after["segments"], format_flamegraph=lines)
    assert "only_after" in compared
    assert "cublas_workspace" in compared
    assert viz.filter_alloc_free_pairs(make_snapshot(trace()))["device_traces"][0]
    assert "free_completed without" not in capsys.readouterr().out


def test_the_pickle_has_nothing_the_pages_own_unpickler_lacks_and_nothing_but_plain_data() -> None:
    example = of(
        " ".join(f"mm:{size}" for size in range(1, 3000)),
        allocator_settings="expandable_segments:True",
    )
    data = pickle.dumps(make_snapshot(example), protocol=PICKLE_PROTOCOL)
    found = {
        (opcode.name, argument if opcode.name == "PROTO" else None)
        for opcode, argument, _ in pickletools.genops(data)
    }
    assert {name for name, _ in found} <= KNOWN_OPCODES
    assert ("PROTO", 4) in found
    numbers = [argument for _, argument, _ in pickletools.genops(data) if isinstance(argument, int)]
    assert FIRST_ADDRESS < max(numbers) < LARGEST_EXACT_IN_A_BROWSER
