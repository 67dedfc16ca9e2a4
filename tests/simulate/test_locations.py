"""Every tensor is shown at the line of the user's program that it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast

pytestmark = pytest.mark.usefixtures("warm_simulations")
ROOT = Path(__file__).parents[2]
WORKLOADS = Path(__file__).parent / "workloads.py"
GPT = ROOT / "examples" / "gpt.py"


def line_of(file: Path, text: str) -> int:
    return next(n for n, line in enumerate(file.read_text().splitlines(), 1) if text in line)


def lines_of(prediction: vramcast.Prediction, operator: str) -> set[int]:
    """Where the largest tensors of this operator are said to come from."""
    found = [t for t in prediction.largest_tensors if t.operator.startswith(operator)]
    assert found, [t.operator for t in prediction.largest_tensors]
    return {int(t.source.partition(":")[2].split()[0]) for t in found}


def test_the_gradient_of_the_loss_is_shown_where_the_loss_is_computed() -> None:
    """The loss itself is a scalar, and the next step begins with tensors that need no gradient."""
    prediction = vramcast.predict(f"{GPT}:build", gpu="h200")
    expected = line_of(GPT, "return F.cross_entropy")
    assert lines_of(prediction, "aten::nll_loss_backward") == {expected}


def test_a_tensor_is_shown_with_the_module_that_made_it() -> None:
    """Although the model is gone when the answer is made."""
    prediction = vramcast.predict(f"{WORKLOADS}:trains_an_adapter", gpu="h200")
    assert "frozen" in {t.module for t in prediction.largest_tensors}


def test_frozen_layers_do_not_take_the_place_of_the_loss() -> None:
    prediction = vramcast.predict(f"{WORKLOADS}:trains_an_adapter", gpu="h200")
    expected = line_of(WORKLOADS, "F.cross_entropy(model(tokens), tokens)")
    assert lines_of(prediction, "aten::nll_loss_backward") == {expected}


def test_a_gradient_that_is_differentiated_again_is_shown_where_its_forward_pass_is() -> None:
    """It is computed on a thread of autograd, which has no line of the program on its stack."""
    prediction = vramcast.predict(f"{WORKLOADS}:penalises_its_gradient", gpu="h200")
    assert line_of(WORKLOADS, "model(x).sum()") in lines_of(prediction, "aten::mm")
