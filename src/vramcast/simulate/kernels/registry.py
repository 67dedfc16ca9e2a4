"""How a CUDA kernel's memory is written down in Python.

Most kernels allocate only their result, as torch's Meta kernels say. The others are functions here.
Memory is freed with the last reference, as in C++: the order of `del` is part of the model.

A function receives the arguments that are named like its parameters, by torch's schema or by
ARGUMENT_NAMES.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from vramcast.simulate import meta_kernels
from vramcast.simulate.gpu import SimulatedGpu

ARGUMENT_NAMES = {
    "self": "x",
    "input": "x",
    "query": "q",
    "key": "k",
    "value": "v",
    "grad_output": "grad",
    "grad_out": "grad",
    "grad_out_": "grad",
    "output_mask": "wanted",  # which gradients are to be computed
    "grad_input_mask": "wanted",
}
SEQUENCES = (list, tuple)
# Types of arguments that hold no tensor.
PLAIN = frozenset(
    (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout)
    + (torch.memory_format,)
)
Kernel = Callable[..., Any]
KERNELS: dict[str, Kernel] = {}


class Target:
    """The GPU whose kernels these are; set by install()."""

    gpu: SimulatedGpu


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Register the function as the CUDA kernel of these aten operators."""

    def register(function: Kernel) -> Kernel:
        KERNELS.update(dict.fromkeys(names, function))
        return function

    return register


def note(text: str) -> None:
    Target.gpu.note(text)


def guess(text: str = "") -> None:
    """Notes that the running kernel's result is a guess, because its input was not computed."""
    Target.gpu.device.library.vramcast_guess()
    if text:  # the guess decides a size
        Target.gpu.has_guessed_sizes = True
        note(text)


def new(
    *shape: int, dtype: torch.dtype, memory_format: torch.memory_format = torch.contiguous_format
) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="cuda", memory_format=memory_format)


def scratch(*num_bytes: int) -> list[Tensor]:
    """Memory that a kernel takes for itself. It is freed when the returned list is dropped, often
    at once."""
    return [new(size, dtype=torch.uint8) for size in num_bytes]


def draw_elements(count: int, per_thread: int = 4) -> None:
    """Draws a random number for each of `count` elements. One thread makes `per_thread` of them."""
    Target.gpu.device.library.vramcast_draw_elements(count, per_thread)


def take_random(count: int) -> None:
    Target.gpu.device.library.vramcast_take_random(count)


@contextmanager
def drawing_from(generator: torch.Generator | None) -> Iterator[None]:
    """Random numbers in this block are taken from the program's own generator, if it gave one."""
    default = torch.cuda.default_generators[0]
    begin = default.get_offset()
    yield
    if generator is not None:
        generator.set_offset(generator.get_offset() + default.get_offset() - begin)
        default.set_offset(begin)


def accumulator_dtype(x: Tensor) -> torch.dtype:
    """The type of sums and statistics: single precision, or double if the input is double."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def meta_result(operator: Any, *arguments: Any, **options: Any) -> Any:
    """The result that torch's own Meta kernel gives."""
    if not torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "Meta"):
        meta_kernels.load()
    return operator(*_to_meta(arguments), **_to_meta(options))


def _to_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return like(value, device="meta")
    if isinstance(value, SEQUENCES):
        return type(value)(_to_meta(item) for item in value)
    if isinstance(value, dict):
        return {name: _to_meta(item) for name, item in value.items()}
    return value


def like(x: Tensor, device: str = "cuda") -> Tensor:
    """A new tensor of the same shape, strides and type."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)


def suggest_memory_format(x: Tensor) -> torch.memory_format:
    """The same as torch's in C++. torch's in Python imports sympy, which takes a second."""
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    if x.layout != torch.strided or x.dim() not in layouts or not x.stride(1) or not x.numel():
        return torch.contiguous_format
    least = 0
    for dim in (1, *range(x.dim() - 1, 1, -1), 0):
        if x.stride(dim) < least or (dim == 0 and least == x.stride(1)):
            return torch.contiguous_format
        least = x.stride(dim) * x.shape[dim]
    return layouts[x.dim()]


def known(tensor: Tensor) -> Tensor | None:
    """The tensor's real contents on the host, where they are known."""
    return torch.ops.vramcast.values(tensor)


def set_known(tensor: Tensor, values: Tensor) -> None:
    torch.ops.vramcast.set_values(tensor, values)


def typical(tensor: Tensor) -> tuple[float, bool, float]:
    """The value that is assumed for unknown contents, whether every element is sure to have it, and
    which share of a mask is true."""
    number, is_sure, true_share = torch.ops.vramcast.typical(tensor)
    return number, is_sure, true_share


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    found = list[Tensor]()
    if isinstance(value, SEQUENCES):
        _gather(value, found)
    return found


def _gather(values: Iterable[Any], found: list[Tensor]) -> None:
    for item in values:
        if type(item) in PLAIN:  # to ask whether it is a tensor takes longer
            continue
        if isinstance(item, Tensor):
            found.append(item)
        elif isinstance(item, SEQUENCES):
            _gather(item, found)
