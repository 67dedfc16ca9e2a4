"""At the capacity a program gets torch.OutOfMemoryError, as on the GPU, and may go on with less."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast

pytestmark = pytest.mark.usefixtures("warm_simulations")
PROGRAM = f"{Path(__file__).parent / 'workloads.py'}:halves_its_batch_when_out_of_memory"
WORKLOADS = Path(__file__).parent / "workloads.py"


def test_a_program_that_catches_the_error_and_goes_on_fits() -> None:
    prediction = vramcast.predict(PROGRAM, gpu="h200", memory="2GiB")
    assert prediction.fits and prediction.peak_reserved_bytes <= 2 << 30
    assert any("ran out of memory" in limit for limit in prediction.limits)


def test_where_there_is_memory_enough_nothing_is_raised() -> None:
    prediction = vramcast.predict(PROGRAM, gpu="h200")
    assert prediction.fits and prediction.peak_reserved_bytes > 2 << 30
    assert prediction.limits == []


@pytest.mark.parametrize("name", ["allows_itself_a_fraction", "allows_itself_a_fraction_at_first"])
def test_a_fraction_of_the_memory_is_a_limit(name: str) -> None:
    prediction = vramcast.predict(f"{WORKLOADS}:{name}", gpu="h200")
    assert prediction.peak_reserved_bytes <= 2 << 30


def test_a_program_that_does_not_catch_it_is_told_how_much_it_would_take() -> None:
    program = f"{WORKLOADS}:built_on_the_host"
    enough = vramcast.predict(program, gpu="h200")
    little = vramcast.predict(program, gpu="h200", memory="16MiB")
    assert not little.fits
    assert little.peak_reserved_bytes == enough.peak_reserved_bytes
