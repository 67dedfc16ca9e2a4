"""What is noted of the operators that a step runs: run by test_device_programs.py.

python tests/simulate/work_programs.py
"""

from __future__ import annotations

from program_device import SESSION, run_programs

# isort: split
# the device is loaded before torch
import functools
from collections.abc import Callable

import torch

from vramcast.tracing.work import (
    CONVERTING,
    DROPPED,
    MASKED,
    MASKED_AND_DROPPED,
    PLAIN,
    TURNED,
    OperatorWork,
)


def large_operators_of_the_host_are_noted_with_their_bytes() -> None:
    def noted() -> list[int]:
        works = map(SESSION.device.operator_work, SESSION.device.work(0))
        return [work.sizes[0] for work in works if work.operator == "vramcast::host"]

    rows = torch.arange(256)
    assert torch.add(rows, 1).view(16, 16).shape == (16, 16) and not noted()
    (rows[:, None] - rows).abs()
    assert noted() == [(256 * 256 + 256 + 256) * 8, 2 * 256 * 256 * 8]


def _noted(ending: str, call: Callable[[], object]) -> OperatorWork:
    call()
    works = map(SESSION.device.operator_work, SESSION.device.work(0))
    *_, found = (work for work in works if work.operator.endswith(ending))
    return found


def _product_noted(product: Callable[[], object]) -> OperatorWork:
    return _noted("::mm", product)


def a_product_is_written_once_where_it_is_told_what_to_write_to() -> None:
    a, b, out = (torch.empty(64, 64, device="cuda") for _ in range(3))
    expected = 3 * 4 * 64 * 64
    assert _product_noted(lambda: a @ b).num_bytes == expected
    assert _product_noted(lambda: torch.mm(a, b, out=out)).num_bytes == expected


def a_product_in_tf32_tells_how_many_of_its_matrices_are_turned() -> None:
    a, b = (torch.empty(64, 64, device="cuda") for _ in range(2))
    torch.backends.cuda.matmul.allow_tf32 = True
    products = (lambda: a @ b.T, lambda: a @ b, lambda: a.T @ b)
    found = [_product_noted(product).access for product in products]
    torch.backends.cuda.matmul.allow_tf32 = False
    assert found == [PLAIN, CONVERTING, TURNED]
    assert _product_noted(products[2]).access == PLAIN


def attention_tells_whether_it_has_a_mask_and_dropout() -> None:
    half = {"device": "cuda", "dtype": torch.bfloat16}
    x, mask = torch.empty(2, 4, 64, 64, **half, requires_grad=True), torch.empty(64, 64, **half)
    dot = torch.nn.functional.scaled_dot_product_attention
    for more, access in (
        ({}, PLAIN),
        ({"attn_mask": mask}, MASKED),
        ({"dropout_p": 0.1}, DROPPED),
        ({"attn_mask": mask, "dropout_p": 0.1}, MASKED_AND_DROPPED),
    ):
        attend = functools.partial(dot, x, x, x, **more)
        assert _noted("_attention", attend).access == access
        assert _noted("_attention_backward", attend().sum().backward).access == access


if __name__ == "__main__":
    run_programs()
