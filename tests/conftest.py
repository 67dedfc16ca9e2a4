"""What all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# Property tests look elsewhere in every run, but in CI where they looked before: a change is judged by what it changed.
settings.register_profile("same-every-time", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("same-every-time")
