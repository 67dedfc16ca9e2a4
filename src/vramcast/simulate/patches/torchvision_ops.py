"""torchvision's operators have the memory of their CUDA kernels.

Why: how many boxes non-maximum suppression keeps depends on contents, so torchvision's own shapes
are not known without them.
Versions: torchvision 0.25 to 0.29.
"""

from __future__ import annotations

from vramcast.simulate import kernels
from vramcast.simulate.patching import Patcher

LIBRARY = "torchvision"


def apply(_: Patcher) -> None:
    kernels.install_for("torchvision")
