"""`timeout`, `nice`, `nohup` and the like: only the line after them is run."""

import os
from collections.abc import Sequence

from vramcast.errors import WorkloadError
from vramcast.workload import launchers
from vramcast.workload.launch_line import Program

# Options whose value is the next word.
OPTIONS_WITH_VALUE = {
    "timeout": ("-s", "--signal", "-k", "--kill-after"),
    "nice": ("-n", "--adjustment"),
    "ionice": ("-c", "--class", "-n", "--classdata"),
    "stdbuf": ("-i", "-o", "-e"),
    "numactl": ("-N", "-m", "-C", "-i", "-p", "-P"),
    "taskset": (),
    "nohup": (),
    "time": (),
}
# These have one word before the line: a duration, or a mask of processors.
WITH_OPERAND = ("timeout", "taskset")


def understands(words: Sequence[str]) -> bool:
    return os.path.basename(words[0]) in OPTIONS_WITH_VALUE


def read(words: Sequence[str], so_far: Program) -> Program:
    name = os.path.basename(words[0])
    position = 1
    while position < len(words) and words[position].startswith("-"):
        position += 2 if words[position] in OPTIONS_WITH_VALUE[name] else 1
    rest = words[position + (name in WITH_OPERAND) :]
    if not rest:
        raise WorkloadError(
            f"`{name}` starts no program.", f"For example {name} ... python train.py."
        )
    return launchers.read_line(rest, so_far)
