"""Workloads with a name: registered by code or by an installed package, or models of the zoo."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import metadata

from vramcast.errors import WorkloadError

ENTRY_POINT_GROUP = "vramcast.workloads"
DEFAULT_FUNCTION = "build"


@dataclass(frozen=True)
class RegisteredWorkload:
    name: str
    module: str
    function: str
    description: str = ""


_registered: dict[str, RegisteredWorkload] = {}


def register(name: str, target: str, description: str = "") -> RegisteredWorkload:
    """Give `module:function` a name of its own: `register("my-gpt", "my_package.train:build")`.

    Nothing is imported until the workload is used.
    """
    module, _, function = target.partition(":")
    if not name.strip() or ":" in name:
        raise WorkloadError(
            f"A workload cannot be registered under the name {name!r}.",
            "Choose a name that is not empty and has no ':'.",
        )
    if not is_module_name(module) or not function.isidentifier():
        raise WorkloadError(
            f"The workload {name!r} is registered for {target!r}, "
            "which is not 'package.module:function'."
        )
    workload = RegisteredWorkload(name, module, function, description)
    known = _registered.setdefault(name, workload)
    if (known.module, known.function) != (module, function):
        raise WorkloadError(
            f"The workload name {name!r} is taken by {known.module}:{known.function} "
            f"and cannot also mean {target}.",
            "Register it under another name.",
        )
    return known


def find_registered(name: str) -> RegisteredWorkload | None:
    # Entry points come last: they read the metadata of every installed package.
    return _registered.get(name) or _from_zoo().get(name) or _from_entry_points().get(name)


def registered_workloads() -> dict[str, RegisteredWorkload]:
    """Every known name, sorted. Code wins over the zoo, and the zoo over entry points."""
    return dict(sorted({**_from_entry_points(), **_from_zoo(), **_registered}.items()))


def is_module_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


@cache
def _from_zoo() -> dict[str, RegisteredWorkload]:
    """Not by entry points, because vramcast may run from its folder without being installed."""
    from vramcast_zoo.catalogue import NAMES

    targets = {name: target.partition(":") for name, target in NAMES.items()}
    return {
        name: RegisteredWorkload(name, module, function, "from the zoo")
        for name, (module, _, function) in targets.items()
    }


@cache
def _from_entry_points() -> dict[str, RegisteredWorkload]:
    found = {}
    for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
        module, function = _target_of(entry)
        origin = (
            f"from the package {entry.dist.name}" if entry.dist else "from an installed package"
        )
        # A mistake of one package must not hide the names of all others.
        if is_module_name(module):
            found[entry.name] = RegisteredWorkload(
                entry.name, module, function or DEFAULT_FUNCTION, origin
            )
    return found


def _target_of(entry: metadata.EntryPoint) -> tuple[str, str]:
    module, _, function = entry.value.partition("[")[0].partition(":")
    return module.strip(), function.strip()
