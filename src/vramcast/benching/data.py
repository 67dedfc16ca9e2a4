"""The bytes that models are trained on: one file, memory-mapped, of any size; batches depend on the seed and the step and nothing else.

So every model sees the same batches, and a run that is resumed sees those that an uninterrupted one would have.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.records.bench import DataIdentity
from vramcast.units import MiB, format_bytes

DELIMITER = 0x1E  # between documents
WHOLE_UP_TO_BYTES = 256 * MiB  # a larger file is not read whole for its hash
NUM_SAMPLES, SAMPLE_BYTES = 256, 65536
MOST_ROUNDS = 1000  # of looking for windows within a document

Bytes = npt.NDArray[np.uint8]


class Corpus:
    """A file open for reading. It must stay as it is while it is in use: that is checked with every batch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state = _state(path)
        self.size_bytes = self._state[0]
        if self.size_bytes == 0:
            raise UsageError(
                f"The data file {path} is empty.", "Give a file with text or other bytes to --data."
            )
        self._bytes = _map(path)

    def identity(self) -> DataIdentity:
        whole = self.size_bytes <= WHOLE_UP_TO_BYTES
        digest = hashlib.sha256()
        if not whole:
            digest.update(self.size_bytes.to_bytes(8, "little"))
        for piece in self._pieces(whole):
            digest.update(piece.tobytes())
        self.check_unchanged()
        return DataIdentity(
            name=self.path.name,
            size_bytes=self.size_bytes,
            hash=f"{'sha256' if whole else 'sampled-sha256'}:{digest.hexdigest()}",
        )

    def _pieces(self, whole: bool) -> Iterator[Bytes]:
        if whole:
            yield self._bytes
            return
        for start in np.linspace(0, self.size_bytes - SAMPLE_BYTES, NUM_SAMPLES, dtype=np.int64):
            yield self._bytes[start : start + SAMPLE_BYTES]

    def batch(
        self,
        *,
        seed: int,
        step: int,
        batch_size: int,
        window_bytes: int,
        respect_documents: bool = False,
    ) -> Bytes:
        """Windows [batch_size, window_bytes] at random places."""
        self.check_window(window_bytes)
        self.check_unchanged()
        places = Places(seed, step, self.size_bytes - window_bytes + 1)
        windows = self._windows(places(batch_size), window_bytes)
        if respect_documents:
            self._stay_within_documents(windows, places)
        self.check_unchanged()
        return windows

    def _windows(self, starts: npt.NDArray[np.int64], window_bytes: int) -> Bytes:
        windows: Bytes = np.lib.stride_tricks.sliding_window_view(self._bytes, window_bytes)[
            starts
        ]  # copies these alone
        return windows

    def _stay_within_documents(self, windows: Bytes, places: Places) -> None:
        """Those that cross into another document are drawn again until none does: every window within a document is equally likely."""
        for _ in range(MOST_ROUNDS):
            crossing = np.flatnonzero((windows == DELIMITER).any(axis=1))
            if not len(crossing):
                return
            windows[crossing] = self._windows(places(len(crossing)), windows.shape[1])
        raise UsageError(
            f"Hardly any document in {self.path} is as long as a window of {windows.shape[1]} bytes ({MOST_ROUNDS} places tried).",
            "Leave --respect-documents out, or choose a protocol with a smaller seq_len.",
        )

    def check_window(self, window_bytes: int) -> None:
        if self.size_bytes < window_bytes:
            raise UsageError(
                f"The data file {self.path} has {format_bytes(self.size_bytes)}, less than one window of {window_bytes} bytes.",
                "Give a larger file to --data, or choose a protocol with a smaller seq_len.",
            )

    def check_unchanged(self) -> None:
        try:
            unchanged = _state(self.path) == self._state
        except UsageError:
            unchanged = False
        if not unchanged:
            raise EnvironmentProblem(
                f"The data file {self.path} was changed while it was in use.",
                "What was trained on it is not comparable. Leave the file as it is, and train again into another folder.",
            )


class Places:
    """Random starts of windows. Raw numbers of the bit generator: numpy promises them across its versions, of its ranges it does not."""

    def __init__(self, seed: int, step: int, num_starts: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence([seed, step]))
        self._num_starts = np.uint64(num_starts)

    def __call__(self, count: int) -> npt.NDArray[np.int64]:
        # the remainder favours small ones by less than 1 in ten million, for a file of 1.3 TB
        return (self._bits.random_raw(count) % self._num_starts).astype(np.int64)


def _map(path: Path) -> Bytes:
    try:
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    except (OSError, ValueError) as problem:
        what = problem.strerror if isinstance(problem, OSError) else problem
        raise UsageError(
            f"The data file {path} cannot be read: {what}.",
            "Give a regular file that you may read.",
        ) from None
    # the kernel would else read far ahead of every window: a batch out of 1.3 TB takes 2 ms with this and 2 s without
    mapped.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(mapped, dtype=np.uint8)


def _state(path: Path) -> tuple[int, int, int]:
    """What changes with the file: size, time of the last change, and which file it is."""
    try:
        status = os.stat(path)
    except OSError as problem:
        raise UsageError(
            f"The data file {path} cannot be read: {problem.strerror}.",
            "Check the path given to --data.",
        ) from None
    if not path.is_file():
        raise UsageError(
            f"The data file {path} is not a regular file.",
            "Give one file: documents are delimited in it by the byte 0x1e.",
        )
    return status.st_size, status.st_mtime_ns, status.st_ino
