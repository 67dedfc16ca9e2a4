"""Inductor compiles in this process, and keeps what it compiles in a folder of our own.

Why: its worker processes would compile Triton kernels, of which nothing is needed here. Timings are
not kept: a first run on a GPU has none.
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
    """As defaults too: since torch 2.13 a setting is of one thread, and backward has its own."""
    config: Any = sys.modules[LIBRARY]
    for name, value in SETTINGS.items():
        patcher.put(config, name, value)
        if name in config._config:
            patcher.put(config._config[name], "default", value)
    if torch.are_deterministic_algorithms_enabled():  # asked before this was imported
        patcher.put(config, "deterministic", True)
