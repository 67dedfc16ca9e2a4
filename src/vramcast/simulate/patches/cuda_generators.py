"""torch.cuda.default_generators has a generator for every GPU.

Why: torch.compile passes it to the code of checkpointed parts; without CUDA there is none.
"""

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "torch"


def apply(patcher: Patcher) -> None:
    library = patcher.gpu.device.library
    library.vramcast_make_default_generators(True)
    generators = tuple(torch.Generator("cuda") for _ in range(patcher.gpu.num_devices))
    library.vramcast_make_default_generators(False)
    patcher.put(torch.cuda, "default_generators", generators)
