"""torchvision's operators have the memory of their CUDA kernels.

Why: how many boxes non-maximum suppression keeps depends on contents, so torchvision's own shape
functions do not help. With a torch without CUDA, the library in torchvision's usual wheel cannot be
loaded, so its operators are declared here.
Versions: torchvision 0.25 to 0.29.
"""

import json
import sys
from pathlib import Path

import torch

from vramcast.simulate import kernels
from vramcast.simulate.patching import Patcher

LIBRARY = "torchvision.extension"

SCHEMAS: list[str] = json.loads(Path(__file__).with_suffix(".json").read_text())
_declared: list[torch.library.Library] = []  # the operators live as long as these objects


def apply(patcher: Patcher) -> None:
    if not hasattr(torch.ops.torchvision, "nms"):
        library = torch.library.Library("torchvision", "DEF")
        for schema in SCHEMAS:
            library.define(schema)
        _declared.append(library)
    if _declared:
        extension = sys.modules[LIBRARY]
        patcher.put(extension, "_has_ops", _has_ops)
        patcher.put(extension, "_check_cuda_version", _cuda_version)
    kernels.install_for("torchvision", patcher.gpu.device.library)


# functions of their own: torch.jit.script reads their text
def _has_ops() -> bool:
    return True


def _cuda_version() -> int:
    return -1
