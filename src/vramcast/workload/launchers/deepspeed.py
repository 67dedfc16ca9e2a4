"""`deepspeed [options] FILE`: one of its processes is run; an option tells it its number."""

import os
from collections.abc import Sequence

from vramcast.errors import WorkloadError
from vramcast.workload import launchers
from vramcast.workload.launch_line import Program
from vramcast.workload.launchers.torchrun import count, in_world

# Options from deepspeed/launcher/runner.py of DeepSpeed 0.18 and before.
_WITHOUT_VALUE = (
    "--module --no_python --no_local_rank --no_ssh --no_ssh_check --force_multi --save_pid "
    "--elastic_training --bind_cores_to_rank"
)
PER_NODE, CHOSEN = ("--num_gpus", "--num_accelerators"), ("-i", "--include")


def understands(words: Sequence[str]) -> bool:
    return os.path.basename(words[0]) == "deepspeed"


def read(words: Sequence[str], so_far: Program) -> Program:
    given: dict[str, str] = {}
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        if not equals and option not in _WITHOUT_VALUE.split():
            value = rest.pop(0) if rest else ""
        given[option] = value
    if not rest:
        raise WorkloadError(
            "deepspeed starts no program.", "For example deepspeed --num_gpus 8 train.py."
        )
    if "--no_local_rank" not in given:
        rest.insert(1, "--local_rank=0")
    command = ["-m", *rest] if "--module" in given else rest
    program = launchers.read_line(["python", *command], so_far)
    nodes, per_node = _processes(given)
    return in_world(program, nodes * per_node, per_node)


def _processes(given: dict[str, str]) -> tuple[int, int]:
    """Machines, and GPUs of each: as many as the machine has, if none are given; one is assumed."""
    nodes = count("deepspeed", "--num_nodes", given.get("--num_nodes", "1"))
    for option in (each for each in PER_NODE if each in given):
        return nodes, count("deepspeed", option, given[option])
    for option in (each for each in CHOSEN if each in given):
        machines = given[option].split("@")  # such as a:0,1@b:0,1
        return len(machines), len(machines[0].partition(":")[2].split(","))
    return nodes, 1
