"""Seconds of a collective among GPUs, and how many bytes each of them sends.

They follow NCCL's algorithms, and the data sheets of what connects the GPUs.
"""

import math
from operator import add
from typing import NamedTuple

from vramcast.hardware.links import Fabric
from vramcast.records.prediction import Collective, Communication
from vramcast.tracing.work import OperatorWork, Works

COLLECTIVE = "c10d::"  # names of collectives begin with this
# one stream waits for another; its sizes are that stream, and how many operators ago
WAIT = "vramcast::wait"
# NVIDIA/nccl, src/graph/tuning.cc: for the protocols LL, LL128 and Simple: the microseconds to
# begin (baseLat), and the fraction of the bandwidth that is left for data.
BASE_MICROSECONDS = (6.6, 14.0, 8.4)
OF_BANDWIDTH = (0.5, 0.92, 1.0)
TREE_OF_BANDWIDTH = 0.92
KINDS = (
    ("reduce_scatter", "reduce-scatter"),
    ("allgather", "all-gather"),
    ("allreduce", "all-reduce"),
    ("alltoall", "all-to-all"),
    ("broadcast", "broadcast"),
    ("reduce", "reduce"),
    ("barrier", "barrier"),
    ("send", "send"),
    ("recv", "receive"),
    ("scatter", "scatter"),
    ("gather", "gather"),
)


class Group(NamedTuple):
    size: int
    in_machine: int

    @property
    def num_machines(self) -> int:
        return math.ceil(self.size / max(1, self.in_machine))


def is_collective(work: OperatorWork) -> bool:
    return work.operator.startswith(COLLECTIVE)


def kind_of(work: OperatorWork) -> str:
    name = work.operator.removeprefix(COLLECTIVE)
    return next((kind for part, kind in KINDS if part in name), name)


def group_of(work: OperatorWork) -> Group:
    return Group(work.sizes[0], work.sizes[1])


def sent_bytes(work: OperatorWork) -> float:
    """The bytes that each GPU of a ring sends."""
    size = work.sizes[0]
    if size < 2:
        return 0.0
    kind = kind_of(work)
    if kind == "all-reduce":
        return 2 * (size - 1) / size * work.num_bytes
    if kind in ("all-gather", "reduce-scatter", "all-to-all"):
        return (size - 1) / size * work.num_bytes
    return 0.0 if kind in ("receive", "barrier") else work.num_bytes


def collective_seconds(work: OperatorWork, fabric: Fabric) -> float:
    """The seconds by the fastest of NCCL's protocols, in a ring or, for an all-reduce, also a
    tree."""
    group, kind = group_of(work), kind_of(work)
    if group.size < 2:
        return 0.0
    rate = fabric.link.reached_bytes_per_second
    if group.num_machines > 1:
        rate = min(rate, group.in_machine * fabric.network.reached_bytes_per_second)
    moved = work.num_bytes if kind == "receive" else sent_bytes(work)
    ways = [(_steps(kind, group), 1.0)]
    if kind == "all-reduce":
        height = math.ceil(math.log2(group.num_machines)) if group.num_machines > 1 else 0
        ways.append(((2 * (group.in_machine - 1), 2 * height), TREE_OF_BANDWIDTH))
    return min(
        _latency_seconds(fabric, steps, protocol) + moved / (rate * fraction * of_rate)
        for steps, of_rate in ways
        for protocol, fraction in enumerate(OF_BANDWIDTH)
    )


def _steps(kind: str, group: Group) -> tuple[int, int]:
    """The number of steps inside machines, and between them."""
    if kind in ("send", "receive", "all-to-all"):
        return (1, 0) if group.num_machines == 1 else (0, 1)
    rounds = 2 if kind == "all-reduce" else 1
    between = group.num_machines - 1
    return rounds * (group.size - 1 - between), rounds * between


def _latency_seconds(fabric: Fabric, steps: tuple[int, int], protocol: int) -> float:
    inside, between = steps
    of_link, of_network = (
        each.step_microseconds[protocol] for each in (fabric.link, fabric.network)
    )
    return 1e-6 * (BASE_MICROSECONDS[protocol] + inside * of_link + between * of_network)


def communication_of(
    works: Works, fabric: Fabric, seconds: float, alone_seconds: float
) -> Communication:
    """The communication of a step that takes `seconds`, and would take `alone_seconds` if
    communication took no time."""
    found: dict[tuple[str, int, int], list[float]] = {}
    for work in works:
        if is_collective(work) and work.sizes[0] > 1:
            sums = found.setdefault((kind_of(work), *group_of(work)), [0, 0.0, 0.0])
            own = 1, sent_bytes(work), collective_seconds(work, fabric)
            sums[:] = map(add, sums, own)
    collectives = [
        Collective(
            operation=kind,
            num_gpus=num_gpus,
            num_gpus_in_machine=in_machine,
            count=int(count),
            sent_bytes=sent,
            seconds=taken,
        )
        for (kind, num_gpus, in_machine), (count, sent, taken) in found.items()
    ]
    return Communication(
        link=fabric.link.name,
        network=fabric.network.name,
        sent_bytes=sum(one.sent_bytes for one in collectives),
        seconds=sum(one.seconds for one in collectives),
        exposed_seconds=max(0.0, seconds - alone_seconds),
        efficiency=min(1.0, alone_seconds / seconds) if seconds else 1.0,
        collectives=sorted(collectives, key=lambda one: -one.seconds),
    )
