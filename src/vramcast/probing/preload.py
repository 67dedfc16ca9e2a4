"""What is imported once for all trials: slow libraries that the workload's file names."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from pathlib import Path

from vramcast.workload import parse_reference

# a package: the modules that most of its import time goes into
SLOW: dict[str, tuple[str, ...]] = {
    "transformers": ("transformers.modeling_utils", "transformers.generation")
}
MAX_BYTES = 1 << 20


def preload_for(workload: str) -> list[str]:
    source = _source(workload)
    return [
        module
        for package, modules in SLOW.items()
        if package.encode() in source and importlib.util.find_spec(package)
        for module in modules
    ]


def _source(workload: str) -> bytes:
    """The text of the workload's file, empty where it is not found. Nothing of it is run."""
    reference = parse_reference(workload)
    places = [reference.path] if reference.path is not None else []
    if reference.module is not None:
        # by hand: Python's own search would run the packages on the way
        name = Path(*reference.module.split(".")).with_suffix(".py")
        places = [Path(folder) / name for folder in (os.curdir, *sys.path)]
    for place in places:
        with contextlib.suppress(OSError), open(place, "rb") as file:
            return file.read(MAX_BYTES)
    return b""
