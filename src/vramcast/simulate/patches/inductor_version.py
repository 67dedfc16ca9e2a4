"""What Inductor keeps goes by the version of torch.

Why: it goes by the contents of torch's files, and reading them takes a quarter of a second.
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
