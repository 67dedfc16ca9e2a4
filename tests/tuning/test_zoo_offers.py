"""The models of the zoo offer what the catalogue turns, and the benchmark's naive forms leave room for it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from vramcast.errors import WorkloadError
from vramcast.tuning import inspection
from vramcast.tuning.catalogue import CATALOGUE
from vramcast.tuning.entry import Entry, knobs, switch
from vramcast.tuning.inspection import Offer, inspect_workload
from vramcast.workload import Text

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


@pytest.fixture(scope="module")
def offers() -> dict[str, Offer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            inspection, "_ask", lambda request, _: inspection.answer(request)
        )  # in this process
        return {
            name: inspect_workload(name, CATALOGUE, device="cuda", knobs=given)
            for name, given in naive().items()
        }


def test_every_entry_of_the_catalogue_can_be_tried_on_some_model_of_the_zoo(
    offers: dict[str, Offer],
) -> None:
    taken = {name for offer in offers.values() for name in offer.changes}
    assert {entry.name for entry in CATALOGUE} - taken == NOT_FOR_THE_ZOO | {
        "optimizer-foreach"
    }  # adamw is that already on a GPU


@pytest.mark.parametrize("name", ["gpt2-124m", "elleci-1.36b", "e10-50m"])
def test_the_naive_form_leaves_room_for_the_usual_ones(offers: dict[str, Offer], name: str) -> None:
    wanted = {
        "amp-bf16",
        "bf16",
        "amp-fp16",
        "amp-fp8",
        "tf32",
        "optimizer-fused",
        "batch-size",
        "seq-len",
        "compile",
        "cuda-graphs",
    }
    wanted |= {
        "chunked-loss",
        "optimizer-in-backward",
        "stochastic-depth",
        "fused-recurrence-amp" if name == "e10-50m" else "sdpa",
    }
    wanted |= {
        "checkpointing-off" if name == "elleci-1.36b" else "checkpointing-on",
        "checkpointing-every-2nd",
    }
    assert wanted <= set(offers[name].changes)
    assert offers[name].refusals.keys() >= NOT_FOR_THE_ZOO


def test_an_entry_that_would_exchange_the_optimizer_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inspection, "_ask", lambda request, _: inspection.answer(request))
    offer = inspect_workload("gpt2-124m", CATALOGUE, device="cuda", knobs={"optimizer": "sgd"})
    assert "the baseline has optimizer=sgd" in offer.refusals["optimizer-fused"]


def test_the_first_name_that_a_workload_takes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "_ask", lambda request, _: inspection.answer(request))
    entries = (
        Entry(
            name="amp",
            what="",
            changes=(knobs(precision="amp-bf16"), knobs(precision="amp"), knobs(autocast="bf16")),
        ),
        Entry(name="flash", what="", changes=(knobs(attention="flash"), switch(sdpa="flash"))),
        Entry(name="fp8", what="", changes=(knobs(precision="fp8"),)),
    )
    workload = f"{ROOT / 'examples' / 'gpt.py'}:build"
    offer = inspect_workload(workload, entries, device="cuda", knobs={"precision": Text("fp32")})
    assert offer.changes == {"amp": entries[0].changes[1], "flash": entries[1].changes[1]}
    assert "expected one of fp32, amp, bf16" in offer.refusals["fp8"]
    with pytest.raises(WorkloadError, match="no knob 'width_of_it'"):
        inspect_workload(workload, entries, device="cuda", knobs={"width_of_it": 3})
