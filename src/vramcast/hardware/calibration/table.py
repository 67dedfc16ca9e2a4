"""What GPU libraries take behind torch's back, as data: a table per architecture and torch version, measured by `vramcast calibrate`.

Looked for in the user's cache first (their own GPU), then among the tables that come with vramcast. Where there is none, documented
defaults are used and the prediction's `limits` say so. No torch.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.hardware.gpus import Gpu
from vramcast.records.calibration import Calibration
from vramcast.records.store import cache_folder

SHIPPED = Path(__file__).parent / "tables"
# Kernels are loaded into GPU memory when first used: what training steps loaded on an H200.
DEFAULT_KERNELS_BYTES = 136_314_880
# Between these versions the sources of cuBLAS's workspaces and of the kernels' temporaries are the same.
SAME_TORCH = ((2, 10), (2, 13))


def table_name(architecture: str, torch_version: str) -> str:
    major, minor = _minor(torch_version)
    return f"{architecture}-torch-{major}.{minor}.json"


def architecture_of(capability: tuple[int, int]) -> str:
    return f"sm_{capability[0]}{capability[1]}"


def user_folder() -> Path:
    return cache_folder() / "calibration"


def find(gpu: Gpu, torch_version: str) -> tuple[Calibration | None, list[str]]:
    """The table for this GPU's architecture, and what must be said about it in the limits."""
    architecture = architecture_of(gpu.capability)
    tables = [read(path) for path in _candidates(architecture)]
    same = [t for t in tables if _minor(t.torch_version) == _minor(torch_version)]
    near = [
        t
        for t in tables
        if all(
            SAME_TORCH[0] <= _minor(v) <= SAME_TORCH[1] for v in (t.torch_version, torch_version)
        )
    ]
    if same or near:
        return _merged(same or near), []
    if tables:
        return tables[0], [
            f"hidden allocations were measured under torch {tables[0].torch_version}, not {torch_version}"
        ]
    return None, [_no_table(architecture)]


def _merged(tables: list[Calibration]) -> Calibration:
    """The first, with the convolutions that only the others know: a user's own table adds to the one that comes with vramcast."""
    known: dict[str, list[int]] = {}
    for table in reversed(tables):
        known |= table.convolutions
    return replace(tables[0], convolutions=known)


def _no_table(architecture: str) -> str:
    return (
        f"nothing was calibrated on {architecture}: the CUDA context, loaded kernels and library workspaces are documented defaults "
        "(`vramcast calibrate` measures them on the GPU)"
    )


def _candidates(architecture: str) -> list[Path]:
    """The user's own come first; newest torch first among each."""
    return [
        path
        for folder in (user_folder(), SHIPPED)
        for path in sorted(folder.glob(f"{architecture}-torch-*.json"), reverse=True)
    ]


@cache
def read(path: Path) -> Calibration:
    try:
        return Calibration.from_json(path.read_text())
    except (OSError, UnicodeDecodeError, UsageError) as problem:
        raise UsageError(
            f"The calibration {path} cannot be used: {problem}",
            "Remove it, or run vramcast calibrate again.",
        ) from None


def convolution_key(
    *,
    dtype: str,
    channels_last: bool,
    x: Any,
    weight: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> str:
    """One convolution, in words that can be parsed again: `bf16 nhwc x64,3,224,224 w64,3,7,7 s2,2 p3,3 d1,1 g1`."""
    named = zip("xwspd", (x, weight, stride, padding, dilation), strict=True)
    lists = " ".join(f"{letter}{','.join(map(str, values))}" for letter, values in named)
    return f"{dtype} {'nhwc' if channels_last else 'nchw'} {lists} g{groups}"


def parse_convolution_key(key: str) -> dict[str, Any]:
    dtype, layout, *parts, groups = key.split()
    values = {part[0]: [int(n) for n in part[1:].split(",")] for part in parts}
    return {"dtype": dtype, "channels_last": layout == "nhwc", "groups": int(groups[1:]), **values}


def _minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
