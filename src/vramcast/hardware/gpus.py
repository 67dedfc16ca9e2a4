"""The GPUs vramcast knows by name, with the numbers a forecast needs: read from gpus.toml."""

from __future__ import annotations

import difflib
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
BRANDS = ("nvidia", "geforce", "tesla", "quadro")
Positive = Annotated[float, msgspec.Meta(gt=0)]


@dataclass(frozen=True)
class Gpu:
    """A GPU by name, with the numbers of its data sheet, or as they were read from one."""

    name: str
    full_name: str
    aliases: tuple[str, ...]
    architecture: str
    capability: tuple[int, int]
    total_bytes: int
    total_is_nominal: bool  # worked out from the label, not read from a machine
    num_multiprocessors: int
    max_threads_per_multiprocessor: int
    bandwidth_bytes_per_second: float
    # dense; None where the hardware has no such rate
    flops_per_second: Mapping[str, float | None] = field(hash=False)
    context_bytes: int
    source: str
    measured: bool  # total and context were read from this GPU; else the context is an estimate

    @property
    def usable_bytes(self) -> int:
        """What is left for torch once the CUDA context exists."""
        return self.total_bytes - self.context_bytes


class _Architecture(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    max_threads_per_multiprocessor: int


class _Block(msgspec.Struct, forbid_unknown_fields=True):
    """A [[gpu]] of the file."""

    name: str
    full_name: str
    aliases: tuple[str, ...]
    capability: Annotated[str, msgspec.Meta(pattern=r"^\d+\.\d$")]
    total_bytes: Annotated[int, msgspec.Meta(gt=0)]
    num_multiprocessors: Annotated[int, msgspec.Meta(gt=0)]
    gb_per_second: Positive
    tflops: dict[str, Positive]
    context_bytes: Annotated[int, msgspec.Meta(gt=0)]
    source: str
    total_is_nominal: bool = False
    measured: bool = False

    def gpu(self, architectures: Mapping[str, _Architecture]) -> Gpu:
        architecture = architectures[self.capability]
        major, minor = self.capability.split(".")
        rates = {kind: self.tflops.get(kind) for kind in RATES}
        return Gpu(
            name=self.name,
            full_name=self.full_name,
            aliases=self.aliases,
            architecture=architecture.name,
            capability=(int(major), int(minor)),
            total_bytes=self.total_bytes,
            total_is_nominal=self.total_is_nominal,
            num_multiprocessors=self.num_multiprocessors,
            max_threads_per_multiprocessor=architecture.max_threads_per_multiprocessor,
            bandwidth_bytes_per_second=self.gb_per_second * 1e9,
            flops_per_second={k: None if r is None else r * 1e12 for k, r in rates.items()},
            context_bytes=self.context_bytes,
            source=self.source,
            measured=self.measured,
        )


class _File(msgspec.Struct, forbid_unknown_fields=True):
    architecture: dict[str, _Architecture]
    ambiguous: dict[str, tuple[str, ...]]
    gpu: list[_Block]


@dataclass(frozen=True)
class Catalogue:
    """The file as it was read. Names are without case, spaces, dashes and brands."""

    gpus: tuple[Gpu, ...]
    by_name: Mapping[str, Gpu]
    ambiguous: Mapping[str, tuple[str, ...]]


@cache
def catalogue(path: Path = FILE) -> Catalogue:
    try:
        with open(path, "rb") as file:
            read = msgspec.convert(tomllib.load(file), _File)
        gpus = tuple(block.gpu(read.architecture) for block in read.gpu)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as problem:
        raise UsageError(f"{path} cannot be used: {problem}.", "Mend the file.") from None
    except KeyError as missing:
        what = f"{path}: [architecture] has no compute capability {missing}."
        raise UsageError(what, "Add a line for it.") from None
    spellings = [(s, gpu) for gpu in gpus for s in (gpu.name, gpu.full_name, *gpu.aliases)]
    return Catalogue(
        gpus=gpus,
        by_name={_key(spelling): gpu for spelling, gpu in spellings},
        ambiguous={_key(name): candidates for name, candidates in read.ambiguous.items()},
    )


GPUS: tuple[Gpu, ...]
"""All of them."""


def __getattr__(name: str) -> Any:
    """`GPUS`: read when it is first asked for, so that importing this is fast."""
    if name != "GPUS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return catalogue().gpus


def find_gpu(name: str) -> Gpu:
    """The GPU a person means: case, spaces, dashes and brand names do not matter."""
    key, known = _key(name), catalogue()
    if key in known.by_name:
        return known.by_name[key]
    if key in known.ambiguous:
        raise _ambiguous(name, known.ambiguous[key])
    raise _unknown(name, key)


def _key(name: str) -> str:
    key = "".join(character for character in name.casefold() if character.isalnum())
    while brand := next((brand for brand in BRANDS if key.startswith(brand)), None):
        key = key.removeprefix(brand)
    return key


def _ambiguous(name: str, candidates: tuple[str, ...]) -> UsageError:
    gpus = [find_gpu(candidate) for candidate in candidates]
    sizes = ", ".join(f"{gpu.name} ({gpu.total_bytes / GiB:.1f} GiB)" for gpu in gpus)
    return UsageError(
        f"GPU name {name!r} does not say which memory size",
        f"Name one of: {sizes}. For another size give --memory SIZE, for example --memory 24GiB.",
    )


def _unknown(name: str, key: str) -> UsageError:
    known = catalogue()
    matches = difflib.get_close_matches(key, known.by_name, n=4, cutoff=0.7)
    close = dict.fromkeys(known.by_name[match].name for match in matches)
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    names = ", ".join(gpu.name for gpu in known.gpus)
    return UsageError(
        f"unknown GPU {name!r}",
        f"{hint}Known GPUs: {names}. For any other GPU give its memory with --memory SIZE, "
        "for example --memory 24GiB.",
    )
