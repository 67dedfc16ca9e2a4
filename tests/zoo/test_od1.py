"""OD1: the ring, its pointer, and the two forms of the ring."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import zoo_reference as reference
from torch import Tensor

from vramcast_zoo.od1 import OD1, lerp, neighbourhood, slot_under, wrap
from vramcast_zoo.ring import DenseRing, SparseRing


def make(ring: str = "sparse", **options: object) -> OD1:
    torch.manual_seed(0)
    model = OD1(ring_len=9, slot_dim=6, ring=ring, **options).double()  # type: ignore[arg-type]
    with (
        torch.no_grad()
    ):  # large enough for the pointer to walk, jump and pass the seam of the ring
        model.steer.weight.mul_(3)
        model.gate_logit.normal_()
    return model


def batch(length: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    return (
        torch.randn(3, length, 1).double(),
        torch.randint(256, (3,)),
        torch.tensor([0.25, 4.0, 8.9], dtype=torch.float64),
    )


def loss_from(model: OD1, x: Tensor, targets: Tensor, start: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(model(x, start), targets)


@pytest.mark.parametrize("ring", ["sparse", "dense"])
@pytest.mark.parametrize("out_dim", [1, 3])
def test_od1_is_its_equations(ring: str, out_dim: int) -> None:
    """Twelve steps on a ring of nine slots.

    The sensory ring of four turns three times, the pointer passes the seam.
    """
    model = make(ring, out_dim=out_dim)
    x, targets, start = batch()
    model.loss = lambda inputs, targets: loss_from(model, inputs, targets, start)  # type: ignore[method-assign]
    reference.compare(model, lambda p: reference.od1(p, x, start, 9, out_dim), x, targets)


def test_the_sparse_ring_gives_the_gradients_of_the_dense_one() -> None:
    x, targets, start = batch(30)
    dense, sparse = make("dense"), make("sparse")
    for model in (dense, sparse):
        loss_from(model, x, targets, start).backward()
    for (name, first), second in zip(dense.named_parameters(), sparse.parameters()):
        if first.grad is not None:
            torch.testing.assert_close(first.grad, second.grad, msg=lambda m, n=name: f"{n}: {m}")


def test_backward_may_run_twice_through_a_sparse_ring() -> None:
    x, targets, start = batch()
    model = make()
    loss = loss_from(model, x, targets, start)
    first = torch.autograd.grad(loss, model.cell.weight_ih, retain_graph=True)
    assert torch.equal(first[0], torch.autograd.grad(loss, model.cell.weight_ih)[0])


def test_a_sparse_ring_keeps_no_ring_for_backward_and_a_dense_one_keeps_one_a_step() -> None:
    x, targets, start = batch(10)
    model = OD1(ring_len=512, slot_dim=8).double()
    kept_bytes = {}
    for form in ("sparse", "dense"):
        model.ring = form  # type: ignore[assignment]
        storages: dict[int, int] = {}

        def keep(tensor: Tensor, storages: dict[int, int] = storages) -> Tensor:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss_from(model, x, targets, start)
        kept_bytes[form] = sum(storages.values())
    one_ring = 3 * 512 * 8 * 8
    assert kept_bytes["dense"] > 10 * one_ring
    assert kept_bytes["sparse"] < one_ring


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_a_ring_goes_with_its_loss_and_does_not_wait_for_the_garbage_collector(form: str) -> None:
    """A reference cycle would keep a ring of each step alive on the GPU."""
    x, targets, start = batch()
    model, rings = make(form), []
    new_ring = model.new_ring
    model.new_ring = lambda *arguments: rings.append(new_ring(*arguments)) or rings[-1]  # type: ignore[method-assign, func-returns-value]
    gc.disable()
    try:
        loss = loss_from(model, x, targets, start)
        loss.backward()
        kept = weakref.ref(getattr(rings[0], "shared", rings[0]))
        del loss
        rings.clear()
        assert kept() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", [DenseRing, SparseRing])
def test_what_is_written_twice_adds_up(kind: type[DenseRing]) -> None:
    ring = kind(torch.zeros(1, 4, 2))
    ring.write(torch.tensor([[3, 0]]), torch.ones(1, 2, 2))
    ring.write(torch.tensor([[0, 1]]), torch.ones(1, 2, 2))
    assert ring.read_last(torch.tensor([[0, 1, 2, 3]]))[0, :, 0].tolist() == [2, 1, 0, 1]


# ------------------------------------------------------------------------------------ the pointer
def test_the_short_way_round_is_taken_across_the_seam() -> None:
    a, b, half = (torch.tensor(v, dtype=torch.float64) for v in (9.0, 1.0, 0.5))
    assert wrap(b - a, 10).item() == 2
    assert lerp(a, b, half, 10).item() == 0
    assert lerp(b, a, half, 10).item() == 0
    assert wrap(torch.tensor(5.0), 10).item() == -5 and wrap(torch.tensor(-5.0), 10).item() == -5


def test_the_neighbourhood_goes_round_the_seam_and_is_symmetric_at_a_slots_middle() -> None:
    slots, weight = neighbourhood(torch.tensor([0.0, 9.5], dtype=torch.float64), 10)
    assert slots.tolist() == [[8, 9, 0, 1, 2], [7, 8, 9, 0, 1]]
    torch.testing.assert_close(weight[0], weight[0].flip(0))
    assert weight[1].argmax() in (2, 3) and weight[1, 2] == pytest.approx(weight[1, 3].item())
    torch.testing.assert_close(weight.sum(1), torch.ones(2, dtype=torch.float64))


def test_a_pointer_rounded_up_to_the_rings_length_is_at_slot_zero() -> None:
    pointer = torch.remainder(torch.tensor([-1e-18], dtype=torch.float64), 10)
    assert pointer.item() == 10.0
    assert slot_under(pointer, 10).item() == 0
    assert neighbourhood(pointer, 10)[0].tolist() == [[8, 9, 0, 1, 2]]


def test_the_pointer_stays_on_the_ring() -> None:
    model = make()
    pointer = torch.tensor([0.0, 4.5, 8.999], dtype=torch.float64)
    for _ in range(50):
        pointer = model.move(pointer, torch.randn(3, 6, dtype=torch.float64) * 5)
        assert ((pointer >= 0) & (pointer <= 9)).all()


def test_the_rounded_target_passes_its_gradient_on() -> None:
    model = make()
    moved = model.move(
        torch.tensor([4.0], dtype=torch.float64), torch.ones(1, 6, dtype=torch.float64)
    )
    moved.sum().backward()
    assert model.target_logit.grad[4] != 0 and model.target_logit.grad.count_nonzero() == 1


def test_every_parameter_is_trained_but_the_input_that_serves_without_the_sensory_ring() -> None:
    x, targets, start = batch()
    for sensory, idle in ((True, {"input"}), (False, {"sense", "sense_cell", "bridge"})):
        model = make(sensory=sensory)
        loss_from(model, x, targets, start).backward()
        assert {
            name.partition(".")[0] for name, p in model.named_parameters() if p.grad is None
        } == idle


def test_the_head_is_the_one_of_the_pointers_part_of_the_ring() -> None:
    model = make(out_dim=3)
    x = torch.randn(9, 6, dtype=torch.float64)
    logits = model.read_out(x, torch.arange(9))
    every = model.heads(x).view(9, 3, 256)
    assert torch.equal(logits, torch.stack([every[slot, slot // 3] for slot in range(9)]))
