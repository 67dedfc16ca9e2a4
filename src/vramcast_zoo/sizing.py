"""Parameter counts as arithmetic, and the one size that meets a budget.

No torch: `vramcast zoo` answers at once.

The tests hold every formula against the modules themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Size = int | float | bool
LARGEST_SIZE = 10**9
BYTES = 256  # the vocabulary of byte-level models


@dataclass(frozen=True)
class Family:
    name: str
    about: str
    count: Callable[..., int]  # its keyword arguments are the sizes
    defaults: Mapping[str, Size]
    free: tuple[str, ...]  # what may be solved for; the first that is not given is
    steps: Mapping[str, int]  # a size that must be a multiple of something


@dataclass(frozen=True)
class Solution:
    free: str
    sizes: dict[str, Size]
    parameters: int


def solve(family: Family, wanted: int, given: Mapping[str, Size]) -> Solution:
    """The value of the first free size whose parameter count is nearest to `wanted`.

    The smaller one when two are as near.
    """
    free = free_size(family, given)
    step = family.steps.get(free, 1)
    sizes = {**family.defaults, **given}

    def count_at(multiple: int) -> int:
        return family.count(**{**sizes, free: multiple * step})

    value = _nearest(count_at, wanted) * step
    if free == "rank" and value > sizes["dim"]:
        raise ValueError(
            f"{wanted:,} parameters would need rank={value}, above dim={sizes['dim']}: "
            "give a larger dim or depth"
        )
    return Solution(free, {**sizes, free: value}, count_at(value // step))


def free_size(family: Family, given: Mapping[str, Size]) -> str:
    unknown = [name for name in given if name not in family.defaults]
    if unknown:
        raise ValueError(
            f"{family.name} has no size {unknown[0]!r}; its sizes are {', '.join(family.defaults)}"
        )
    for name, value in given.items():
        _check_kind(name, value, family.defaults[name])
        if value < 0 or (value == 0 and value is not False):
            raise ValueError(f"{name}={value} must be above zero")
    free = next((name for name in family.free if name not in given), None)
    if free is None:
        raise ValueError(f"nothing is left to solve for: leave out one of {', '.join(family.free)}")
    return free


def _check_kind(name: str, value: Size, default: Size) -> None:
    if isinstance(default, bool) != isinstance(value, bool):
        raise ValueError(
            f"{name}={value} must be {'true or false' if isinstance(default, bool) else 'a number'}"
        )
    if isinstance(default, int) and not isinstance(value, int):
        raise ValueError(f"{name}={value} must be a whole number")
    if not abs(value) <= LARGEST_SIZE:  # nan too
        raise ValueError(f"{name}={value} must be a number up to {LARGEST_SIZE:,}")


def _nearest(count_at: Callable[[int], int], wanted: int) -> int:
    above = 1
    while count_at(above) < wanted:
        above *= 2
    low = above // 2
    while above - low > 1:  # count_at(low) < wanted <= count_at(above)
        middle = (low + above) // 2
        low, above = (middle, above) if count_at(middle) < wanted else (low, middle)
    return low if low >= 1 and wanted - count_at(low) <= count_at(above) - wanted else above


# ----------------------------------------------------------------------------------- the formulas
def _ladder(dim: int, depth: int, layer: int) -> int:
    """Tied byte embedding, a LayerNorm before every layer and one at the end."""
    return BYTES * dim + 2 * dim + depth * (2 * dim + layer)


def count_e1(*, dim: int, depth: int, expansion: float) -> int:
    inner = int(dim * expansion)
    return _ladder(dim, depth, 3 * dim * inner + 2 * inner * inner + inner)


def count_e5(*, dim: int, depth: int, rank: int) -> int:
    return _ladder(dim, depth, 6 * dim * rank + dim)


def count_e10(*, dim: int, depth: int, expansion: float, banks: int) -> int:
    inner = int(dim * expansion)
    return _ladder(dim, depth, (3 + banks) * dim * inner + 2 * inner * inner + (1 + banks) * inner)


def count_mamba2(*, dim: int, depth: int, state: int) -> int:
    inner, heads = 2 * dim, 2 * dim // 64
    projections = dim * (2 * inner + 2 * state + heads) + inner * dim
    return _ladder(dim, depth, projections + (inner + 2 * state) * 5 + 3 * heads + inner)


def _rotary_layer(dim: int, kv_dim: int, hidden: int) -> int:
    return 2 * dim * dim + 2 * dim * kv_dim + 3 * dim * hidden + 2 * dim


def count_yxanul(
    *,
    dim: int,
    depth: int,
    kv_heads: int,
    hidden: int,
    vocabulary: int,
    embedding_rank: int,
    tied: bool,
) -> int:
    head = 0 if tied else vocabulary * dim
    return (
        (vocabulary + dim) * embedding_rank
        + depth * _rotary_layer(dim, 64 * kv_heads, hidden)
        + dim
        + head
    )


def count_llama(
    *, dim: int, depth: int, heads: int, kv_heads: int, hidden: int, vocabulary: int
) -> int:
    return 2 * vocabulary * dim + depth * _rotary_layer(dim, dim // heads * kv_heads, hidden) + dim


def count_gpt2(*, dim: int, depth: int, vocabulary: int, positions: int) -> int:
    return (vocabulary + positions) * dim + depth * (12 * dim * dim + 13 * dim) + 2 * dim


def count_elleci(*, dim: int, depth: int, vocabulary: int, positions: int) -> int:
    inner, heads, state = 2 * dim, 8, 16
    mamba = 3 * dim * inner + inner * (5 + heads + 2 * state + heads + 1 + 2) + 2 * heads
    latent = 2 * dim * dim + 160 * dim + 256 * dim
    feed_forward_and_norms = 8 * dim * dim + 9 * dim
    return (
        depth // 2 * (mamba + latent)
        + depth * feed_forward_and_norms
        + (2 * vocabulary + positions) * dim
        + 2 * dim
    )


def count_od1(*, ring_len: int, slot_dim: int, out_dim: int) -> int:
    sensory, slot, classes = max(8, slot_dim // 3), slot_dim, 256
    senses = 2 * sensory + 6 * sensory * (sensory + 1) + sensory * slot + slot
    pointer = 4 * (slot + 1) + 2 * ring_len
    return (
        senses
        + 2 * slot
        + 6 * slot * (slot + 1)
        + pointer
        + out_dim * (classes * slot + classes)
        + 1
    )


def _family(
    name: str,
    about: str,
    count: Callable[..., int],
    free: str,
    steps: dict[str, int],
    **defaults: Any,
) -> Family:
    return Family(name, about, count, defaults, tuple(free.split()), steps)


FAMILIES = {
    family.name: family
    for family in (
        _family(
            "e1", "gated Elman network", count_e1, "dim depth", {}, dim=512, depth=21, expansion=1.0
        ),
        _family(
            "e5", "low-rank Elman network", count_e5, "rank depth", {}, dim=1536, depth=20, rank=270
        ),
        _family(
            "e10",
            "Elman network with EMA memory banks",
            count_e10,
            "dim depth",
            {},
            dim=960,
            depth=6,
            expansion=1.0,
            banks=4,
        ),
        _family(
            "mamba2",
            "Mamba-2 state space model",
            count_mamba2,
            "dim depth",
            {"dim": 32},
            dim=672,
            depth=18,
            state=64,
        ),
        _family(
            "yxanul",
            "decoder with a factorised embedding",
            count_yxanul,
            "depth dim",
            {"dim": 64},
            dim=768,
            depth=28,
            kv_heads=2,
            hidden=2048,
            vocabulary=200_005,
            embedding_rank=128,
            tied=True,
        ),
        _family(
            "elleci",
            "Mamba and latent attention by turns, 1.58-bit feed-forward",
            count_elleci,
            "dim depth",
            {"dim": 128, "depth": 2},
            dim=2048,
            depth=24,
            vocabulary=32_128,
            positions=1024,
        ),
        _family(
            "od1",
            "ring memory with a pointer",
            count_od1,
            "slot_dim ring_len",
            {},
            ring_len=2048,
            slot_dim=256,
            out_dim=1,
        ),
        _family(
            "gpt2",
            "GPT-2",
            count_gpt2,
            "dim depth",
            {"dim": 64},
            dim=768,
            depth=12,
            vocabulary=50_257,
            positions=1024,
        ),
        _family(
            "llama",
            "Llama-style decoder",
            count_llama,
            "dim depth",
            {"dim": 64},
            dim=1024,
            depth=20,
            heads=16,
            kv_heads=4,
            hidden=3072,
            vocabulary=32_000,
        ),
    )
}
