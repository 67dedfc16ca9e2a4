"""Which calibration table a prediction uses, by architecture and torch version.

A table says what GPU libraries allocate beside torch. The user's own tables, made by `vramcast
calibrate`, come first. Without any table, documented defaults are used, and the prediction's
`limits` say so.
"""

import tomllib
from collections import ChainMap, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.hardware.gpus import Gpu
from vramcast.records.calibration import Calibration
from vramcast.records.store import (
    cache_folder,
    check_trusted,
    locked_folder,
    write_json,
)

SHIPPED = Path(__file__).with_name("tables")
LAYERS = Path(__file__).with_name("layers.toml")
# Kernels are loaded into GPU memory when they are first used. This is what training steps loaded on
# an H200.
DEFAULT_KERNELS_BYTES = 136_314_880
# Between these versions kernels have the same temporaries, apart from what docs/limits.md lists:
# the calls that allocate were compared in torch's CUDA builds, function by function.
SAME_TORCH = ((2, 10), (2, 15))
# torch 2.14 comes with cuDNN 9.24, which may choose other kernels; earlier ones come with 9.20 at
# most.
NEW_CUDNN = (2, 14)
CONVOLUTION_SIZES = ("x", "weight", "stride", "padding", "dilation")


def architecture_of(capability: tuple[int, int]) -> str:
    return "sm_{}{}".format(*capability)


def user_folder() -> Path:
    return cache_folder() / "calibration"


def find(gpu: Gpu, torch_version: str) -> tuple[Calibration | None, list[str]]:
    """The table, and what the limits must say about it."""
    architecture, wanted = architecture_of(gpu.capability), minor_version(torch_version)
    tables = [read(path) for path in _candidates(architecture)]
    same = [table for table in tables if minor_version(table.torch_version) == wanted]
    alike = [table for table in tables if _are_alike(minor_version(table.torch_version), wanted)]
    if chosen := same or alike:
        # the first, with convolutions added that only the others have
        convolutions = ChainMap(*(table.convolutions for table in chosen))
        return replace(chosen[0], convolutions=dict(convolutions)), []
    if tables:
        known = tables[0].torch_version
        limit = f"hidden allocations were measured under torch {known}, not {torch_version}"
        return tables[0], [limit]
    return None, [
        "no GPU of this kind was measured: the CUDA context, loaded kernels and library workspaces "
        "are documented defaults (`vramcast calibrate` measures them)"
    ]


def _are_alike(*versions: tuple[int, int]) -> bool:
    return all(SAME_TORCH[0] <= version <= SAME_TORCH[1] for version in versions)


def _candidates(architecture: str) -> list[Path]:
    """The files of tables: the user's own first, then those of newer torch."""
    pattern = f"{architecture}-torch-*.json"
    folders = (user_folder(), SHIPPED)
    return [path for each in folders for path in sorted(each.glob(pattern), reverse=True)]


@cache
def read(path: Path) -> Calibration:
    if path.parent == user_folder():
        check_trusted(path)
    try:
        return Calibration.from_file(path)
    except UsageError as problem:
        raise UsageError(problem.message, "Remove it, or run vramcast calibrate again.") from None


def keep(measured: Calibration, folder: Path) -> tuple[Calibration, Path]:
    """Writes a table, together with the convolutions of an earlier table of the same GPU and
    torch."""
    name = "{}-torch-{}.{}.json".format(
        measured.architecture, *minor_version(measured.torch_version)
    )
    path = folder / name
    with locked_folder(folder):
        if path.exists():
            known = read(path).convolutions
            measured = replace(measured, convolutions={**known, **measured.convolutions})
        write_json(path, measured.to_dict())
    read.cache_clear()
    return measured, path


def common_convolutions() -> Iterator[str]:
    """Keys of all layers in layers.toml, for every batch size, precision and layout."""
    grid = tomllib.loads(LAYERS.read_text())
    for batch, dtype, channels_last, layer in product(
        grid["batch_sizes"], grid["precisions"], (False, True), grid["layers"]
    ):
        channels_in, size, channels_out, kernel, stride, padding = layer
        yield convolution_key(
            dtype=dtype,
            channels_last=channels_last,
            x=(batch, channels_in, size, size),
            weight=(channels_out, channels_in, kernel, kernel),
            stride=(stride, stride),
            padding=(padding, padding),
            dilation=(1, 1),
            groups=1,
        )


def convolution_key(*, dtype: str, channels_last: bool, groups: int, **sizes: Sequence[int]) -> str:
    """A convolution as text: `bf16 nhwc x64,3,224,224 w64,3,7,7 s2,2 p3,3 d1,1 g1`."""
    lists = " ".join(name[0] + ",".join(map(str, sizes[name])) for name in CONVOLUTION_SIZES)
    return f"{dtype} {'nhwc' if channels_last else 'nchw'} {lists} g{groups}"


def parse_convolution_key(key: str) -> dict[str, Any]:
    """The arguments of `convolution_key`."""
    dtype, layout, *parts, groups = key.split()
    lists = [[int(number) for number in part[1:].split(",")] for part in parts]
    sizes = dict(zip(CONVOLUTION_SIZES, lists, strict=True))
    return {"dtype": dtype, "channels_last": layout == "nhwc", "groups": int(groups[1:]), **sizes}


def has_other_cudnn(calibration: Calibration, torch_version: str) -> bool:
    measured, wanted = minor_version(calibration.torch_version), minor_version(torch_version)
    return (measured >= NEW_CUDNN) != (wanted >= NEW_CUDNN)


def minor_version(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


class KnownConvolutions:
    """Workspaces of convolutions, also for sizes between two measured batch sizes."""

    def __init__(self, table: Mapping[str, Sequence[int]], *, of_other_cudnn: bool = False) -> None:
        self._table, self.of_other_cudnn = table, of_other_cudnn
        self._by_batch: dict[str, dict[int, Sequence[int]]] = defaultdict(dict)
        for key, workspaces in table.items():
            layer, batch = _layer_and_batch(key)
            self._by_batch[layer][batch] = workspaces

    def measured(self, key: str) -> Sequence[int] | None:
        return self._table.get(key)

    def between(self, key: str) -> list[int] | None:
        """An estimate from the neighbouring batch sizes: cuDNN may choose another kernel in
        between."""
        layer, batch = _layer_and_batch(key)
        known = self._by_batch.get(layer, {})
        low = max((size for size in known if size < batch), default=None)
        high = min((size for size in known if size > batch), default=None)
        if low is None or high is None:
            return None
        ends = zip(known[low], known[high], strict=True)
        return [a + (b - a) * (batch - low) // (high - low) for a, b in ends]


def _layer_and_batch(key: str) -> tuple[str, int]:
    """`bf16 nhwc x64,3,...` -> (`bf16 nhwc x*,3,...`, 64)."""
    before, _, rest = key.partition(" x")
    batch, _, others = rest.partition(",")
    return f"{before} x*,{others}", int(batch)
