"""Laws fitted to measured memory: exact where there is a law, honest where there is none, and
document 004's own table."""

from __future__ import annotations

import json
import math
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import in_process
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.errors import UsageError
from vramcast.forecast.laws import Point, evaluate, fit, law_at
from vramcast.forecast.piecewise import GOOD_ENOUGH_PERCENT
from vramcast.predicting.fit import read_points

MEASUREMENT = Path(__file__).parents[1] / "reporting" / "records" / "h200-measurement.json"
DOCUMENT_004 = Path(__file__).parents[2] / "examples" / "document-004.csv"
RING = {"constant": "1", "ring": "batch_size * synth_len * ring_len * slot_dim * 2"}


def point(batch_size: int, allocated: int, **more: Any) -> Point:
    knobs = {"batch_size": batch_size, "seq_len": more.pop("seq_len", 512)}
    return Point(
        name=f"B{batch_size}-T{knobs['seq_len']}",
        knobs=knobs,
        allocated_bytes=allocated,
        reserved_bytes=allocated + 1000,
        **more,
    )


SIZES = st.lists(st.integers(1, 500), min_size=3, max_size=9, unique=True)


# a slope of bytes beside a constant of gigabytes is below what doubles resolve
@given(constant=st.integers(0, 10**10), slope=st.integers(10**4, 10**9), sizes=SIZES)
def test_a_law_that_is_there_is_found_and_every_row_is_right_also_left_out(
    constant: int, slope: int, sizes: list[int]
) -> None:
    (found,) = fit([point(size, constant + slope * size) for size in sizes])
    assert found.coefficients["per_sample"] == pytest.approx(slope, rel=1e-6)
    assert found.overhead_bytes == 1000
    assert all(abs(row.error_percent) < 1e-4 for row in found.rows)
    assert all(
        row.left_out_error_percent is not None and abs(row.left_out_error_percent) < 1e-3
        for row in found.rows
    )


def test_what_is_reserved_beside_the_tensors_may_grow_with_them() -> None:
    """A program with convolutions on an H200: MiB, by batch size."""
    measured = {
        16: (149, 204),
        32: (229.9, 352),
        48: (310.1, 512),
        64: (390.8, 608),
        96: (552, 896),
    }
    points = [
        replace(point(size, round((1 << 20) * allocated)), reserved_bytes=reserved << 20)
        for size, (allocated, reserved) in measured.items()
    ]
    (found,) = fit(points)
    assert (found.overhead_bytes, round(found.overhead_share, 2)) == (0, 0.56)
    assert max(abs(row.left_out_error_percent or 0) for row in found.rows) < 17  # else 76
    row = found.rows[3]
    assert law_at(found, {"batch_size": 64}) == pytest.approx(row.fitted_reserved_bytes, abs=2)


def test_with_several_lengths_memory_grows_with_tokens_and_with_tokens_times_length() -> None:
    sizes = [(b, t) for b in (2, 4, 8) for t in (128, 256, 512, 1024)]
    (found,) = fit([point(b, 10**8 + 3000 * b * t + 7 * b * t * t, seq_len=t) for b, t in sizes])
    assert found.coefficients["per_token"] == pytest.approx(3000, rel=1e-6)
    assert found.coefficients["per_token_and_length"] == pytest.approx(7, rel=1e-6)
    assert [knob.name for knob in found.knobs] == ["seq_len", "batch_size"]


def test_the_share_of_a_knob_is_what_its_smallest_value_in_the_runs_saves() -> None:
    """It was once what a value of 1 would save, which no run may have had."""
    (found,) = fit([point(size, 1000 * size) for size in (10, 20, 40)])
    (knob,) = found.knobs
    assert (knob.smallest, knob.largest) == (10, 40)
    assert knob.share == pytest.approx(0.75)


# GPT-124M with checkpointing and autocast on an H200, as `vramcast predict --batch-sizes 1-10` has
# it: (batch, allocated)
CHECKPOINTED = [
    *((1, 3346336256), (2, 3353152000), (3, 3779624960), (4, 4337819648), (5, 4897062912)),
    *((6, 5454929920), (7, 6013255680), (8, 6571450368), (9, 7127613440), (10, 7686266880)),
]


@given(
    floor=st.integers(10**9, 10**10),
    part=st.floats(0.3, 1),
    bend=st.integers(3, 40),
    data=st.data(),
)
def test_where_the_peak_moves_from_one_place_to_another_both_pieces_are_found(
    floor: int, part: float, bend: int, data: st.DataObject
) -> None:
    """The law meets the floor at `bend` samples."""
    small = data.draw(st.lists(st.integers(1, bend - 1), min_size=2, max_size=5, unique=True))
    large = data.draw(
        st.lists(st.integers(2 * bend, 8 * bend), min_size=3, max_size=8, unique=True)
    )
    slope = part * floor / bend
    (found,) = fit(
        [point(size, round(max(floor, floor + slope * (size - bend)))) for size in (*small, *large)]
    )
    if found.floor_bytes is None:  # two narrow groups of runs: one law alone is good enough
        errors = [row.left_out_allocated_error_percent or 0.0 for row in found.rows]
        assert math.hypot(*errors) / math.sqrt(len(errors)) < GOOD_ENOUGH_PERCENT
        return
    assert found.floor_bytes == pytest.approx(floor)
    assert found.coefficients["per_sample"] == pytest.approx(slope, rel=1e-4)
    assert {row.name for row in found.rows if row.on_floor} == {f"B{size}-T512" for size in small}
    assert all(
        abs(row.error_percent) < 1e-4 and abs(row.left_out_error_percent or 0) < 1e-3
        for row in found.rows
    )


def test_a_predicted_curve_has_a_floor_below_three_samples_and_a_law_from_there_on() -> None:
    (found,) = fit([point(size, allocated) for size, allocated in CHECKPOINTED])
    assert found.floor_bytes == pytest.approx(3.35e9, rel=0.001)
    assert [row.name for row in found.rows if row.on_floor] == ["B1-T512", "B2-T512"]
    assert found.coefficients["per_sample"] == pytest.approx(558.2e6, rel=0.001)
    assert all(
        abs(row.error_percent) < 0.2 and abs(row.left_out_error_percent or 9) < 0.3
        for row in found.rows
    )
    assert any("optimizer step" in note and "B1-T512, B2-T512" in note for note in found.notes)
    assert (
        law_at(found, {"batch_size": 1})
        == law_at(found, {"batch_size": 2})
        == found.floor_bytes + found.overhead_bytes
    )


def test_one_small_run_is_no_floor_but_pointed_out() -> None:
    (found,) = fit([point(size, allocated) for size, allocated in CHECKPOINTED[1:]])
    assert found.floor_bytes is None
    assert any(
        "B2-T512 lies above the law of the others" in note and "another run" in note
        for note in found.notes
    )


def test_pieces_are_never_fitted_to_as_few_runs_as_they_have_terms() -> None:
    (four,) = fit([point(size, allocated) for size, allocated in CHECKPOINTED[:4]])
    assert four.floor_bytes is None, "two on the floor leave two for a law of two terms"
    (five,) = fit(
        [point(size, allocated) for size, allocated in (*CHECKPOINTED[:2], *CHECKPOINTED[5:8])]
    )
    assert five.floor_bytes is not None
    assert all(row.left_out_error_percent is not None for row in five.rows)


def test_one_law_stays_one_law_where_it_fits() -> None:
    (straight,) = fit(
        [point(size, 10**9 + 10**8 * size + 10**5 * (-1) ** size) for size in range(1, 12)]
    )
    (level,) = fit([point(size, 10**9 + 10**5 * (-1) ** size) for size in range(1, 12)])
    assert straight.floor_bytes is None and level.floor_bytes is None
    assert not any("law of the others" in note for note in (*straight.notes, *level.notes))


def test_one_run_and_one_term_are_counted_in_the_singular() -> None:
    (found,) = fit([point(4, 10**9)])
    assert any(note.startswith("1 run for 1 term:") for note in found.notes)


def test_a_run_that_failed_or_paged_is_not_used_and_named() -> None:
    runs = [point(b, 1000 * b) for b in (1, 2, 3)]
    (found,) = fit(
        [*runs, point(8, 9, outcome="out_of_memory"), point(9, 10**9, capacity_bytes=10**8)]
    )
    assert set(found.left_out) == {"B8-T512", "B9-T512"}
    assert "paging" in found.left_out["B9-T512"]
    assert len(found.rows) == 3


def test_two_runs_with_the_same_name_are_judged_one_by_one() -> None:
    runs = [
        Point(
            name="same",
            knobs={"batch_size": b},
            allocated_bytes=1000 * b,
            reserved_bytes=1000 * b + 10,
        )
        for b in (1, 2, 3)
    ]
    failed = [
        Point(
            name="same",
            knobs={"batch_size": b},
            allocated_bytes=0,
            reserved_bytes=0,
            outcome="out_of_memory",
        )
        for b in (8, 9)
    ]
    (found,) = fit([failed[0], *runs, failed[1]])
    assert [row.measured_reserved_bytes for row in found.rows] == [1010, 2010, 3010]
    assert list(found.left_out) == ["same", "same (2)"]


@pytest.mark.parametrize(("allocated", "reserved"), [(0, 0), (-90, -80), (-5, 80), (200, 100)])
def test_sizes_no_allocator_reports_are_left_out_and_named(allocated: int, reserved: int) -> None:
    odd = Point(
        name="odd", knobs={"batch_size": 4}, allocated_bytes=allocated, reserved_bytes=reserved
    )
    (found,) = fit([*(point(b, 1000 * b) for b in (1, 2, 3)), odd])
    assert len(found.rows) == 3
    assert "which no allocator reports" in found.left_out["odd"]


def test_a_run_without_the_knob_a_term_needs_is_named() -> None:
    with pytest.raises(UsageError, match="lacking: .*batch_size"):
        fit(
            [
                point(1, 10**6),
                point(2, 10**7),
                Point(name="lacking", knobs={}, allocated_bytes=1, reserved_bytes=2),
            ]
        )


def test_the_law_is_not_asked_outside_what_was_measured() -> None:
    (found,) = fit([point(b, 10**6 * b) for b in (4, 8, 16)])
    assert law_at(found, {"batch_size": 12}) == pytest.approx(12 * 10**6 + 1000)
    with pytest.raises(UsageError, match="from 4 to 16"):
        law_at(found, {"batch_size": 32})


def test_document_004_has_the_coefficients_it_says_and_two_rows_that_prove_nothing() -> None:
    fits = {found.group: found for found in fit(read_points(DOCUMENT_004), RING)}
    assert fits["small"].coefficients["ring"] == pytest.approx(2.04, abs=0.005)
    assert fits["real"].coefficients["ring"] == pytest.approx(2.02, abs=0.005)
    assert "DP2 small x real" in fits["small"].left_out, "16.369 GiB on a card of 15.99"
    assert any("zero by construction" in note for note in fits["stress"].notes)
    assert any("2 times as wide" in note for note in fits["real"].notes), (
        "the ring is fp32 whatever the precision says"
    )
    real = {row.name: row for row in fits["real"].rows}
    assert all(abs(row.error_percent) <= 0.7 for row in real.values()), (
        "the document's own claim, in sample"
    )
    assert abs(real["DP8 real x real"].left_out_error_percent or 0) > 1, (
        "left out, one row is off by more"
    )


NOT_ARITHMETIC = [
    "__import__('os')",
    "batch_size.real",
    "batch_size ** 99",
    "1 / 0",
    "lambda: 1",
    "a b",
    "True",
    "[1]",
]
NOT_ARITHMETIC += ["(0 - batch_size) ** 0.5", "1e308 * 10", "-" * 90000 + "1"]


@pytest.mark.parametrize("expression", NOT_ARITHMETIC, ids=lambda text: text[:20])
def test_a_term_is_arithmetic_and_nothing_else(expression: str) -> None:
    with pytest.raises(UsageError) as raised:
        evaluate(expression, {"batch_size": 2})
    assert len(raised.value.message) < 500


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return in_process.vramcast("fit", *arguments)


def test_the_command_prints_laws_for_people_and_for_programs() -> None:
    term = "ring=batch_size*synth_len*ring_len*slot_dim*2"
    assert "left out" in run(str(DOCUMENT_004), "--term", term).stdout
    laws = json.loads(run(str(DOCUMENT_004), "--term", term, "--json").stdout)
    assert [law["group"] for law in laws] == ["real", "small", "stress"]


@pytest.mark.parametrize(
    ("content", "arguments", "part"),
    [
        (None, [], "cannot be read"),
        ("", [], "no rows"),
        ("name,reserved_gib\nx,many\n", [], "line 2"),
        ("name,batch_size,reserved_gib,overhead_mib\nx,1,inf,3\n", [], "reserved_gib is inf"),
        ("name,batch_size,reserved_gib,overhead_mib\nx,nan,2,3\n", [], "batch_size is nan"),
        ("name,batch_size,reserved_gib,overhead_mib\nx,1,2,3\n", ["--by", "width"], "width"),
        ("name,batch_size,reserved_gib,overhead_mib\nx,1,2,3\n", ["--terms", "magic"], "magic"),
        ("name,batch_size,reserved_gib,overhead_mib\nx,1,2,3\n", ["--term", "t=width*2"], "width"),
        (
            "name,batch_size,reserved_gib,overhead_mib\nx,1,2,3\ny,2,3,3\n",
            ["--at", "batch_size=9"],
            "from 1 to 2",
        ),
        (
            "name,batch_size,reserved_gib,overhead_mib\nx,1,2,3\ny,2,3,3\n",
            ["--at", "batch_size=2", "--at", "width=9"],
            "width",
        ),
        (
            "name,batch_size,reserved_gib,overhead_mib\nx,1,2,3\n",
            ["--terms", "constant,constant"],
            "named twice",
        ),
        (
            "name,batch_size,reserved_gib,overhead_mib\nx,1,2,3\n",
            ["--term", "constant=batch_size"],
            "of that name already",
        ),
        (
            "name,batch_size,reserved_gib,overhead_mib\nx,1,2,3\n",
            ["--terms", "constant", "--term", "x=batch_size"],
            "--terms constant,x",
        ),
    ],
)
def test_a_wrong_table_or_term_is_named(
    tmp_path: Path, content: str | None, arguments: list[str], part: str
) -> None:
    table = tmp_path / "runs.csv"
    if content is not None:
        table.write_text(content)
    done = run(str(table), *arguments)
    assert done.returncode == 2
    assert part in done.stderr and "Traceback" not in done.stderr


def test_names_are_shown_as_they_are_without_escape_codes(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text(
        "name,batch_size,reserved_gib,overhead_mib\n[/b],1,2,3\n[red]x,2,3,3\n\x1b[31my,3,4,3\n"
    )
    done = run(str(table))
    assert done.returncode == 0, done.stderr
    assert "[/b]" in done.stdout and "[red]x" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text('{"loss": 3}')
    done = run(str(tmp_path))
    assert done.returncode == 2 and "version" in done.stderr
    assert str(tmp_path) in done.stderr, "among many folders it says which"


def test_a_cut_off_folder_is_named_and_an_unfinished_run_is_not_used(tmp_path: Path) -> None:
    measured = json.loads(MEASUREMENT.read_text())
    whole = json.dumps(
        {**measured, "device": "cpu", "peak_reserved_bytes": None}
    )  # as on the CPU, where nothing is reserved
    metrics = tmp_path / "run" / "metrics.json"
    metrics.parent.mkdir()
    metrics.write_text(json.dumps({**measured, "outcome": "unfinished"}))
    unfinished = run(str(tmp_path / "run"))
    assert unfinished.returncode == 2 and "run was cut off before it ended" in unfinished.stderr
    metrics.write_text(whole[: len(whole) // 2])
    cut = run(str(tmp_path / "run"))
    assert cut.returncode == 2 and str(metrics) in cut.stderr and "Traceback" not in cut.stderr
    metrics.write_text(whole)
    on_cpu = run(str(tmp_path / "run"))
    assert on_cpu.returncode == 2 and "measured no GPU memory" in on_cpu.stderr


def test_a_run_given_twice_would_vouch_for_itself(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("name,batch_size,reserved_gib,overhead_mib\nx,1,2,3\n")
    done = run(str(table), f"{tmp_path}/../{tmp_path.name}/runs.csv")
    assert done.returncode == 2 and "given twice" in done.stderr


def test_terms_that_the_runs_cannot_tell_apart_are_pointed_out() -> None:
    (found,) = fit(
        [point(b, 10**9 * b) for b in (1, 2, 3, 4)],
        {"constant": "1", "per_sample": "batch_size", "per_token": "batch_size*seq_len"},
    )
    assert any("cannot tell constant, per_sample, per_token apart" in note for note in found.notes)


def test_a_size_that_no_number_holds_is_refused_with_its_line(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("batch_size,allocated_gib,reserved_gib\n1,1,1e308\n")
    with pytest.raises(UsageError, match="line 2"):
        read_points(table)
