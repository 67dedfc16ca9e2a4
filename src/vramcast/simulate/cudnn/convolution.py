"""One convolution, as cuDNN sees it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

FORWARD, DATA_GRADIENT, WEIGHT_GRADIENT = 0, 1, 2


@dataclass(frozen=True)
class Convolution:
    """The sizes of a convolution. For a transposed one, `x` is its result and `y` its input."""

    dtype: str  # fp32, bf16 or fp16
    tf32: bool
    channels_last: bool
    x: Sequence[int]
    weight: Sequence[int]
    y: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    @property
    def item_bytes(self) -> int:
        return 4 if self.dtype == "fp32" else 2

    @property
    def filter_area(self) -> int:
        return math.prod(self.weight[2:])

    @property
    def product(self) -> tuple[int, int, int]:
        """Rows, columns and depth of the weight gradient as a matrix product."""
        columns = self.weight[1] * self.filter_area
        return self.weight[0], columns, self.y[0] * math.prod(self.y[2:])

    @property
    def is_matrix_product(self) -> bool:
        """Whether the filter is 1 x 1 and sees every position: then cuDNN can leave it to
        cuBLAS."""
        is_whole = {*self.stride, self.groups, self.filter_area} == {1}
        return is_whole and not any(self.padding)
