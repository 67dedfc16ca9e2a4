"""A mask of FlexAttention tells how many blocks of scores it leaves.

Why: the kernels' time follows from it, and the mask itself is too large to be computed here.
"""

import sys
from functools import wraps
from typing import Any

import torch

from vramcast.simulate.block_masks import num_blocks_left
from vramcast.simulate.patching import Patcher

LIBRARY = "torch.nn.attention.flex_attention"


def apply(patcher: Patcher) -> None:
    library = sys.modules[LIBRARY]
    create = library.create_block_mask
    gpu = patcher.gpu

    @wraps(create)
    def create_block_mask(mask_mod: Any, *arguments: Any, **options: Any) -> Any:
        made = create(mask_mod, *arguments, **options)
        if not torch.compiler.is_compiling():
            _note(gpu, made, mask_mod)
        return made

    patcher.put(library, "create_block_mask", create_block_mask)


def _note(gpu: Any, made: Any, mask_mod: Any) -> None:
    counts = made.kv_num_blocks
    try:
        shape = (*counts.shape[:2], *made.seq_lengths)
        left = num_blocks_left(mask_mod, shape, made.BLOCK_SIZE, gpu.device)
    except Exception:  # whatever the program's function does not like about the host
        return
    gpu.blocks_left[counts.data_ptr()] = left
