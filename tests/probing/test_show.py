"""A measurement in the terminal, whatever is in it."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from vramcast.probing.facts import Facts
from vramcast.probing.measurement import measurement_from, unfinished
from vramcast.probing.trial import Trial
from vramcast.records.measurement import Outcome
from vramcast.reporting.showing import show
from vramcast.text import printable

FACTS: dict[str, Any] = {
    "step_seconds": [0.1, 0.2],
    "warmup_seconds": [0.3],
    "losses": [1.0, float("nan"), None],
}


def shown(facts: dict[str, Any], trial: Trial | None = None, width: int = 60) -> str:
    file = io.StringIO()
    show(
        measurement_from(trial or Trial(workload="w"), Facts(**{**FACTS, **facts})),
        Console(file=file, width=width),
    )
    return file.getvalue()


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_can_be_shown_with_and_without_anything_measured(outcome: str) -> None:
    text = shown({"outcome": outcome, "error": "what went wrong"})
    assert ("✓" in text) is False, "a loss is nan"
    assert outcome.replace("_", " ") in text or outcome == "ok"
    assert "what went wrong" in text
    assert max(map(len, text.splitlines())) <= 60
    nothing = unfinished(Trial(workload="w"), Facts())
    show(nothing, Console(file=io.StringIO(), width=20))


def test_a_run_stopped_by_the_clock_alone_has_no_empty_list_of_reasons() -> None:
    text = shown({"outcome": "timeout", "losses": [1.0] * 3})
    assert "✗ timeout" in text
    assert "timeout:" not in text


def test_hostile_names_and_knobs_cannot_steer_the_terminal() -> None:
    text = shown(
        {"outcome": "ok"},
        Trial(workload="\x1b[31mred\r\n[bold]w", knobs={"k": "\x1b]0;title\x07\nx\udcff"}),
        width=120,
    )
    assert not any(c in text for c in "\x1b\x07\r\udcff")
    assert "[bold]w" in text, "not markup"


@given(st.text(), st.integers(10, 50))
def test_printable_text_is_short_and_can_be_written_anywhere(text: str, most: int) -> None:
    plain = printable(text, most)
    plain.encode()
    assert all(c.isprintable() or c in "\n\t" for c in plain)
    assert plain == text or not text.isprintable() or len(text) > most
    assert len(plain) <= most + 60
