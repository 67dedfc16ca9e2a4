"""The options of max-batch and plan, read and checked before anything is simulated."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from vramcast.errors import UsageError
from vramcast.hardware.gpus import GPUS, find_gpu
from vramcast.units import check_whole_number, format_bytes

# A "24 GiB" card has a little less than 24 GiB: --memory 24GiB is accepted for it, 200GiB is not.
MAX_OVER_LABEL = 1.1
LENGTHS_ADVICE = "Give lengths in rising order, for example --seq-lens 128,256,512."
MAX_LENGTH = 1 << 24
MAX_TOKENS = 10**18
TOKEN_UNITS = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


def check_memory(gpus: Sequence[str], memory_bytes: int | None, safety: float) -> None:
    if type(safety) not in (int, float) or not 0 <= safety < 1:
        raise UsageError(
            f"--safety is a fraction of the memory, from 0 to below 1, not {safety}.",
            "For example --safety 0.05.",
        )
    if memory_bytes is None and not gpus:
        raise UsageError(
            "The size of the memory is not known.", "Give --gpu NAME or --memory SIZE."
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


def read_lengths(given: str | Sequence[int] | None) -> list[int]:
    parts = _parts(given or [])
    if not parts or parts == [""]:
        raise UsageError("No sequence lengths were given.", LENGTHS_ADVICE)
    lengths = [_length(part) for part in parts]
    for a, b in pairwise(lengths):
        if a == b:
            raise UsageError(f"The sequence length {a} is given twice.", LENGTHS_ADVICE)
        if a > b:
            ordered = ",".join(map(str, sorted(set(lengths))))
            raise UsageError(
                f"Sequence lengths must be in rising order, but {b} comes after {a}.",
                f"Give --seq-lens {ordered}.",
            )
    return lengths


def _parts(given: str | Sequence[Any]) -> list[Any]:
    """The items of a list, or of a text with commas."""
    return [part.strip() for part in given.split(",")] if isinstance(given, str) else list(given)


def _length(part: Any) -> int:
    text = str(part)
    if not re.fullmatch("[0-9]{1,8}", text) or not 1 <= int(text) <= MAX_LENGTH:
        raise UsageError(
            f"A sequence length is a whole number from 1 to {MAX_LENGTH}, not {text[:40]!r}.",
            LENGTHS_ADVICE,
        )
    return int(text)


def read_gpus(given: str | Sequence[str] | None) -> list[str]:
    """The names of GPUs from a list, from a text with commas, or from "all"."""
    if given is None:
        return []
    if given == "all":
        return [gpu.name for gpu in GPUS]
    parts = _parts(given)
    if not parts or not all(isinstance(part, str) and part for part in parts):
        raise UsageError(
            f"--gpu {given!r} names no GPU, or has an empty name in it.",
            "For example --gpu rtx-4090,h200; see vramcast gpus.",
        )
    names = [find_gpu(part).name for part in parts]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"The GPU {name} is given twice.", "Name each GPU once.")
    return names


def read_tokens(given: str | float) -> int:
    """The number of tokens from 10B, 1e9, 1000000000 or 1_000_000_000."""
    text = str(given).strip().lower()
    unit = TOKEN_UNITS.get(text[-1:], 1)
    try:
        tokens = unit * float(text[:-1] if unit > 1 else given)
    except (TypeError, ValueError):
        tokens = math.nan
    # This also refuses NaN, with which every comparison is false.
    if not 1 <= tokens <= MAX_TOKENS or isinstance(given, bool):
        raise UsageError(
            f"--tokens is how many tokens to train on, from 1 to 1e18, not {str(given)[:40]}.",
            "For example --tokens 10B, or 1e10.",
        )
    return int(given) if isinstance(given, int) else round(tokens)


def check_tokens_per_step(tokens_per_step: int | None, lengths: Sequence[int]) -> None:
    check_positive("--tokens-per-step", tokens_per_step, example=65536)
    for length in lengths:
        if tokens_per_step is not None and tokens_per_step % length:
            common = math.lcm(*lengths)
            near = max(1, round(tokens_per_step / common)) * common
            raise UsageError(
                f"--tokens-per-step {tokens_per_step} is not a whole number of sequences "
                f"of length {length}.",
                f"Give a multiple of every length, for example {near}, or leave such lengths out.",
            )


def check_divides(tokens_per_step: int | None, world_sizes: Sequence[int]) -> None:
    for size in world_sizes:
        if tokens_per_step is not None and tokens_per_step % size:
            raise UsageError(
                f"{tokens_per_step} tokens in a step do not divide over {size} GPUs.",
                "Give --tokens-per-step a multiple of the numbers of GPUs.",
            )
