"""Where an allocation came from: the user's source line and the module whose forward pass was running."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import torch

HIDDEN = (
    os.path.dirname(torch.__file__) + os.sep,
    os.path.dirname(os.path.dirname(__file__)) + os.sep,
    "<frozen ",
)


class Sites:
    """Numbers for distinct (file, line, function, module) places, found by walking the Python stack.

    Frames are only looked at for their code and line: reading a frame's variables would keep the tensors in them alive.
    """

    def __init__(self) -> None:
        self.places: list[tuple[str, int, str, Any]] = []
        self._running: list[torch.nn.Module] = []
        self._numbers: dict[tuple[CodeType | None, int, int], int] = {}
        self._is_user_code: dict[CodeType, bool] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Keep track of which module's forward pass is running."""
        running, call = self._running, torch.nn.Module.__call__

        def __call__(self: torch.nn.Module, *arguments: Any, **options: Any) -> Any:
            running.append(self)
            try:
                return call(self, *arguments, **options)
            finally:
                running.pop()

        torch.nn.Module.__call__ = __call__  # type: ignore[method-assign]
        try:
            yield
        finally:
            torch.nn.Module.__call__ = call  # type: ignore[method-assign]

    def here(self) -> int:
        """The number of the current place."""
        frame: FrameType | None = sys._getframe(1)
        depth = 0
        while frame is not None and depth < 80:
            if self._user_code(frame.f_code):
                return self._number(frame, self._running[-1] if self._running else None)
            frame = frame.f_back
            depth += 1
        return -1

    def _user_code(self, code: CodeType) -> bool:
        known = self._is_user_code.get(code)
        if known is None:
            known = self._is_user_code[code] = not code.co_filename.startswith(HIDDEN)
        return known

    def _number(self, place: FrameType, module: Any) -> int:
        key = (place.f_code, place.f_lineno, id(module))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.places)
            self.places.append(
                (place.f_code.co_filename, place.f_lineno, place.f_code.co_name, module)
            )
        return number
