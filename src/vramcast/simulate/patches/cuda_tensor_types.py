"""torch.cuda.FloatTensor and the like make tensors of the simulated GPU.

Why: programs from before torch.device use them, and a build without CUDA refuses.
"""

from functools import partial
from typing import Any

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "torch"
DTYPES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Short": torch.int16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Bool": torch.bool,
}


class _TensorType(type):
    """The type of classes whose instances are tensors of one dtype on the GPU."""

    dtype: torch.dtype

    def __call__(cls, *data: Any, **_: Any) -> torch.Tensor:
        """Makes a tensor of these sizes, or with the contents of a list, an array or a tensor."""
        if len(data) == 1 and not isinstance(data[0], int | torch.Size):
            return torch.as_tensor(data[0], dtype=cls.dtype, device="cuda")
        sizes = data[0] if data and isinstance(data[0], torch.Size) else data
        return torch.empty(sizes or (0,), dtype=cls.dtype, device="cuda")

    def __instancecheck__(cls, instance: Any) -> bool:
        is_tensor = isinstance(instance, torch.Tensor)
        return is_tensor and instance.is_cuda and instance.dtype == cls.dtype


def _new(kind: _TensorType, cls: type, /, *data: Any, **options: Any) -> Any:
    """torch.Tensor(...) has the default tensor type, which torch.set_default_device does not
    change."""
    if cls is torch.Tensor and "device" not in options:
        return kind(*data)
    return torch._C.TensorBase.__new__(cls, *data, **options)


def apply(patcher: Patcher) -> None:
    types = {
        f"torch.cuda.{name}Tensor": _TensorType(f"{name}Tensor", (), {"dtype": dtype})
        for name, dtype in DTYPES.items()
    }
    for name, kind in types.items():
        patcher.put(torch.cuda, name.rpartition(".")[2], kind)
    convert, set_default = torch.Tensor.type, torch.set_default_tensor_type

    def type_(self: torch.Tensor, dtype: Any = None, *rest: Any, **options: Any) -> Any:
        kind = types.get(dtype, dtype) if isinstance(dtype, str) else dtype
        if isinstance(kind, _TensorType):
            return self.to("cuda", kind.dtype)
        return convert(self, dtype, *rest, **options)

    def set_default_tensor_type(kind: Any, /) -> None:
        kind = types.get(kind, kind) if isinstance(kind, str) else kind
        if isinstance(kind, _TensorType):
            torch.set_default_dtype(kind.dtype)
            torch.set_default_device("cuda")
            patcher.put(torch.Tensor, "__new__", partial(_new, kind))
            return
        patcher.put(torch.Tensor, "__new__", torch._C.TensorBase.__new__)
        torch.set_default_device(None)
        set_default(kind)

    patcher.put(torch.Tensor, "type", type_)
    patcher.put(torch, "set_default_tensor_type", set_default_tensor_type)
