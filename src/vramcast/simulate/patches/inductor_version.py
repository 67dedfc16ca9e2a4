"""Inductor's caches are keyed by the version of torch.

Why: torch keys them by the contents of its own files, and reading these takes a quarter of a
second.
"""

import hashlib
import sys

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "torch._inductor.codecache"


def apply(patcher: Patcher) -> None:
    version = f"{torch.__version__} {torch.version.git_version}"
    key = hashlib.sha256(version.encode()).digest()
    patcher.put(sys.modules[LIBRARY], "torch_key", lambda: key)
