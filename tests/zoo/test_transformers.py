"""GPT-2, the Llama-style model, Yxanul, and the attention they share."""

from __future__ import annotations

import pytest
import torch
import zoo_reference as reference
from torch import Tensor

from vramcast_zoo.attention import causal_attention, rotary_angles, rotate
from vramcast_zoo.fp8 import BACKWARD, FORWARD, Fp8Linear, quantise
from vramcast_zoo.gpt2 import GPT2
from vramcast_zoo.language_model import shifted
from vramcast_zoo.llama import Llama
from vramcast_zoo.yxanul import Yxanul

ANGLES = 1e-6  # rotary angles are float32 on purpose: that is how far a float64 reference can agree


def batch(vocabulary: int, length: int = 6) -> tuple[Tensor, Tensor]:
    return shifted(
        torch.randint(vocabulary, (2, length + 1), generator=torch.Generator().manual_seed(1))
    )


@pytest.mark.parametrize("attention", ["auto", "plain", "math"])
def test_gpt2_is_its_equations(attention: str) -> None:
    torch.manual_seed(0)
    model = GPT2(dim=12, depth=2, heads=3, vocabulary=19, positions=8, attention=attention).double()
    tokens, targets = batch(19)
    reference.compare(model, lambda p: reference.gpt2(p, tokens, 2, 3), tokens, targets)


@pytest.mark.parametrize("attention", ["auto", "plain"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_llama_style_model_is_its_equations(attention: str, checkpointing: bool) -> None:
    torch.manual_seed(0)
    sizes = {"dim": 16, "depth": 2, "heads": 4, "kv_heads": 2, "hidden": 24, "vocabulary": 19}
    model = Llama(**sizes, attention=attention, checkpointing=checkpointing).double()
    tokens, targets = batch(19)
    reference.compare(model, lambda p: reference.llama(p, tokens, 2, 4, 2), tokens, targets, ANGLES)


@pytest.mark.parametrize("tied", [True, False])
def test_yxanul_is_its_equations(tied: bool) -> None:
    torch.manual_seed(0)
    model = Yxanul(
        dim=128, depth=2, kv_heads=1, hidden=16, vocabulary=19, embedding_rank=8, tied=tied
    ).double()
    tokens, targets = batch(19)
    reference.compare(
        model, lambda p: reference.yxanul(p, tokens, 2, 2, 1), tokens, targets, ANGLES
    )


def test_the_tied_head_of_yxanul_is_its_embedding_and_the_untied_one_is_not() -> None:
    """The project's FP8 model ignored the flag: it had 350M parameters, its document says 197M."""
    sizes = {
        "dim": 64,
        "depth": 1,
        "kv_heads": 1,
        "hidden": 16,
        "vocabulary": 1000,
        "embedding_rank": 8,
    }
    tied, untied = (
        sum(p.numel() for p in Yxanul(**sizes, tied=flag).parameters()) for flag in (True, False)
    )
    assert untied - tied == 1000 * 64


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    torch.manual_seed(0)
    cos, sin = rotary_angles(20, 8, 10_000.0, torch.device("cpu"))
    q, k = (rotate(torch.randn(8).expand(20, 8), cos, sin) for _ in range(2))
    scores = q @ k.T
    for distance in range(20):
        diagonal = scores.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("attention", ["auto", "math", "plain", "flash"])
def test_heads_of_keys_and_values_serve_neighbouring_query_heads(attention: str) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 6, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    torch.testing.assert_close(
        causal_attention(q, k, v, attention), reference.attention(q, k, v), atol=1e-5, rtol=1e-5
    )


def test_rounding_to_8_bits_is_off_by_half_a_unit_of_its_fraction_at_most() -> None:
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)) * 1e-3
    for dtype, fraction_bits in ((FORWARD, 3), (BACKWARD, 2)):
        rounded, scale = quantise(x, dtype)
        assert rounded.dtype is dtype and rounded.float().abs().max() == torch.finfo(dtype).max
        normal = x.abs() > x.abs().max() / 64  # smaller ones lose bits of their fraction
        relative = (rounded.float() * scale / x - 1).abs()[normal]
        assert relative.max() <= 2.0 ** -(fraction_bits + 1) * 1.001


def test_an_8_bit_layer_multiplies_rounded_operands_forward_and_backward() -> None:
    torch.manual_seed(0)
    layer, x = Fp8Linear(32, 16), torch.randn(2, 8, 32, requires_grad=True)
    grad = torch.randn(2, 8, 16)
    layer(x).backward(grad)

    def rounded(t: Tensor, dtype: torch.dtype) -> Tensor:
        values, scale = quantise(t.detach(), dtype)
        return values.float() * scale

    x8, w8, g8 = rounded(x, FORWARD), rounded(layer.weight, FORWARD), rounded(grad, BACKWARD)
    torch.testing.assert_close(layer(x), x8 @ w8.T)
    torch.testing.assert_close(x.grad, g8 @ w8)
    torch.testing.assert_close(layer.weight.grad, g8.flatten(0, 1).T @ x8.flatten(0, 1))


def test_targets_are_the_tokens_that_follow() -> None:
    """Document 003's model was trained on its own inputs and learned to copy them."""
    inputs, targets = shifted(torch.arange(10).view(1, 10))
    assert torch.equal(targets, inputs + 1)
