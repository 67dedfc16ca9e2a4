"""What a plan is asked for, checked before anything is simulated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from vramcast.errors import UsageError
from vramcast.hardware.gpus import find_gpu
from vramcast.predicting.max_batch import capacity_of
from vramcast.predicting.predict import make_request
from vramcast.units import format_bytes, memory_in_bytes
from vramcast.workload import Workload

LENGTHS_ADVICE = "Give lengths in rising order, for example --seq-lens 128,256,512."
MAX_LENGTH = 1 << 24
MAX_TOKENS = 10**18


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    gpus: tuple[str | None, ...]  # None: a GPU of which only the memory is known
    seq_lens: tuple[int, ...]
    tokens: int
    tokens_per_step: int | None
    safety: float
    worker_request: Mapping[str, Any]  # what all workers are given


def check_request(
    workload: Workload,
    *,
    seq_lens: str | Sequence[int] | None,
    gpu: str | Sequence[str] | None,
    memory: str | int | None,
    allocator: str | None,
    tokens: str | float,
    tokens_per_step: int | None,
    safety: float,
    knobs: Mapping[str, Any],
) -> PlanRequest:
    lengths = read_lengths(seq_lens)
    names = read_gpus(gpu)
    if not names and memory is None:
        raise UsageError(
            "How much memory there is, is not known.", "Give --gpu NAME[,NAME...] or --memory SIZE."
        )
    if type(safety) not in (int, float) or not 0 <= safety < 1:
        raise UsageError(
            f"--safety is a fraction of the memory, from 0 to below 1, not {safety}.",
            "For example --safety 0.05.",
        )
    _check_memory(names, memory)
    _check_tokens_per_step(tokens_per_step, lengths)
    request = make_request(
        workload,
        gpu=None,
        memory=memory,
        allocator=allocator,
        knobs=knobs,
    )
    return PlanRequest(
        gpus=names or (None,),
        seq_lens=lengths,
        tokens=read_tokens(tokens),
        tokens_per_step=tokens_per_step,
        safety=float(safety),
        worker_request=request,
    )


def read_lengths(given: str | Sequence[int] | None) -> tuple[int, ...]:
    parts: Sequence[Any] = _parts(given or ())
    if not parts or parts == [""]:
        raise UsageError("No sequence lengths were given.", LENGTHS_ADVICE)
    lengths = tuple(_length(part) for part in parts)
    for a, b in pairwise(lengths):
        if a == b:
            raise UsageError(f"The sequence length {a} is given twice.", LENGTHS_ADVICE)
        if a > b:
            ordered = ",".join(map(str, sorted(set(lengths))))
            raise UsageError(
                f"Sequence lengths must rise, and {b} comes after {a}.",
                f"In order they are --seq-lens {ordered}.",
            )
    return lengths


def _parts(given: str | Sequence[Any]) -> list[Any]:
    """Of a list, or of text with commas."""
    return [part.strip() for part in given.split(",")] if isinstance(given, str) else list(given)


def _length(part: Any) -> int:
    text = str(part)
    if (
        isinstance(part, bool)
        or not isinstance(part, int | str)
        or not (text.isascii() and text.isdigit())
    ):
        raise UsageError(
            f"A sequence length is a whole number from 1 on, not {text[:40]!r}.", LENGTHS_ADVICE
        )
    if len(text) > len(str(MAX_LENGTH)) or not 1 <= int(text) <= MAX_LENGTH:
        raise UsageError(
            f"A sequence length lies between 1 and {MAX_LENGTH}, and {text[:40]} does not.",
            LENGTHS_ADVICE,
        )
    return int(text)


def read_gpus(given: str | Sequence[str] | None) -> tuple[str, ...]:
    if given is None:
        return ()
    parts = _parts(given)
    if not parts or not all(isinstance(part, str) and part for part in parts):
        raise UsageError(
            f"--gpu {given!r} names no GPU, or has an empty name in it.",
            "For example --gpu rtx-4090,h200; see vramcast gpus.",
        )
    names = tuple(find_gpu(part).name for part in parts)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"The GPU {twice} is given twice.", "Name each GPU once.")
    return names


def read_tokens(given: str | float) -> int:
    """1e9, 1000000000 or 1_000_000_000."""
    try:
        tokens = float(given)
    except (TypeError, ValueError):
        tokens = math.nan
    # Also refuses NaN, which compares false with everything.
    if not 1 <= tokens <= MAX_TOKENS or isinstance(given, bool):
        raise UsageError(
            f"--tokens is how many tokens to train on, from 1 to 1e18, not {str(given)[:40]}.",
            "For example --tokens 1e9.",
        )
    return int(given) if isinstance(given, int) else round(tokens)


def _check_tokens_per_step(tokens_per_step: int | None, lengths: Sequence[int]) -> None:
    if tokens_per_step is None:
        return
    if type(tokens_per_step) is not int or tokens_per_step < 1:
        raise UsageError(
            f"--tokens-per-step must be a whole number from 1 on, not {tokens_per_step}.",
            "For example --tokens-per-step 65536.",
        )
    wrong = [length for length in lengths if tokens_per_step % length]
    if wrong:
        common = math.lcm(*lengths)
        near = max(1, round(tokens_per_step / common)) * common
        raise UsageError(
            f"--tokens-per-step {tokens_per_step} is no whole number of sequences "
            f"of length {wrong[0]}.",
            f"Give a multiple of every length, for example {near}, or leave such lengths out.",
        )


def _check_memory(names: Sequence[str], memory: str | int | None) -> None:
    given = memory_in_bytes(memory)
    for name in names if given is not None else ():
        there = capacity_of(name)
        if given is not None and given > there:
            raise UsageError(
                f"--memory {memory} is {format_bytes(given)}, and {name} has "
                f"{format_bytes(there)} for the allocator.",
                "Give a smaller --memory, or leave it or the GPU out.",
            )
