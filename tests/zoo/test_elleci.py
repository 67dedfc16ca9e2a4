"""Elleci, with the mistakes that document 003's model had as tests."""

from __future__ import annotations

import pytest
import torch
import zoo_reference as reference
from torch import Tensor

from vramcast_zoo.elleci import (
    BitLinear,
    Elleci,
    LatentAttention,
    Mamba,
    quantise_activations,
    quantise_weights,
)
from vramcast_zoo.language_model import shifted
from vramcast_zoo.selective import selective_scan

TINY = {"dim": 64, "heads": 2, "vocabulary": 11, "positions": 16}


def batch(length: int) -> tuple[Tensor, Tensor]:
    return shifted(torch.randint(11, (2, length + 1), generator=torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("checkpointing", [False, True])
def test_elleci_is_its_equations(checkpointing: bool) -> None:
    torch.manual_seed(0)
    model = Elleci(**TINY, depth=2, checkpointing=checkpointing).double()
    tokens, targets = batch(7)
    reference.compare(model, lambda p: reference.elleci(p, tokens, 2, 2), tokens, targets, 1e-5)


def test_every_parameter_of_elleci_is_trained() -> None:
    """The original computed rotary channels and a norm that it then left out."""
    torch.manual_seed(0)
    model = Elleci(**TINY, depth=2)
    model.loss(*batch(16)).backward()
    assert [
        name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0
    ] == []


# -------------------------------------------------------------------------------------- BitLinear
def test_a_bit_linear_layer_computes_with_three_weights_and_256_activations() -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(8, 16), torch.randn(5, 16)
    ternary = quantise_weights(weight)
    assert len(ternary.unique()) == 3
    levels = quantise_activations(x) * 127 / x.abs().amax(-1, keepdim=True)
    torch.testing.assert_close(levels, levels.round(), atol=1e-4, rtol=0)
    assert levels.abs().max() <= 127.001


def test_a_bit_linear_layer_is_quantised_forward_and_the_identity_backward() -> None:
    """The original had it the other way round.

    Full precision forward, and a gradient through the scale alone.
    """
    torch.manual_seed(0)
    layer, x = (
        BitLinear(16, 8).double(),
        torch.randn(5, 16, dtype=torch.float64, requires_grad=True),
    )
    normal = reference.rms_norm(x, layer.norm.weight).detach()
    out = layer(x)
    torch.testing.assert_close(out, quantise_activations(normal) @ quantise_weights(layer.weight).T)
    assert (out - normal @ layer.weight.T).abs().max() > 0.05
    grad = torch.randn(5, 8, dtype=torch.float64)
    out.backward(grad)
    torch.testing.assert_close(layer.weight.grad, grad.T @ quantise_activations(normal))
    back = grad @ quantise_weights(layer.weight)
    (through_norm,) = torch.autograd.grad(reference.rms_norm(x, layer.norm.weight), x, back)
    torch.testing.assert_close(x.grad, through_norm)


# ------------------------------------------------------------------------------------------- scan
@pytest.mark.parametrize("chunk", [1, 5, 8, 64])
def test_the_scan_in_chunks_is_the_sequential_one(chunk: int) -> None:
    torch.manual_seed(0)
    x, b, c = torch.randn(2, 23, 6), torch.randn(2, 23, 4), torch.randn(2, 23, 4)
    dt, a = torch.rand(2, 23, 6) * 3, -torch.rand(6) * 16
    arguments = [t.double().requires_grad_() for t in (x, dt, a, b, c)]
    results = []
    for scan in (lambda *t: selective_scan(*t, chunk=chunk), reference.state_space):
        y = scan(*arguments)
        results.append((y, *torch.autograd.grad((y * y.detach().cos()).sum(), arguments)))
    torch.testing.assert_close(*results)


def test_an_old_input_fades() -> None:
    """The original's fast scan multiplied by the decay where it should have divided.

    What is long past grew.
    """
    x = torch.zeros(1, 200, 1, dtype=torch.float64)
    x[0, 0] = 1
    ones = torch.ones(1, 200, 1, dtype=torch.float64)
    y = selective_scan(
        x, 0.1 * ones, torch.tensor([-1.0], dtype=torch.float64), ones, ones
    ).flatten()
    torch.testing.assert_close(y, 0.1 * torch.exp(-0.1 * torch.arange(200, dtype=torch.float64)))


def test_the_mamba_block_does_not_look_ahead() -> None:
    torch.manual_seed(0)
    mixer, x = Mamba(32), torch.randn(1, 40, 32)
    changed = x.clone()
    changed[:, 33] += 1
    first, second = mixer(x), mixer(changed)
    torch.testing.assert_close(first[:, :33], second[:, :33])
    assert not torch.allclose(first[:, 33:], second[:, 33:])


# -------------------------------------------------------------------------------------- attention
def test_the_shared_rotary_channels_reach_the_output() -> None:
    """The original computed these 32 channels and threw them away."""
    torch.manual_seed(0)
    mixer = LatentAttention(64, 2, "auto")
    mixer(torch.randn(1, 6, 64)).square().sum().backward()
    assert (mixer.down.weight.grad[128:].abs().sum(1) > 0).all()


def test_what_must_be_kept_of_the_past_is_the_latent_alone() -> None:
    """Keys and values of all heads follow from 160 numbers a token."""
    mixer = LatentAttention(2048, 16, "auto")
    assert mixer.down.out_features == 160
    assert (mixer.up.in_features, mixer.up.out_features) == (128, 2 * 2048)


# ----------------------------------------------------------------------------------------- router
def test_the_router_mixes_two_paths_and_keeps_the_blocks() -> None:
    """In the original the 24 blocks were skipped when the router was on."""
    torch.manual_seed(0)
    model = Elleci(**TINY, depth=2, router=True)
    model.loss(*batch(8)).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    assert model.blocks[0].mixer.project_in.weight.grad.abs().sum() > 0


def test_the_routers_share_of_slow_tokens_is_part_of_the_loss() -> None:
    torch.manual_seed(0)
    model = Elleci(**TINY, depth=2, router=True)
    tokens, targets = batch(8)
    logits, share = model.logits_and_slow_share(tokens)
    expected = (
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        + 0.01 * (share - 0.3) ** 2
    )
    torch.testing.assert_close(model.loss(tokens, targets), expected)
