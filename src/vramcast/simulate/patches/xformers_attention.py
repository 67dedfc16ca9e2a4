"""xformers' attention by torch's own kernels is offered, as on a machine with a GPU.

Why: without a GPU a wheel without compiled code is installed.
Versions: xformers 0.0.29 to 0.0.35.
"""

import sys

from vramcast.simulate.patching import Patcher

LIBRARY = "xformers.ops.fmha.common"


def apply(patcher: Patcher) -> None:
    patcher.put(sys.modules[LIBRARY], "_built_with_cuda", True)
