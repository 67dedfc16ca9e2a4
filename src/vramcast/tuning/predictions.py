"""How a tune uses predictions: batch sizes worth a run, and what else would help at the end."""

import math

from vramcast.forecast.search import crossing
from vramcast.hardware.gpus import find_gpu
from vramcast.records.prediction import Prediction
from vramcast.records.tune import PredictedGain
from vramcast.tuning.optimisations import knobs
from vramcast.tuning.runner import Runner
from vramcast.units import format_bytes
from vramcast.workload.configuration import Configuration

# The second prediction is for FACTOR times the batch. Sizes beyond MAX_FACTOR times are not derived
# from it.
FACTOR, MAX_FACTOR = 8, 64
UNPREDICTED_FACTORS = (2, 4, 8)
# A run that takes more than 0.92 of the memory does not count as sound.
MEMORY_SHARE = 0.88
# At the knee, throughput is this share of that of an infinite batch.
KNEE_SHARE = 0.95
# A size must be so many times the one before to be worth a run.
LEAST_RATIO = 1.2
GPUS = ("b200", "h200", "h100-80gb", "a100-80gb", "rtx-5090", "rtx-4090")
NO_GPU = "there is no GPU here that vramcast knows by name (--gpu names one)"


def batch_sizes(
    batch: int, here: Prediction | str, larger: Prediction | str, max_seconds: float = math.inf
) -> list[int]:
    """The batch sizes above `batch` that are worth a run, rising, with steps of at most
    `max_seconds`."""
    if isinstance(here, str) or isinstance(larger, str):
        return [factor * batch for factor in UNPREDICTED_FACTORS]
    seconds, more_seconds = here.step_seconds or 0.0, larger.step_seconds or 0.0
    slope, fixed_seconds, limits = 0.0, 0.0, [float(MAX_FACTOR * batch)]
    if 0 < seconds < more_seconds:
        slope = (more_seconds - seconds) / ((FACTOR - 1) * batch)
        fixed_seconds = max(0.0, seconds - slope * batch)
        limits.append((max_seconds - fixed_seconds) / slope)
    if here.capacity_bytes is not None:
        known = {batch: here.peak_reserved_bytes, FACTOR * batch: larger.peak_reserved_bytes}
        fitting = crossing(known, int(MEMORY_SHARE * here.capacity_bytes))
        limits += [] if fitting is None else [fitting]
    largest = min(limits)
    if largest <= batch:
        return []
    # At the knee, the fixed part is a twentieth of the step.
    knee = KNEE_SHARE / (1 - KNEE_SHARE) * fixed_seconds / slope if slope else batch
    knee = min(largest, max(batch, knee))
    found = [batch]
    for size in map(_rounded, (knee, math.sqrt(knee * largest), largest)):
        if size >= LEAST_RATIO * found[-1]:
            found.append(size)
    return found[1:]


def gain_of_larger(here: Prediction | str, larger: Prediction | str) -> float:
    """The ratio of throughputs with the larger batch; 1 if it is unknown or does not fit."""
    if isinstance(here, str) or isinstance(larger, str) or larger.fits is False:
        return 1.0
    before, after = here.step_seconds, larger.step_seconds
    return FACTOR * before / after if before and after else 1.0


def missing_bytes(prediction: Prediction) -> int:
    return max(1, prediction.peak_reserved_bytes - (prediction.capacity_bytes or 0))


def _rounded(size: float) -> int:
    """Rounds down to a multiple of 8 from 16 on, of 32 from 128 on: kernels are fast for such
    sizes."""
    multiple = 32 if size >= 128 else 8 if size >= 16 else 1
    return int(size // multiple) * multiple


def predicted_gains(
    runner: Runner, final: Configuration, length: int
) -> tuple[list[PredictedGain], list[str]]:
    """What other GPUs and shorter sequences would bring, against the prediction for this GPU; and
    notes."""
    gpu = runner.gpu
    if gpu is None:
        return [], [f"what other hardware would bring is not predicted: {NO_GPU}"]
    others = [name for name in GPUS if find_gpu(name).name != gpu]
    shorter = final.with_change(knobs(seq_len=length // 2)) if length > 1 else final
    here, with_shorter, *there = runner.predict(
        [final, shorter, *[final] * len(others)], [gpu, gpu, *others]
    )
    if isinstance(here, str):
        return [], [f"what other hardware would bring is not predicted: {here}"]
    found = [_gain(f"on {name}", here, one) for name, one in zip(others, there, strict=True)]
    if length > 1:
        what = f"sequences of {length // 2} instead of {length} (tokens a second)"
        caution = "a model trained on shorter sequences is another model"
        found.append(_gain(what, here, with_shorter, length // 2 / length, caution))
    notes = []
    if here.capacity_bytes is not None:
        left = here.capacity_bytes - here.peak_reserved_bytes
        notes.append(f"memory left by prediction: {format_bytes(left)}")
    return found, notes


def _gain(
    what: str, here: Prediction, there: Prediction | str, work: float = 1.0, reason: str = ""
) -> PredictedGain:
    """The gain. A step there does `work` times as much as one here."""
    if isinstance(there, str):
        return PredictedGain(what=what, reason=there)
    seconds = there.step_seconds if there.fits else None
    if not there.fits:
        reason = f"does not fit: {format_bytes(missing_bytes(there))} are missing"
    return PredictedGain(
        what=what,
        step_seconds=seconds,
        speedup=work * here.step_seconds / seconds if here.step_seconds and seconds else None,
        memory_bytes=there.peak_reserved_bytes,
        fits=there.fits,
        reason=reason,
    )
