"""A launch of a fused kernel."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from vramcast.simulate.fused.language import Kernel
from vramcast.simulate.fused.values import Notes, Numbers, Tensor

BLOCK = "BLOCK"  # names of a block's sides end with it


def axis_of(name: str) -> str:
    """Whose blocks have as many elements as this argument says."""
    return name.removesuffix(BLOCK).rstrip("_").lower() if name.endswith(BLOCK) else ""


class Launch(NamedTuple):
    """A kernel with what it is given: its arguments by name, its axes' elements, and how many
    blocks each axis has. It reads and writes some tensors, those in `changed`. Of some the contents
    are known: `tables`, by the tensor's number."""

    kernel: Kernel
    given: Mapping[str, Any]
    elements: Mapping[str, int]
    grid: Sequence[int]
    num_warps: int
    changed: Collection[str] = ()
    tables: Mapping[int, Numbers] = {}

    def run(self, block: Sequence[int]) -> Notes:
        return self.kernel.run(self.given, block, self.grid, self.tables)

    @property
    def bytes_of_tensors(self) -> float:
        """Each read once, and written where it is changed."""
        tensors = {name: each for name, each in self.given.items() if isinstance(each, Tensor)}
        changed = {each for name, each in tensors.items() if name in self.changed}
        return float(sum(tensor.num_bytes for tensor in (*{*tensors.values()}, *changed)))
