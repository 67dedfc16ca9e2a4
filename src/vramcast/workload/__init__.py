"""From the name of a workload to the function that does one training step.

    parse_reference   text -> where the function is (imports nothing of the user's)
    load_function     where it is -> the function (imports the user's file: only in a worker)
    bind_knobs        function and `key=value` -> checked keyword arguments
    check_step        what the function returned -> the step

No torch here: the command line's own process must stay light.
"""

from vramcast.workload.knobs import Text, bind_knobs, joined, separated, split_assignments, together
from vramcast.workload.loading import check_step, load_function
from vramcast.workload.reference import Workload, name_of, parse_reference, refusals, register
from vramcast.workload.tracebacks import user_traceback

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
