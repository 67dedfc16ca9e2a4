"""The connections between GPUs, inside a machine and between machines, from links.toml."""

import re
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from vramcast.errors import UsageError
from vramcast.hardware.gpus import Gpu

FILE = Path(__file__).with_name("links.toml")
DEFAULT_NETWORK = "infiniband-ndr"
PCIE_OF_ARCHITECTURE = {"Volta": "pcie-3", "Turing": "pcie-3", "Ampere": "pcie-4"}
PCIE_OF_OTHERS = {"Ada Lovelace": "pcie-4", "Hopper": "pcie-5", "Blackwell": "pcie-5"}
SPEED = re.compile(r"(\d+(?:\.\d+)?)\s*(g?)(b/s|bps|bit/s|B/s)", re.IGNORECASE)
Kind = Literal["link", "network"]


@dataclass(frozen=True)
class Link:
    name: str
    bytes_per_second: float
    fraction: float
    step_microseconds: tuple[float, float, float]
    source: str

    @property
    def reached_bytes_per_second(self) -> float:
        return self.fraction * self.bytes_per_second


@dataclass(frozen=True)
class Fabric:
    """What connects the GPUs of a machine, and the machines."""

    link: Link
    network: Link

    @property
    def text(self) -> str:
        return f"{self.link.name} in a machine, {self.network.name} for each GPU between machines"


@cache
def known_links(kind: Kind) -> dict[str, Link]:
    read = tomllib.loads(FILE.read_text())[kind]
    links = (Link(**{**one, "step_microseconds": tuple(one["step_microseconds"])}) for one in read)
    return {link.name: link for link in links}


def fabric_for(gpu: Gpu, link: str | None = None, network: str | None = None) -> Fabric:
    """The connections: those given, or else those of this GPU's data sheet."""
    of_gpu = _of_gpu(gpu) if link is None else find_link("link", link)
    return Fabric(of_gpu, find_link("network", network or DEFAULT_NETWORK))


def find_link(kind: Kind, name: str) -> Link:
    """A link by its name, or one with a speed such as 200Gb/s."""
    links, key = known_links(kind), name.casefold().replace(" ", "-").replace("_", "-")
    if key in links:
        return links[key]
    speed = SPEED.fullmatch(name.strip())
    if speed is None or not float(speed[1]):
        raise UsageError(
            f"--{kind} {name!r} is not known.",
            f"Name one of {', '.join(links)}, or a speed in one direction such as 200Gb/s.",
        )
    is_bytes = "B" in speed[3][0]
    rate = float(speed[1]) * (1e9 if speed[2] else 1.0) / (1 if is_bytes else 8)
    like = next(iter(links.values()))
    return replace(like, name=name.strip(), bytes_per_second=rate, source="as given")


def _of_gpu(gpu: Gpu) -> Link:
    rate = gpu.nvlink_bytes_per_second
    links = known_links("link")
    if rate is None:
        pcie = {**PCIE_OF_ARCHITECTURE, **PCIE_OF_OTHERS}
        return links[pcie.get(gpu.architecture, "pcie-4")]
    same = [link for link in links.values() if link.bytes_per_second == rate]
    return same[0] if same else replace(links["nvlink-4"], name="nvlink", bytes_per_second=rate)
