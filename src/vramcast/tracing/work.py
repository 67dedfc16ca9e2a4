"""The arithmetic and memory traffic of an operator of a simulated step. Plain data, no torch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

NO_KERNEL, PLAIN, CONVERTING, STRIDED, TURNED = range(5)  # native/work_list.h: enum Access
# of attention: what is done for each score
MASKED, DROPPED, MASKED_AND_DROPPED = CONVERTING, STRIDED, TURNED
ACCESS_NAMES = ("none", "plain", "converting", "strided", "strided")
# REPLAYED: run as part of a CUDA graph. CAPTURED: only recorded for one, or done during a
# compilation.
FORWARD, BACKWARD, UPDATE, REPLAYED, CAPTURED = range(5)
PHASES = {FORWARD: "forward", BACKWARD: "backward", UPDATE: "update"}
# c10::ScalarType; types without a rate of their own count as fp32
PRECISION_OF_DTYPE = {5: "fp16", 6: "fp32", 15: "bf16", 23: "fp8", 24: "fp8"}
GENERATED = "inductor::"  # names of kernels that torch.compile has written begin with this
FUSED = f"{GENERATED}triton_"  # of those that Inductor has fused
JIT = "jit::"  # and of Triton kernels that people wrote, where their blocks could be run
CROWD_PARTS = 1 << 16
EVALUATION = "vramcast::evaluation"  # an optimizer calls its closure; how often depends on values
EVALUATED = 2  # more in sizes[0]: a batch norm with statistics that it has kept
TF32 = 1006  # native/work.h: fp32 that tensor cores may round to TF32


class Convolution(NamedTuple):
    """The sizes of a convolution as four numbers, and back."""

    positions: int  # the number of results of one filter, over the whole batch
    filters: int  # in a group
    channels: int  # in a group
    kernel: int  # elements of a filter
    dims: int
    is_transposed: bool = False
    is_channels_last: bool = False
    of_data: bool = False  # whether a backward pass computes this gradient, and the next one
    of_weight: bool = False
    batch: int = 0  # 0: not known
    is_dilated: bool = False
    is_padded: bool = True  # by half a filter
    side: int = 0  # the last of a filter, as the stride; 0: not known
    stride: int = 0

    @property
    def packed(self) -> tuple[int, int, int, int]:
        flags = *self[5:9], self.dims & 1, self.dims > 1, self.is_dilated, not self.is_padded
        last = self.batch << 40 | min(self.stride, 15) << 36 | min(self.side, 255) << 28
        last |= min(self.kernel, 0xFFFFF) << 8 | sum(flag << bit for bit, flag in enumerate(flags))
        return *self[:3], last

    @classmethod
    def unpacked(cls, sizes: tuple[int, int, int, int]) -> Self:
        last = sizes[3]
        flags = [bool(last >> bit & 1) for bit in range(4)]
        kernel, dims, batch = last >> 8 & 0xFFFFF, last >> 4 & 3, last >> 40
        others = bool(last >> 6 & 1), not last >> 7 & 1, last >> 28 & 0xFF, last >> 36 & 0xF
        return cls._make((*sizes[:3], kernel, dims, *flags, batch, *others))


def is_padded(filter: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> bool:
    """Whether the padding is half a filter, so that a result is as large as its input."""
    return all(
        abs(2 * pad - (side - 1) * apart) < 2 for side, pad, apart in zip(filter, padding, dilation)
    )


class OperatorWork(NamedTuple):
    operator: str  # "aten::mm", without its overload
    dtype: int
    flops: float
    num_bytes: float  # read and written
    # products and attention: batch, rows, columns, inner size; lists of tensors: how many;
    # convolutions: as of Convolution; others: across [0], units [3] (native/work.h), of
    # batch norm samples [1], positions [2]; additions [1] to places [2] that threads share; of
    # fused kernels blocks [0], nanoseconds of waiting [2], bytes that are asked of the cache [3],
    # or additions as above, and the share of these that go to one place at a time, in CROWD_PARTS
    # [0]; FlexAttention: what all it does costs, in operations of products [3]
    sizes: tuple[int, int, int, int]
    phase: int
    access: int
    stream: int = 0

    @property
    def precision(self) -> str:
        return "tf32" if self.dtype == TF32 else PRECISION_OF_DTYPE.get(self.dtype, "fp32")

    @property
    def item_bytes(self) -> int:
        return 2 if self.precision in ("bf16", "fp16") else 4

    @property
    def counted_flops(self) -> float:
        """As people count them: of a fused kernel `flops` is what it costs, in other units."""
        return 0.0 if self.operator.startswith((FUSED, JIT)) else self.flops

    @property
    def has_kernel(self) -> bool:
        return self.access != NO_KERNEL

    @property
    def is_evaluated(self) -> bool:
        return "batch_norm" in self.operator and self.sizes[0] >= EVALUATED

    @property
    def is_known(self) -> bool:
        """Whether more is known of it than its tensors' bytes."""
        return self.is_generated or self.operator.startswith(("aten::", "c10d::"))

    @property
    def is_generated(self) -> bool:
        """Whether torch.compile or Triton made the kernel."""
        return self.operator.startswith((GENERATED, JIT))


class Works:
    """The work of a step's operators, in order. Of a million only a few are different."""

    def __init__(self, codes: NDArray[np.int64], distinct: tuple[OperatorWork, ...]) -> None:
        self.codes, self.distinct = codes, distinct

    @classmethod
    def of(cls, works: "Iterable[OperatorWork] | Works") -> "Works":
        if isinstance(works, Works):
            return works
        numbers: dict[OperatorWork, int] = {}
        codes = [numbers.setdefault(work, len(numbers)) for work in works]
        return cls(np.array(codes, np.int64), tuple(numbers))

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[OperatorWork]:
        return (self.distinct[code] for code in self.codes.tolist())

    def each(self, value: Callable[[OperatorWork], float]) -> NDArray[np.float64]:
        """The value of each, computed once for all that are equal."""
        return np.array([value(work) for work in self.distinct], np.float64)[self.codes]
