"""cuFFT's work areas are those that were recorded on an H200 (tests/recordings/record_cufft.py)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch

from vramcast.simulate.kernels import spectral

RECORDED = Path(__file__).parents[1] / "recordings" / "h200-torch-2.11-cufft.jsonl.gz"
COMPLEX = {"float32": torch.complex64, "float64": torch.complex128, "float16": torch.complex32}


def rows() -> list[tuple[str, list[int], int, str, int]]:
    with gzip.open(RECORDED, "rt") as file:
        return [json.loads(line) for line in file]


def modelled_bytes(kind: str, sizes: list[int], batch: int, name: str) -> int:
    (length,) = sizes
    of_real = torch.empty(batch, length, dtype=getattr(torch, name), device="meta")
    half = torch.empty(batch, length // 2 + 1, dtype=COMPLEX[name], device="meta")
    whole = torch.empty(batch, length, dtype=COMPLEX[name], device="meta")
    sides = {"r2c": (half, of_real), "c2r": (of_real, half), "c2c": (whole, whole)}[kind]
    return spectral._work_area_bytes(sizes, *sides)


@pytest.fixture(autouse=True)
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(spectral, "note", said.append)
    return said


def is_close(modelled: int, recorded: int) -> bool:
    return abs(modelled - recorded) <= max(1024, 0.003 * recorded)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_work_areas_of_lengths_with_small_factors_are_known(notes: list[str]) -> None:
    known = [row for row in rows() if spectral._largest_factor(row[1][0]) <= 7]
    # Of many lines of 32768 numbers, cuFFT needs none; from how many on was not recorded.
    known = [row for row in known if row[1] != [32768] or row[2] < 256]
    off = [row for row in known if not is_close(modelled_bytes(*row[:4]), row[4])]
    assert len(known) > 1000 and off == [] and notes == []


def test_those_of_other_lengths_are_estimates_and_mostly_right(notes: list[str]) -> None:
    others = [row for row in rows() if spectral._largest_factor(row[1][0]) > 7]
    right = [row for row in others if is_close(modelled_bytes(*row[:4]), row[4])]
    assert len(right) > 0.95 * len(others) > 1000
    assert set(notes) == {spectral.ESTIMATED}
