"""The data that models are trained on: the bytes of one file, and the batches drawn from it.

A batch depends only on the seed and the step. So every model sees the same batches, and a run that
is continued sees those that an uninterrupted run would have seen.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import platform
import sysconfig
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.records.bench import DataIdentity
from vramcast.records.store import cache_folder, write_atomically
from vramcast.units import MiB, format_bytes

DELIMITER = 0x1E  # between documents
# The hash of a larger file is of samples from it.
MAX_WHOLE_HASH_BYTES = 256 * MiB
NUM_SAMPLES, SAMPLE_BYTES = 256, 65536
# How often windows that cross into another document are drawn again.
MAX_DRAWS = 1000
# Parts of Python's standard library that are not its own code, are tables, or are packed
# separately by some distributions.
LEFT_OUT = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "encodings",
    "pydoc_data",
    "lib2to3",
    "distutils",
    "turtledemo",
    "ensurepip",
    "tkinter",
    "__pycache__",
}
MIN_CORPUS_BYTES = MiB

Bytes = npt.NDArray[np.uint8]


class Corpus:
    """A memory-mapped file of any size. Every batch checks that it is unchanged."""

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
        if self.size_bytes <= MAX_WHOLE_HASH_BYTES:
            kind, digest = "sha256", hashlib.sha256(self._bytes.data)
        else:
            kind, digest = "sampled-sha256", hashlib.sha256(self.size_bytes.to_bytes(8, "little"))
            last_start = self.size_bytes - SAMPLE_BYTES
            for start in np.linspace(0, last_start, NUM_SAMPLES, dtype=np.int64):
                digest.update(self._bytes[start : start + SAMPLE_BYTES].data)
        self.check_unchanged()
        return DataIdentity(
            name=self.path.name, size_bytes=self.size_bytes, hash=f"{kind}:{digest.hexdigest()}"
        )

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
        starts = RandomStarts(seed, step, self.size_bytes - window_bytes + 1)
        windows = self._windows(starts.next(batch_size), window_bytes)
        if respect_documents:
            self._stay_within_documents(windows, starts)
        self.check_unchanged()
        return windows

    def _windows(self, starts: npt.NDArray[np.int64], window_bytes: int) -> Bytes:
        all_windows = np.lib.stride_tricks.sliding_window_view(self._bytes, window_bytes)
        windows: Bytes = all_windows[starts]  # only these are copied
        return windows

    def _stay_within_documents(self, windows: Bytes, starts: RandomStarts) -> None:
        """Draw again those that cross into another document.

        So every window within a document is equally likely.
        """
        for _ in range(MAX_DRAWS):
            crossing = np.flatnonzero((windows == DELIMITER).any(axis=1))
            if not len(crossing):
                return
            windows[crossing] = self._windows(starts.next(len(crossing)), windows.shape[1])
        raise UsageError(
            f"Hardly any document in {self.path} is as long as a window of {windows.shape[1]} "
            f"bytes ({MAX_DRAWS} places tried).",
            "Leave --respect-documents out, or choose a protocol with a smaller seq_len.",
        )

    def check_window(self, window_bytes: int) -> None:
        if self.size_bytes < window_bytes:
            raise UsageError(
                f"The data file {self.path} has {format_bytes(self.size_bytes)}, "
                f"less than one window of {window_bytes} bytes.",
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
                "What was trained on it is not comparable. Leave the file as it is, and train "
                "again into another folder.",
            )


class RandomStarts:
    """Random starts of windows.

    They are made from the generator's raw bits, which numpy promises not to change between
    versions; it does not promise that of its ranges.
    """

    def __init__(self, seed: int, step: int, num_starts: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence([seed, step]))
        self._num_starts = np.uint64(num_starts)

    def next(self, count: int) -> npt.NDArray[np.int64]:
        # The remainder favours small numbers by less than 1 in ten million in a file of 1.3 TB.
        return (self._bits.random_raw(count) % self._num_starts).astype(np.int64)


def default_corpus() -> Path:
    """Python's own standard library, which every machine has, made into one file once.

    It depends on the version of Python. Its hash is in every result, so that runs on different
    versions are not compared.
    """
    path = cache_folder() / "corpora" / f"python-{platform.python_version()}.bin"
    if not path.exists():
        write_atomically(path, standard_library_text(Path(sysconfig.get_path("stdlib"))))
    return path


def standard_library_text(folder: Path) -> bytes:
    """The sources one after another, in the order of their names, delimited as documents."""
    files = sorted(
        path.relative_to(folder)
        for path in folder.rglob("*.py")
        if not LEFT_OUT & set(path.relative_to(folder).parts[:-1])
    )
    delimiter = bytes([DELIMITER])
    text = delimiter.join((folder / file).read_bytes().replace(delimiter, b"") for file in files)
    if len(text) < MIN_CORPUS_BYTES:
        raise EnvironmentProblem(
            f"Python's standard library in {folder} has only {len(text):,} bytes of sources: "
            "too few to train on.",
            "Give a file of your own with --data.",
        )
    return text


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
    # Without this the kernel reads far ahead of every window: from a file of 1.3 TB a batch then
    # takes 2 s instead of 2 ms.
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
