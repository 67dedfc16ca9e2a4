"""Batches depend on the seed and the step and nothing else, whatever the size of the file."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vramcast.benching.data import (
    DELIMITER,
    Bytes,
    Corpus,
    default_corpus,
    standard_library_text,
)
from vramcast.benching.protocol import STANDARD_1
from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.records.bench import BenchTrial, DataIdentity
from vramcast.records.measurement import Device

TERABYTES = 1_300_000_000_000


def data_file(folder: Path, content: bytes = bytes(range(256)) * 40) -> Path:
    path = folder / "data.bin"
    path.write_bytes(content)
    return path


def drawn(
    corpus: Corpus,
    *,
    seed: int,
    step: int,
    batch_size: int,
    window_bytes: int,
    respect_documents: bool = False,
) -> Bytes:
    protocol = replace(STANDARD_1, seq_len=window_bytes - 1, respect_documents=respect_documents)
    trial = BenchTrial(
        model="any",
        knobs={},
        model_hash=None,
        protocol=protocol,
        protocol_hash=protocol.hash,
        seed=seed,
        data=DataIdentity(name="any", size_bytes=0, hash=""),
        device=Device.CPU,
        batch_size=batch_size,
    )
    return corpus.batch(trial, step)


def test_the_same_seed_and_step_give_the_same_batch_and_others_another(tmp_path: Path) -> None:
    path = data_file(tmp_path)
    first = drawn(Corpus(path), seed=1, step=5, batch_size=8, window_bytes=17)
    assert first.shape == (8, 17)
    assert np.array_equal(first, drawn(Corpus(path), seed=1, step=5, batch_size=8, window_bytes=17))
    assert not np.array_equal(
        first, drawn(Corpus(path), seed=1, step=6, batch_size=8, window_bytes=17)
    )
    assert not np.array_equal(
        first, drawn(Corpus(path), seed=2, step=5, batch_size=8, window_bytes=17)
    )


def test_the_places_are_the_same_on_every_machine(tmp_path: Path) -> None:
    """Recorded: a change of numpy or of the code that moves them makes old results incomparable."""
    batch = drawn(Corpus(data_file(tmp_path)), seed=42, step=0, batch_size=4, window_bytes=2)
    assert batch[:, 0].tolist() == [173, 4, 251, 52]


def test_a_window_is_a_piece_of_the_file_and_every_place_can_be_drawn(tmp_path: Path) -> None:
    path = data_file(tmp_path, b"abcdef")
    windows = drawn(Corpus(path), seed=0, step=0, batch_size=200, window_bytes=3)
    assert {bytes(window) for window in windows} == {b"abc", b"bcd", b"cde", b"def"}


def test_windows_stay_within_documents_where_asked(tmp_path: Path) -> None:
    path = data_file(tmp_path, bytes([DELIMITER]).join([b"aaaaaaa", b"bb", b"ccccccccccc"]))
    free = drawn(Corpus(path), seed=0, step=0, batch_size=200, window_bytes=5)
    within = drawn(
        Corpus(path), seed=0, step=0, batch_size=200, window_bytes=5, respect_documents=True
    )
    assert (free == DELIMITER).any()
    assert {bytes(window) for window in within} == {b"aaaaa", b"ccccc"}


def test_documents_that_are_all_shorter_than_a_window_are_said_so(tmp_path: Path) -> None:
    path = data_file(tmp_path, b"ab\x1e" * 100)
    with pytest.raises(UsageError, match="Hardly any document"):
        drawn(Corpus(path), seed=0, step=0, batch_size=2, window_bytes=4, respect_documents=True)


def test_a_file_of_more_than_a_terabyte_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse.bin"
    with open(path, "wb") as file:
        file.truncate(TERABYTES)
        file.seek(TERABYTES - 3)
        file.write(b"end")
    began = time.process_time()
    big = Corpus(path)
    batch = drawn(big, seed=42, step=0, batch_size=256, window_bytes=513)
    identity = big.identity()
    assert time.process_time() - began < 20.0  # all of it would take an hour
    assert batch.shape == (256, 513)
    assert identity.size_bytes == TERABYTES
    assert identity.hash.startswith("sampled-sha256:")


def test_the_hash_of_a_file_follows_its_content(tmp_path: Path) -> None:
    one = Corpus(data_file(tmp_path, b"one" * 100)).identity()
    other = Corpus(data_file(tmp_path, b"two" * 100)).identity()
    assert one.hash.startswith("sha256:")
    assert one.hash != other.hash


def test_files_that_cannot_be_used_are_named_with_the_reason(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for path, reason in (
        (tmp_path / "none", "No such file"),
        (empty, "empty"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(UsageError, match=reason) as caught:
            Corpus(path)
        assert str(path) in caught.value.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_said_so(tmp_path: Path) -> None:
    path = data_file(tmp_path)
    path.chmod(0)
    with pytest.raises(UsageError, match="Permission denied"):
        Corpus(path)


def test_a_file_shorter_than_a_window_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="less than one window of 11 bytes"):
        drawn(
            Corpus(data_file(tmp_path, b"0123456789")),
            seed=0,
            step=0,
            batch_size=1,
            window_bytes=11,
        )


@pytest.mark.parametrize("change", ["grow", "cut", "replace", "delete"])
def test_a_file_that_changes_while_in_use_is_noticed(tmp_path: Path, change: str) -> None:
    path = data_file(tmp_path)
    data = Corpus(path)
    drawn(data, seed=0, step=0, batch_size=1, window_bytes=4)
    if change == "grow":
        path.write_bytes(path.read_bytes() + b"more")
    elif change == "cut":
        os.truncate(path, 5)
    elif change == "replace":
        (tmp_path / "other").write_bytes(path.read_bytes())
        os.replace(tmp_path / "other", path)
    else:
        path.unlink()
    with pytest.raises(EnvironmentProblem, match="changed while it was in use"):
        drawn(data, seed=0, step=1, batch_size=1, window_bytes=4)


def test_without_data_the_standard_library_is_made_into_a_corpus_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VRAMCAST_CACHE", str(tmp_path))
    path = default_corpus()
    assert path.is_relative_to(tmp_path)
    assert 2e6 < path.stat().st_size < 2e7
    assert path.read_bytes().count(DELIMITER) > 100
    made = path.stat().st_mtime_ns
    assert default_corpus() == path
    assert path.stat().st_mtime_ns == made


def test_a_python_without_sources_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("pass")
    with pytest.raises(EnvironmentProblem, match="--data"):
        standard_library_text(tmp_path)
