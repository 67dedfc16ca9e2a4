"""The operations of FlexAttention's kernels: torch.compile writes them to go through those blocks
of scores that a mask leaves."""

import ctypes
import re
from collections.abc import Mapping
from typing import Any

from vramcast.simulate.kernels.work import DTYPE_NUMBERS
from vramcast.tracing.work import GENERATED

NAME = f"{GENERATED}flex_attention"
# What the kernel's own names stand for: an argument, or a number.
GIVEN = re.compile(r"^ +(\w+)(?: : tl\.constexpr)? = (\w+)$", re.MULTILINE)
SIZES = ("ZQ", "HQ", "Q_LEN", "KV_LEN")
OF_UNKNOWN_MASK = 0.5  # of all blocks: most masks are causal


def is_flex_attention(source: str) -> bool:
    return "SPARSE_KV_BLOCK_SIZE" in source


def flex_attention_work(
    source: str, arguments: Mapping[str, Any], blocks_left: Mapping[int, float]
) -> tuple[bytes, int, float, float, Any] | None:
    """The kernel's name and work. None where sizes are worked out by the kernel itself."""
    given = {
        name: int(value) if value.isdigit() else arguments.get(value)
        for name, value in reversed(GIVEN.findall(source))  # the first counts
    }
    if any(given.get(name) is None for name in SIZES):
        return None
    is_backward = given.get("DO") is not None
    inner, outer = given["QK_HEAD_DIM"], given["V_HEAD_DIM"]
    products = 3 * inner + 2 * outer if is_backward else inner + outer
    tensors = {given[name].data_ptr(): given[name] for name in ("Q", "K", "V")}
    num_bytes = (3 if is_backward else 2) * sum(each.nbytes for each in tensors.values())
    return (
        (f"{NAME}_backward" if is_backward else NAME).encode(),
        DTYPE_NUMBERS[given["Q"].dtype],
        2.0 * products * given["ZQ"] * given["HQ"] * _num_scores(given, blocks_left),
        float(num_bytes),
        (ctypes.c_int64 * 4)(),
    )


def _num_scores(given: Mapping[str, Any], blocks_left: Mapping[int, float]) -> float:
    """Of one matrix."""
    counts, block = (
        given["KV_NUM_BLKS"],
        given["SPARSE_Q_BLOCK_SIZE"] * given["SPARSE_KV_BLOCK_SIZE"],
    )
    scores = given["Q_LEN"] * given["KV_LEN"]
    if counts.numel() == 1:  # no mask: one block of all
        return scores
    left = blocks_left.get(counts.data_ptr())
    return OF_UNKNOWN_MASK * scores if left is None else left * block
