"""The GPUs vramcast knows by name, with the numbers a forecast needs.

total_bytes is what torch.cuda.get_device_properties(0).total_memory says on Linux, which is less than the label
on the box (by 1 % on HBM cards, by 7 % on GDDR6 cards with ECC on). It moves by up to about 1 % between drivers.
Rates are dense (no sparsity); tensor rates on GeForce cards are those with fp32 accumulation, as torch runs them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from vramcast.errors import UsageError
from vramcast.units import GiB, MiB

_HOPPER_CONTEXT = 648_871_936  # measured on an H200
_DATACENTRE_CONTEXT = 500_000_000
_DESKTOP_CONTEXT = 400_000_000
_OLDER_CONTEXT = 350_000_000


_ARCHITECTURES = {
    (7, 0): ("Volta", 2048),
    (7, 5): ("Turing", 1024),
    (8, 0): ("Ampere", 2048),
    (8, 6): ("Ampere", 1536),
    (8, 9): ("Ada Lovelace", 1536),
    (9, 0): ("Hopper", 2048),
    (10, 0): ("Blackwell", 2048),
    (12, 0): ("Blackwell", 1536),
}
_RATE_NAMES = ("fp32", "tf32", "bf16", "fp16", "fp8")


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
    flops_per_second: Mapping[str, float | None] = field(
        hash=False
    )  # dense; None where the hardware has no such rate
    context_bytes: int
    source: str
    measured: bool  # total and context were read from this GPU; else the context is an estimate

    @property
    def usable_bytes(self) -> int:
        """What is left for torch once the CUDA context exists."""
        return self.total_bytes - self.context_bytes


def _gpu(
    name: str,
    full_name: str,
    *aliases: str,
    capability: tuple[int, int],
    total: int,
    sms: int,
    gb_per_s: float,
    tflops: tuple[float | None, float | None, float | None, float | None, float | None],
    context: int,
    source: str,
    nominal: bool = False,
    measured: bool = False,
) -> Gpu:
    architecture, threads = _ARCHITECTURES[capability]
    return Gpu(
        name=name,
        full_name=full_name,
        aliases=aliases,
        architecture=architecture,
        capability=capability,
        total_bytes=total,
        total_is_nominal=nominal,
        num_multiprocessors=sms,
        max_threads_per_multiprocessor=threads,
        bandwidth_bytes_per_second=gb_per_s * 1e9,
        flops_per_second={
            kind: None if rate is None else rate * 1e12
            for kind, rate in zip(_RATE_NAMES, tflops, strict=True)
        },
        context_bytes=context,
        source=source,
        measured=measured,
    )


# Data centre, then workstation, then GeForce and Titan; newest first in each. tflops: fp32, tf32, bf16, fp16, fp8.
GPUS: tuple[Gpu, ...] = (
    _gpu(
        "b200",
        "NVIDIA B200",
        "b200-180gb",
        "b200-192gb",
        capability=(10, 0),
        total=182_631 * MiB,
        sms=148,
        gb_per_s=8000,
        tflops=(75, 1125, 2250, 2250, 4500),
        context=_HOPPER_CONTEXT,
        source="NVIDIA HGX B200 datasheet, 2024",
    ),
    _gpu(
        "h200",
        "NVIDIA H200",
        "h200-141gb",
        "h200-sxm",
        capability=(9, 0),
        total=150_109_880_320,
        sms=132,
        gb_per_s=4800,
        tflops=(67, 494, 989, 989, 1979),
        context=_HOPPER_CONTEXT,
        source="measured: torch 2.11, driver 580, CUDA 13.0",
        measured=True,
    ),
    _gpu(
        "gh200-96gb",
        "NVIDIA GH200 96GB",
        "gh200",
        "gh200-480gb",
        capability=(9, 0),
        total=96_768 * MiB,
        sms=132,
        gb_per_s=4000,
        tflops=(67, 494, 989, 989, 1979),
        context=_HOPPER_CONTEXT,
        source="NVIDIA GH200 Grace Hopper Superchip datasheet, 2023",
    ),
    _gpu(
        "h100-80gb",
        "NVIDIA H100 80GB HBM3",
        "h100",
        "h100-sxm",
        "h100-sxm5",
        "h100-sxm-80gb",
        "h100-sxm5-80gb",
        capability=(9, 0),
        total=85_029_158_912,
        sms=132,
        gb_per_s=3350,
        tflops=(67, 494, 989, 989, 1979),
        context=_HOPPER_CONTEXT,
        source="NVIDIA H100 datasheet, 2023",
    ),
    _gpu(
        "h100-pcie",
        "NVIDIA H100 PCIe",
        "h100-pcie-80gb",
        capability=(9, 0),
        total=81_008 * MiB,
        sms=114,
        gb_per_s=2000,
        tflops=(51, 378, 756, 756, 1513),
        context=_HOPPER_CONTEXT,
        source="NVIDIA H100 PCIe datasheet, 2022",
    ),
    _gpu(
        "h100-nvl",
        "NVIDIA H100 NVL",
        "h100-nvl-94gb",
        "h100-94gb",
        capability=(9, 0),
        total=95_320 * MiB,
        sms=132,
        gb_per_s=3900,
        tflops=(60, 417.5, 835.5, 835.5, 1670.5),
        context=_HOPPER_CONTEXT,
        source="NVIDIA H100 NVL datasheet, 2024",
    ),
    _gpu(
        "l40s",
        "NVIDIA L40S",
        "l40s-48gb",
        capability=(8, 9),
        total=45_589 * MiB,
        sms=142,
        gb_per_s=864,
        tflops=(91.6, 183, 362, 362, 733),
        context=_DATACENTRE_CONTEXT,
        source="NVIDIA L40S datasheet, 2023",
    ),
    _gpu(
        "l40",
        "NVIDIA L40",
        "l40-48gb",
        capability=(8, 9),
        total=45_465 * MiB,
        sms=142,
        gb_per_s=864,
        tflops=(90.5, 90.5, 181, 181, 362),
        context=_DATACENTRE_CONTEXT,
        source="NVIDIA L40 datasheet, 2022",
    ),
    _gpu(
        "l4",
        "NVIDIA L4",
        "l4-24gb",
        capability=(8, 9),
        total=22_563 * MiB,
        sms=58,
        gb_per_s=300,
        tflops=(30.3, 60, 121, 121, 242.5),
        context=_DATACENTRE_CONTEXT,
        source="NVIDIA L4 datasheet, 2023",
    ),
    _gpu(
        "a100-80gb",
        "NVIDIA A100-SXM4-80GB",
        "a100-sxm-80gb",
        capability=(8, 0),
        total=85_097_971_712,
        sms=108,
        gb_per_s=2039,
        tflops=(19.5, 156, 312, 312, None),
        context=_DATACENTRE_CONTEXT,
        source="NVIDIA A100 datasheet, 2021",
    ),
    _gpu(
        "a100-pcie-80gb",
        "NVIDIA A100 80GB PCIe",
        capability=(8, 0),
        total=84_974_239_744,
        sms=108,
        gb_per_s=1935,
        tflops=(19.5, 156, 312, 312, None),
        context=_DATACENTRE_CONTEXT,
        source="NVIDIA A100 datasheet, 2021",
    ),
    _gpu(
        "a100-40gb",
        "NVIDIA A100-SXM4-40GB",
        "a100-sxm-40gb",
        "a100-pcie-40gb",
        capability=(8, 0),
        total=42_298_834_944,
        sms=108,
        gb_per_s=1555,
        tflops=(19.5, 156, 312, 312, None),
        context=_DATACENTRE_CONTEXT,
        source="NVIDIA A100 datasheet, 2020",
    ),
    _gpu(
        "a40",
        "NVIDIA A40",
        "a40-48gb",
        capability=(8, 6),
        total=45_416 * MiB,
        sms=84,
        gb_per_s=696,
        tflops=(37.4, 74.8, 149.7, 149.7, None),
        context=_DATACENTRE_CONTEXT,
        source="NVIDIA A40 datasheet, 2021",
    ),
    _gpu(
        "a30",
        "NVIDIA A30",
        "a30-24gb",
        capability=(8, 0),
        total=24_164 * MiB,
        sms=56,
        gb_per_s=933,
        tflops=(10.3, 82, 165, 165, None),
        context=_DATACENTRE_CONTEXT,
        source="NVIDIA A30 datasheet, 2021",
    ),
    _gpu(
        "a10",
        "NVIDIA A10",
        "a10-24gb",
        capability=(8, 6),
        total=23_609_475_072,
        sms=72,
        gb_per_s=600,
        tflops=(31.2, 62.5, 125, 125, None),
        context=_DATACENTRE_CONTEXT,
        source="NVIDIA A10 datasheet, 2021",
    ),
    _gpu(
        "a10g",
        "NVIDIA A10G",
        "a10g-24gb",
        capability=(8, 6),
        total=22_723 * MiB,
        sms=80,
        gb_per_s=600,
        tflops=(35, 35, 70, 70, None),
        context=_DATACENTRE_CONTEXT,
        source="NVIDIA A10G datasheet (AWS G5), 2021",
    ),
    _gpu(
        "v100-32gb",
        "Tesla V100-SXM2-32GB",
        "v100-sxm-32gb",
        "v100-sxm3-32gb",
        "v100-pcie-32gb",
        capability=(7, 0),
        total=34_072_559_616,
        sms=80,
        gb_per_s=900,
        tflops=(15.7, None, None, 125, None),
        context=_OLDER_CONTEXT,
        source="NVIDIA V100 datasheet, 2020",
    ),
    _gpu(
        "v100-16gb",
        "Tesla V100-SXM2-16GB",
        "v100-sxm-16gb",
        "v100-pcie-16gb",
        capability=(7, 0),
        total=16_945_512_448,
        sms=80,
        gb_per_s=900,
        tflops=(15.7, None, None, 125, None),
        context=_OLDER_CONTEXT,
        source="NVIDIA V100 datasheet, 2020",
    ),
    _gpu(
        "t4",
        "Tesla T4",
        "t4-16gb",
        capability=(7, 5),
        total=15_828_320_256,
        sms=40,
        gb_per_s=320,
        tflops=(8.1, None, None, 65, None),
        context=_OLDER_CONTEXT,
        source="NVIDIA T4 datasheet, 2019",
    ),
    _gpu(
        "rtx-pro-6000",
        "NVIDIA RTX PRO 6000 Blackwell",
        "pro-6000",
        "rtx-6000-pro",
        "rtx-pro-6000-96gb",
        "rtx-6000-blackwell",
        "rtx-pro-6000-blackwell-server-edition",
        "rtx-pro-6000-blackwell-workstation-edition",
        capability=(12, 0),
        total=97_250 * MiB,
        sms=188,
        gb_per_s=1792,
        tflops=(125, 251.9, 503.8, 503.8, 1007.6),
        context=_DATACENTRE_CONTEXT,
        source="NVIDIA RTX PRO 6000 Blackwell datasheet, 2025",
    ),
    _gpu(
        "rtx-6000-ada",
        "NVIDIA RTX 6000 Ada Generation",
        "6000-ada",
        "a6000-ada",
        "rtx-6000-ada-48gb",
        capability=(8, 9),
        total=48_622 * MiB,
        sms=142,
        gb_per_s=960,
        tflops=(91.1, 182.1, 364.2, 364.2, 728.5),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA RTX 6000 Ada Generation datasheet, 2022",
    ),
    _gpu(
        "a6000",
        "NVIDIA RTX A6000",
        "a6000-48gb",
        capability=(8, 6),
        total=48_676 * MiB,
        sms=84,
        gb_per_s=768,
        tflops=(38.7, 77.4, 154.8, 154.8, None),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA RTX A6000 datasheet, 2020",
    ),
    _gpu(
        "a5000",
        "NVIDIA RTX A5000",
        "a5000-24gb",
        capability=(8, 6),
        total=24_138 * MiB,
        sms=64,
        gb_per_s=768,
        tflops=(27.8, 55.6, 111.1, 111.1, None),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA RTX A5000 datasheet, 2021",
    ),
    _gpu(
        "a4000",
        "NVIDIA RTX A4000",
        "a4000-16gb",
        capability=(8, 6),
        total=16_117 * MiB,
        sms=48,
        gb_per_s=448,
        tflops=(19.2, 38.3, 76.7, 76.7, None),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA RTX A4000 datasheet, 2021",
    ),
    _gpu(
        "rtx-5090",
        "NVIDIA GeForce RTX 5090",
        "5090",
        capability=(12, 0),
        total=33_677_180_928,
        sms=170,
        gb_per_s=1792,
        tflops=(104.8, 104.8, 209.5, 209.5, 419),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA RTX Blackwell whitepaper, 2025",
    ),
    _gpu(
        "rtx-5080",
        "NVIDIA GeForce RTX 5080",
        "5080",
        capability=(12, 0),
        total=15_840 * MiB,
        sms=84,
        gb_per_s=960,
        tflops=(56.3, 56.3, 112.6, 112.6, 225.1),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA RTX Blackwell whitepaper, 2025",
    ),
    _gpu(
        "rtx-5070-ti",
        "NVIDIA GeForce RTX 5070 Ti",
        "5070-ti",
        capability=(12, 0),
        total=15_840 * MiB,  # as on the RTX 5080, which has the same memory
        nominal=True,
        sms=70,
        gb_per_s=896,
        tflops=(43.9, 43.9, 87.9, 87.9, 175.8),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA RTX Blackwell whitepaper, 2025",
    ),
    _gpu(
        "rtx-4090",
        "NVIDIA GeForce RTX 4090",
        "4090",
        capability=(8, 9),
        total=25_393_692_672,
        sms=128,
        gb_per_s=1008,
        tflops=(82.6, 82.6, 165.2, 165.2, 330.3),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA Ada GPU architecture whitepaper, 2022",
    ),
    _gpu(
        "rtx-4080",
        "NVIDIA GeForce RTX 4080",
        "4080",
        "rtx-4080-16gb",
        capability=(8, 9),
        total=16_049 * MiB,
        sms=76,
        gb_per_s=716.8,
        tflops=(48.7, 48.7, 97.5, 97.5, 194.9),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA Ada GPU architecture whitepaper, 2022",
    ),
    _gpu(
        "rtx-4070-ti-super",
        "NVIDIA GeForce RTX 4070 Ti SUPER",
        "4070-ti-super",
        "rtx-4070-ti-super-16gb",
        capability=(8, 9),
        total=17_170_956_288,
        sms=66,
        gb_per_s=672,
        tflops=(44.1, 44.1, 88.2, 88.2, 176.4),
        context=_DESKTOP_CONTEXT,
        source="total from document 004's records (Windows); NVIDIA GeForce RTX 40 SUPER specifications, 2024",
    ),
    _gpu(
        "rtx-4070-ti",
        "NVIDIA GeForce RTX 4070 Ti",
        "4070-ti",
        "rtx-4070-ti-12gb",
        capability=(8, 9),
        total=12_007 * MiB,
        sms=60,
        gb_per_s=504,
        tflops=(40.1, 40.1, 80.2, 80.2, 160.4),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA Ada GPU architecture whitepaper, 2023",
    ),
    _gpu(
        "rtx-4060-ti-16gb",
        "NVIDIA GeForce RTX 4060 Ti 16GB",
        "4060-ti-16gb",
        capability=(8, 9),
        total=16_722_821_120,
        sms=34,
        gb_per_s=288,
        tflops=(22.1, 22.1, 44.1, 44.1, 88.2),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA GeForce RTX 4060 Ti specifications, 2023",
    ),
    _gpu(
        "rtx-3090-ti",
        "NVIDIA GeForce RTX 3090 Ti",
        "3090-ti",
        capability=(8, 6),
        total=24_114 * MiB,
        sms=84,
        gb_per_s=1008,
        tflops=(40, 40, 80, 80, None),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA GeForce RTX 3090 Ti specifications, 2022",
    ),
    _gpu(
        "rtx-3090",
        "NVIDIA GeForce RTX 3090",
        "3090",
        capability=(8, 6),
        total=25_438_126_080,
        sms=82,
        gb_per_s=936,
        tflops=(35.6, 35.6, 71, 71, None),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA Ampere GA102 whitepaper, 2020",
    ),
    _gpu(
        "rtx-3080-10gb",
        "NVIDIA GeForce RTX 3080",
        "3080",
        "3080-10gb",
        capability=(8, 6),
        total=10_472_390_656,
        sms=68,
        gb_per_s=760,
        tflops=(29.8, 29.8, 59.5, 59.5, None),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA Ampere GA102 whitepaper, 2020",
    ),
    _gpu(
        "rtx-3060-12gb",
        "NVIDIA GeForce RTX 3060",
        "3060",
        "3060-12gb",
        capability=(8, 6),
        total=11_910 * MiB,
        sms=28,
        gb_per_s=360,
        tflops=(12.7, 12.7, 25.5, 25.5, None),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA GeForce RTX 3060 specifications, 2021",
    ),
    _gpu(
        "titan-rtx",
        "NVIDIA TITAN RTX",
        "titan-rtx-24gb",
        capability=(7, 5),
        total=24_190 * MiB,
        sms=72,
        gb_per_s=672,
        tflops=(16.3, None, None, 130.5, None),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA Turing whitepaper, 2018",
    ),
    _gpu(
        "rtx-2080-ti",
        "NVIDIA GeForce RTX 2080 Ti",
        "2080-ti",
        capability=(7, 5),
        total=10_825 * MiB,
        sms=68,
        gb_per_s=616,
        tflops=(13.4, None, None, 53.8, None),
        context=_DESKTOP_CONTEXT,
        source="NVIDIA Turing whitepaper, 2018",
    ),
)

# Names that stand for several GPUs with different memory: the user has to choose.
_FAMILIES: dict[str, tuple[str, ...]] = {
    "a100": ("a100-40gb", "a100-80gb", "a100-pcie-80gb"),
    "a100-sxm": ("a100-40gb", "a100-80gb"),
    "a100-sxm4": ("a100-40gb", "a100-80gb"),
    "a100-pcie": ("a100-40gb", "a100-pcie-80gb"),
    "v100": ("v100-16gb", "v100-32gb"),
    "v100-sxm2": ("v100-16gb", "v100-32gb"),
    "v100-pcie": ("v100-16gb", "v100-32gb"),
    "6000": ("a6000", "rtx-6000-ada", "rtx-pro-6000"),
    "rtx-6000": ("a6000", "rtx-6000-ada", "rtx-pro-6000"),
    "rtx-4060-ti": ("rtx-4060-ti-16gb",),  # also sold with 8 GB
    "4060-ti": ("rtx-4060-ti-16gb",),
}
_BRANDS = ("nvidia", "geforce", "tesla", "quadro")


def find_gpu(name: str) -> Gpu:
    """The GPU a person means: case, spaces, dashes, underscores and brand prefixes do not matter."""
    key = _key(name)
    gpu = _BY_KEY.get(key)
    if gpu is not None:
        return gpu
    if key in _FAMILY_BY_KEY:
        raise _ambiguous(name, _FAMILY_BY_KEY[key])
    raise _unknown(name, key)


def _key(name: str) -> str:
    key = "".join(character for character in name.casefold() if character.isalnum())
    while brand := next((brand for brand in _BRANDS if key.startswith(brand)), None):
        key = key.removeprefix(brand)
    return key


_BY_KEY: dict[str, Gpu] = {
    _key(spelling): gpu for gpu in GPUS for spelling in (gpu.name, gpu.full_name, *gpu.aliases)
}
_FAMILY_BY_KEY = {_key(family): candidates for family, candidates in _FAMILIES.items()}


def _ambiguous(name: str, candidates: tuple[str, ...]) -> UsageError:
    sizes = ", ".join(
        f"{gpu.name} ({gpu.total_bytes / GiB:.1f} GiB)" for gpu in GPUS if gpu.name in candidates
    )
    return UsageError(
        f"GPU name {name!r} does not say which memory size",
        f"Name one of: {sizes}. For another size give --memory SIZE, for example --memory 24GiB.",
    )


def _unknown(name: str, key: str) -> UsageError:
    close = dict.fromkeys(
        _BY_KEY[match].name for match in difflib.get_close_matches(key, _BY_KEY, n=4, cutoff=0.7)
    )
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    known = ", ".join(gpu.name for gpu in GPUS)
    return UsageError(
        f"unknown GPU {name!r}",
        f"{hint}Known GPUs: {known}. For any other GPU give its memory with --memory SIZE, for example --memory 24GiB.",
    )
