"""Inductor compiles in this process, and keeps what it compiles in a folder of our own.

Why: its worker processes would compile Triton kernels, which are not needed here. Timings are not
kept, because a first run on a GPU has none.
"""

import sys
from typing import Any

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "torch._inductor.config"
SETTINGS = {
    "compile_threads": 1,
    "autotune_local_cache": False,
    "autotune_remote_cache": False,
    "bundle_triton_into_fx_graph_cache": False,
    "fx_graph_remote_cache": False,
}


def apply(patcher: Patcher) -> None:
    """Sets the defaults too: since torch 2.13 a setting applies to one thread, and the backward
    pass has its own."""
    config: Any = sys.modules[LIBRARY]
    for name, value in SETTINGS.items():
        patcher.put(config, name, value)
        if name in config._config:
            patcher.put(config._config[name], "default", value)
    if torch.are_deterministic_algorithms_enabled():  # was set before this module was imported
        patcher.put(config, "deterministic", True)
