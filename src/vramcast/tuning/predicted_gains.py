"""What would help next, by prediction: other GPUs, shorter sequences, the memory that is left."""

from __future__ import annotations

from vramcast.hardware.gpus import find_gpu
from vramcast.records.prediction import Prediction
from vramcast.records.tune import PredictedGain
from vramcast.tuning.batch_sizes import missing_bytes
from vramcast.tuning.optimisations import knobs
from vramcast.tuning.runner import Runner
from vramcast.units import format_bytes
from vramcast.workload.configuration import Configuration

GPUS = ("b200", "h200", "h100-80gb", "a100-80gb", "rtx-5090", "rtx-4090")
NOT_SIMULATED = ("compile", "cuda_graphs")
NO_GPU = "there is no GPU here that vramcast knows by name (--gpu names one)"


def predicted_gains(
    runner: Runner, final: Configuration, length: int
) -> tuple[list[PredictedGain], list[str]]:
    """(what each would bring against the prediction for the final configuration here, notes)."""
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
    return found, _notes(here, final)


def _gain(
    what: str, here: Prediction, there: Prediction | str, work: float = 1.0, reason: str = ""
) -> PredictedGain:
    """`work` is how much of the work of a step here a step there does."""
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


def _notes(here: Prediction, final: Configuration) -> list[str]:
    notes = []
    if here.capacity_bytes is not None:
        left = here.capacity_bytes - here.peak_reserved_bytes
        notes.append(f"memory left by prediction: {format_bytes(left)}")
    eager = [name for name in NOT_SIMULATED if final.knobs.get(name)]
    if eager:
        notes.append(
            f"predicted as eager code: {', '.join(eager)} cannot be simulated, "
            "and gains of it may be other ones elsewhere"
        )
    if final.switches.given():
        notes.append("torch's process-wide switches are not part of a prediction")
    return notes
