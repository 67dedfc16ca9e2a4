"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from warm_simulations import WarmSimulations

# Property tests look elsewhere in every run, but in CI where they looked before: a change is judged by what it changed.
settings.register_profile("same-every-time", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("same-every-time")


@pytest.fixture(scope="session")
def _warm() -> Iterator[WarmSimulations]:
    warm = WarmSimulations()
    yield warm
    warm.close()


@pytest.fixture(scope="module")
def warm_simulations(_warm: WarmSimulations) -> Iterator[None]:
    """Simulations that this file's tests ask for in their own process start in no time: see warm_simulations.py."""
    from vramcast.simulate import runner

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "_start", _warm.start)
        yield
