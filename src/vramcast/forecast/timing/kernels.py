"""Seconds that a kernel takes on a GPU.

Products go by their tiles, attention and convolutions by their work, all others by their bytes.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from vramcast.forecast.timing.additions import (
    SUM,
    additions_seconds,
    in_turn_seconds,
    is_sum,
    sum_seconds,
)
from vramcast.forecast.timing.columns import columns_seconds, is_columns
from vramcast.forecast.timing.communication import COLLECTIVE
from vramcast.forecast.timing.convolutions import (
    convolution_seconds,
    is_convolution,
    least_seconds,
)
from vramcast.forecast.timing.factorizations import factorization_seconds, is_factorization
from vramcast.forecast.timing.fused import fused_seconds
from vramcast.forecast.timing.likeness import factor, name_of
from vramcast.forecast.timing.many_products import is_many, is_thin, tiles_seconds
from vramcast.forecast.timing.many_products import key_of as key_of_many
from vramcast.forecast.timing.norms import (
    GROUPS,
    WEIGHTS,
    by_channel_seconds,
    is_by_channel,
    key_of,
)
from vramcast.forecast.timing.pieces import moved_in_pieces, name_of_pieces, pieces_seconds
from vramcast.forecast.timing.products import (
    GROUPED,
    GROUPED_PRODUCT,
    PRODUCTS,
    key_of_single,
    product_kind,
    single_seconds,
)
from vramcast.forecast.timing.rates import peak_flops
from vramcast.forecast.timing.recurrent import RECURRENT, key_of_layers, recurrent_seconds
from vramcast.forecast.timing.reductions import (
    REDUCTIONS,
    inner_seconds,
    is_inner,
    reduction_seconds,
)
from vramcast.forecast.timing.walks import WALK, is_walk, walk_seconds
from vramcast.hardware.gpus import Gpu
from vramcast.records.calibration import Rates
from vramcast.tracing.work import (
    ACCESS_NAMES,
    DROPPED,
    GENERATED,
    JIT,
    MASKED,
    MASKED_AND_DROPPED,
    PLAIN,
    OperatorWork,
)

VECTOR = "vector"  # a product with one row, column or inner element needs no tiles
# How much longer reads take that miss the cache, and the multiple of its size from which all miss.
MISSED, CACHED = 1.15, 1.5
# The fraction of the bandwidth that is reached, and how much more where small tensors are in the
# cache.
OF_MEMORY, IN_CACHE = 0.91, 0.9
# What masks and dropout take in attention, in picoseconds for each score and for each row of them:
# of heads up to that width, and of wider ones. Fitted to cuDNN's kernels of
# benchmarks/step_time/families/masked.py.
NARROW = 64
SCORE_PICOSECONDS = {
    "forward": {
        MASKED: ((0.47, 45), (0.74, 82)),
        DROPPED: ((0.88, 0), (0.92, 0)),
        MASKED_AND_DROPPED: ((1.53, 52), (2.28, 95)),
    },
    "backward": {
        MASKED: ((0.43, 192), (1.77, 487)),
        DROPPED: ((0.0, 174), (0.29, 408)),
        MASKED_AND_DROPPED: ((1.02, 150), (4.06, 430)),
    },
}
ATTENTION_RATES, FUSED_RATES = 8, 4
REDUCTION_RATES, REDUCTION_ACROSS, REDUCTION_INNER = 3, "reduction across", "reduction"
STEP_BY_STEP = "ctc_loss"  # sizes[1] are steps that follow each other
NORMS_BACKWARD = ("aten::native_layer_norm_backward", "aten::_fused_rms_norm_backward")
MANY_ROWS, BLOCK_COLUMNS = 1 << 16, 32
# nll_loss reads one score in a row, its gradient none; filling only writes
OF_BYTES = {
    **dict.fromkeys(("aten::zero_", "aten::fill_"), 0.5),
    **dict.fromkeys(("aten::nll_loss_forward", "aten::nll_loss2d_forward"), 0.0),
    "aten::nll_loss_backward": 0.5,
    "aten::nll_loss2d_backward": 0.0,
}


CUSTOM_SLOWER = 1.35  # than its bytes say


class KernelTime(NamedTuple):
    seconds: float
    # of arithmetic alone
    compute_seconds: float


def kernel_time(work: OperatorWork, gpu: Gpu, rates: Rates) -> KernelTime:
    if is_sum(work) and SUM in rates.kernels:
        return KernelTime(sum_seconds(work, rates.kernels[SUM]), 0.0)
    found = modelled_time(work, gpu, rates)
    more = factor(work)
    return KernelTime(more * found.seconds, more * found.compute_seconds)


def modelled_time(work: OperatorWork, gpu: Gpu, rates: Rates) -> KernelTime:
    if not work.has_kernel or work.operator.startswith(COLLECTIVE):
        return KernelTime(0.0, 0.0)
    if crosses(work):
        way = "to" if work.sizes[0] == 1 else "from"
        seconds, bytes_per_second = rates.copies[f"{way} {_memory_kind(work)}"]
        return KernelTime(seconds + work.num_bytes / bytes_per_second, 0.0)
    if work.operator in RECURRENT:
        return KernelTime(recurrent_seconds(work, gpu, rates.recurrent[key_of_layers(work)]), 0.0)
    if work.operator in PRODUCTS and work.flops > 0 and work.sizes[1] > 0:
        return any_product_time(work, gpu, rates)
    is_fused = work.is_generated
    if rates.convolutions and is_convolution(work) and not is_fused:
        seconds = convolution_seconds(work, gpu, rates.convolutions)
        arithmetic, memory = least_seconds(work, gpu)
        return KernelTime(seconds, seconds if arithmetic > memory else 0.0)
    if is_factorization(work, rates):
        return KernelTime(factorization_seconds(work, gpu, rates), 0.0)
    is_computed = work.flops > 0 or is_fused
    found = (_compute_time if is_computed else _memory_time)(work, gpu, rates)
    seconds = max(found.seconds, additions_seconds(work, gpu)) + in_turn_seconds(work, gpu)
    return found._replace(seconds=seconds)


def crosses(work: OperatorWork) -> bool:
    """Whether this copies between host and GPU. native/work.h: sizes[0] is 1 from the host and 2 to
    it."""
    return work.operator == "aten::copy_" and work.sizes[0] > 0 and work.num_bytes > 0


def _memory_kind(work: OperatorWork) -> str:
    return "pinned" if work.sizes[1] else "pageable"


def any_product_time(work: OperatorWork, gpu: Gpu, rates: Rates) -> KernelTime:
    if work.operator == GROUPED_PRODUCT:
        return KernelTime(*single_seconds(work, gpu, rates.products[GROUPED]))
    kind = product_kind(work)
    many = rates.products.get(key_of_many(kind, work)) if is_many(work) else None
    if many:
        return overlapped_time(work, gpu, many, tiles_seconds(work, gpu, many[2:]))
    in_tiles = KernelTime(*single_seconds(work, gpu, rates.products[key_of_single(kind, work)]))
    if not is_thin(work):
        return in_tiles
    return min(in_tiles, overlapped_time(work, gpu, rates.products[VECTOR]))


def overlapped_time(
    work: OperatorWork, gpu: Gpu, known: Sequence[float], of_tiles: float = 0.0
) -> KernelTime:
    """Reads and tiles partly overlap."""
    fixed, of_bandwidth, *_ = known
    memory = work.num_bytes / (gpu.bandwidth_bytes_per_second * of_bandwidth)
    return KernelTime(fixed + math.hypot(memory, of_tiles), of_tiles if of_tiles > memory else 0.0)


def attention_time(work: OperatorWork, gpu: Gpu, known: Sequence[float]) -> KernelTime:
    """The time of attention in whole tiles. The exponentials of scores count as extra columns."""
    fixed, of_peak, of_bandwidth, each, columns, *tile = known
    tile_rows, tile_columns, tile_width = map(int, tile)
    flops, blocks = attention_in_tiles(work, columns, tile_rows, tile_columns, tile_width)
    compute = flops / (peak_flops(gpu, work.precision) * of_peak)
    compute *= max(1.0, gpu.num_multiprocessors / blocks)
    memory = work.num_bytes / (gpu.bandwidth_bytes_per_second * of_bandwidth)
    seconds = fixed + max(compute, memory) + blocks * each
    seconds += scores_seconds(work, tile_rows, tile_columns)
    return KernelTime(seconds, compute if compute > memory else 0.0)


def scores_seconds(work: OperatorWork, tile_rows: int, tile_columns: int) -> float:
    """What masks and dropout take."""
    way = "backward" if work.operator.endswith("backward") else "forward"
    if work.access not in SCORE_PICOSECONDS[way]:
        return 0.0
    batch, rows, _, width = work.sizes
    of_score, of_row = SCORE_PICOSECONDS[way][work.access][width > NARROW]
    scores = scores_in_tiles(work, tile_rows, tile_columns)
    return 1e-12 * (of_score * scores + of_row * batch * rows)


def scores_in_tiles(work: OperatorWork, tile_rows: int, tile_columns: int) -> int:
    batch, rows, columns, width = work.sizes
    down, right = math.ceil(rows / tile_rows), math.ceil(columns / tile_columns)
    tiles = down * right
    # causal attention has about half of the operations
    if work.flops < 0.75 * _flops_of_score(work) * batch * rows * columns * width:
        reach = tile_rows / tile_columns
        tiles = sum(min(right, math.ceil((row + 1) * reach)) for row in range(down))
    return batch * tiles * tile_rows * tile_columns


def _flops_of_score(work: OperatorWork) -> float:
    """For each number of a head's width."""
    return 2.0 * (5 if work.operator.endswith("backward") else 2)


def attention_in_tiles(
    work: OperatorWork, more_width: float, tile_rows: int, tile_columns: int, tile_width: int
) -> tuple[float, int]:
    """The operations, padded to tiles, and the number of blocks: of queries forward, of keys
    backward."""
    batch, rows, columns, width = work.sizes
    scores = scores_in_tiles(work, tile_rows, tile_columns)
    padded = math.ceil(width / tile_width) * tile_width + more_width
    is_backward = work.operator.endswith("backward")
    in_parts = math.ceil(columns / tile_columns if is_backward else rows / tile_rows)
    return _flops_of_score(work) * scores * padded, batch * in_parts


def _compute_time(work: OperatorWork, gpu: Gpu, rates: Rates) -> KernelTime:
    kind = "attention" if "attention" in work.operator else "other"
    kind = GENERATED if work.is_generated else kind
    known = rates.compute.get(f"{work.operator} {work.precision}", rates.compute[kind])
    if len(known) == ATTENTION_RATES:
        return attention_time(work, gpu, known)
    if len(known) == FUSED_RATES:
        memory, _ = _moving(work.num_bytes, gpu, known[1])
        return KernelTime(fused_seconds(work, gpu, memory, known), 0.0)
    fixed, of_peak, of_bandwidth = known
    # of FlexAttention, what the softmax costs too
    operations = (work.sizes[3] if kind == GENERATED else 0) or work.flops
    compute = operations / (peak_flops(gpu, work.precision) * of_peak)
    memory = work.num_bytes / (gpu.bandwidth_bytes_per_second * of_bandwidth)
    return KernelTime(fixed + compute + memory, compute)


def kernel_class(work: OperatorWork, rates: Rates) -> str:
    """The key of this kernel in Rates.spread."""
    if not work.is_known and not _own_rate(work, rates):
        return "custom"
    if is_factorization(work, rates):
        return "factorizations"
    if crosses(work):
        return _memory_kind(work)
    if work.is_generated:
        return "by_hand" if work.operator.startswith(JIT) else "generated"
    if work.flops > 0:
        if work.operator in PRODUCTS:
            return "products"
        if "attention" in work.operator:
            return "attention"
        return "recurrent" if work.operator in RECURRENT else "convolutions"
    return "known" if _own_rate(work, rates) else "default"


def is_across(work: OperatorWork) -> bool:
    """Whether neighbours in memory belong to different sums (native/work.h)."""
    return work.sizes[0] == 1 and work.sizes[3] > 0 and work.operator != "aten::copy_"


def _own_rate(work: OperatorWork, rates: Rates) -> list[float] | None:
    names = [f"{work.operator} {ACCESS_NAMES[work.access]}"]
    if work.operator == "aten::copy_" and work.sizes[3]:
        names.insert(0, "aten::copy_ transposed")
    if is_across(work):
        names.insert(0, f"{names[0]} across")
    if is_reduction_across(work):
        names.insert(1, REDUCTION_ACROSS)
    if work.is_evaluated:
        names = [name_of(work)]
    names += [name.replace("_ ", " ", 1) for name in names if name.startswith("aten::")]
    tried = (each for name in names for each in (f"{name} {work.precision}", name))
    name = next((name for name in tried if name in rates.kernels), None)
    if name is None:
        return None
    # the cost of contiguous units says nothing about strided ones
    return rates.kernels[name][: 2 if is_across(work) and "across" not in name else None]


def is_reduction_across(work: OperatorWork) -> bool:
    return work.operator in REDUCTIONS and is_across(work)


def _units(work: OperatorWork, gpu: Gpu) -> int:
    """The blocks that work side by side. layer_norm_kernel.cu has one for 32 columns, and several
    where there are very many rows."""
    rows = work.sizes[3]
    if work.operator not in NORMS_BACKWARD or rows <= MANY_ROWS:
        return rows
    blocks = work.num_bytes / rows / (3 * work.item_bytes) / BLOCK_COLUMNS
    return 0 if blocks < gpu.num_multiprocessors // 2 else rows


def _reads(work: OperatorWork, gpu: Gpu, units: int) -> float:
    """The reads of a thread that follow each other. Normalization.cuh: 512 threads for a channel,
    in rows."""
    is_across, samples, positions, _ = work.sizes
    if work.operator in GROUPS:  # forward a block reads a group, backward a channel
        in_turn = positions if work.operator.endswith("backward") else samples * positions / units
        return max(1.0, in_turn / 512)
    if work.operator in WEIGHTS:
        return samples if is_across else max(1.0, samples / 512)
    if "cum" in work.operator and is_across and samples:  # a thread reads row after row
        return 2 * samples * work.item_bytes
    if STEP_BY_STEP in work.operator:
        return samples
    if "batch_norm" not in work.operator or is_across:
        return work.num_bytes / units
    width = min(512, max(32, 1 << (positions - 1).bit_length()))
    rounds = math.ceil(units / (4 * gpu.num_multiprocessors))
    return rounds * math.ceil(positions / width) * math.ceil(samples * width / 512)


def _memory_time(work: OperatorWork, gpu: Gpu, rates: Rates) -> KernelTime:
    if is_walk(work) and WALK in rates.kernels:
        # its arithmetic takes as long as with vectorised access
        whole = work._replace(access=PLAIN, sizes=(0, 0, 0, 0))
        seconds = memory_seconds(whole, gpu, _own_rate(whole, rates) or rates.kernels["plain"])
        return KernelTime(max(seconds, walk_seconds(work, gpu, rates.kernels[WALK])), 0.0)
    if is_inner(work) and REDUCTION_INNER in rates.kernels:
        own = rates.kernels.get(f"{work.operator} inner", rates.kernels[REDUCTION_INNER])
        return KernelTime(inner_seconds(work, gpu, own), 0.0)
    if is_columns(work) and work.operator in rates.kernels:
        return KernelTime(columns_seconds(work, gpu, rates.kernels[work.operator]), 0.0)
    if (pieces := name_of_pieces(work)) in rates.kernels:
        return KernelTime(seconds_in_pieces(work, gpu, rates.kernels[pieces]), 0.0)
    if is_by_channel(work) and key_of(work) in rates.kernels:
        return KernelTime(seconds_by_channel(work, gpu, rates.kernels[key_of(work)]), 0.0)
    known = _own_rate(work, rates)
    slower = 1.0 if known or work.is_known else CUSTOM_SLOWER
    known = known or rates.kernels[ACCESS_NAMES[work.access]]
    return KernelTime(slower * memory_seconds(work, gpu, known), 0.0)


def seconds_in_pieces(work: OperatorWork, gpu: Gpu, known: Sequence[float]) -> float:
    """Memory and elements partly overlap."""
    fixed, of_bandwidth, *each = known
    moved = work._replace(num_bytes=moved_in_pieces(work))
    memory = memory_seconds(moved, gpu, (0.0, of_bandwidth))
    return fixed + math.hypot(memory, pieces_seconds(work, gpu, each))


def seconds_by_channel(work: OperatorWork, gpu: Gpu, known: Sequence[float]) -> float:
    fixed, of_bandwidth, *each = known
    memory, slower = _moving(work.num_bytes, gpu, of_bandwidth)
    return fixed + by_channel_seconds(work, memory, slower * _reads(work, gpu, work.sizes[3]), each)


def memory_seconds(work: OperatorWork, gpu: Gpu, known: Sequence[float]) -> float:
    """The seconds by the bytes moved. Where there are many units, each has a cost."""
    if is_reduction_across(work) and len(known) == REDUCTION_RATES:
        return reduction_seconds(work, gpu, known)
    fixed, of_bandwidth, *of_units = known
    seconds, slower = _moving(work.num_bytes * OF_BYTES.get(work.operator, 1.0), gpu, of_bandwidth)
    units = _units(work, gpu)
    if of_units and units:  # reads that wait for each other
        chain = _reads(work, gpu, units) * of_units[1] * slower
        seconds = max(seconds, units * of_units[0], chain)
    return fixed + seconds


def _moving(num_bytes: float, gpu: Gpu, of_bandwidth: float) -> tuple[float, float]:
    """The seconds of bytes, which small tensors may find in the cache, and how many times as long a
    single read takes as one from there."""
    too_large = min(1.0, num_bytes / (CACHED * gpu.l2_cache_bytes))
    reached = min(of_bandwidth, OF_MEMORY * (1 + IN_CACHE * (1 - too_large) ** 3))
    return num_bytes / (gpu.bandwidth_bytes_per_second * reached), 1 + MISSED * too_large
