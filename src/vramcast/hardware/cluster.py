"""Connects to a Ray cluster, for commands that have --ray ADDRESS.

vramcast is sent to the nodes. torch, and a workload's own file, must be there.
"""

import contextlib
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.hardware.environment import VARIABLES, require_package, variables

CONNECT_SECONDS = 10.0
ADVICE = "Give the address that `ray start --head` printed, or auto on a machine of the cluster."
# Variables of which each node has its own.
OF_THE_NODE = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    ray = import_ray()
    _connect(ray, address)
    try:
        yield ray
    finally:
        ray.shutdown()


def import_ray() -> Any:
    require_package("ray", "--ray")
    import ray
    import ray.exceptions

    return ray


def _connect(ray: Any, address: str) -> None:
    import vramcast_zoo

    if address != "auto":
        _check_address(address)
    settings = variables(name for name in VARIABLES if name not in OF_THE_NODE)
    modules = [str(Path(__file__).parents[1]), str(vramcast_zoo.__path__[0])]
    try:
        ray.init(
            address=address,
            runtime_env={"py_modules": modules, "env_vars": settings},
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    # the type of Ray's error depends on what is wrong
    except (OSError, RuntimeError, ValueError) as problem:
        why = str(problem).strip().partition("\n")[0]
        raise EnvironmentProblem(
            f"The Ray cluster at {address!r} cannot be used: {why}", ADVICE
        ) from None


def _check_address(address: str) -> None:
    """Checks the address, because Ray itself would try for minutes before it gives up."""
    host, _, port = address.rpartition(":")
    if not host or "/" in address or not port.isdecimal():
        raise UsageError(
            f"--ray {address!r} is not the address of a cluster.", f"Write host:port. {ADVICE}"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as problem:
        raise EnvironmentProblem(
            f"No Ray cluster answers at {address!r}: {problem}.", ADVICE
        ) from None
