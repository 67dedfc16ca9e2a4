"""Imports of many modules in less time: a compiled step imports 2,600.

Their dataclasses take a tenth of that time, because Python compiles the methods of each anew. Their
code is kept in vramcast's cache, by its text and for one version of Python, as Python itself keeps
the code of modules.
"""

import dataclasses
import functools
import gc
import hashlib
import importlib.util
import inspect
import marshal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from vramcast.errors import VramcastError
from vramcast.records.store import cache_folder, check_trusted, read_file, write_atomically

# Whose dataclasses are many and always the same.
PACKAGES = ("torch", "torchgen", "triton", "vramcast", "vramcast_zoo")
MOST_TEXTS = 20_000
DIGEST_BYTES = 32


Block = Callable[[], AbstractContextManager[None]]


def _shared(block: Block) -> Block:
    """Of several blocks that overlap, within each other or in several threads, only the first one's
    beginning and the last one's end do something."""
    lock, opened = threading.RLock(), list[ExitStack]()

    @contextmanager
    def shared() -> Iterator[None]:
        with lock:
            stack = opened[0] if opened else ExitStack()
            if not opened:
                stack.enter_context(block())
            opened.append(stack)
        try:
            yield
        finally:
            with lock:
                opened.pop()
                if not opened:
                    stack.close()

    return shared


@_shared
@contextmanager
def no_collections() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _quick_dataclasses() -> Iterator[None]:
    kept = KeptCode.in_use()
    # the module finds its own name before the built-in one
    dataclasses.exec = kept.exec  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del dataclasses.exec  # type: ignore[attr-defined]
        kept.keep()


class KeptCode:
    """The code of texts that were executed before, in one file. Each time it is new: Dynamo knows
    functions by their code, so no two may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, bytes] | None = None
        self._fresh: dict[str, bytes] = {}

    @staticmethod
    def in_use() -> "KeptCode":
        """That of this version of Python, read once in a process and known to its forks."""
        version = f"{sys.implementation.cache_tag}-{importlib.util.MAGIC_NUMBER.hex()}"
        return _opened(cache_folder() / "dataclasses" / f"{version}.bin")

    def exec(self, text: str, variables: dict[str, Any], names: dict[str, Any]) -> None:
        if str(variables.get("__name__")).partition(".")[0] in PACKAGES:
            exec(marshal.loads(self._code(text)), variables, names)
        else:
            exec(text, variables, names)

    def _code(self, text: str) -> bytes:
        if self._known is None:
            self._known = self._read()
        code = self._known.get(text)
        if code is None:
            code = marshal.dumps(compile(text, "<string>", "exec", dont_inherit=True))
            self._known[text] = self._fresh[text] = code
        return code

    def keep(self) -> None:
        """Writes what is new. If that fails, it is compiled again next time."""
        fresh, self._fresh = self._fresh, {}
        if not fresh:
            return
        codes = self._read() | fresh  # other processes write too
        content = marshal.dumps(codes if len(codes) <= MOST_TEXTS else fresh)
        with suppress(VramcastError):
            write_atomically(self._path, hashlib.sha256(content).digest() + content)

    def _read(self) -> dict[str, bytes]:
        """Empty if another user could have written the file, or if it is not whole."""
        try:
            check_trusted(self._path)
            content = read_file(self._path)
        except (VramcastError, OSError):
            return {}
        digest, codes = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
        if hashlib.sha256(codes).digest() != digest:
            return {}
        found: dict[str, bytes] = marshal.loads(codes)  # as keep() wrote it
        return found


_opened = functools.cache(KeptCode)


@contextmanager
def _quick_modules_of_frames() -> Iterator[None]:
    """torch asks for the module of each function that registers an operator. Python looks through
    the files of all modules for it."""
    getmodule: Callable[..., types.ModuleType | None] = inspect.getmodule

    def quick_getmodule(asked: Any, file: str | None = None) -> types.ModuleType | None:
        if isinstance(asked, types.FrameType):
            module = sys.modules.get(asked.f_globals.get("__name__", ""))
            if module is not None and vars(module) is asked.f_globals:
                return module
        return getmodule(asked, file)

    inspect.getmodule = quick_getmodule  # type: ignore[assignment]
    try:
        yield
    finally:
        inspect.getmodule = getmodule


@_shared
@contextmanager
def quick_imports() -> Iterator[None]:
    """For a block that imports torch or parts of it. Garbage collections would take a fifth of the
    time: the objects of modules stay alive."""
    with no_collections(), _quick_dataclasses(), _quick_modules_of_frames():
        yield
