"""`srun`, `mpirun` and the like: the line after them, as one of the processes that they start."""

import os
from collections.abc import Sequence
from dataclasses import replace

from vramcast.errors import WorkloadError
from vramcast.workload import launchers
from vramcast.workload.launch_line import Program
from vramcast.workload.launchers.torchrun import count, in_world

# Options without a value. The value of others is the next word, or follows "=".
_SRUN = (
    "-E -H -I -K -O -Q -X -k -l -s -u -v --contiguous --disable-status --exact --exclusive -W0 "
    "--kill-on-bad-exit --label --multi-prog --no-kill --no-requeue --overcommit --overlap --pty "
    "--preserve-env --quiet --reboot --spread-job --unbuffered --use-min-nodes --verbose "
    "--oversubscribe --hold --immediate --test-only"
)
_MPI = (
    "--allow-run-as-root --bind-to-core --bind-to-socket --bycore --bynode --byslot --display-map "
    "--nolocal --nooversubscribe --oversubscribe --quiet --report-bindings --tag-output --verbose "
    "-allow-run-as-root -l -q -v"
)
WITHOUT_VALUE = {"srun": _SRUN, "mpirun": _MPI, "mpiexec": _MPI, "composer": "-v --verbose"}
PROCESSES = ("-n", "-np", "--ntasks", "--np", "-c", "--nproc")
NODES, PER_NODE = ("-N", "--nodes"), ("--ntasks-per-node", "--npernode", "-npernode", "-ppn")
WITH_TWO_VALUES = ("--mca", "-mca", "--gmca", "-gmca", "-genv", "-env")
FOR_SLURM_CORES = "-c"


def understands(words: Sequence[str]) -> bool:
    return os.path.basename(words[0]) in WITHOUT_VALUE


def read(words: Sequence[str], so_far: Program) -> Program:
    name = os.path.basename(words[0])
    alone = WITHOUT_VALUE[name].split()
    given: dict[str, str] = {}
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        if option == "--":
            break
        if name == "composer" and option in ("-m", "--module_mode"):
            rest = ["python", "-m", *rest]
            break
        if option[:2] in ("-n", "-N") and option[2:].isdecimal():
            option, equals, value = option[:2], "=", option[2:]
        if not equals and option not in alone:
            value = rest.pop(0) if rest else ""
            del rest[: option in WITH_TWO_VALUES]
        given[option] = value
    if not rest:
        raise WorkloadError(f"`{name}` starts no program.", f"For example {name} python train.py.")
    program = launchers.read_line(rest, so_far)
    size, nodes = _processes(name, given)
    # torchrun starts the processes of a machine, and sets their number itself
    if program.world_size > 1 or "torchrun" in map(os.path.basename, rest):
        return program
    per_node = max(1, size // nodes)
    variables = _variables(name, size, nodes)
    program = replace(program, environment={**variables, **program.environment})
    return in_world(program, size, per_node) if size > 1 else program


def _processes(name: str, given: dict[str, str]) -> tuple[int, int]:
    """The number of processes in all, and of machines."""

    def number(*options: str) -> int | None:
        found = (option for option in options if option in given)
        option = next(found, None)
        return None if option is None else count(name, option, given[option])

    counted = [o for o in PROCESSES if name != "srun" or o != FOR_SLURM_CORES]
    nodes, per_node = number(*NODES) if name == "srun" else None, number(*PER_NODE)
    size = number("--world_size", *counted)
    if name == "srun" and size is None and per_node is None and nodes is None:
        # those of the allocation in which the line runs
        size = int(os.environ.get("SLURM_NTASKS", "1"))
        nodes = int(os.environ.get("SLURM_NNODES", "1"))
    nodes = nodes or max(1, size // per_node if size and per_node else 1)
    return size or nodes * (per_node or 1), nodes


def _variables(name: str, size: int, nodes: int) -> dict[str, str]:
    """The launcher's variables that programs read; world.py has the names of a rank's variables."""
    each: dict[str, int | str]
    if name == "srun":
        each = {"NTASKS": size, "NPROCS": size, "NNODES": nodes, "JOB_NUM_NODES": nodes}
        each |= {"NTASKS_PER_NODE": size // nodes, "PROCID": 0, "LOCALID": 0, "NODEID": 0}
        each |= {"JOB_ID": 1, "NODELIST": "localhost", "JOB_NODELIST": "localhost"}
        return {f"SLURM_{key}": str(value) for key, value in each.items()}
    if name == "composer":
        return {}
    each = {"SIZE": size, "RANK": 0, "LOCAL_RANK": 0, "LOCAL_SIZE": size // nodes}
    return {f"OMPI_COMM_WORLD_{key}": str(value) for key, value in each.items()}
