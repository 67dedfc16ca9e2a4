"""What would help next, from prediction: other GPUs, shorter sequences, the memory that is left."""

from __future__ import annotations

from vramcast.hardware.gpus import find_gpu
from vramcast.records.prediction import Prediction
from vramcast.records.tune import PredictedGain
from vramcast.tuning import sizes
from vramcast.tuning.laboratory import Laboratory
from vramcast.units import format_bytes
from vramcast.workload.configuration import Configuration
from vramcast.workload.switches import Switches

GPUS = ("b200", "h200", "h100-80gb", "a100-80gb", "rtx-5090", "rtx-4090")
NOT_MODELLED = ("compile", "cuda_graphs")


def prospects(
    laboratory: Laboratory, final: Configuration, gpu: str | None, seq_len: int | None
) -> tuple[list[PredictedGain], list[str]]:
    """(what each would bring against the same prediction for here, notes)."""
    if gpu is None:
        return [], [
            "what other hardware would bring is not predicted: there is no GPU here that vramcast knows by name (--gpu names one)"
        ]
    others = [name for name in GPUS if find_gpu(name).name != gpu]
    shorter = (
        final.with_({"seq_len": seq_len // 2}, Switches(), None)
        if seq_len is not None and seq_len >= 2
        else None
    )
    asked = [final, *([final] * len(others)), *([shorter] if shorter else [])]
    here, *there = laboratory.predict(asked, [gpu, *others, *([gpu] if shorter else [])])
    if isinstance(here, str):
        return [], [f"what other hardware would bring is not predicted: {here}"]
    found = [
        of_gpu(name, here, prediction) for name, prediction in zip(others, there, strict=False)
    ]
    if shorter is not None and seq_len is not None:
        found.append(of_length(seq_len, here, there[-1]))
    return found, _notes(here, final)


def of_gpu(name: str, here: Prediction, there: Prediction | str) -> PredictedGain:
    if isinstance(there, str):
        return PredictedGain(
            what=f"on {name}",
            step_seconds=None,
            speedup=None,
            memory_bytes=None,
            fits=None,
            reason=there,
        )
    ratio = (
        here.step_seconds / there.step_seconds
        if here.step_seconds and there.step_seconds and there.fits
        else None
    )
    return PredictedGain(
        what=f"on {name}",
        step_seconds=there.step_seconds if there.fits else None,
        speedup=ratio,
        memory_bytes=there.peak_reserved_bytes,
        fits=there.fits,
        reason=""
        if there.fits
        else f"does not fit: {format_bytes(sizes.missing_bytes(there))} are missing",
    )


def of_length(length: int, here: Prediction, there: Prediction | str) -> PredictedGain:
    """A shorter step is also less work: what counts is tokens a second."""
    what = f"sequences of {length // 2} instead of {length} (tokens a second)"
    if isinstance(there, str):
        return PredictedGain(
            what=what, step_seconds=None, speedup=None, memory_bytes=None, fits=None, reason=there
        )
    known = here.tokens_per_second and there.tokens_per_second
    return PredictedGain(
        what=what,
        step_seconds=there.step_seconds,
        speedup=there.tokens_per_second / here.tokens_per_second
        if known and here.tokens_per_second and there.tokens_per_second
        else None,
        memory_bytes=there.peak_reserved_bytes,
        fits=there.fits,
        reason="a model trained on shorter sequences is another model",
    )


def _notes(here: Prediction, final: Configuration) -> list[str]:
    notes = []
    if here.capacity_bytes is not None:
        notes.append(
            f"memory left by prediction: {format_bytes(here.capacity_bytes - here.peak_reserved_bytes)}"
        )
    eager = [name for name in NOT_MODELLED if final.knobs.get(name)]
    if eager:
        notes.append(
            f"predicted as eager code: {', '.join(eager)} cannot be simulated, and gains of it may be other ones elsewhere"
        )
    if final.switches.given():
        notes.append("torch's process-wide switches are not part of a prediction")
    return notes
