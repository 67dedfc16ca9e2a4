"""Where a workload is: `path/to/file.py:function`, `package.module:function`, or a registered name.

Everything that needs no import of the user's code is checked here, in the parent process, so that a
mistyped name is reported at once, not after a worker has imported torch.
"""

import contextlib
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError, WorkloadError
from vramcast.records.store import read_file
from vramcast.text import did_you_mean

# A function, its name, or the words of the line that starts a program.
Workload = str | Callable[..., Any] | Sequence[str]

FORMS = (
    "Give path/to/file.py:function, package.module:function, or a name that `vramcast zoo` lists, "
    "such as hf:gpt2."
)
FEW_FILES = 12
MAX_SOURCE_BYTES = 64 << 20
ENTRY_POINT_GROUP = "vramcast.workloads"
DEFAULT_FUNCTION = "build"
# By the word before the colon: the module whose attributes are the models by name.
KNOWN_MODELS = {name: f"vramcast_zoo.known.{name}" for name in ("hf", "timm", "torchvision")}

# By name: `package.module:function`.
_registered: dict[str, str] = {}


@dataclass(frozen=True)
class WorkloadReference:
    """A function of a file or of a module; `text` is what the user wrote."""

    text: str
    function: str
    path: Path | None = None
    module: str | None = None

    def __str__(self) -> str:
        return self.text

    @property
    def is_known_model(self) -> bool:
        """Whether it is a name such as hf:gpt2, whose `function` is gpt2."""
        return self.module in KNOWN_MODELS.values()

    @property
    def portable(self) -> str:
        """A name that any process understands: registered names may be known only in this one."""
        return self.text if self.path or self.is_known_model else f"{self.module}:{self.function}"

    def file_hash(self) -> str | None:
        """The hash of the user's file as it is now. None for a module."""
        if self.path is None:
            return None
        import hashlib  # imported here and below, because it is slow and not needed for an error

        return hashlib.sha256(read_file(self.path, MAX_SOURCE_BYTES)).hexdigest()


def parse_reference(text: str) -> WorkloadReference:
    text = text.strip()
    if not text:
        raise WorkloadError("The workload's name is empty.", FORMS)
    source, _, model = text.partition(":")
    if source in KNOWN_MODELS:
        return _known_model(text, source, model.strip())
    target, colon, function = text.rpartition(":")
    if not colon or "/" in function:  # a folder's name may have a colon
        target, colon, function = text, "", DEFAULT_FUNCTION
    if not function:
        raise WorkloadError(
            f"{text!r} names no function after the colon.",
            f"Write the function's name, for example {text}build.",
        )
    if not function.isidentifier():
        raise WorkloadError(f"{function!r} in {text!r} is not a function's name.", FORMS)
    if _looks_like_a_file(target):
        return WorkloadReference(text, function, path=_existing_file(target))
    if not colon:
        target, _, function = _target_of(text).partition(":")
    elif not is_module_name(target):
        raise WorkloadError(
            f"{target!r} in {text!r} is neither a .py file nor a module's name.", FORMS
        )
    return WorkloadReference(text, function, module=target)


def _known_model(text: str, source: str, model: str) -> WorkloadReference:
    """A known model. Its name is checked here, if that needs no library."""
    from vramcast_zoo.known.catalogue import check

    with refusals():
        check(source, model)
    return WorkloadReference(text, model, module=KNOWN_MODELS[source])


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Raises what a model of the zoo refuses as wrong usage, in the model's own words."""
    from vramcast_zoo.refusal import Refused

    try:
        yield
    except Refused as refused:
        raise WorkloadError(refused.message, refused.advice) from None


def _looks_like_a_file(target: str) -> bool:
    # A folder without a slash in its name may be a package, so it is no path here.
    if target.endswith(".py") or target.startswith("~"):
        return True
    return ("/" in target or os.path.isfile(target)) and find_registered(target) is None


def _target_of(name: str) -> str:
    if target := find_registered(name):
        return target
    if os.path.isdir(name):
        raise _is_a_folder(name)
    known = registered_workloads()
    hint = did_you_mean(name, known) or _known_models_like(name)
    others = ", ".join(one for one in known if one not in _from_zoo())
    advice = f"{hint}{f'Registered names: {others}. ' if others else ''}{FORMS}"
    if os.path.isfile(f"{name}.py"):
        advice = f"There is a file {name}.py: write {name}.py:{DEFAULT_FUNCTION}."
    raise WorkloadError(f"There is no workload named {name!r}.", advice)


def _known_models_like(name: str) -> str:
    """A sentence to begin an advice with. Empty if no known model has a similar name."""
    from vramcast_zoo.known.catalogue import all_names, close_names

    close = close_names(name, all_names(), most=2)
    return f"Did you mean {' or '.join(f'hf:{one}' for one in close)}? " if close else ""


def _existing_file(target: str) -> Path:
    shown = os.path.expanduser(target)
    if os.path.isdir(shown):
        raise _is_a_folder(target)
    if os.path.exists(shown) and not os.path.isfile(shown):
        raise WorkloadError(f"{target!r} is a device or a pipe, not a Python file.", FORMS)
    if not os.path.isfile(shown):
        raise WorkloadError(
            f"There is no file {target!r} (looked for {os.path.abspath(shown)}).",
            _advice_for_missing(shown),
        )
    if not shown.endswith(".py"):
        raise WorkloadError(f"{target!r} is not a Python file: it does not end in .py.", FORMS)
    check_size(shown)
    # As Python does for a script: a linked file imports the neighbours of the real file, not of the
    # link.
    return Path(shown).resolve()


def check_size(path: str) -> None:
    if (num_bytes := os.path.getsize(path)) > MAX_SOURCE_BYTES:
        raise WorkloadError(
            f"{path!r} has {num_bytes:,} bytes: no Python file has so many.", "Correct the path."
        )


def _is_a_folder(target: str) -> WorkloadError:
    advice = _files_in(os.path.expanduser(target)) or FORMS
    return WorkloadError(f"{target!r} is a folder, not a Python file.", advice)


def _advice_for_missing(path: str) -> str:
    folder = os.path.dirname(path) or "."
    if not path.endswith(".py") and (hint := _known_models_like(path)):
        return f"{hint}{FORMS}"
    if not os.path.isdir(folder):
        return f"The folder {folder!r} does not exist either: check the path."
    hint = did_you_mean(os.path.basename(path), _python_files(folder))
    return hint + (_files_in(folder) or "Check the path.")


def _files_in(folder: str) -> str:
    names = _python_files(folder)
    if not names:
        return f"The folder {folder!r} has no .py files."
    return f"Python files in {folder!r}: {', '.join(names)}." if len(names) <= FEW_FILES else ""


def _python_files(folder: str) -> list[str]:
    # empty for a folder that cannot be read
    return sorted({path.name for path in Path(folder).glob("*.py")} - {"__init__.py"})


def name_of(workload: Workload) -> str:
    """The name by which a worker process finds the workload again. A function is found by its
    file."""
    if isinstance(workload, str):
        return workload
    if isinstance(workload, list | tuple):
        from vramcast.workload.launch_line import launch_line

        return str(launch_line(workload))
    if not callable(workload):
        raise UsageError(
            f"A workload is a function or its name, not {type(workload).__name__}.",
            'For example predict("train.py:build").',
        )
    name, file = getattr(workload, "__qualname__", ""), None
    with contextlib.suppress(TypeError):
        file = inspect.getsourcefile(workload)
    if not file or not os.path.exists(file) or not name.isidentifier():
        raise UsageError(
            f"The function {name or workload!r} cannot be loaded again in the worker process: "
            "it is not at the top level of a file.",
            'Put it at the top level of a .py file and pass it, or its name as "file.py:function".',
        )
    return f"{file}:{name}"


def register(name: str, target: str) -> None:
    """Names a workload: `register("my-gpt", "my_package.train:build")`. Nothing is imported yet."""
    if not name.strip() or ":" in name:
        raise WorkloadError(
            f"A workload cannot be registered under the name {name!r}.",
            "Choose a name that is not empty and has no ':'.",
        )
    module, _, function = target.partition(":")
    if not is_module_name(module) or not function.isidentifier():
        raise WorkloadError(
            f"The workload {name!r} is registered for {target!r}, "
            "which is not 'package.module:function'."
        )
    known = _registered.setdefault(name, target)
    if known != target:
        raise WorkloadError(
            f"The workload name {name!r} is taken by {known} and cannot also mean {target}.",
            "Register it under another name.",
        )


def find_registered(name: str) -> str | None:
    # Entry points come last: they read the metadata of every installed package.
    return _registered.get(name) or _from_zoo().get(name) or _from_entry_points().get(name)


def registered_workloads() -> dict[str, str]:
    """Every known name, sorted. Names registered in code win over the zoo's, and those over entry
    points."""
    return dict(sorted({**_from_entry_points(), **_from_zoo(), **_registered}.items()))


def is_module_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _from_zoo() -> dict[str, str]:
    """The zoo's names. They are not entry points, because vramcast may run without being
    installed."""
    from vramcast_zoo.catalogue import NAMES

    return NAMES


@cache
def _from_entry_points() -> dict[str, str]:
    from importlib import metadata  # slow to import, and rarely needed

    # A mistake of one package must not hide the names of all others.
    return {
        entry.name: f"{match['module']}:{match['attr'] or DEFAULT_FUNCTION}"
        for entry in metadata.entry_points(group=ENTRY_POINT_GROUP)
        if (match := entry.pattern.match(entry.value))
    }
