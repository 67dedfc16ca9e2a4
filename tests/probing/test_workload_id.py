"""Ids are those of document 004 where it has one, and the same everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from vramcast.probing.measurement import workload_id
from vramcast_zoo.document_004 import canonical, document_id, short_hash

Spec = tuple[dict[str, Any], dict[str, Any]]
# the presets od1_canon_* of document 004: (ant, colony)
SMALL: Spec = (
    {"ring_len": 2048, "slot_dim": 256, "ptr_dtype": "fp64", "precision": "fp32"},
    {
        "seq_len": 128,
        "synth_len": 128,
        "batch_size": 4,
        "ptr_update_every": 1,
        "state_loop_samples": 0,
    },
)
REAL: Spec = (
    {"ring_len": 8192, "slot_dim": 576, "ptr_dtype": "fp64", "precision": "fp32"},
    {
        "seq_len": 256,
        "synth_len": 256,
        "batch_size": 16,
        "ptr_update_every": 1,
        "state_loop_samples": 0,
    },
)
STRESS: Spec = ({**REAL[0], "ring_len": 16384, "slot_dim": 768}, REAL[1])


def document_run(model: Spec, run: Spec, batch_size: int) -> Spec:
    """Its table ran one preset's model in another's run, in fp16."""
    return {**model[0], "precision": "fp16"}, {**run[1], "batch_size": batch_size}


# facts/seeds.md 4.1
IDS: list[tuple[Spec, str]] = [
    (SMALL, "37d4c849bed8"),
    (REAL, "a87a40941a4c"),
    (STRESS, "ab3432401162"),
    (document_run(SMALL, REAL, 16), "831069834653"),
    (document_run(SMALL, REAL, 24), "524892c72f9c"),
    (document_run(SMALL, REAL, 32), "7f2bd54d8f30"),
    (document_run(REAL, REAL, 1), "24b4fa884f63"),
    (document_run(REAL, REAL, 2), "bbad724bc96c"),
    (document_run(REAL, REAL, 3), "afc28bd12268"),
    (document_run(REAL, SMALL, 4), "088f2d0358f1"),
    (document_run(STRESS, REAL, 1), "7fd1b9fb8e53"),
]
COMBOS = {"91710b8befec", "33ffd4841493", "c44773c25176", "97ad611a1d57"}


@pytest.mark.parametrize(("spec", "expected"), IDS)
def test_ids_are_those_of_the_document(spec: Spec, expected: str) -> None:
    assert workload_id("any", {**spec[0], **spec[1]}) == f"wl_v1_{expected}"


def test_combination_keys_are_those_the_document_committed_and_know_no_batch_size() -> None:
    pairs = ((SMALL, REAL), (REAL, REAL), (REAL, SMALL), (STRESS, REAL))
    runs = [document_run(model, run, batch) for model, run in pairs for batch in (1, 7)]
    described: list[Any] = [canonical({**ant, **colony}) for ant, colony in runs]
    for description in described:
        del description["colony_spec"]["batch_size"]
    assert set(map(short_hash, described)) == COMBOS


@pytest.mark.parametrize(
    ("precision", "expected"), [("fp32", "a87a40941a4c"), ("amp-fp16", None), ("amp-bf16", None)]
)
def test_the_zoos_od1_has_the_documents_id_though_its_knobs_are_fewer(
    precision: str, expected: str | None
) -> None:
    knobs = {
        "ring_len": 8192,
        "slot_dim": 576,
        "precision": precision,
        "seq_len": 256,
        "batch_size": 16,
        "lr": 1e-3,
    }
    schema = {**REAL[0], "precision": precision.removeprefix("amp-")}
    assert workload_id("od1-real", knobs) == document_id({**schema, **REAL[1]})
    assert expected is None or workload_id("od1-real", knobs) == f"wl_v1_{expected}"
    assert workload_id("od1-real", {**knobs, "precision": "bf16"}).startswith("wl_") is True
    assert "v1" not in workload_id("od1-real", {**knobs, "precision": "bf16"}), (
        "weights in bf16 are not the document's bf16"
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("ring_len", value) for value in ("2048", True, 0, -1, 2048.0, None)),
        *(("ptr_dtype", value) for value in ("amp", "float64", 64, None)),
        *(("precision", value) for value in ("int8", None)),
        *(("seq_len", value) for value in (0, "128", True)),
        *(("state_loop_samples", value) for value in (-1, False, "0")),
    ],
)
def test_knobs_that_the_schema_does_not_allow_have_no_id_of_it(field: str, value: Any) -> None:
    knobs = {**SMALL[0], **SMALL[1]}
    assert document_id(knobs) == document_id(dict(reversed(knobs.items()))) is not None
    assert document_id({**knobs, field: value}) is None
    assert "v1" not in workload_id("any", {**knobs, field: value})


def test_other_workloads_ids_tell_name_knobs_and_types_apart_and_not_the_order() -> None:
    knobs = {"batch_size": 8, "precision": "bf16"}
    others = ({}, {**knobs, "batch_size": "8"}, {**knobs, "batch_size": 8.5})
    ids = [
        workload_id("a", knobs),
        workload_id("b", knobs),
        *(workload_id("a", other) for other in others),
    ]
    assert len(set(ids)) == len(ids)
    assert workload_id("a", dict(reversed(knobs.items()))) == ids[0] == "wl_c4d72ea21b95"
    assert workload_id("a", {"x": object}) == workload_id("a", {"x": object}), "whatever a knob is"
