"""What a kernel's operations, reads and registers cost: as torch.compile writes kernels, and as
people do.

Both were fitted to kernels that were recorded on an H200, those of people by
benchmarks/step_time/fit_jit.py. People's kernels loop more, over reads that wait for each other.
"""

from collections.abc import Mapping
from typing import NamedTuple

# In additions that a multiprocessor's lane makes (benchmarks/step_time/fit_fused.py; powers were
# not recorded). What is not named costs one.
OPERATION_COSTS = {
    "plain": 1.39,
    "whole": 0.933,
    "cast": 1.36,
    "whole_div": 0.0,
    "div": 5.28,
    "sqrt": 0.0,
    "rsqrt": 11.6,
    "exp": 5.62,
    "exp1": 40.7,
    "sigmoid": 9.58,
    "tanh": 13.8,
    "erf": 35.4,
    "sin": 30.0,
    "pow": 60.0,
    "rand": 109.0,
    "reduction": 9.85,
    "column_sum": 9.85,
    "online_softmax": 33.5,
    "welford": 15.2,
    "scan": 71.7,
}
DOT = "dot"  # a product and a sum, of tensor cores: they work beside the lanes


class Rules(NamedTuple):
    operations: Mapping[str, float]
    asked: float  # lanes' additions, of a thread that asks for what it reads
    part_written: float  # of a byte that is written in a part of a sector, in bytes that are read
    # Of a block: a round of its loops, one of a loop with products, which reads ahead, a sum over
    # its elements, and a read that waits for the one before.
    round_seconds: float
    pipelined_seconds: float
    reduction_seconds: float
    is_repeated: bool  # whether each round waits for its sums
    read_seconds: float
    # Registers of each element that a thread reads, without and with loops; of how many reads.
    registers: tuple[float, float]
    most_reads: int
    reads_once: bool  # whether blocks that run at once share all that they read of a tensor
    spilled: float  # how often a register that there is none for goes to memory and back
    pass_bytes: float  # that the cache could give while it serves a line to threads of a warp


OF_INDUCTOR = Rules(
    operations=OPERATION_COSTS,
    asked=2.08,
    part_written=10.8,
    round_seconds=0.133e-6,
    pipelined_seconds=0.133e-6,
    reduction_seconds=0.128e-6,
    is_repeated=False,
    read_seconds=0.0,
    registers=(4.0, 0.25),
    most_reads=8,
    reads_once=False,
    spilled=0.0,
    pass_bytes=0.0,
)
# Addresses are made of whole numbers, once for what a thread asks for at once.
BY_HAND = Rules(
    operations={kind: 0.785 * cost for kind, cost in OPERATION_COSTS.items()}
    | {"whole": 0.295, DOT: 0.052},
    asked=6.33,
    part_written=17.0,
    round_seconds=0.444e-6,
    pipelined_seconds=0.234e-6,
    reduction_seconds=0.142e-6,
    is_repeated=True,
    read_seconds=0.635e-6,
    registers=(0.96, 0.96),
    most_reads=2,
    reads_once=True,
    spilled=0.825,
    pass_bytes=120.0,
)
