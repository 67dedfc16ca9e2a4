"""Several GPUs: how many processes there are, which are simulated, and the variables of each."""

from collections.abc import Mapping, Sequence
from typing import Any

from vramcast.errors import UsageError

MAX_WORLD_SIZE = 1 << 16
MAX_RANKS = 64  # each is simulated by itself
USUAL_GPUS_PER_NODE = 8
# Other launchers' variables for a process's rank.
OTHER_NAMES = ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
RANKS_ADVICE = "For example --ranks 0,7, or --ranks all."


def rank_variables(rank: int, world_size: int, gpus_per_node: int) -> dict[str, str]:
    """The environment variables of a rank, as torchrun sets them. Every rank is the first of its
    machine, because the one GPU that is simulated is cuda:0."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "GROUP_RANK": str(rank // gpus_per_node),
        "ROLE_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(gpus_per_node),
        "ROLE_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }


def with_rank(environment: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a rank, with the variables of other launchers changed too."""
    others = {name: variables["RANK"] for name in OTHER_NAMES if variables and name in environment}
    return {**environment, **variables, **others}


def world_request(
    started: tuple[int, int],
    world_size: int | None,
    gpus_per_node: int | None,
    ranks: str | Sequence[int] | None,
) -> dict[str, Any]:
    """What a worker needs to know about several processes. Empty for one GPU.

    `started` is how many processes the launch line starts, in all and on a machine.
    """
    size, per_node = started
    if world_size is not None:
        _check("--world-size", world_size)
        if size > 1 and size != world_size:
            raise UsageError(
                f"The line starts {size} processes, and --world-size is {world_size}.",
                "Leave out --world-size: the line says it.",
            )
        size, per_node = world_size, min(world_size, USUAL_GPUS_PER_NODE)
    if gpus_per_node is not None:
        _check("--gpus-per-node", gpus_per_node)
        per_node = gpus_per_node
    if size % per_node:
        raise UsageError(
            f"{size} GPUs do not fill machines of {per_node}.",
            "Give --gpus-per-node a divisor of the number of GPUs.",
        )
    if size == 1:
        if ranks is not None:
            raise UsageError("--ranks is for several GPUs, and there is one.", "Leave it out.")
        return {}
    chosen = _ranks(ranks, size)
    return {
        "world": {
            "size": size,
            "gpus_per_node": per_node,
            "ranks": chosen,
            "are_default_ranks": ranks is None,  # if so, the stages of a pipeline are added
        }
    }


def _ranks(given: str | Sequence[int] | None, size: int) -> list[int]:
    """The ranks to simulate. By default the first, which often does more, and the last, which may
    have less."""
    if given is None:
        return [0, size - 1]
    if given == "all":
        chosen = list(range(size))
    else:
        parts = given.split(",") if isinstance(given, str) else [str(rank) for rank in given]
        if not all(part.strip().isdecimal() and len(part) < 8 for part in parts):
            raise UsageError(f"--ranks {given!r} is not a list of ranks.", RANKS_ADVICE)
        chosen = sorted({int(part) for part in parts})
    if not chosen or chosen[-1] >= size:
        raise UsageError(
            f"--ranks {given} names a rank that {size} GPUs do not have: they are 0 to {size - 1}.",
            RANKS_ADVICE,
        )
    if len(chosen) > MAX_RANKS:
        raise UsageError(
            f"--ranks {given} is {len(chosen)} ranks; at most {MAX_RANKS} are simulated.",
            RANKS_ADVICE,
        )
    return chosen


def _check(option: str, value: int) -> None:
    if type(value) is not int or not 1 <= value <= MAX_WORLD_SIZE:
        raise UsageError(
            f"{option} is {value!r}, expected a whole number from 1 to {MAX_WORLD_SIZE:,}.",
            f"For example {option} 8.",
        )
