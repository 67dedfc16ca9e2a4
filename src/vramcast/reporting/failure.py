"""Why a prediction does not fit, and memory that grows, as lines."""

from vramcast.records.prediction import FailedAllocation, LargeTensor, MemoryGrowth, Prediction
from vramcast.reporting import sections as page
from vramcast.reporting.tensors import shape_of, words


def why_not(p: Prediction) -> list[page.Remark]:
    if p.failure is None:
        return []
    tensor = p.failure.tensor
    when = ", ".join(filter(None, (p.failure.phase, p.failure.during)))
    text = f"What fails, in {when}: {page.size(tensor.num_bytes)} for {tensor_line(tensor)}"
    below = [_what_was_there(p.failure), _settings(p.failure, p)]
    return [page.Remark(text, page.Tone.BAD, [*filter(None, below)])]


def tensor_line(tensor: LargeTensor) -> str:
    """A text such as "float32[8, 50304] of addmm in blocks.0, train.py:12 in forward"."""
    parts = [
        tensor.name,
        shape_of(tensor) or "scratch memory",
        f"of {tensor.operator.removeprefix('aten::')}" if tensor.operator else "",
        page.given("in {}", tensor.module),
    ]
    return " ".join(filter(None, parts)) + page.given(", {}", tensor.source)


def _what_was_there(failure: FailedAllocation) -> str:
    alive = ", ".join(f"{words(k)} {page.size(v)}" for k, v in failure.alive_bytes.items())
    pieces = page.given("; {} more in pieces between tensors", page.size(failure.fragmented_bytes))
    return f"free there: {page.size(failure.free_bytes)}{pieces}; alive: {alive}"


def _settings(failure: FailedAllocation, p: Prediction) -> str:
    if failure.settings_that_fit:
        fits = " or ".join(f"PYTORCH_ALLOC_CONF={one}" for one in failure.settings_that_fit)
        return f"{fits} would make it fit: the cause is fragmentation"
    if "expandable_segments:True" in p.allocator_settings:
        return ""
    return "other settings of the allocator, such as expandable_segments:True, do not help"


def growth_lines(growth: MemoryGrowth | None) -> list[str]:
    if growth is None:
        return []
    each = page.count(growth.num_tensors_per_step, "tensor")
    largest = "; ".join(
        f"{page.size(tensor.num_bytes)} {tensor_line(tensor)}" for tensor in growth.tensors[:3]
    )
    full = page.given("; the memory is full after about {:,} steps", growth.num_steps_that_fit)
    verb = "stays" if growth.num_tensors_per_step == 1 else "stay"
    return [
        f"memory grows by {page.size(growth.bytes_per_step)} a step{full}: {each} of every step "
        f"{verb} alive, the largest {largest}"
    ]
