"""The GPUs that vramcast knows by name, with the numbers that a forecast needs, from gpus.toml."""

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from vramcast.errors import UsageError
from vramcast.units import GiB

FILE = Path(__file__).with_name("gpus.toml")
RATES = ("fp32", "tf32", "bf16", "fp16", "fp8")
GIVE_MEMORY = "give its memory with --memory SIZE, for example --memory 24GiB."
BRANDS = re.compile("^(nvidia|geforce|tesla|quadro)+")
Positive = Annotated[float, msgspec.Meta(gt=0)]
PositiveInt = Annotated[int, msgspec.Meta(gt=0)]


@dataclass(frozen=True, kw_only=True)
class Gpu:
    name: str
    full_name: str
    aliases: tuple[str, ...]
    architecture: str
    capability: tuple[int, int]
    total_bytes: PositiveInt
    total_is_nominal: bool = False  # computed from the label, not read on a machine
    num_multiprocessors: PositiveInt
    max_threads_per_multiprocessor: PositiveInt
    bandwidth_bytes_per_second: Positive
    l2_cache_bytes: PositiveInt
    # dense; None where the hardware has no such rate
    flops_per_second: dict[str, Positive | None] = field(hash=False)
    context_bytes: PositiveInt
    # to all others in its machine together, in one direction; None: they communicate over PCIe
    nvlink_bytes_per_second: Positive | None = None
    power_watts: Positive | None = None  # the power limit; None: not considered
    source: str
    # total and context were measured on this GPU; otherwise the context is an estimate
    measured: bool = False

    @property
    def usable_bytes(self) -> int:
        """The memory that is left for torch once the CUDA context exists."""
        return self.total_bytes - self.context_bytes


@dataclass(frozen=True)
class Catalogue:
    """The known GPUs. Names in it have no case, spaces, dashes or brands."""

    gpus: tuple[Gpu, ...]
    by_name: Mapping[str, Gpu]
    ambiguous: Mapping[str, tuple[str, ...]]


@cache
def catalogue(path: Path = FILE) -> Catalogue:
    try:
        read = tomllib.loads(path.read_text())
        gpus = tuple(_gpu(block, read["architecture"]) for block in read["gpu"])
    except (ValueError, LookupError, TypeError, msgspec.ValidationError) as problem:
        advice = "Correct it; its first lines say what a GPU needs."
        raise UsageError(f"{path} cannot be used: {problem!r}.", advice) from None
    spellings = [(s, gpu) for gpu in gpus for s in (gpu.name, gpu.full_name, *gpu.aliases)]
    return Catalogue(
        gpus=gpus,
        by_name={_key(spelling): gpu for spelling, gpu in spellings},
        ambiguous={_key(name): tuple(members) for name, members in read["ambiguous"].items()},
    )


def _gpu(block: dict[str, Any], architectures: dict[str, Any]) -> Gpu:
    values = {
        **block,
        **architectures[block["capability"]],
        "capability": [int(part) for part in block["capability"].split(".")],
        "flops_per_second": {**dict.fromkeys(RATES), **block["flops_per_second"]},
    }
    # the call refuses wrong names, and the conversion refuses wrong values
    return msgspec.convert(vars(Gpu(**values)), Gpu)


def find_gpu(name: str) -> Gpu:
    """The GPU that a person means: case, spaces, dashes and brand names do not matter."""
    key, known = _key(name), catalogue()
    if key in known.by_name:
        return known.by_name[key]
    if key in known.ambiguous:
        gpus = [find_gpu(member) for member in known.ambiguous[key]]
        sizes = ", ".join(f"{gpu.name} ({gpu.total_bytes / GiB:.1f} GiB)" for gpu in gpus)
        raise UsageError(
            f"GPU name {name!r} does not say which memory size",
            f"Name one of: {sizes}. For another size {GIVE_MEMORY}",
        )
    matches = difflib.get_close_matches(key, known.by_name, n=4, cutoff=0.7)
    close = dict.fromkeys(known.by_name[match].name for match in matches)
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    names = ", ".join(gpu.name for gpu in known.gpus)
    raise UsageError(
        f"unknown GPU {name!r}", f"{hint}Known GPUs: {names}. For any other GPU {GIVE_MEMORY}"
    )


def _key(name: str) -> str:
    return BRANDS.sub("", "".join(filter(str.isalnum, name.casefold())))


GPUS = catalogue().gpus
