"""How a tensor, its category and its module are named and coloured."""

from collections.abc import Iterable

from vramcast.records.prediction import CATEGORIES, LargeTensor
from vramcast.reporting import sections as page


def words(category: str) -> str:
    return category.replace("_", " ")


def colour_of(category: str) -> str:
    return category if category in CATEGORIES else "activations"


def shape_of(tensor: LargeTensor) -> str:
    if not tensor.shape and tensor.dtype in ("", "bytes"):
        return "scratch memory" if tensor.dtype else ""  # scratch memory of a kernel
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


def what_of(tensor: LargeTensor) -> str:
    return f"{words(tensor.category)} {tensor.name}".strip()


def described(tensor: LargeTensor) -> list[str]:
    lines = [
        f"{page.size(tensor.num_bytes)} {what_of(tensor)}".rstrip(),
        shape_of(tensor),
        operator_of(tensor),
        tensor.module,
        tensor.source,
    ]
    return [line for line in lines if line]


def operator_of(tensor: LargeTensor) -> str:
    return tensor.operator.removeprefix("aten::")


def folded_modules(modules: Iterable[str]) -> dict[str, str]:
    """For each module, the common name of all that differ in one number only, such as "blocks.0 to
    11"."""
    alike: dict[str, set[str]] = {}
    for module in modules:
        alike.setdefault(_pattern(module), set()).add(module)
    return {
        module: _together(pattern, names) for pattern, names in alike.items() for module in names
    }


def _pattern(module: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in module.split("."))


def _together(pattern: str, modules: set[str]) -> str:
    if len(modules) == 1:
        return next(iter(modules))
    if pattern.count("*") > 1:
        return pattern
    place = pattern.split(".").index("*")
    numbers = sorted(int(module.split(".")[place]) for module in modules)
    return pattern.replace("*", f"{numbers[0]} to {numbers[-1]}")
