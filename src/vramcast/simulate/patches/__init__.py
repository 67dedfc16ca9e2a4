"""What is replaced in torch and other libraries while a GPU is simulated: one file for each part.

To patch another library, add a file with the reason and the versions in its docstring (of torch,
where they are others than 2.10 to 2.15), the module in LIBRARY, and `apply(patcher)`, which
replaces attributes with `patcher.put`; they are put back later.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager

from vramcast.programs.after_import import after_import
from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.patching import Patcher

PATCHES = [
    importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)
]


@contextmanager
def installed(gpu: SimulatedGpu) -> Iterator[None]:
    """In this block torch and other libraries behave as on the simulated GPU, also libraries that
    are imported later in it."""
    patcher = Patcher(gpu)

    def patch(library: str) -> None:
        for patch in PATCHES:
            if library == patch.LIBRARY:
                patch.apply(patcher)

    try:
        with after_import((patch.LIBRARY for patch in PATCHES), patch):
            yield
    finally:
        patcher.undo()
