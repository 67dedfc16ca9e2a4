"""torch says which attention kernels the simulated GPU has for nested tensors.

Why: attention on nested tensors of jagged layout chooses its kernel in Python, and a build of torch
without CUDA says that it has none. In evaluation nn.TransformerEncoder would make nested tensors of
strided layout, whose attention is not modelled, so its fast path is switched off.
Versions: torch 2.10 to 2.13.
"""

from typing import Any

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "torch"
HALVES = (torch.float16, torch.bfloat16)
MAX_FLASH_WIDTH = 256


def apply(patcher: Patcher) -> None:
    is_ampere = patcher.gpu is not None and patcher.gpu.model.capability >= (8, 0)

    def can_use_flash(params: Any, debug: bool = False) -> bool:
        fits = params.query.dtype in HALVES and params.query.shape[-1] <= MAX_FLASH_WIDTH
        return bool(torch._C._get_flash_sdp_enabled() and is_ampere and fits)

    def can_use_efficient(params: Any, debug: bool = False) -> bool:
        alignment = 8 if params.query.dtype in HALVES else 4
        fits = params.query.shape[-1] % alignment == 0
        return bool(torch._C._get_mem_efficient_sdp_enabled() and fits)

    patcher.put(torch._C, "_can_use_flash_attention", can_use_flash)
    patcher.put(torch._C, "_can_use_mem_efficient_attention", can_use_efficient)
    patcher.put(torch.backends.mha, "get_fastpath_enabled", lambda: False)
