"""A trial of a program that torchrun starts several times: one record of all its processes.

They run at the same time, each on a GPU of its own.
"""

import os
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.hardware import nvml
from vramcast.probing.facts import Facts
from vramcast.probing.manager import OnFacts, OnOutput, Prober, start_of
from vramcast.probing.trial import Trial
from vramcast.records.measurement import Device, MeasuredRank, Measurement, Outcome
from vramcast.workload.world import rank_variables

MOST_RANKS = 16  # in one machine
# When a rank has failed, the others wait for it in a collective. They are ended after this time.
GRACE_SECONDS = 10.0


def check_ranks(started: tuple[int, int], device: Device) -> int:
    """The number of processes that the line starts. All of them must run on this machine."""
    size, per_node = started
    if size != per_node:
        raise UsageError(
            f"The line starts {size} processes on {size // per_node} machines, and probe runs "
            "those of one.",
            "Leave out --nnodes, or use vramcast predict, which simulates ranks of all machines.",
        )
    if size > MOST_RANKS:
        raise UsageError(f"{size} processes; probe runs at most {MOST_RANKS}.", "Start fewer.")
    if device is Device.CUDA:
        found = len(nvml.gpu_states())
        if 0 < found < size:
            raise EnvironmentProblem(
                f"The line starts {size} processes, and there are {found} GPUs here.",
                f"Give --nproc-per-node {found}, or use vramcast predict, which needs no GPU.",
            )
    return size


def run_ranks(
    trial: Trial, log: Path | None, progress: OnFacts, on_output: OnOutput = None
) -> Measurement:
    """Runs all ranks. The record is that of the rank that failed, or took the most memory. The
    output of the first rank is shown."""
    started, port = time.monotonic(), _free_port()
    failed: dict[int, float] = {}  # when each rank failed, by its own process

    def is_over() -> bool:
        return bool(failed) and time.monotonic() - min(failed.values()) > GRACE_SECONDS

    def hear(rank: int, facts: Facts) -> None:
        if facts.failed_at_seconds is not None:
            failed.setdefault(rank, facts.failed_at_seconds)
        if rank == 0:
            progress(facts)

    def run(rank: int) -> Measurement:
        start, variables = start_of(trial), _variables(trial, rank, port)
        start["environment"] = {**start["environment"], **variables}
        folder = trial.trace_folder if rank == 0 else None
        own = replace(trial, variables=variables, trace_folder=folder)
        with Prober(**start) as prober:
            shown: dict[str, Any] = {"log": log, "on_output": on_output} if rank == 0 else {}
            measured = prober.run(own, stop=is_over, progress=partial(hear, rank), **shown)
        if measured.outcome != Outcome.OK:
            failed.setdefault(rank, time.monotonic())  # its process died without reporting it
        return measured

    with ThreadPoolExecutor(trial.num_processes) as threads:
        found = list(threads.map(run, range(trial.num_processes)))
    return together(
        found, sorted(failed, key=lambda rank: failed[rank]), time.monotonic() - started
    )


def together(found: Sequence[Measurement], failed: Sequence[int], seconds: float) -> Measurement:
    """One record of all ranks. `failed` are the ranks that failed, in order: later ones may have
    failed because of the first."""
    short = [rank for rank in failed if found[rank].outcome == Outcome.OUT_OF_MEMORY]
    peaks = [one.peak_reserved_bytes or one.peak_allocated_bytes or 0 for one in found]
    most = peaks.index(max(peaks))
    shown = found[[*short, *failed, most][0]]
    return replace(
        shown,
        world_size=len(found),
        seconds=seconds,
        ranks=[
            MeasuredRank(
                rank=rank,
                outcome=one.outcome,
                peak_allocated_bytes=one.peak_allocated_bytes,
                peak_reserved_bytes=one.peak_reserved_bytes,
                process_bytes=one.process_bytes,
            )
            for rank, one in enumerate(found)
        ],
    )


def _variables(trial: Trial, rank: int, port: int) -> dict[str, str]:
    """The environment of one rank. Every process sees one GPU, as its first."""
    count = trial.num_processes
    variables = {**rank_variables(rank, count, count), "MASTER_PORT": str(port)}
    if trial.device is Device.CUDA:
        variables["CUDA_VISIBLE_DEVICES"] = _visible(rank)
    return variables


def _visible(rank: int) -> str:
    """The GPU of this rank, among those that this process may use."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return allowed.split(",")[rank] if allowed else str(rank)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        port: int = listening.getsockname()[1]
        return port
