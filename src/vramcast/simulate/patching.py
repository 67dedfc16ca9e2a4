"""Replaces functions and classes of torch and other libraries, and puts the originals back."""

from typing import Any, Self

from vramcast.simulate.gpu import SimulatedGpu

_MISSING = object()


class DoesNothing:
    """Replaces a class of torch whose objects have nothing to do."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def query(self) -> bool:
        return True

    def do_nothing(self, *_: Any, **__: Any) -> None: ...


class Patcher:
    def __init__(self, gpu: SimulatedGpu) -> None:
        self.gpu = gpu
        self._originals: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any, *, add: bool = False) -> None:
        """Replaces an attribute. One that this version of the library lacks is skipped, or added
        with `add`."""
        original = getattr(owner, name, _MISSING)
        if isinstance(owner, type):
            original = vars(owner).get(name, original)  # not bound: it may be a staticmethod
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
