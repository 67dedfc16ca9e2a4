"""Times of convolutions: what is told of them, and recorded ones."""

from __future__ import annotations

import pytest
import torch

from vramcast.forecast.timing.convolutions import side_of
from vramcast.simulate.kernels.work import work_of
from vramcast.tracing.work import Convolution, is_padded

ALL = Convolution(
    *(6400, 64, 3, 35, 2),
    is_transposed=True,
    is_channels_last=True,
    of_data=True,
    of_weight=True,
    batch=512,
    is_dilated=True,
    is_padded=False,
    side=7,
    stride=2,
)


@pytest.mark.parametrize(
    "sizes", [ALL, Convolution(*ALL[:5]), ALL._replace(batch=0, is_padded=True)]
)
def test_sizes_are_packed_into_four_numbers_and_back(sizes: Convolution) -> None:
    assert Convolution.unpacked(sizes.packed) == sizes
    assert all(number < 1 << 63 for number in sizes.packed)


def test_a_long_side_is_the_longest_that_is_told() -> None:
    assert Convolution.unpacked(ALL._replace(kernel=400, side=400).packed).side == 255


def test_a_filter_too_long_to_be_told_leaves_what_is_told_beside_it() -> None:
    found = Convolution.unpacked(ALL._replace(kernel=1 << 21).packed)
    assert found._replace(kernel=ALL.kernel) == ALL


def sizes_of(x: torch.Tensor, **others: list[int]) -> Convolution:
    """Of the gradients of one filter a channel."""
    weight, grad = torch.zeros(8, 1, 5, 5), torch.zeros(2, 8, 16, 16)
    named = {"x": x, "weight": weight, "grad": grad, "groups": 8, **others}
    sizes = work_of("convolution_backward", (grad, x, weight), named, (x, weight))[3]
    return Convolution.unpacked(tuple(sizes))


def test_a_slice_of_channels_has_channels_last_as_cudnn_sees_it() -> None:
    last = torch.zeros(2, 16, 16, 24)
    whole, part = (t.permute(0, 3, 1, 2) for t in (last[..., :8].contiguous(), last[..., :8]))
    assert sizes_of(whole).is_channels_last and sizes_of(part).is_channels_last
    assert not sizes_of(whole.contiguous()).is_channels_last


def test_strides_paddings_and_sides_are_told() -> None:
    found = sizes_of(torch.zeros(2, 8, 32, 32), stride=[2, 2], padding=[2, 2], dilation=[1, 1])
    assert (found.side, found.stride, found.is_padded) == (5, 2, True)
    assert not sizes_of(torch.zeros(2, 8, 36, 36), stride=[2, 2], padding=[0, 0]).is_padded


def test_half_a_filter_is_a_padding_that_keeps_the_size() -> None:
    assert (
        is_padded([3, 7], [1, 3], [1, 1]) and is_padded([3], [4], [4]) and is_padded([6], [2], [1])
    )
    assert not is_padded([16, 16], [0, 0], [1, 1])


@pytest.mark.parametrize(
    ("kernel", "dims", "side"),
    [(49, 2, 7), (5, 2, 5), (27, 3, 3), (9, 3, 3), (3, 3, 1), (245, 3, 7), (8, 3, 2), (10, 1, 10)],
)
def test_a_side_that_is_not_told_is_guessed(kernel: int, dims: int, side: int) -> None:
    assert side_of(Convolution(100, 8, 8, kernel, dims)) == side
