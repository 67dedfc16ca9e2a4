"""How many neighbours a thread asks for at once."""

from collections.abc import Mapping

import numpy as np

from vramcast.simulate.fused.values import Access, Numbers

WARP, WIDEST_BYTES = 32, 16


def fastest(places: Numbers) -> int:
    """The axis along which neighbours are neighbours in memory, else the longest."""
    for axis in reversed(range(places.ndim)):
        if places.shape[axis] > 1:
            steps = np.diff(places.take([0, 1], axis), axis=axis)
            if (steps == 1).mean() > 0.9:
                return axis
    return int(np.argmax(places.shape))


def width_along(axis: int, access: Access, elements: Mapping[str, int]) -> int:
    places = np.moveaxis(access.places, axis, -1)
    names = [name for name in ("z", "y", "x", "r0", "r1") if name in elements][-places.ndim :]
    size = elements[names[axis]] if len(names) == places.ndim else 1
    widest = WIDEST_BYTES // access.tensor.item_bytes
    if not elements:  # of a kernel that somebody wrote only the mask tells
        size, widest = 0, min(widest, _width_of_mask(np.moveaxis(access.is_asked, axis, -1)))
    return _width(places, size, min(widest, access.most_width))


def _width_of_mask(is_asked: Numbers) -> int:
    """How many neighbours in a row are always either all asked for or none of them."""
    width = 1
    while (wider := 2 * width) <= WIDEST_BYTES and not is_asked.shape[-1] % wider:
        if (is_asked[..., ::wider] != is_asked[..., wider - 1 :: wider]).any():
            break
        width = wider
    return width


def _width(places: Numbers, number: int, widest: int) -> int:
    """Masks and rows must begin at multiples of it too."""
    width = 1
    while (wider := 2 * width) <= widest and not (places.shape[-1] % wider or number % wider):
        first, last = places[..., ::wider], places[..., wider - 1 :: wider]
        if (first % wider).any() or (last != first + wider - 1).any():
            break
        width = wider
    return width
