"""The data that models are trained on: the bytes of one file, and the batches drawn from it.

A batch depends only on the seed and the step, so every model sees the same batches, and so does a
run that was interrupted.
"""

import hashlib
import mmap
import os
import platform
import sysconfig
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.records.bench import BenchTrial, DataIdentity
from vramcast.records.store import (
    cache_folder,
    check_trusted,
    open_regular,
    write_atomically,
)
from vramcast.units import MiB, format_bytes

DELIMITER = 0x1E  # this byte is between documents
# Of a larger file only samples are hashed.
MAX_WHOLE_HASH_BYTES = 256 * MiB
NUM_SAMPLES, SAMPLE_BYTES = 256, 65536
# how often windows that cross into another document are redrawn
MAX_DRAWS = 1000
# Folders that are not Python's own code, that hold tables, or that some distributions leave out.
LEFT_OUT = {
    *("site-packages", "dist-packages", "test", "tests", "idlelib", "encodings", "pydoc_data"),
    *("lib2to3", "distutils", "turtledemo", "ensurepip", "tkinter", "__pycache__"),
}
MIN_CORPUS_BYTES = MiB

Bytes = npt.NDArray[np.uint8]


class Corpus:
    """A memory-mapped file, which must not change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._state = _state(path)
            self.size_bytes = self._state[0]
            with open_regular(path) as file:
                mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        except (OSError, ValueError) as problem:
            why = getattr(problem, "strerror", None) or problem
            raise UsageError(
                f"The data file {path} cannot be read: {why}.",
                "Give one file with text or other bytes to --data; "
                "the byte 0x1e delimits documents in it.",
            ) from None
        # Otherwise the kernel reads far ahead, and a batch from a file of 1.3 TB takes 2 s instead
        # of 2 ms.
        mapped.madvise(mmap.MADV_RANDOM)
        self._bytes: Bytes = np.frombuffer(mapped, dtype=np.uint8)

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

    def batch(self, trial: BenchTrial, step: int) -> Bytes:
        """Windows [batch_size, seq_len + 1] at random places."""
        window_bytes = trial.protocol.seq_len + 1
        self.check_window(window_bytes)
        self.check_unchanged()
        # A generator's raw bits are the same in all versions of numpy; numbers in a range may not
        # be.
        bits = np.random.PCG64(np.random.SeedSequence([trial.seed, step]))
        num_starts = np.uint64(self.size_bytes - window_bytes + 1)
        all_windows = np.lib.stride_tricks.sliding_window_view(self._bytes, window_bytes)

        def draw(count: int) -> Bytes:
            drawn: Bytes = all_windows[(bits.random_raw(count) % num_starts).astype(np.int64)]
            return drawn

        windows = draw(trial.batch_size)
        for _ in range(MAX_DRAWS):
            is_asked = trial.protocol.respect_documents
            crossing = np.flatnonzero(is_asked and (windows == DELIMITER).any(axis=1))
            if not len(crossing):
                self.check_unchanged()
                return windows
            # All windows within a document stay equally likely.
            windows[crossing] = draw(len(crossing))
        raise UsageError(
            f"Hardly any document in {self.path} is as long as a window of {window_bytes} bytes "
            f"({MAX_DRAWS} places tried).",
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
        except OSError:
            unchanged = False
        if not unchanged:
            raise EnvironmentProblem(
                f"The data file {self.path} was changed while it was in use.",
                "What was trained on it is not comparable: train again into another folder.",
            )


def _state(path: Path) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns, status.st_ino


def default_corpus() -> Path:
    """Python's standard library as one file. Runs on it are comparable under one version of
    Python."""
    path = cache_folder() / "corpora" / f"python-{platform.python_version()}.bin"
    if not path.is_file():
        write_atomically(path, standard_library_text(Path(sysconfig.get_path("stdlib"))))
    check_trusted(path)
    return path


def standard_library_text(folder: Path) -> bytes:
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
