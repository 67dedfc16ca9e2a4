"""Weights that a program saves go to a scratch folder, from which it can load them again.

A checkpoint would be gigabytes of zeros, and might replace a real one. Files of torch.save and
safetensors go into a scratch folder, which is removed at the end. Folders that the program makes
for weights are removed too: a later training would take them for checkpoints.
"""

import contextlib
import functools
import hashlib
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from math import prod
from pathlib import Path
from typing import Any

import torch

from vramcast.processes.lifetime import is_task
from vramcast.programs.after_import import after_import
from vramcast.programs.scratch import put_back, set_aside
from vramcast.programs.watching import Watcher, Wrap, replaced
from vramcast.workload.tracebacks import shown_path

# A file with this text stands for the file in the scratch folder that it names.
STUB = b"vramcast did not write these weights: "
MOST_NAMED, SMALL_BYTES = 3, 1 << 20
VALUES_BYTES = 64 << 10  # the same limit as for torch.save on the simulated GPU


class Saved:
    """The files that a program has saved, by the path that it gave."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._kept: dict[str, Path] = {}
        self._stand_ins: set[str] = set()
        self._made_folders: set[str] = set()
        # files that the program has opened for writing, and small weights that it got as bytes
        self._written: set[str] = set()
        self._given: dict[bytes, int] = {}
        self.names: list[str] = []

    def place_for(self, path: Any) -> Path:
        real = os.path.realpath(os.fspath(path))
        if os.path.isdir(real):
            raise IsADirectoryError(21, "Is a directory", str(path))
        if not os.path.lexists(real):
            open(real, "xb").close()  # fails where the program's own call would
            self._stand_ins.add(real)
        place = self._kept.setdefault(real, self._new_place())
        if real not in self.names:
            self.names.append(real)
        return place

    def watch_opened(self, event: str, arguments: Any) -> None:
        """An audit hook. Weights that a program writes by itself are removed at the end."""
        if event != "open" or not isinstance(arguments[0], str) or not is_task():
            return
        if not isinstance(arguments[2], int) or not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        path = os.path.realpath(arguments[0])
        if path.startswith(("/dev/", "/proc/", f"{self._scratch}{os.sep}")):
            return
        if arguments[2] & os.O_TRUNC and self._holds_weights(path):
            self.set_aside(path)
        self._written.add(path)

    # Python looks up this attribute at each of many events, and a failing lookup is slow
    watch_opened.__cantrace__ = False  # type: ignore[attr-defined]

    def set_aside(self, path: Any) -> None:
        real = os.path.realpath(os.fspath(path))
        if real not in self._written:  # a file that the program itself wrote may be lost
            set_aside(real, self._scratch)

    def _holds_weights(self, path: str) -> bool:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            return file.read(2) in (b"PK", b"\x80\x02")
        return False

    def give(self, data: bytes) -> bytes:
        self._given[hashlib.sha256(data).digest()] = len(data)
        return data

    def is_ours(self, path: str) -> bool:
        """Whether the program has written weights there that it got as bytes."""
        with contextlib.suppress(OSError), open(path, "rb") as file:
            data = file.read(len(STUB))
            if data == STUB or os.path.getsize(path) not in self._given.values():
                return data == STUB
            return hashlib.sha256(data + file.read()).digest() in self._given
        return False

    def _find_ours(self) -> set[str]:
        found = {path for path in self._written if self.is_ours(path)}
        self.names += sorted(found.difference(self.names))
        return found

    def place_for_stub(self) -> tuple[Path, bytes]:
        place = self._new_place()
        return place, STUB + place.name.encode() + b"\n"

    def _new_place(self) -> Path:
        return self._scratch / f"{len(list(self._scratch.iterdir()))}-{len(self._kept)}"

    def found(self, file: Any) -> Any:
        """What to read instead of this path or open file. It may be the same."""
        if isinstance(file, str | os.PathLike):
            place = self._kept.get(os.path.realpath(os.fspath(file)))
            if place is not None:
                return place
            with contextlib.suppress(OSError), open(file, "rb") as opened:
                return self._behind_stub(opened.read(len(STUB) + 64)) or file
            return file
        if hasattr(file, "read") and hasattr(file, "seek"):
            with contextlib.suppress(OSError, ValueError, TypeError):
                position = file.tell()
                begin = file.read(len(STUB) + 64)
                file.seek(position)
                return self._behind_stub(begin) or file
        return file

    def _behind_stub(self, begin: bytes) -> Path | None:
        if not isinstance(begin, bytes) or not begin.startswith(STUB):
            return None
        name = begin[len(STUB) :].split(b"\n")[0].decode(errors="replace")
        place = self._scratch / os.path.basename(name)
        return place if place.is_file() else None

    def moved(self, source: Any, target: Any) -> None:
        """Follows the program's renaming of a file or folder."""
        old, new = (os.path.realpath(os.fspath(one)) for one in (source, target))
        for path in [*self._kept]:
            if path == old or path.startswith(old + os.sep):
                renamed = new + path[len(old) :]
                self._kept[renamed] = self._kept.pop(path)
                names = [renamed if name == path else name for name in self.names]
                self.names = list(dict.fromkeys(names))
        for paths in (self._stand_ins, self._made_folders, self._written):
            for path in [*paths]:
                if path == old or path.startswith(old + os.sep):
                    paths.remove(path)
                    paths.add(new + path[len(old) :])

    def made_folders(self) -> frozenset[str]:
        return frozenset(self._made_folders)

    def made_folder(self, path: Any) -> None:
        if is_task():
            self._made_folders.add(os.path.realpath(os.fspath(path)))

    def owns(self, path: Any) -> bool:
        """Whether this path is an empty file that we made."""
        return os.path.realpath(os.fspath(path)) in self._stand_ins

    def remove_stand_ins(self, but: Collection[str] = ()) -> None:
        """With the folders that were made for weights, but not these."""
        if not is_task():
            return
        for path in self._find_ours():
            with contextlib.suppress(OSError):
                os.unlink(path)
        for path in self._stand_ins:
            with contextlib.suppress(OSError):
                if os.path.getsize(path) == 0:
                    os.unlink(path)
        put_back(self._scratch, for_new=False)
        for folder in self._made_folders.intersection(map(os.path.dirname, self.names)) - {*but}:
            with contextlib.suppress(OSError):
                if not os.path.samefile(folder, "."):
                    shutil.rmtree(folder)

    def note(self) -> str:
        self._find_ours()
        if not self.names:
            return ""
        shown = ", ".join(shown_path(name) for name in self.names[:MOST_NAMED])
        more = len(self.names) - MOST_NAMED
        return f"weights were not written: {shown}" + (f" and {more} more" if more > 0 else "")


@contextmanager
def not_writing_weights(watcher: Watcher, scratch: Path) -> Iterator[Saved]:
    saved = Saved(scratch)
    with ExitStack() as stack:
        stack.callback(saved.remove_stand_ins)
        sys.addaudithook(saved.watch_opened)
        stack.enter_context(replaced(torch, "save", _save(saved, watcher)))
        stack.enter_context(replaced(torch, "load", _load(saved)))
        for name in ("rename", "replace"):
            stack.enter_context(replaced(os, name, _rename(saved)))
        stack.enter_context(replaced(os, "mkdir", _mkdir(saved)))
        patches: dict[str, Callable[[], None]] = {
            "safetensors": lambda: _patch_safe_open(saved),
            "safetensors.torch": lambda: _patch_safetensors(saved, watcher),
        }
        stack.enter_context(after_import(patches, lambda name: patches[name]()))
        yield saved


def _around(call: Callable[..., Any]) -> Wrap:
    """Wraps a function: calls `call` with the original as its first argument."""
    return lambda original: functools.wraps(original)(functools.partial(call, original))


def _save(saved: Saved, watcher: Watcher) -> Wrap:
    def save(original: Any, obj: Any, f: Any, *arguments: Any, **options: Any) -> None:
        with watcher.saving():
            if isinstance(f, str | os.PathLike):
                original(obj, saved.place_for(f), *arguments, **options)
                return
            place, stub = saved.place_for_stub()
            original(obj, place, *arguments, **options)
            # Before training, a program saves prepared data, which the next run will read. Later, a
            # small object, such as the state of a random generator, may be read as bytes.
            if not watcher.num_backwards:
                f.write(place.read_bytes())
                place.unlink()
            elif place.stat().st_size < SMALL_BYTES:
                f.write(saved.give(place.read_bytes()))
                place.unlink()
            else:
                f.write(stub)

    return _around(save)


def _load(saved: Saved) -> Wrap:
    return _around(lambda original, f, *more, **options: original(saved.found(f), *more, **options))


def _rename(saved: Saved) -> Wrap:
    def rename(original: Any, src: Any, dst: Any, **options: Any) -> None:
        is_path = isinstance(src, str | os.PathLike) and isinstance(dst, str | os.PathLike)
        if is_path and saved.owns(src) and os.path.lexists(dst) and not saved.owns(dst):
            # the real file that it would replace stays
            os.unlink(src)
        else:
            if is_path and os.path.isfile(dst) and saved.is_ours(src):
                saved.set_aside(dst)
            original(src, dst, **options)
        if is_path:
            saved.moved(src, dst)

    return _around(rename)


def _mkdir(saved: Saved) -> Wrap:
    def mkdir(original: Any, path: Any, *arguments: Any, **options: Any) -> None:
        original(path, *arguments, **options)
        if not options.get("dir_fd"):
            saved.made_folder(path)

    return _around(mkdir)


def _patch_safe_open(saved: Saved) -> None:
    original = sys.modules["safetensors"].safe_open
    replace_everywhere(original, _load(saved)(original))


def _patch_safetensors(saved: Saved, watcher: Watcher) -> None:
    module: Any = sys.modules["safetensors.torch"]
    load_file = module.load_file

    def save(tensors: dict[str, Any], filename: Any, metadata: Any = None) -> None:
        with watcher.saving():
            _write_with_gaps(saved.place_for(filename), tensors, metadata)

    replace_everywhere(module.save_file, save)
    replace_everywhere(load_file, _load(saved)(load_file))


def replace_everywhere(original: Any, replacement: Any) -> None:
    """Replaces a function in all modules: libraries that were imported before have their own names
    for it."""
    for module in [*sys.modules.values()]:
        names = getattr(module, "__dict__", {})
        for name in [name for name, value in [*names.items()] if value is original]:
            names[name] = replacement


def _write_with_gaps(place: Path, tensors: dict[str, Any], metadata: Any) -> None:
    """Writes a safetensors file of the right size, but with the values of small tensors only: a
    program may read from them how far it was."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    names = {dtype: name for name, dtype in sys.modules["safetensors.torch"]._TYPES.items()}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + prod(tensor.shape) * tensor.element_size()
        dtype = names[tensor.dtype]
        header[name] = {"dtype": dtype, "shape": [*tensor.shape], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(place, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
        for name, tensor in tensors.items():
            begin, end = header[name]["data_offsets"]
            if end - begin < VALUES_BYTES:
                file.seek(8 + len(text) + begin)
                numbers = tensor.detach().cpu().reshape(-1).view(torch.uint8)
                file.write(numbers.numpy().tobytes())
        file.seek(0, io.SEEK_END)
