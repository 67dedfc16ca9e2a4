"""`torchrun [options] FILE` and `torchrun -m MODULE`: one of its processes is run."""

import os
from collections.abc import Sequence
from dataclasses import replace

from vramcast.errors import WorkloadError
from vramcast.workload import launchers
from vramcast.workload.launch_line import Program
from vramcast.workload.world import MAX_WORLD_SIZE, rank_variables

# Options from torch/distributed/run.py of torch 2.13 and before.
_WITHOUT_VALUE = "standalone no-python run-path virtual-local-rank use-env"
_WITH_VALUE = (
    "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts role "
    "monitor-interval start-method event-log-handler log-dir redirects tee local-ranks-filter "
    "duplicate-stdout-filters duplicate-stderr-filters node-rank master-addr master-port "
    "local-addr logs-specs numa-binding signals-to-handle shutdown-timeout"
)
WITHOUT_VALUE, WITH_VALUE = (
    {f"--{name}" for name in names.split()} for names in (_WITHOUT_VALUE, _WITH_VALUE)
)
SHORT = {"-r": "--redirects", "-t": "--tee"}


def understands(words: Sequence[str]) -> bool:
    return os.path.basename(words[0]) == "torchrun"


def read(words: Sequence[str], so_far: Program) -> Program:
    per_node, nodes, is_module = 1, 1, False
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        name = _full_name(option)
        if name in ("-m", "--module"):
            is_module = True
            continue
        if name in WITHOUT_VALUE:
            continue
        if not equals:
            if not rest:
                raise WorkloadError(f"torchrun's option {option} has no value.", "Give it one.")
            value = rest.pop(0)
        if name == "--nproc-per-node":
            per_node = count("torchrun", option, value)
        elif name == "--nnodes":
            nodes = count("torchrun", option, value.rpartition(":")[2])
    if not rest:
        raise WorkloadError(
            "torchrun starts no program.", "For example torchrun --nproc-per-node 8 train.py."
        )
    command = ["-m", *rest] if is_module else rest
    return in_world(launchers.read_line(["python", *command], so_far), per_node * nodes, per_node)


def _full_name(option: str) -> str:
    """The option's full name. Like torchrun, it takes underscores and beginnings of names."""
    name = SHORT.get(option, option.replace("_", "-"))
    known = {"-m", "--module", *WITHOUT_VALUE, *WITH_VALUE}
    meant = [name] if name in known else [each for each in known if each.startswith(name)]
    if len(meant) != 1 or not name.startswith("--") and name != "-m":
        raise WorkloadError(
            f"torchrun's option {option} is not known.",
            "Correct it; options of the program come behind its file.",
        )
    return meant[0]


def in_world(program: Program, world_size: int, gpus_per_node: int) -> Program:
    """The first of so many processes, with the variables that torchrun sets."""
    if world_size > MAX_WORLD_SIZE:
        raise WorkloadError(
            f"The line starts {world_size:,} processes; at most {MAX_WORLD_SIZE:,} are simulated.",
            "Give fewer.",
        )
    variables = rank_variables(0, world_size, gpus_per_node)
    return replace(
        program,
        environment={**variables, **program.environment},
        world_size=world_size,
        gpus_per_node=gpus_per_node,
    )


def count(launcher: str, option: str, value: str) -> int:
    """The number of processes. `gpu` and `auto` mean as many as the machine has; one is assumed."""
    if value in ("gpu", "auto", "cpu", "xpu"):
        return 1
    if not value.isdecimal() or not 1 <= int(value[:9]) <= MAX_WORLD_SIZE:
        raise WorkloadError(
            f"{launcher}'s {option} is {value[:40]!r}, expected a whole number from 1.",
            f"For example {option} 8.",
        )
    return int(value)
