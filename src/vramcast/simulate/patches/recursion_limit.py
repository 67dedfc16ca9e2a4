"""A limit of nested calls counts those of the program.

Why: the simulation's own count too.
Versions: Python 3.11 to 3.14.
Versions: Python 3.11 to 3.14.
"""

import sys

from vramcast.simulate.patching import Patcher

LIBRARY = "sys"
OWN_CALLS = 1000


def apply(patcher: Patcher) -> None:
    limit, set_limit = sys.getrecursionlimit(), sys.setrecursionlimit

    def setrecursionlimit(limit_now: int) -> None:
        nonlocal limit
        set_limit(limit_now + OWN_CALLS)
        limit = limit_now

    patcher.put(sys, "setrecursionlimit", setrecursionlimit)
    patcher.put(sys, "getrecursionlimit", lambda: limit)
