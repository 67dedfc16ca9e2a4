"""What the zygote imports beside torch: libraries that take seconds, where the workload's file names them. Nothing of the user's is run."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from vramcast.workload import parse_reference

# a package -> what most of an import of it is
SLOW: dict[str, tuple[str, ...]] = {
    "transformers": ("transformers.modeling_utils", "transformers.generation")
}
MOST_BYTES = 1 << 20


def preload_for(workload: str) -> list[str]:
    source = _source(workload)
    wanted = [
        package
        for package in SLOW
        if package.encode() in source and importlib.util.find_spec(package) is not None
    ]
    return [module for package in wanted for module in SLOW[package]]


def _source(workload: str) -> bytes:
    """The text of the workload's file; empty where it is not plainly there. A wrong name is answered by whoever loads it."""
    reference = parse_reference(workload)
    places = [reference.path] if reference.path is not None else []
    if (
        reference.module is not None
    ):  # by hand: Python's own search would run the packages on the way
        parts = reference.module.split(".")
        places = [
            Path(folder or os.curdir, *parts).with_suffix(".py") for folder in ("", *sys.path)
        ]
    for place in places:
        try:
            with open(place, "rb") as file:
                return file.read(MOST_BYTES)
        except OSError:
            continue
    return b""
