"""What the simulated GPU computes on the host is what the host computes: run by
test_device_programs.py.

python tests/simulate/computing_programs.py
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable

from program_device import SESSION, live_bytes, run_programs, taken_by

# isort: split
# the device is loaded before torch
import torch
import torch.nn.functional as F
from torch import nn

Loss = Callable[[nn.Module, torch.Tensor], torch.Tensor]


def _trains_as_on_the_host(net: nn.Module, x: torch.Tensor, loss: Loss, **options: object) -> None:
    """Weights, gradients and statistics after three steps."""
    with SESSION.gpu.computing(True):
        found = []
        for device in ("cpu", "cuda"):
            one, given = copy.deepcopy(net).to(device), x.to(device)
            update = torch.optim.AdamW(one.parameters(), lr=1e-2, **options)
            for _ in range(3):
                update.zero_grad()
                loss(one, given).backward()
                update.step()
            found.append([t.cpu() for t in one.state_dict().values()])
        for on_host, on_gpu in zip(*found, strict=True):
            torch.testing.assert_close(on_gpu, on_host, rtol=1e-3, atol=1e-4)
        assert not SESSION.gpu.has_guessed()


def _mean_square(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return net(x).square().mean()


def a_net_of_convolutions() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8), nn.GroupNorm(2, 8), nn.SiLU(),
        nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64, 5),
    )  # fmt: skip
    labels = torch.arange(4) % 5

    def loss(one: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(one(x), labels.to(x.device))

    _trains_as_on_the_host(net, torch.randn(4, 3, 16, 16), loss)


def attention_with_a_mask_and_without() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.norm = nn.Linear(32, 96), nn.LayerNorm(32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in self.enter(x).chunk(3, -1))
            found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            mask = (torch.arange(x.shape[1], device=x.device) < 9).expand(x.shape[1], -1)
            found = found + F.scaled_dot_product_attention(q, k, v, mask)
            return self.norm(F.gelu(found.transpose(1, 2).flatten(2)))

    for fused in (True, False):
        _trains_as_on_the_host(Net(), torch.randn(2, 16, 32), _mean_square, fused=fused)


def words_and_cells() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.cell, self.says = (
                nn.Embedding(50, 16), nn.LSTMCell(16, 16), nn.Linear(16, 50),
            )  # fmt: skip

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            x, state = self.table(words), None
            for at in range(words.shape[1]):
                state = self.cell(x[:, at], state)
            return F.logsigmoid(self.says(state[0])).log_softmax(-1)

    _trains_as_on_the_host(Net(), torch.randint(50, (8, 6)), lambda net, x: -net(x)[:, 0].mean())


def products_in_half_precision_are_summed_in_single_precision() -> None:
    makes: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda x: x @ x.mT,
        lambda x: torch.addmm(x[0, :, 0], x[0], x[0].mT),
        lambda x: F.conv2d(x[None], x[:2, :3].unsqueeze(1).mT, groups=2),
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    ]
    with SESSION.gpu.computing(True):
        for dtype in (torch.half, torch.bfloat16):
            x = torch.randn(2, 40, 40).to(dtype)
            for make in makes:
                found, wanted = make(x.cuda()), make(x.float()).to(dtype)
                assert found.dtype == dtype
                torch.testing.assert_close(found.cpu(), wanted, rtol=0, atol=0)
        assert not SESSION.gpu.has_guessed()


def rows_that_a_network_chooses_are_those_that_it_chooses() -> None:
    with SESSION.gpu.computing(True):
        net, x = nn.Linear(300, 300), torch.randn(500, 300)
        wanted = int((net(x).softmax(1).amax(1) > 0.016).sum())
        sure = net.cuda()(x.cuda()).softmax(1).amax(1) > 0.016
        assert x.cuda()[sure].shape[0] == wanted == int(sure.sum())
        assert 0 < wanted < 500
        assert not SESSION.gpu.has_guessed()


def without_it_rows_that_a_network_chooses_are_a_guess() -> None:
    net, x = nn.Linear(300, 300).cuda(), torch.randn(500, 300).cuda()
    with SESSION.gpu.computing(False):
        net(x).sum().item()
        net(x).topk(2)
        assert not SESSION.gpu.has_guessed(), "nothing depends on them"
        torch.bincount(net(x).argmax(1))
        assert SESSION.gpu.has_guessed(), "the experts that a router chooses"
    with SESSION.gpu.computing(False):
        x[net(x)[:, 0] > 0]
        assert SESSION.gpu.has_guessed(), "a mask"


def what_is_made_of_a_guess_is_one() -> None:
    net, none = nn.Linear(300, 300).cuda(), torch.zeros(500, dtype=torch.bool, device="cuda")
    picked = net(torch.randn(500, 300).cuda()).argmax(1)
    made = {
        "a copy": picked.clone(),
        "of another type": picked.int(),
        "a number": picked.float() * 2,
        "filled": picked.masked_fill(none, 0),
        "changed": picked.clone().add_(1),
        "repeated": picked.repeat(2),
        "joined": torch.cat([picked, picked]),
        "split": picked.split(250)[1],
        "picked again": picked[:3].gather(0, torch.arange(3, device="cuda")),
        "compared": picked == 3,
    }
    for name, tensor in made.items():
        with SESSION.gpu.computing(False):
            bool(tensor.any())
            assert SESSION.gpu.has_guessed(), name


def what_is_dropped_and_chosen_is_what_an_h200_drops_and_chooses() -> None:
    """Recorded there with torch 2.11: how many a thread has at once differs by size and type."""
    fp32, bf16 = torch.float32, torch.bfloat16
    recorded = {
        (7, fp32): 3122667081, (1000, fp32): 863436872, (1000, bf16): 3759940904,
        (1002, fp32): 970619825, (1023, bf16): 5923720, (300_000, fp32): 1508550566,
        (300_000, bf16): 2247606119, (1_000_004, bf16): 1251647253,
    }  # fmt: skip
    with SESSION.gpu.computing(True):
        for (count, dtype), crc32 in recorded.items():
            torch.manual_seed(0)
            kept = torch.native_dropout(torch.ones(count, device="cuda", dtype=dtype), 0.3, True)[1]
            assert zlib.crc32(kept.cpu().numpy().tobytes()) == crc32, (count, dtype)
        chances = torch.arange(1, 101, device="cuda").float()
        torch.manual_seed(0)
        assert torch.multinomial(chances, 5).tolist() == [28, 86, 80, 83, 44]
        torch.manual_seed(0)
        assert torch.multinomial(chances.view(10, 10), 1)[:, 0].tolist() == [
            9, 3, 8, 7, 4, 7, 4, 9, 6, 6
        ]  # fmt: skip


def points_are_apart_from_themselves_as_on_an_h200() -> None:
    """By the last bit of their norms, which is decided by the order of the sum."""
    atoms = torch.rand(16, 256, 3, device="cuda")
    apart = torch.cdist(atoms, atoms)
    assert int((apart.diagonal(dim1=1, dim2=2) > 0).sum()) == 605
    assert int(((apart < 0.2) & (apart > 0)).sum()) == 27965


def the_same_is_allocated_and_nothing_is_kept() -> None:
    net, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten()).cuda(), None
    x = torch.randn(4, 3, 16, 16, device="cuda")

    def step() -> None:
        F.dropout(net(x), 0.1).square().mean().backward()
        net.zero_grad()

    step()
    without = taken_by(step)
    with SESSION.gpu.computing(True):
        before = live_bytes()
        assert taken_by(step) == without
        assert live_bytes() == before


def it_ends_where_it_takes_too_much() -> None:
    with SESSION.gpu.computing(True):
        large = [torch.zeros(40_000_000, device="cuda") for _ in range(4)]
        assert SESSION.device.library.vramcast_computing_ended()
        x = torch.randn(300, 300, device="cuda")
        (x @ x @ x)[0, 0].item()
        del large


if __name__ == "__main__":
    run_programs()
