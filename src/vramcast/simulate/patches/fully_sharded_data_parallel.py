"""FullyShardedDataParallel takes the number by which a process calls its GPU.

Why: the one GPU that is simulated is cuda:0. A process that calls its GPU by its rank would be told
that the module lies on another one.
Versions: torch 2.10 to 2.15.
"""

from typing import Any

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "torch.distributed.fsdp._init_utils"


def apply(patcher: Patcher) -> None:
    from torch.distributed.fsdp import _init_utils as library

    asked = library._get_device_from_device_id

    def _get_device_from_device_id(*arguments: Any, **options: Any) -> torch.device | None:
        found = asked(*arguments, **options)
        return torch.device("cuda", 0) if found is not None and found.type == "cuda" else found

    patcher.put(library, "_get_device_from_device_id", _get_device_from_device_id)
