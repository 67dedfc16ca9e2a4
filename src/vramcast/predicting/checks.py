"""What max-batch and plan check of a request before anything is simulated."""

from __future__ import annotations

from collections.abc import Sequence

from vramcast.errors import UsageError
from vramcast.hardware.gpus import find_gpu
from vramcast.units import check_whole_number, format_bytes

# A "24 GiB" card has a little less than 24 GiB: --memory 24GiB is accepted for it, 200GiB is not.
MAX_OVER_LABEL = 1.1


def check_memory(gpus: Sequence[str], memory_bytes: int | None, safety: float) -> None:
    if type(safety) not in (int, float) or not 0 <= safety < 1:
        raise UsageError(
            f"--safety is a fraction of the memory, from 0 to below 1, not {safety}.",
            "For example --safety 0.05.",
        )
    if memory_bytes is None and not gpus:
        raise UsageError(
            "How much memory there is, is not known.", "Give --gpu NAME or --memory SIZE."
        )
    for gpu in gpus:
        total_bytes = find_gpu(gpu).total_bytes
        if memory_bytes is not None and memory_bytes > MAX_OVER_LABEL * total_bytes:
            given, there = format_bytes(memory_bytes), format_bytes(total_bytes)
            raise UsageError(
                f"--memory {given} is more than {gpu} has ({there}).",
                "Leave out --memory for all of it, or --gpu for a GPU that does not exist.",
            )


def check_positive(option: str, value: int | None, example: int = 8) -> None:
    if value is not None:
        check_whole_number(option, value, example)
