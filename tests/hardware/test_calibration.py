"""Calibration tables: which is used, what is said where there is none, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vramcast
from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.hardware.calibration import table
from vramcast.hardware.calibration.table import KnownConvolutions
from vramcast.hardware.gpus import find_gpu
from vramcast.predicting.calibrate import calibrate_host
from vramcast.processes.ask import FailureKind, TaskFailed
from vramcast.records.calibration import Calibration, HostSpeed

H200 = find_gpu("h200")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("VRAMCAST_CACHE", str(tmp_path))
    table.read.cache_clear()
    (tmp_path / "calibration").mkdir()
    yield tmp_path / "calibration"
    table.read.cache_clear()


def shipped() -> dict[str, object]:
    record: dict[str, object] = json.loads((table.SHIPPED / "sm_90-torch-2.11.json").read_text())
    return record


def test_the_h200s_table_comes_with_the_project_and_needs_no_excuse(cache: Path) -> None:
    found, limits = table.find(H200, "2.11.0+cu130")
    assert found is not None and found.gpu == "NVIDIA H200"
    assert (found.gemm_workspace_bytes, found.gemm_lt_workspace_bytes) == (32 << 20, 1 << 20)
    assert len(found.convolutions) >= 1500
    assert limits == []


@pytest.mark.parametrize(
    ("version", "said"),
    [("2.10.0", False), ("2.15.0+cu132", False), ("2.9.1", True), ("2.16.0", True)],
)
def test_another_torch_uses_it_and_says_so_where_its_sources_may_differ(
    cache: Path, version: str, said: bool
) -> None:
    found, limits = table.find(H200, version)
    assert found is not None
    assert bool(limits) == said


@pytest.mark.parametrize(("version", "said"), [("2.13.0", False), ("2.14.1", True)])
def test_torch_2_14_comes_with_another_cudnn_than_the_one_measured(
    cache: Path, version: str, said: bool
) -> None:
    found, _ = table.find(H200, version)
    assert found is not None
    assert table.has_other_cudnn(found, version) == said


def test_without_a_table_the_limits_say_what_is_a_default_and_what_to_do(cache: Path) -> None:
    found, limits = table.find(find_gpu("rtx-4090"), "2.13.0")
    assert found is None
    assert "documented defaults" in limits[0] and "vramcast calibrate" in limits[0]


def test_a_users_own_table_comes_first_and_adds_to_the_shipped_one(cache: Path) -> None:
    key = "bf16 nchw x48,3,160,160 w64,3,7,7 s2,2 p3,3 d1,1 g1"
    (cache / "sm_90-torch-2.11.json").write_text(
        json.dumps({**shipped(), "process_bytes": 12345, "convolutions": {key: [1, 2, 3]}})
    )
    found, _ = table.find(H200, "2.11.0")
    assert found is not None
    assert found.process_bytes == 12345
    assert found.convolutions[key] == [1, 2, 3]
    assert len(found.convolutions) >= 1500


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"version": 9}', '{"version": 1, "gpu": 3}'])
def test_a_broken_table_is_named_and_not_half_used(cache: Path, content: str) -> None:
    path = cache / "sm_90-torch-2.12.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"sm_90-torch-2\.12"):
        table.find(H200, "2.12.0")


KEY = "bf16 nchw x48,3,160,160 w64,3,7,7 s2,2 p3,3 d1,1 g1"


@pytest.mark.parametrize(
    "edit",
    [
        {"process_bytes": -1},
        {"gemm_workspace_bytes": 1e90},
        {"device_bytes": 10**90},
        {"torch_version": "newest"},
        {"cudnn_version": None},
        {"kind": "plan"},
        {"convolutions": {"a convolution": [1, 2, 3]}},
        {"convolutions": {KEY: [1, 2]}},
        {"convolutions": {KEY: [1, 2, -3]}},
        {"convolutions": {KEY: [1, 2, 10**90]}},
    ],
    ids=str,
)
def test_an_edited_table_is_refused_with_its_name_and_what_to_do(
    cache: Path, edit: dict[str, object]
) -> None:
    (cache / "sm_90-torch-2.12.json").write_text(json.dumps({**shipped(), **edit}))
    with pytest.raises(UsageError, match=r"sm_90-torch-2\.12") as refusal:
        table.find(H200, "2.12.0")
    assert "vramcast calibrate" in refusal.value.advice


def test_calibrating_again_adds_to_what_the_table_knows_of_other_kernels(cache: Path) -> None:
    other = KEY.replace("x48", "x8")
    for number, key in enumerate((KEY, other, KEY)):
        measured = {**shipped(), "process_bytes": number, "convolutions": {key: [number] * 3}}
        result, path = table.keep(Calibration.from_dict(measured), table.user_folder())
    assert result.convolutions == {KEY: [2, 2, 2], other: [1, 1, 1]}
    assert (table.read(path), result.process_bytes) == (result, 2)
    written = json.loads(path.read_text())
    assert (written["kind"], written["version"]) == ("calibration table", 1)


def test_a_key_says_everything_needed_to_run_the_convolution_again() -> None:
    for key in list(table.common_convolutions())[:50]:
        assert table.convolution_key(**table.parse_convolution_key(key)) == key


@given(slope=st.integers(0, 10**6), base=st.integers(0, 10**6), batch=st.integers(9, 63))
def test_between_two_batch_sizes_a_workspace_in_proportion_is_found_exactly(
    slope: int, base: int, batch: int
) -> None:
    def key(n: int) -> str:
        return f"bf16 nchw x{n},3,32,32 w8,3,3,3 s1,1 p1,1 d1,1 g1"

    known = KnownConvolutions({key(n): [base + slope * n] * 3 for n in (8, 64)})
    assert known.between(key(batch)) == [base + slope * batch] * 3
    assert known.between(key(65)) is None and known.between(key(7)) is None
    assert known.between(key(batch).replace("w8", "w9")) is None
    assert known.measured(key(batch)) is None


@pytest.mark.long
def test_a_host_is_measured_without_a_gpu_and_kept(tmp_path: Path) -> None:
    speed, path = vramcast.calibrate_host(out=tmp_path)
    assert path == tmp_path / "host.json" and HostSpeed.from_file(path) == speed
    assert 0 < speed.step_seconds < 1


def test_a_host_that_was_not_measured_is_not_asked_for_a_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def end(*_: object, **__: object) -> None:
        raise TaskFailed(FailureKind.KILLED, "The process was ended by SIGKILL.")

    monkeypatch.setattr("vramcast.predicting.calibrate.ask", end)
    with pytest.raises(EnvironmentProblem, match="SIGKILL") as error:
        calibrate_host(out=tmp_path)
    assert "Run it again" in error.value.advice and "GPU" not in error.value.advice
