"""Where an allocation came from: the user's source line and the module whose forward pass was running."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import Any

import torch

HIDDEN = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep, "<frozen ")


class Sites:
    """Numbers for distinct (file, line, function, module) places, found by walking the Python stack."""

    def __init__(self) -> None:
        self.places: list[tuple[str, int, str, Any]] = []
        self._numbers: dict[tuple[CodeType | None, int, int], int] = {}
        self._is_user_code: dict[CodeType, bool] = {}

    def here(self) -> int:
        """The number of the current place."""
        frame: FrameType | None = sys._getframe(1)
        place: FrameType | None = None
        module: Any = None
        depth = 0
        while frame is not None and depth < 80:
            code = frame.f_code
            if place is None and self._user_code(code):
                place = frame
            if module is None and code.co_name == "forward":
                candidate = frame.f_locals.get("self")
                module = candidate if isinstance(candidate, torch.nn.Module) else None
            if place is not None and module is not None:
                break
            frame = frame.f_back
            depth += 1
        return self._number(place, module)

    def _user_code(self, code: CodeType) -> bool:
        known = self._is_user_code.get(code)
        if known is None:
            known = self._is_user_code[code] = not code.co_filename.startswith(HIDDEN)
        return known

    def _number(self, place: FrameType | None, module: Any) -> int:
        if place is None:
            return -1
        key = (place.f_code, place.f_lineno, id(module))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.places)
            self.places.append((place.f_code.co_filename, place.f_lineno, place.f_code.co_name, module))
        return number
