"""How a tensor and its category are named and coloured."""

from vramcast.records.prediction import CATEGORIES, LargeTensor
from vramcast.reporting import sections as page


def words(category: str) -> str:
    return category.replace("_", " ")


def colour_of(category: str) -> str:
    return category if category in CATEGORIES else "activations"


def shape_of(tensor: LargeTensor) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


def what_of(tensor: LargeTensor) -> str:
    return f"{words(tensor.category)} {tensor.name}".strip()


def described(tensor: LargeTensor) -> list[str]:
    # A kernel's scratch memory has the type "bytes" and no shape.
    has_shape = tensor.shape or tensor.dtype not in ("", "bytes")
    lines = [
        f"{page.size(tensor.num_bytes)} {what_of(tensor)}".rstrip(),
        shape_of(tensor) if has_shape else "",
        operator_of(tensor),
        tensor.module,
        tensor.source,
    ]
    return [line for line in lines if line]


def operator_of(tensor: LargeTensor) -> str:
    return tensor.operator.removeprefix("aten::")
