"""The terminal draws lines as blocks, within its width."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from report_examples import PAGES
from rich.console import Console

from vramcast.reporting.sections import Axis, Layer, View
from vramcast.reporting.showing import make_report
from vramcast.reporting.terminal import bands_of, blocks_of, show_sections


@pytest.mark.parametrize(("width", "colour"), [(40, True), (80, False), (200, True)])
def test_the_terminals_width_and_wish_for_no_colour_are_respected(
    width: int, colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    file = StringIO()
    report = make_report(PAGES["max-batch"])
    show_sections(report.sections, Console(file=file, width=width, force_terminal=True))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()).splitlines()
    assert max(map(len, plain)) <= width
    assert ("\x1b[32m" in file.getvalue() or "\x1b[1;32m" in file.getvalue()) == colour


def blocks(
    *lines: list[float], room: int = 40, unit: str = "number", log: bool = False
) -> list[str]:
    layers = [Layer("line", "", points=[[i, y] for i, y in enumerate(line, 1)]) for line in lines]
    return blocks_of(View(Axis(""), Axis("", unit, log), layers), room)


def test_bands_are_letters_below_the_blocks_and_their_names_are_said() -> None:
    line = Layer("step", "allocated", [[event, 1] for event in range(1, 9)], "allocated")
    bands = [
        Layer("band", "build", [[0, 2]], "s7"),
        Layer("band", "forward", [[2, 4], [6, 7]], "s0"),
        Layer("band", "backward", [[4, 6], [7, 8]], "s3"),
    ]
    letters, key = bands_of(View(Axis(""), Axis(""), [*bands, line]), 8)
    assert letters == "bbffBBfB"
    assert key == "b build, f forward, B backward"
    assert bands_of(View(Axis(""), Axis(""), [line]), 8) == ("", "")
    short = Layer("band", "build", [[0, 2]], "s7"), Layer("band", "forward", [[2, 8]], "s0")
    # What has no letter in so few columns is not explained.
    assert bands_of(View(Axis(""), Axis(""), [*short, line]), 2) == ("ff", "f forward")


def test_a_line_of_blocks_keeps_its_peak_and_fits() -> None:
    (line,) = blocks([1.0] * 500 + [9.0] + [2.0] * 500)
    assert len(line) == 40 and line.count("█") == 1 and line[0] < line[-1]
    assert blocks([3.0, 3.0, 3.0]) == ["▁▁▁"]
    assert blocks([5.0, 5.1, 5.0]) == ["▁█▁"]
    assert blocks([5.0, 10.0, 10.0], unit="bytes") == ["▅██"], "memory is drawn from zero"
    assert blocks([1e308, -1e308, 1e308]) == ["█▁█"], "their difference is infinite"


def test_lines_of_blocks_share_a_scale_and_a_shorter_one_ends_earlier() -> None:
    losses = [8.0, 4.0, 2.0, 1.0]
    assert blocks(losses, losses[:3], log=True) == ["█▆▃▁", "█▆▃ "], "every halving is the same"
    assert blocks([99.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0], log=True) == ["████▁▁▁▁"]
    assert blocks([8.0, 2.0, 4.0, 4.0, 1.0, 1.0], room=3, log=True) == ["██▁"], "means of losses"
