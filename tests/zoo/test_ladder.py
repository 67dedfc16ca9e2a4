"""E1, E5, E10 and Mamba-2, and the parts they are made of."""

from __future__ import annotations

import pytest
import torch
import zoo_reference as reference
from torch import Tensor, nn

from vramcast_zoo import e1, e5, e10, mamba2
from vramcast_zoo.ladder import LadderLM, SpectrallyNormalised
from vramcast_zoo.language_model import shifted
from vramcast_zoo.recurrence import elman, ema_banks, low_rank_elman


def batch(length: int = 7) -> tuple[Tensor, Tensor]:
    return shifted(torch.randint(256, (2, length + 1), generator=torch.Generator().manual_seed(1)))


def power_vectors(model: nn.Module) -> dict[str, Tensor]:
    """The vectors that the next step's power iteration starts from, by layer."""
    return {
        name.removesuffix(".recurrent.u"): buffer.clone()
        for name, buffer in model.named_buffers()
        if name.endswith(".u")
    }


@pytest.mark.parametrize("expansion", [1.0, 1.5])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_e1_is_its_equations(expansion: float, checkpointing: bool) -> None:
    torch.manual_seed(0)
    model = e1.make_model(dim=8, depth=2, expansion=expansion, checkpointing=checkpointing).double()
    tokens, targets = batch()
    layer = reference.e1_layer(power_vectors(model))
    reference.compare(model, lambda p: reference.ladder(p, tokens, 2, layer), tokens, targets)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_e5_is_its_equations(checkpointing: bool) -> None:
    torch.manual_seed(0)
    model = e5.make_model(dim=8, depth=2, rank=3, checkpointing=checkpointing).double()
    tokens, targets = batch()
    reference.compare(
        model, lambda p: reference.ladder(p, tokens, 2, reference.e5_layer), tokens, targets
    )


@pytest.mark.parametrize("banks", [1, 3])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_e10_is_its_equations(banks: int, checkpointing: bool) -> None:
    """The original wrote the banks in place into what backward needed: it could not be trained."""
    torch.manual_seed(0)
    model = e10.make_model(dim=8, depth=2, banks=banks, checkpointing=checkpointing).double()
    tokens, targets = batch()
    layer = reference.e10_layer(power_vectors(model), banks)
    reference.compare(model, lambda p: reference.ladder(p, tokens, 2, layer), tokens, targets)


@pytest.mark.parametrize("length", [7, 70, 128])
def test_mamba2_is_its_equations(length: int) -> None:
    torch.manual_seed(0)
    model = mamba2.make_model(dim=32, depth=1, state=5).double()
    tokens, targets = batch(length)
    reference.compare(
        model, lambda p: reference.ladder(p, tokens, 1, reference.mamba2_layer), tokens, targets
    )


# ------------------------------------------------------------------------------------ recurrences
def gradients(function: object, *arguments: Tensor) -> tuple[Tensor, ...]:
    result = function(*arguments)  # type: ignore[operator]
    weight = torch.linspace(-1, 2, result.numel(), dtype=result.dtype).view(result.shape)
    return result, *torch.autograd.grad((result * weight).sum(), arguments)


def leaf(*shape: int, scale: float = 1.0) -> Tensor:
    return (torch.randn(*shape, dtype=torch.float64) * scale).requires_grad_()


def time_first(x: Tensor) -> Tensor:
    return x.transpose(0, 1)


def test_the_elman_recurrence_and_its_gradients_are_those_of_the_plain_loop() -> None:
    torch.manual_seed(0)
    drive, weight = leaf(9, 3, 5), leaf(5, 5)
    plain = gradients(
        lambda d, w: time_first(reference.elman_states(time_first(d), w)), drive, weight
    )
    torch.testing.assert_close(gradients(elman, drive, weight), plain)


def test_the_low_rank_recurrence_and_its_gradients_are_those_of_the_plain_loop() -> None:
    torch.manual_seed(0)
    drive, up, down = leaf(9, 3, 5), leaf(5, 2), leaf(2, 5)
    plain = gradients(
        lambda d, u, v: time_first(reference.elman_states(time_first(d), u @ v)), drive, up, down
    )
    torch.testing.assert_close(gradients(low_rank_elman, drive, up, down), plain)


def test_ema_banks_and_their_gradients_are_those_of_the_plain_loop() -> None:
    torch.manual_seed(0)
    states, decay = leaf(9, 3, 5), torch.rand(4, 5, dtype=torch.float64).requires_grad_()
    plain = gradients(
        lambda h, a: torch.stack([time_first(reference.ema(time_first(h), bank)) for bank in a], 2),
        states,
        decay,
    )
    torch.testing.assert_close(gradients(ema_banks, states, decay), plain)


def test_a_bank_fed_with_a_constant_comes_as_near_to_it_as_its_time_constant_says() -> None:
    decay = torch.tensor([[0.8], [0.99]])
    memory = ema_banks(torch.ones(100, 1, 1), decay)
    torch.testing.assert_close(memory[-1, 0, :, 0], 1 - decay[:, 0] ** 100)


def test_a_slow_bank_keeps_moving_in_bfloat16() -> None:
    """Carried in bfloat16 it stops early.

    A step of 1 % of what is missing is below the spacing of its numbers.
    """
    memory = ema_banks(torch.ones(400, 1, 1, dtype=torch.bfloat16), torch.tensor([[0.99]]))
    assert memory.dtype is torch.bfloat16
    assert memory[-1].item() == pytest.approx(1 - 0.99**400, abs=0.004)
    one, carried = torch.ones((), dtype=torch.bfloat16), torch.zeros((), dtype=torch.bfloat16)
    for _ in range(400):
        carried = torch.lerp(one, carried, 0.99 * one)
    assert carried.item() < 0.9


def test_backward_keeps_one_state_a_step_and_no_more() -> None:
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    drive = torch.zeros(50, 2, 4, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        elman(drive, torch.eye(4))
    assert sum(kept.values()) == (51 * 2 * 4 + 4 * 4) * 4


# ------------------------------------------------------------------------- spectral normalisation
def test_spectral_normalisation_gives_the_largest_singular_value_099() -> None:
    torch.manual_seed(0)
    matrix = SpectrallyNormalised(12).double()
    for _ in range(200):
        matrix.iterate()
    assert torch.linalg.matrix_norm(matrix(), 2).item() == pytest.approx(0.99, abs=1e-6)


def test_the_gradient_goes_through_the_singular_value_too() -> None:
    """Making the matrix longer changes nothing: the gradient along the matrix itself is zero."""
    torch.manual_seed(0)
    matrix = SpectrallyNormalised(6).double()
    matrix.iterate()
    (grad,) = torch.autograd.grad(
        (matrix() * torch.randn(6, 6, dtype=torch.float64)).sum(), matrix.weight
    )
    assert (grad * matrix.weight).sum().item() == pytest.approx(0, abs=1e-6)
    assert grad.abs().max() > 0.1


def test_a_checkpointed_block_is_computed_again_with_the_same_power_vectors() -> None:
    torch.manual_seed(0)
    plain, checked = (
        e1.make_model(dim=8, depth=2, checkpointing=flag).double() for flag in (False, True)
    )
    checked.load_state_dict(plain.state_dict())
    tokens, targets = batch()
    for _ in range(3):
        for model in (plain, checked):
            model.loss(tokens, targets).backward()
    for first, second in zip(plain.parameters(), checked.parameters()):
        torch.testing.assert_close(first.grad, second.grad)
    assert all(
        torch.equal(first, second) for first, second in zip(plain.buffers(), checked.buffers())
    )


def test_two_forward_passes_before_one_backward_pass_are_allowed() -> None:
    model = e1.make_model(dim=8, depth=1)
    (model.loss(*batch()) + model.loss(*batch())).backward()


# ----------------------------------------------------------------------------------- the SSD scan
def scan_arguments(length: int) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    dt = torch.rand(2, length, 3, dtype=torch.float64).requires_grad_()
    a = (-torch.rand(3, dtype=torch.float64) * 16).requires_grad_()
    return leaf(2, length, 3, 4), dt, a, leaf(2, length, 5), leaf(2, length, 5)


def sequential(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    flat = reference.state_space(
        x.flatten(2), dt.repeat_interleave(4, -1), a.repeat_interleave(4), b, c
    )
    return flat.unflatten(2, (3, 4))


@pytest.mark.parametrize("chunk", [1, 4, 16, 64])
def test_the_chunked_scan_is_the_sequential_one(chunk: int) -> None:
    arguments = scan_arguments(37)
    torch.testing.assert_close(
        gradients(lambda *a: mamba2.ssd(*a, chunk=chunk), *arguments),
        gradients(sequential, *arguments),
    )


def test_what_is_long_past_fades_across_chunks() -> None:
    """The original scan took the logarithm of a cumulative decay: old inputs grew."""
    x = torch.zeros(1, 64, 1, 1, dtype=torch.float64)
    x[0, 0] = 1
    ones = torch.ones(1, 64, 1, dtype=torch.float64)
    y = mamba2.ssd(
        x, 0.1 * ones, torch.tensor([-1.0], dtype=torch.float64), ones, ones, chunk=8
    ).flatten()
    torch.testing.assert_close(y, 0.1 * torch.exp(-0.1 * torch.arange(64, dtype=torch.float64)))


def test_strong_decays_do_not_overflow() -> None:
    """exp(-cum_s) alone would: exp(16 · 64) is not a float."""
    x = torch.randn(1, 128, 1, 4, requires_grad=True)
    ones = torch.ones(1, 128, 1)
    y = mamba2.ssd(x, ones, torch.tensor([-16.0]), ones, ones, chunk=64)
    y.sum().backward()
    assert torch.isfinite(y).all() and torch.isfinite(x.grad).all()


@pytest.mark.parametrize("make", [e1.make_model, e5.make_model, e10.make_model, mamba2.make_model])
def test_no_output_depends_on_a_later_token(make: type[LadderLM]) -> None:
    torch.manual_seed(0)
    options = {"rank": 4} if make is e5.make_model else {}
    model = make(dim=32, depth=2, **options)  # type: ignore[arg-type]
    start = {name: value.clone() for name, value in model.state_dict().items()}
    tokens, _ = batch(20)
    changed = tokens.clone()
    changed[:, 12] = (changed[:, 12] + 1) % 256
    first = model(tokens)
    model.load_state_dict(start)  # the power iteration's vectors too
    second = model(changed)
    torch.testing.assert_close(first[:, :12], second[:, :12])
    assert not torch.allclose(first[:, 12:], second[:, 12:])


@pytest.mark.parametrize("make", [e1.make_model, e5.make_model, e10.make_model, mamba2.make_model])
def test_in_pure_bfloat16_loss_and_gradients_are_bfloat16(make: type[LadderLM]) -> None:
    with torch.device("meta"):  # types without arithmetic: not every CPU multiplies bfloat16
        model = make(dim=32, depth=1, **({"rank": 4} if make is e5.make_model else {})).to(
            torch.bfloat16
        )  # type: ignore[arg-type]
        loss = model.loss(
            torch.zeros(2, 70, dtype=torch.long), torch.zeros(2, 70, dtype=torch.long)
        )
        loss.backward()
    assert loss.dtype is torch.bfloat16
    assert {p.grad.dtype for p in model.parameters() if p.grad is not None} == {torch.bfloat16}
