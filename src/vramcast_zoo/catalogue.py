"""Every model of the zoo by name.

No torch is imported: this is what lists, registers and looks up names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vramcast_zoo.sizing import FAMILIES, Size, free_size

DOCUMENTS = {
    "000": "E10 maximum batch size report",
    "001": "VRAM optimization for Yxanul 197M",
    "002": "Standard testing protocol",
    "003": "Elleci optimisation log",
    "004": "GPU VRAM budget breakdown v1 (OD1)",
    "logs": "logs of the project that documents 000 and 002 come from",
}


@dataclass(frozen=True)
class Entry:
    name: str
    family: str
    document: str | None  # a key of DOCUMENTS; None for a baseline
    sizes: Mapping[str, Size]
    knobs: Mapping[str, object] = field(
        default_factory=dict
    )  # defaults of the training step that go with the name

    @property
    def function(self) -> str:
        return self.name.replace("-", "_").replace(".", "_")

    @property
    def all_sizes(self) -> dict[str, Size]:
        return {**FAMILIES[self.family].defaults, **self.sizes}

    @property
    def parameters(self) -> int:
        return FAMILIES[self.family].count(**self.all_sizes)


def _entry(
    name: str, document: str | None, knobs: Mapping[str, object] | None = None, **sizes: Size
) -> Entry:
    return Entry(name, name.partition("-")[0], document, sizes, knobs or {})


ENTRIES = (
    _entry("e1-50m", "002", dim=512, depth=21, expansion=1.5),
    _entry("e1-d1024", "002", dim=1024, depth=5),
    _entry("e1-d512", "002", dim=512, depth=21),
    _entry("e1-400m", "logs", dim=3584, depth=6),
    *(
        _entry(f"e5-d{dim}-r{rank}", "002", dim=dim, depth=20, rank=rank)
        for dim, rank in (
            (768, 539),
            (1024, 404),
            (1536, 270),
            (2048, 200),
            (3072, 133),
            (4096, 99),
            (6144, 65),
        )
    ),
    *(
        _entry(f"e10-{size}", "logs", dim=dim, depth=6)
        for size, dim in (("50m", 960), ("100m", 1344), ("200m", 1920))
    ),
    _entry("e10-391m", "000", dim=2688, depth=6),
    _entry("mamba2-50m", "002", dim=672, depth=18),
    _entry("mamba2-100m", "logs", dim=736, depth=30),
    _entry("mamba2-200m", "logs", dim=1120, depth=26),
    _entry("mamba2-400m", "logs", dim=1728, depth=22),
    _entry("yxanul-197m", "001"),
    _entry("yxanul-350m-fp8", "001", {"linear": "fp8"}, tied=False),
    _entry("elleci-1.36b", "003"),
    _entry("od1-small", "004", {"batch_size": 4, "seq_len": 128}, ring_len=2048, slot_dim=256),
    _entry("od1-real", "004", {"batch_size": 16, "seq_len": 256}, ring_len=8192, slot_dim=576),
    _entry("od1-stress", "004", {"batch_size": 16, "seq_len": 256}, ring_len=16384, slot_dim=768),
    _entry("gpt2-124m", None),
    _entry("llama-300m", None),
)

BY_NAME = {entry.name: entry for entry in ENTRIES}
NAMES = {entry.name: f"vramcast_zoo.names:{entry.function}" for entry in ENTRIES}


def find_named(
    family: str, wanted: int, given: Mapping[str, Size], tolerance: float = 0.01
) -> Entry | None:
    """The model of the documents with these sizes and about this number of parameters, or None.

    The documents chose by hand, not always the nearest size; their results belong to what they
    chose.
    """
    free = free_size(FAMILIES[family], given)
    fixed = {
        name: size for name, size in {**FAMILIES[family].defaults, **given}.items() if name != free
    }
    for entry in ENTRIES:
        if (
            entry.family == family
            and fixed.items() <= entry.all_sizes.items()
            and abs(entry.parameters - wanted) <= tolerance * wanted
        ):
            return entry
    return None
