"""Seconds of cuDNN's recurrent layers: steps that follow each other, then arithmetic and bytes.

A step's seconds grow with powers of the width and the batch. What many samples or wide layers take
beside that is arithmetic, and where steps are short it is reading and writing.
"""

import math
from collections.abc import Sequence

from vramcast.forecast.timing.rates import peak_flops
from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import OperatorWork

RECURRENT = ("aten::_cudnn_rnn", "aten::_cudnn_rnn_backward")
ALIGNED = 64  # a width that is no multiple of it has slower kernels
USUAL_WIDTH, USUAL_BATCH, UNKNOWN_BATCH = 256, 32, 16


def key_of_layers(work: OperatorWork) -> str:
    """The key of its rates."""
    return f"{work.operator} {8 * work.item_bytes}"


def recurrent_seconds(work: OperatorWork, gpu: Gpu, known: Sequence[float]) -> float:
    step, of_width, of_batch, bend, not_aligned, of_layers, of_peak, of_bandwidth = known
    steps, batch, matrices, width = work.sizes
    wide = math.log(width / USUAL_WIDTH)
    each = (of_width + bend * wide) * wide
    each += of_batch * math.log((batch or UNKNOWN_BATCH) / USUAL_BATCH)
    each += not_aligned * (width % ALIGNED > 0)
    in_turn = step * steps * math.pow(matrices, of_layers) * math.exp(each)
    arithmetic = work.flops / (peak_flops(gpu, work.precision) * of_peak)
    return in_turn + arithmetic + work.num_bytes / (gpu.bandwidth_bytes_per_second * of_bandwidth)
