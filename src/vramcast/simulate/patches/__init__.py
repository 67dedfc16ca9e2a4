"""What is replaced in torch and other libraries while a GPU is simulated: one file for each part.

To patch another library, add a file with the reason and the versions in its docstring, the module
in LIBRARY, and `apply(patcher)`, which replaces attributes with `patcher.put`; they are put back
later. It is called once the library is imported.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.patching import Patcher

PATCHES = [
    importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)
]


@contextmanager
def installed(gpu: SimulatedGpu) -> Iterator[Callable[[], None]]:
    """Inside this block the libraries answer for the simulated GPU.

    Gives a function that patches what was imported meanwhile.
    """
    patcher, waiting = Patcher(gpu), list(PATCHES)

    def patch_new_imports() -> None:
        for patch in [patch for patch in waiting if patch.LIBRARY in sys.modules]:
            waiting.remove(patch)
            patch.apply(patcher)

    try:
        patch_new_imports()
        yield patch_new_imports
    finally:
        patcher.undo()
