"""The knobs that `tune` turns.

The same training where they promise that, and a clear refusal where two of them cannot go together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vramcast_zoo import e10
from vramcast_zoo.elleci import Elleci
from vramcast_zoo.fp8 import Fp8Linear, multiply_in_fp8
from vramcast_zoo.gpt2 import GPT2
from vramcast_zoo.graphs import _write_back
from vramcast_zoo.language_model import LanguageModel
from vramcast_zoo.optimizers import make_optimizer
from vramcast_zoo.training import training_step

MODELS: dict[str, Callable[..., LanguageModel]] = {
    "gpt2": lambda **options: GPT2(dim=16, depth=3, heads=2, vocabulary=37, positions=8, **options),
    "e10": lambda **options: e10.make_model(dim=8, depth=3, banks=2, **options),
    "elleci": lambda **options: Elleci(
        dim=64, depth=2, heads=2, vocabulary=37, positions=8, **options
    ),
}
PLAIN = {"precision": "fp32", "optimizer": "adamw", "lr": 1e-2, "clip": 0.0, "device": "cpu"}


def gradients(name: str, **options: Any) -> list[Tensor]:
    torch.manual_seed(0)
    model = MODELS[name](**options).double()
    model.loss(*model.random_batch(2, 8, "cpu")).backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize(
    "options", [{"loss_chunks": 3}, {"checkpointing": True, "checkpoint_every": 2}], ids=str
)
@pytest.mark.parametrize("name", MODELS)
def test_a_loss_in_chunks_and_every_second_block_checkpointed_give_the_same_gradients(
    name: str, options: dict[str, Any]
) -> None:
    expected, found = gradients(name), gradients(name, **options)
    assert len(expected) == len(found) > 5
    assert all(
        torch.allclose(a, b, rtol=1e-6, atol=1e-9) for a, b in zip(expected, found, strict=True)
    )


def test_every_second_block_is_computed_twice_where_every_second_is_checkpointed() -> None:
    model = MODELS["gpt2"](checkpointing=True, checkpoint_every=2)
    calls = [0, 0, 0]
    for index, block in enumerate(model.blocks):

        def count(*_: Any, index: int = index) -> None:
            calls[index] += 1

        block.register_forward_pre_hook(count)
    model.loss(*model.random_batch(1, 8, "cpu")).backward()
    assert calls == [2, 1, 2]


def test_stochastic_depth_leaves_blocks_out_keeps_the_mean_and_rests_outside_training() -> None:
    model = MODELS["gpt2"](stochastic_depth=0.5)
    calls: list[int] = []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda *_: calls.append(1))
    for _ in range(40):
        model(torch.zeros(1, 4, dtype=torch.long))
    assert 30 < len(calls) < 90  # of 120; the chance of anything else is below one in a million

    class Adds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1

    torch.manual_seed(0)
    sums = [model.through_blocks([Adds(), Adds()], torch.zeros(1)).item() for _ in range(400)]
    assert sum(sums) / len(sums) == pytest.approx(2.0, abs=0.3)
    model.eval()
    assert model.through_blocks([Adds(), Adds()], torch.zeros(1)).item() == 2.0


@pytest.mark.parametrize(
    ("options", "words"),
    [({"stochastic_depth": 1.0}, "no probability"), ({"checkpoint_every": 0}, "above zero")],
)
def test_options_without_a_meaning_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MODELS["gpt2"](**options)


def trained(**options: Any) -> tuple[list[float], list[Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    model.loss = lambda x, y: nn.functional.mse_loss(model(x).float(), y)  # type: ignore[assignment]
    batch = torch.randn(8, 4), torch.randn(8, 4)
    step = training_step(model, lambda: batch, **{**PLAIN, **options})  # type: ignore[arg-type]
    return [step().item() for _ in range(4)], [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize(
    "options",
    [{"optimizer_in_backward": True}, {"optimizer": "adamw-loop"}, {"optimizer": "adamw-fused"}],
    ids=str,
)
def test_other_ways_to_update_the_weights_give_the_same_weights(options: dict[str, Any]) -> None:
    losses, weights = trained()
    found_losses, found = trained(**options)
    assert losses[0] > losses[-1]
    assert found_losses == pytest.approx(losses, rel=1e-5)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(weights, found, strict=True))


def test_an_optimizer_in_the_backward_pass_lets_every_gradient_go() -> None:
    model = nn.Linear(4, 4)
    model.loss = lambda x, y: model(x).square().mean()  # type: ignore[assignment]
    training_step(
        model, lambda: (torch.ones(2, 4), torch.ones(2, 4)), **PLAIN, optimizer_in_backward=True
    )()  # type: ignore[arg-type]
    assert model.weight.grad is None and model.bias.grad is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer_in_backward": True, "clip": 1.0}, "clip=0"),
        ({"optimizer_in_backward": True, "precision": "amp-fp16"}, "another precision"),
        ({"optimizer_in_backward": True, "cuda_graphs": True}, "cuda_graphs=False"),
        ({"cuda_graphs": True, "optimizer": "schedulefree"}, "counts steps on the host"),
    ],
)
def test_knobs_that_cannot_go_together_say_which_to_change(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        trained(**options)


def test_a_captured_step_with_stochastic_depth_is_refused() -> None:
    model = MODELS["gpt2"](stochastic_depth=0.1)
    with pytest.raises(ValueError, match="same blocks for ever"):
        training_step(model, lambda: model.random_batch(1, 4, "cpu"), **PLAIN, cuda_graphs=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("package", ["bitsandbytes", "torchao"])
def test_a_missing_package_for_8_bit_states_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(ValueError, match=f"pip install {package}"):
        make_optimizer(f"adamw-8bit-{package}", [nn.Parameter(torch.zeros(1))], 1e-3)  # type: ignore[arg-type]


def test_products_in_8_bits_are_those_inside_the_blocks_and_close_to_the_others() -> None:
    torch.manual_seed(0)
    model = MODELS["gpt2"]()
    batch = model.random_batch(2, 8, "cpu")
    before, count = model.loss(*batch).item(), sum(p.numel() for p in model.parameters())
    multiply_in_fp8(model)
    assert sum(isinstance(m, Fp8Linear) for m in model.modules()) == 3 * 4
    assert sum(p.numel() for p in model.parameters()) == count
    loss = model.loss(*batch)
    loss.backward()
    assert loss.item() == pytest.approx(before, rel=0.05)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    with pytest.raises(ValueError, match="Linear has none"):
        multiply_in_fp8(nn.Linear(16, 16))


def test_what_a_captured_step_puts_in_the_place_of_a_buffer_is_where_the_next_replay_reads_it() -> (
    None
):
    model = nn.Sequential(nn.BatchNorm1d(2))
    place = model[0].running_mean
    before = dict(model.named_buffers())
    model[0].running_mean = torch.full((2,), 7.0)  # as LadderLM's power iteration does every step
    _write_back(model, before)
    assert model[0].running_mean is place and place.tolist() == [7.0, 7.0]


@pytest.mark.parametrize("name", ["e10", "elleci"])
def test_a_fused_recurrence_in_a_checkpointed_block_gives_the_same_gradients(name: str) -> None:
    """Backward asks for what was kept once.

    A checkpointed block computes it again, and refuses a second time.
    """
    plain, fused = (
        gradients(name, recurrence=kind, checkpointing=True) for kind in ("plain", "fused")
    )
    assert all(
        torch.allclose(a, b, rtol=1e-5, atol=1e-7) for a, b in zip(plain, fused, strict=True)
    )
