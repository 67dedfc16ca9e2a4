"""A table in the terminal is as wide as the terminal, and no number in it is broken."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from vramcast.reporting.sections import NO_AXIS, Layer, Table, View
from vramcast.reporting.terminal import bars_of, fitted

COLUMNS = ("name", "memory", "times as fast", "why")
ROWS = [
    [
        "bf16",
        "107.44 GiB",
        "3.357x (3.353 to 3.361)",
        "weights, gradients and optimizer state in bfloat16",
    ],
    ["compile", "92.36 GiB", "1.777x (1.753 to 1.802)", ""],
]


def shown(width: int, rows: list[list[str]] = ROWS, title: str = "") -> str:
    file = io.StringIO()
    table = Table(title=title, columns=COLUMNS, left=("name", "why"), rows=rows)
    Console(file=file, width=width).print(fitted(table, width))
    return file.getvalue()


def test_a_wide_terminal_has_a_row_in_a_line() -> None:
    lines = shown(120, title="What was tried").splitlines()
    assert lines[0].strip() == "What was tried"
    assert [line.split()[0] for line in lines[1:]] == ["name", "bf16", "compile"]


def test_sentences_wrap_before_anything_goes_below() -> None:
    assert "3.357x (3.353 to 3.361)" in shown(85)
    assert not any(line.startswith("  w") for line in shown(85).splitlines())


def test_what_has_no_room_goes_below_with_its_heading_and_a_sentence_without() -> None:
    lines = shown(50).splitlines()
    assert lines[0].split() == ["name", "memory", "times", "as", "fast"]
    assert lines[1].endswith("3.357x (3.353 to 3.361)")
    assert lines[2].rstrip() == "  weights, gradients and optimizer state in"
    narrow = shown(24)
    assert "times as fast: 3.357x" in narrow and "why" not in narrow


def test_markup_in_a_cell_is_text() -> None:
    assert "[red]x[/red]" in shown(120, [["[red]x[/red]", "1", "2", "3"]])


@given(st.integers(20, 160))
def test_no_line_is_wider_than_the_terminal_and_no_cell_is_lost(width: int) -> None:
    text = shown(width)
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    words = " ".join(text.split())
    assert all(number in words for number in ("107.44 GiB", "92.36 GiB"))


def test_a_name_is_not_broken_where_a_heading_can_be() -> None:
    file = io.StringIO()
    rows = [["rtx-4070-ti-super", "88"], ["h200", "989"]]
    table = Table(columns=["name", "bf16 TFLOP/s"], left=["name"], rows=rows)
    Console(file=file, width=26).print(fitted(table, 26))
    assert file.getvalue().splitlines()[-2:] == [
        "rtx-4070-ti-super       88",
        "h200                   989",
    ]


def test_a_table_without_rows_shows_its_headings() -> None:
    assert shown(80, []).split() == ["name", "memory", "times", "as", "fast", "why"]


def test_bars_share_a_scale_with_zero_on_it() -> None:
    points = [["gain", 0, 6, 0], ["loss", 0, -2, 1], ["apart", 2, 4, 2], ["both", -1, 1, 3]]
    view = View(NO_AXIS, NO_AXIS, [Layer("bar", "x", points, "s0")])
    assert {label: bar for label, bar, _ in bars_of(view, 8)} == {
        "gain": "  ██████",
        "loss": "░░",
        "apart": "    ▒▒",
        "both": " ▒│",
    }
