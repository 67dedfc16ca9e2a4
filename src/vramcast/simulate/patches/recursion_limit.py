"""The recursion limit counts only the program's own calls.

Why: the simulation's calls are on the same stack.
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
