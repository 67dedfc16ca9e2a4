"""From the name of a workload to the function that does one training step.

Only `load_function` imports the user's file, in a worker.
No torch here: the command line's own process must stay light.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramcast.workload.knobs import (
        Text,
        bind_knobs,
        joined,
        separated,
        split_assignments,
        together,
    )
    from vramcast.workload.loading import check_step, load_function
    from vramcast.workload.reference import Workload, name_of, parse_reference, refusals, register
    from vramcast.workload.tracebacks import user_traceback

# Imported when they are first used, like vramcast's own names, so that an error is shown at once.
_HOME = {
    name: module
    for module, names in {
        "knobs": "Text bind_knobs joined separated split_assignments together",
        "loading": "check_step load_function",
        "reference": "Workload name_of parse_reference refusals register",
        "tracebacks": "user_traceback",
    }.items()
    for name in names.split()
}

__all__ = [
    "Text",
    "Workload",
    "bind_knobs",
    "check_step",
    "joined",
    "load_function",
    "name_of",
    "parse_reference",
    "refusals",
    "register",
    "separated",
    "split_assignments",
    "together",
    "user_traceback",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vramcast.workload' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"vramcast.workload.{_HOME[name]}"), name)
    return value
