"""Dynamo compiles none of vramcast's own functions, and what it calls itself while it compiles is
no part of a step's time.

Why: the program is heard by hooks, and what these call would be compiled where Dynamo breaks a
graph near them: on a GPU there is no such code, and its compilations would be told as the
program's. A step that compiles once more is as long as others without that.
"""

import sys
from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "torch._dynamo.convert_frame"
OWN = __name__.partition(".")[0]


def apply(patcher: Patcher) -> None:
    frames = sys.modules[LIBRARY]
    convert = frames.CatchErrorsWrapper.__call__

    def convert_others(self: Any, frame: Any, *state: Any) -> Any:
        # methods of dataclasses have no file
        if frame.f_globals.get("__name__", "").partition(".")[0] == OWN:
            return frames.ConvertFrameReturn()  # to run it as it is, now and later
        with patcher.gpu.not_counting():
            return convert(self, frame, *state)

    patcher.put(frames.CatchErrorsWrapper, "__call__", convert_others)
