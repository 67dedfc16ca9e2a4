"""Workloads with a name: registered by code or by an installed package, or models of the zoo."""

from functools import cache
from importlib import metadata

from vramcast.errors import WorkloadError

ENTRY_POINT_GROUP = "vramcast.workloads"
DEFAULT_FUNCTION = "build"

# By name: `package.module:function`.
_registered: dict[str, str] = {}


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
    """Every known name, sorted. Code wins over the zoo, and the zoo over entry points."""
    return dict(sorted({**_from_entry_points(), **_from_zoo(), **_registered}.items()))


def is_module_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _from_zoo() -> dict[str, str]:
    """Not by entry points, because vramcast may run from its folder without being installed."""
    from vramcast_zoo.catalogue import NAMES

    return NAMES


@cache
def _from_entry_points() -> dict[str, str]:
    # A mistake of one package must not hide the names of all others.
    return {
        entry.name: f"{match['module']}:{match['attr'] or DEFAULT_FUNCTION}"
        for entry in metadata.entry_points(group=ENTRY_POINT_GROUP)
        if (match := entry.pattern.match(entry.value))
    }
