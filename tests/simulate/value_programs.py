"""What the simulated GPU makes of numbers that nobody computed: run by test_device_programs.py.

python tests/simulate/value_programs.py
"""

from __future__ import annotations

import struct
import time
from itertools import accumulate

from program_device import live_bytes, run_programs, taken_by

# isort: split
# the device is loaded before torch
import torch

SIDE = 1_000


def positions_of_a_sparse_matrix_are_known_once_they_are_in_order() -> None:
    at = torch.tensor([[1, 0, 1, 1], [2, 2, 0, 2]])
    found = torch.sparse_coo_tensor(at, torch.ones(4), (2, 3)).cuda().coalesce()
    assert found.indices().tolist() == [[0, 1, 1], [2, 0, 2]]
    rows = found.to_sparse_csr()
    assert (rows.crow_indices().tolist(), rows.col_indices().tolist()) == ([0, 1, 3], [2, 0, 2])


def a_mask_of_unknown_numbers_has_as_many_elements_as_their_distribution_says() -> None:
    # too many for their values to be kept
    x, u = torch.randn(48_000, 100, device="cuda"), torch.rand(48_000, 100, device="cuda")

    def share(mask: torch.Tensor) -> float:
        assert int(mask.sum()) == x[mask].numel()
        return x[mask].numel() / x.numel()

    inside = (x >= -3) & (x <= 3)
    assert 0.99 < share(inside) < 1
    assert 0 < share(~inside) < 0.01
    assert share(x > 0) == 0.5
    assert abs(share(u < 0.1) - 0.1) < 0.01
    rare = u < 0.1
    rare |= torch.sigmoid(x) > 0.9
    assert abs(share(rare) - 0.19) < 0.01
    assert share(x == u) == 0.5, "nothing is known of it"
    assert share(torch.isfinite(x)) == 1
    picked = torch.sigmoid(x)[x[:, 0] > 0]
    assert (picked >= 0).nonzero().shape[0] == picked.numel(), "picked numbers keep their range"
    rows = x == x.max(1).values[:, None]
    assert abs(share(rows) - 0.01) < 0.001, "the largest of each row"


def nothing_may_be_added_to_some_rows() -> None:
    none, sums = torch.empty(0, dtype=torch.int64, device="cuda"), torch.ones(5, device="cuda")
    assert (
        sums.index_add_(0, none, sums[:0]).shape == sums.index_add(0, none, sums[:0]).shape == (5,)
    )


def _buckets(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As relative positions are put into them."""
    apart = torch.maximum(rows[None] - rows[:, None], torch.zeros_like(rows))
    far = 16 + ((apart.float() + 1) / 16).log().mul(8).long()
    return apart, torch.where(apart < 16, apart, far.clamp(max=31))


def a_number_of_any_type_is_read_as_the_host_reads_it() -> None:
    floats = (torch.half, torch.bfloat16, torch.float, torch.double, torch.cfloat)
    for dtype in (torch.bool, torch.uint8, torch.int16, torch.int64, *floats):
        on_host = torch.tensor([0, 1, 3]).to(dtype)
        read, expected = on_host.cuda()[2].item(), on_host[2].item()
        assert (read, type(read)) == (expected, type(expected))
    conjugate = torch.tensor([1 + 2j]).cuda().conj()
    assert conjugate.item() == 1 - 2j


def thousands_of_known_numbers_are_read_at_once() -> None:
    flags = torch.zeros(4096, dtype=torch.bool, device="cuda").unbind()
    on_host = torch.zeros(4096, dtype=torch.bool).unbind()
    took = []
    for several in (on_host, flags):
        began = time.process_time()
        assert not any(bool(one) for _ in range(5) for one in several)
        took.append(time.process_time() - began)
    assert took[1] < 20 * took[0]  # 60 times as long where Python did it


def many_whole_numbers_are_worked_out_only_if_they_are_asked_for() -> None:
    began = time.process_time()
    made = [_buckets(torch.arange(SIDE, device="cuda"))[1] for _ in range(20)]
    asked = time.process_time()
    read = {int(one.sum()) for one in made}
    assert read == {int(_buckets(torch.arange(SIDE))[1].sum())}
    assert asked - began < (time.process_time() - asked) / 2


def whole_numbers_are_those_of_the_time_when_they_were_made() -> None:
    rows = torch.arange(SIDE, device="cuda")
    apart, found = _buckets(rows)
    is_near = apart.bool() & (apart < 5)
    expected_apart, expected = _buckets(torch.arange(SIDE))
    rows.zero_()
    apart += 7
    assert torch.equal(found.cpu(), expected)
    assert torch.equal(apart.cpu(), expected_apart + 7)
    assert is_near.nonzero().shape[0] == int((expected_apart.bool() & (expected_apart < 5)).sum())


def what_is_used_twice_again_and_again_is_worked_out_once() -> None:
    rows = [torch.arange(10 * SIDE), torch.arange(10 * SIDE, device="cuda")]
    for _ in range(40):
        rows = [(each + each) % (10 * SIDE - 7) for each in rows]
    assert rows[1].float().shape == rows[1].shape  # asks for the first of them
    assert torch.equal(rows[1].cpu(), rows[0])


def what_is_made_of_random_numbers_is_worked_out_when_it_is_asked_for() -> None:
    """How many cells, edges and rows there are decides what a step takes."""
    points = torch.rand(60_000, 3, device="cuda")
    moved = (points + 0.01 * torch.randn_like(points)).clamp(0, 0.999) * 48
    moved[:, 2].mul_(0.5)
    cells = moved.long()
    on_host = moved.cpu().long()
    assert len(cells.unique(dim=0)) == len(on_host.unique(dim=0)) < 50_000
    apart = torch.cdist(points[:2000], points[:500])
    near = (apart < 0.2).nonzero()
    assert len(near) == int((apart.cpu() < 0.2).sum()) and 0.02 < len(near) / 1_000_000 < 0.04
    tall = points[points[:, 2] > 0.75]
    assert abs(len(tall) - 15_000) < 400 and bool((tall[:, 2] > 0.75).all())
    mean, few = (moved > 24).float().mean().item(), torch.randn(100_000, device="cuda").std().item()
    assert 0.3 < mean < 0.36 and abs(few - 1) < 0.02


def what_is_worked_out_later_is_of_the_numbers_that_were_there() -> None:
    before = live_bytes()
    drawn = torch.rand(200_000, device="cuda")
    twice = drawn * 2
    drawn.add_(10)
    drawn[:1000] = -5.0
    assert int((twice > 2).sum()) == 0 < int((twice > 1).sum()) < 105_000
    assert int((drawn < 0).sum()) == 1000 and int((drawn > 10).sum()) == 199_000
    for _ in range(300):  # too long a way back
        drawn = drawn * 1.001
    assert drawn.sum().item() > 0
    numbers = torch.rand(200_000, device="cuda", requires_grad=True)
    assert int((numbers * 0 > 1).sum()) != 0, "of parameters nothing is known"
    del drawn, twice, numbers
    assert live_bytes() == before


def a_tensor_is_equal_to_its_copy_until_one_is_written_to() -> None:
    for made in (torch.nn.Linear(600, 600).cuda().weight.detach(), torch.empty(5_000_000).cuda()):
        copied = made.clone()
        torch.testing.assert_close(made, copied)
        assert (made == copied).all() and not (made != copied).any()
        copied[3] += 1
        assert not (made == copied).all()


def a_check_holds_also_where_the_message_of_its_error_depends_on_something() -> None:
    """Large weights are not known: what a healthy run asserts of them is so."""
    square = torch.nn.Linear(2000, 40).cuda().weight[:, :40].square()
    if not torch.isclose(square, torch.eye(40, device="cuda")).all():
        if square.dim() == 2:
            message = "matrices"
        else:
            message = "numbers"
        raise AssertionError(message)
    torch.testing.assert_close(square, torch.eye(40, device="cuda"))


def the_norm_of_weights_of_the_host_is_not_zero() -> None:
    weight = torch.nn.Linear(2000, 2000).weight
    assert weight.norm().item() > 0 < weight.abs().mean().item()
    assert torch.zeros(2000, 2000).norm().item() == 0


def whole_numbers_that_are_written_into_parts_of_an_empty_tensor_are_known() -> None:
    begins = torch.empty(5, dtype=torch.int64, device="cuda")
    begins[:1].zero_()
    torch.cumsum(torch.full((4,), 3, device="cuda"), 0, out=begins[1:])
    assert begins.tolist() == [0, 3, 6, 9, 12]
    assert torch.full((3,), 2, device="cuda").cumprod(0).tolist() != [2, 4, 6], "that is a sum"


def a_permutation_that_is_turned_around_is_known() -> None:
    """As lengths of packed sequences are brought back into their order."""
    order = torch.tensor([3, 1, 4, 0, 2], device="cuda")
    for write in ("scatter_", "index_copy_"):
        inverse = getattr(torch.empty_like(order), write)(0, order, torch.arange(5, device="cuda"))
        assert order[inverse].tolist() == [0, 1, 2, 3, 4]


def zeros_like_another_tensor_are_known_to_be_zeros_and_have_its_layout() -> None:
    for size in (4, 500_000):  # contents are kept, or one number stands for them
        x = torch.randn(size, 2, device="cuda").t()
        zeros = torch.zeros_like(x)
        assert zeros.stride() == x.stride() and zeros.dtype == x.dtype
        assert not zeros.any() and (zeros + 1).eq(1).all()
    assert torch.zeros_like(x, dtype=torch.float64).dtype == torch.float64
    assert torch.zeros_like(x, device="cpu").device.type == "cpu"
    assert torch.empty_like(x, memory_format=torch.contiguous_format).is_contiguous()


def the_sides_of_boxes_are_positive() -> None:
    num_boxes = 1_200_000  # too many for their values to be kept
    boxes = torch.randn(num_boxes, 4, device="cuda")
    sides = boxes[:, 2] - boxes[:, 0]
    assert (sides >= 1e-3).nonzero().numel() > 0.99 * num_boxes
    assert (boxes[:, 1] - boxes[:, 0] >= 1e-3).nonzero().numel() < 0.51 * num_boxes


def what_is_made_of_a_drawn_mask_fits_together() -> None:
    labels = torch.randn(2000, 8, device="cuda").argmax(1)
    labels[torch.randn(2000, device="cuda") < 0.5] = -1
    found, missed = (labels >= 0).nonzero()[:, 0], (labels == -1).nonzero()[:, 0]
    assert len(found) + len(missed) == 2000 and abs(len(found) - 617) < 10
    chosen = torch.zeros_like(labels)
    chosen[found[torch.randperm(len(found), device="cuda")[:100]]] = 1
    assert len(chosen.nonzero()) == 100


def clamped_numbers_become_levels_that_share_the_rows() -> None:
    levels = torch.randn(2000, device="cuda").floor().clamp(2, 5).to(torch.int64) - 2
    counts = [len((levels == level).nonzero()) for level in range(4)]
    assert sum(counts) == 2000 and counts[0] > counts[1] > 0


def what_is_clamped_to_one_number_is_that_number() -> None:
    levels = torch.randn(2000, device="cuda").floor().clamp(5, 5).to(torch.int64) - 5
    assert [len(torch.where(levels == level)[0]) for level in range(2)] == [2000, 0]


def clamped_numbers_are_often_at_a_bound() -> None:
    """Gradients of products go another way where there are zeros."""
    numbers = torch.randn(4000, device="cuda", requires_grad=True)
    chosen = torch.eye(4).cuda()
    for x in (numbers.clamp(0, 1), numbers.clamp(0, 1).view(-1, 4) @ chosen):
        assert int((x == 0).sum()) == 2000 and int((x != 1).sum()) > 3800
    assert int((numbers == 0).sum()) == int((numbers.clamp(0, 1) * 2 == 0).sum()) == 0


def weights_that_were_made_on_the_host_have_a_norm() -> None:
    """LAMB and LARS divide by it, and leave out the layers where it is 0."""
    weights = [torch.nn.Linear(side, side).cuda().weight for side in (20, 200, 500, 3000)]
    assert all(weight.norm().item() > 0 for weight in weights)
    row, zeros = weights[2].flatten(), torch.zeros(10, device="cuda")
    assert torch.cat([zeros, row]).norm().item() > 0 < torch.cat([row, zeros]).norm().item()
    assert torch.zeros(500, 500).cuda().norm().item() == 0


def the_norm_of_a_matrix_decides_how_its_exponential_is_made() -> None:
    """What an H200 took for one of a large norm is in benchmarks/operators."""
    peaks = {}
    for entry in (0.001, 10.0):
        matrix = torch.full((5, 5), entry).cuda()
        events = taken_by(lambda matrix=matrix: torch.linalg.matrix_exp(matrix))
        peaks[entry] = max(accumulate(e // 100 for e in events if e % 100 == 0))
    assert peaks[0.001] < peaks[10.0] == 14


def the_exponential_of_a_matrix_is_computed_or_not_known_but_never_zero() -> None:
    """Orthogonal parametrizations are made of it."""
    known = torch.tensor([[0.0, 0.5], [-0.5, 0.0]])
    torch.testing.assert_close(known.cuda().matrix_exp().cpu(), known.matrix_exp())
    weights = torch.nn.Linear(32, 32).cuda()
    with torch.no_grad():
        assert weights(torch.randn(32, 32, device="cuda")).matrix_exp().abs().max().item() > 0


def places_that_are_sorted_keep_what_is_known() -> None:
    places = torch.tensor([2, 0, 2], device="cuda")
    torch._C._set_deterministic_algorithms(True)  # torch's own function would import Inductor
    added = torch.zeros(4, dtype=torch.long, device="cuda").scatter_add_(0, places, places)
    torch._C._set_deterministic_algorithms(False)
    assert added.tolist() == [0, 0, 4, 0]


def a_number_written_where_a_mask_is_true_needs_no_positions() -> None:
    x, mask = torch.randn(1000, 100, device="cuda"), torch.rand(1000, 100, device="cuda") < 0.1
    assert taken_by(lambda: x.__setitem__(mask, 0.0)) == []


def a_number_that_is_written_nowhere_changes_nothing() -> None:
    padding = torch.zeros(8, 1, 512, 512, device="cuda")[:, 0, 0, :]
    padding[torch.ones(8, 512, device="cuda", dtype=torch.long) == 2] = 1e9
    assert not (padding > 0).any().item()


def the_host_computes_with_what_the_program_has_made() -> None:
    ones = torch.ones(SIDE, SIDE)
    above = ones.triu() - torch.eye(SIDE)
    read = torch.frombuffer(bytearray(struct.pack("f", 2.0) * SIDE**2), dtype=torch.float32)
    read = read.view(SIDE, SIDE)
    written = torch.empty(SIDE, SIDE)
    written[: SIDE // 2] = read[: SIDE // 2] * 3
    written[SIDE // 2 :] = 1
    assert (above == 1).sum() == SIDE * (SIDE - 1) // 2
    assert ones.sum() == len((read / ones).nonzero()) == SIDE**2
    assert written.mean() == 3.5


def a_large_graph_that_the_host_normalises_has_its_edges_on_the_gpu() -> None:
    """36 million whole numbers, of which a few are not zero."""
    side = 6 * SIDE
    edges = torch.arange(side).repeat(2, 3)
    graph = torch.sparse_coo_tensor(edges, torch.ones(3 * side).int(), (side, side)).to_dense()
    degrees = graph.sum(dim=1).float()
    shares = graph / degrees.sqrt().unsqueeze(0) / degrees.sqrt().unsqueeze(1)
    assert shares[shares > 0].cuda().shape == (side,)


def weights_of_models_and_products_are_not_computed_on_the_host() -> None:
    layer = torch.nn.Linear(SIDE, SIDE)
    product = torch.ones(SIDE, SIDE) @ torch.ones(SIDE, SIDE)
    for zeros in (layer.weight.data, layer.weight.data * 2 + 1, product):
        assert not zeros.any()


def the_host_computes_only_so_much() -> None:
    many = torch.ones(64, SIDE, SIDE)
    sums = [float(many.sum()) for _ in range(32)]
    assert sums[0] == many.numel() and sums[-1] == 0.5, "what stands for it"


def a_mask_on_the_host_chooses_rows_of_a_tensor_on_the_gpu() -> None:
    """torch moves it; a mask on the host for `masked_fill_` itself is an error there, too."""
    x, rows = torch.zeros(4, 2, device="cuda"), torch.tensor([True, False, True, False])
    x[rows] = 1
    assert x.tolist() == [[1, 1], [0, 0], [1, 1], [0, 0]]


if __name__ == "__main__":
    run_programs()
