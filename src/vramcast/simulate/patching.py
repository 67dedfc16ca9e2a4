"""Replaces functions and classes of torch and other libraries, and puts the originals back."""

from __future__ import annotations

from typing import Any

from vramcast.simulate.gpu import SimulatedGpu

_MISSING = object()


class Patcher:
    """Remembers what it replaced."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        self.gpu = gpu
        self._originals: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any, *, add: bool = False) -> None:
        """Replace an attribute. One that this version of the library lacks is skipped, or added."""
        original = getattr(owner, name, _MISSING)
        if original is not _MISSING or add:
            self._originals.append((owner, name, original))
            setattr(owner, name, value)

    def undo(self) -> None:
        for owner, name, original in reversed(self._originals):
            if original is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._originals.clear()
