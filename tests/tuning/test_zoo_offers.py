"""The zoo's models have the knobs that the catalogue sets, and the naive forms leave room."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from vramcast.errors import WorkloadError
from vramcast.probing.trial import Trial
from vramcast.records.tune import Reason
from vramcast.tuning import inspection
from vramcast.tuning.candidates import Candidate
from vramcast.tuning.inspection import inspect_workload
from vramcast.tuning.optimisations import Optimisation, catalogue, chosen, knobs
from vramcast.workload import Text
from vramcast.workload.configuration import Configuration
from vramcast.workload.switches import Switches

Candidates = dict[str, Candidate]
ROOT = Path(__file__).parents[2]
# data are made on the GPU, there are no images, and layouts are as they should be
NOT_FOR_THE_ZOO = {"channels-last", "contiguous", "loader-workers", "pin-memory"}


def naive() -> dict[str, dict[str, Any]]:
    spec = importlib.util.spec_from_file_location(
        "tune_benchmark", ROOT / "benchmarks" / "tune" / "run.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, dict[str, Any]] = module.NAIVE
    return found


def inspected(workload: str, optimisations: Sequence[Optimisation], **given: Any) -> Candidates:
    """By the name of the optimisation, with the inspection in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspection, "ask", lambda _, request, **__: inspection.answer(request))
        candidates = inspect_workload(Trial(workload=workload, knobs=given), optimisations)[1]
    return {one.optimisation.name: one for one in candidates}


def refused(candidates: Candidates) -> set[str]:
    return {name for name, one in candidates.items() if one.refusal}


@pytest.fixture(scope="module")
def candidates() -> dict[str, Candidates]:
    return {name: inspected(name, chosen(None), **given) for name, given in naive().items()}


def test_every_optimisation_can_be_tried_on_some_model_of_the_zoo(
    candidates: dict[str, Candidates],
) -> None:
    # adamw is foreach already on a GPU
    never = set.intersection(*map(refused, candidates.values()))
    assert never == NOT_FOR_THE_ZOO | {"optimizer-foreach"}


@pytest.mark.parametrize("name", ["gpt2-124m", "elleci-1.36b", "e10-50m"])
def test_the_naive_form_leaves_room_for_the_usual_ones(
    candidates: dict[str, Candidates], name: str
) -> None:
    wanted = {"amp-bf16", "bf16", "amp-fp16", "amp-fp8", "tf32", "optimizer-fused", "batch-size"}
    wanted |= {"seq-len", "compile", "cuda-graphs", "chunked-loss", "optimizer-in-backward"}
    wanted |= {"stochastic-depth", "checkpointing-every-2nd"}
    wanted |= {"fused-recurrence-amp" if name == "e10-50m" else "sdpa"}
    wanted |= {"checkpointing-off" if name == "elleci-1.36b" else "checkpointing-on"}
    assert not wanted & refused(candidates[name])
    assert refused(candidates[name]) >= NOT_FOR_THE_ZOO


def test_an_optimisation_that_would_exchange_the_optimizer_is_refused() -> None:
    refusal = inspected("gpt2-124m", catalogue(), optimizer="sgd")["optimizer-fused"].refusal
    assert refusal and refusal.code == Reason.OTHER_METHOD
    assert "the baseline has optimizer=sgd" in refusal.sentence


def test_the_first_name_that_a_workload_takes_counts() -> None:
    amp = (knobs(precision="amp-bf16"), knobs(precision="amp"), knobs(autocast="bf16"))
    flash = (knobs(attention="flash"), Configuration(switches=Switches(sdpa="flash")))
    optimisations = (
        Optimisation(name="amp", what="", changes=amp),
        Optimisation(name="flash", what="", changes=flash),
        Optimisation(name="fp8", what="", changes=(knobs(scaled=True), knobs(precision="fp8"))),
    )
    workload = f"{ROOT / 'examples' / 'gpt.py'}:build"
    found = inspected(workload, optimisations, precision=Text("fp32"))
    assert (found["amp"].change, found["flash"].change) == (amp[1], flash[1])
    # a knob that refuses a value says more than one that is missing
    refusal = found["fp8"].refusal
    assert refusal and refusal.code == Reason.KNOBS_REFUSED
    assert "expected one of fp32, amp, bf16" in refusal.sentence
    with pytest.raises(WorkloadError, match="no knob 'width_of_it'"):
        inspected(workload, optimisations, width_of_it=3)
