"""What is no record, or contradicts itself, is one message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_examples import put, record

from vramcast.errors import UsageError
from vramcast.reporting.showing import make_report


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "not JSON"),
        ('{"source": "predicted", "ver', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a record of vramcast"),
        ("7", "not a record of vramcast"),
        ('{"source": "predicted", "version": 99}', "version 99"),
        ('{"source": "predicted", "version": 1}', "lacks"),
        ('{"source": "dreamt", "version": 1}', "dreamt"),
        ('{"source": "predicted", "points": [{}]}', "lacks"),
        ('{"runs": [], "protocol_hash": "x", "folder": "runs/a"}', "summary of a bench"),
    ],
)
def test_what_is_no_record_is_refused_with_its_name(
    tmp_path: Path, content: str, says: str
) -> None:
    path = put(tmp_path / "broken.json", content)
    with pytest.raises(UsageError, match="broken.json") as refused:
        make_report([path])
    assert says in refused.value.message and refused.value.advice


@pytest.mark.parametrize(
    ("name", "edit", "says"),
    [
        ("prediction.json", lambda d: d["step_memory"].update(peak_point=10**6), "peak_point"),
        ("prediction.json", lambda d: d["step_memory"].update(points=[[1]] * 5), "points"),
        ("prediction.json", lambda d: d["step_memory"]["changes"].insert(0, [10**6, 1]), "changes"),
        ("prediction.json", lambda d: d["step"].update(bound_by="magic"), "bound_by"),
        ("max-batch.json", lambda d: d.update(capacity_bytes=0), "capacity_bytes"),
        ("compare.json", lambda d: d.update(models=[]), "models"),
        ("plan.json", lambda d: d["gpus"][0]["stages"][0].update(seq_len=0), "seq_len"),
        ("fit.json", lambda d: d[0]["terms"].update(constant="open('x')"), "terms"),
        ("fit.json", lambda d: d[0].update(rows=[]), "rows"),
        ("tune.json", lambda d: d.update(target_steps=0), "target_steps"),
    ],
)
def test_a_record_that_contradicts_itself_is_one_message_with_the_field(
    tmp_path: Path, name: str, edit: Any, says: str
) -> None:
    data = record(name)
    edit(data)
    with pytest.raises(UsageError, match=says):
        make_report([put(tmp_path / "edited.json", data)])


@pytest.mark.parametrize(
    ("name", "edit", "says"),
    [
        ("curve.json", lambda d: d.update(capacity_bytes=-1), "capacity_bytes"),
        ("curve.json", lambda d: d["points"][0].update(step_seconds=float("nan")), "not JSON"),
        (
            "h200-measurement.json",
            lambda d: d.update(memory_cap_bytes=-(10**400)),
            "memory_cap_bytes",
        ),
        ("h200-measurement.json", lambda d: d.update(losses=[10**400]), "losses"),
        (
            "bench/small/result.json",
            lambda d: d["trial"]["protocol"].update(last_steps=-(10**400)),
            "last_steps",
        ),
    ],
)
def test_a_number_that_nothing_can_be_computed_with_is_refused(
    tmp_path: Path, name: str, edit: Any, says: str
) -> None:
    data = record(name)
    edit(data)
    with pytest.raises(UsageError, match="edited.json") as refused:
        make_report([put(tmp_path / "edited.json", data)])
    assert says in refused.value.message and "make it again" in refused.value.advice


def test_a_folder_without_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no record"):
        make_report([tmp_path])
    with pytest.raises(UsageError, match="does not exist"):
        make_report([tmp_path / "nothing"])
