"""The work of FlexAttention's kernels: torch.compile writes them to go through those blocks of
scores that a mask leaves."""

import ctypes
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.kernels.work import DTYPE_NUMBERS
from vramcast.tracing.work import GENERATED

NAME = f"{GENERATED}flex_attention"
# What the kernel's own names stand for: an argument, maybe from some element on, or a number.
GIVEN = re.compile(r"^ +(\w+)(?: : tl\.constexpr)? = (\w+)(?: \+ \d+)?$", re.MULTILINE)
NEEDED = ("ZQ", "HQ", "Q_LEN", "KV_LEN", "Q", "KV_NUM_BLKS")
OF_UNKNOWN_MASK = 0.5  # of all blocks: most masks are causal
UNKNOWN_MASK = (
    "FlexAttention's mask could not be worked out without a GPU: its time is that of half of all "
    "scores, as a causal mask leaves them"
)
# What takes time besides products, as more columns of them, from recordings on an H200
# (benchmarks/step_time/fit_flex.py): the softmax of a score, a slow function such as tanh by its
# cost, and the beginning of each row of blocks where there is a mask.
CALLED = re.compile(r"\.(\w+)\(")
SLOW = {"exp": 1, "sigmoid": 1, "erf": 4, "tanh": 4, "sin": 9, "cos": 9, "pow": 9}  # exponentials
SOFTMAX_COLUMNS = {False: 39, True: 99}  # by whether it is the gradient
SLOW_COLUMNS, ROW_COLUMNS = 70, 320


class Scores(NamedTuple):
    matrices: int
    computed: float  # of one matrix
    width: float
    num_slow: int  # functions that change a score
    beginnings: float = 0.0  # scores in the first blocks of all rows, where there is a mask

    def flops(self, is_backward: bool) -> float:
        """Of its products alone."""
        return (10.0 if is_backward else 4.0) * self.matrices * self.computed * self.width

    def cost(self, is_backward: bool) -> float:
        """Of all that it does, in operations of products."""
        columns = self.width + SOFTMAX_COLUMNS[is_backward] + SLOW_COLUMNS * self.num_slow
        one = 10.0 if is_backward else 4.0
        return one * self.matrices * (self.computed * columns + self.beginnings * ROW_COLUMNS)


def is_flex_attention(source: str) -> bool:
    return "SPARSE_KV_BLOCK_SIZE" in source


def flex_attention_work(
    function: Any, arguments: Sequence[Any], gpu: SimulatedGpu
) -> tuple[bytes, int, float, float, Any] | None:
    """The kernel's name and work. None where sizes are worked out by the kernel itself."""
    source = function.src
    named = dict(zip(function.arg_names, arguments, strict=False))
    given: dict[str, Any] = {
        name: int(value) if value.isdigit() else named.get(value)
        for name, value in reversed(GIVEN.findall(source))  # the first counts
    }
    if any(given.get(name) is None for name in NEEDED):
        return None
    is_backward = given.get("DO") is not None
    num_slow = sum(SLOW.get(name, 0) for name in set(CALLED.findall(source)))
    scores = _scores(given, num_slow, gpu)
    elements = scores.matrices * scores.width * (given["Q_LEN"] + 2 * given["KV_LEN"])
    return (
        (f"{NAME}_backward" if is_backward else NAME).encode(),
        DTYPE_NUMBERS[given["Q"].dtype],
        scores.flops(is_backward),
        (3 if is_backward else 2) * elements * given["Q"].element_size(),
        (ctypes.c_int64 * 4)(0, 0, 0, int(scores.cost(is_backward))),
    )


def _scores(given: Mapping[str, Any], num_slow: int, gpu: SimulatedGpu) -> Scores:
    counts, columns = given["KV_NUM_BLKS"], given["SPARSE_KV_BLOCK_SIZE"]
    all_scores = given["Q_LEN"] * given["KV_LEN"]
    width = (given["QK_HEAD_DIM"] + given["V_HEAD_DIM"]) / 2
    matrices = given["ZQ"] * given["HQ"]
    if counts.numel() == 1:  # one block of all: there is no mask
        return Scores(matrices, all_scores, width, num_slow)
    left = gpu.blocks_left.get(counts.data_ptr())
    if left is None:
        gpu.note(UNKNOWN_MASK)
    block = given["SPARSE_Q_BLOCK_SIZE"] * columns
    computed = OF_UNKNOWN_MASK * all_scores if left is None else left * block
    return Scores(matrices, computed, width, num_slow, given["Q_LEN"] * columns)
