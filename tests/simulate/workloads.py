"""Small training steps, one for each thing a program may do; simulated by test_coverage.py."""

from __future__ import annotations

import copy
import io
import itertools
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 64


def steps(
    model: nn.Module,
    make_loss: Callable[[torch.Tensor], torch.Tensor],
    shape: tuple[int, ...] = (32, WIDTH),
) -> Callable[[], torch.Tensor]:
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = make_loss(torch.randn(shape, device="cuda"))
        loss.backward()
        optimizer.step()
        return loss

    return step


def built_on_the_host() -> Callable[[], Any]:
    model = (
        nn.Sequential(nn.Linear(WIDTH, 4096), nn.GELU(), nn.Linear(4096, WIDTH))
        .to(torch.bfloat16)
        .cuda()
    )
    return steps(model, lambda x: model(x.bfloat16()).float().mean())


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def custom_autograd_function() -> Callable[[], Any]:
    model = nn.Linear(WIDTH, WIDTH).cuda()
    return steps(model, lambda x: Square.apply(model(x)).mean())


@torch.library.custom_op("vramcast_tests::scaled", mutates_args=(), device_types="cuda")
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    raise RuntimeError("a kernel that only a GPU could run")


@scaled.register_fake
def _(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.empty_like(x)


scaled.register_autograd(lambda ctx, grad: (grad * 2, None))


def custom_operator_with_a_fake_kernel() -> Callable[[], Any]:
    model = nn.Linear(WIDTH, WIDTH).cuda()
    return steps(model, lambda x: scaled(model(x), 2.0).mean())


def triton_kernel_launched_directly() -> Callable[[], Any]:
    sys.path.insert(
        0, str(Path(__file__).parent / "stand_in")
    )  # a stand-in for triton: the real one needs a GPU build
    from triton.runtime.jit import JITFunction

    def double(x: Any, out: Any) -> None: ...

    kernel = JITFunction(double)
    model = nn.Linear(WIDTH, WIDTH).cuda()

    def loss(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel[(1,)](x, out)
        return model(out).mean()

    return steps(model, loss)


def compiled() -> Callable[[], Any]:
    """Eagerly every result of the chain is kept for the backward pass. Another function is
    compiled again, because its input grows."""
    model = nn.Linear(WIDTH, WIDTH).cuda()

    @torch.compile
    def loss(x: torch.Tensor) -> torch.Tensor:
        y = model(x).repeat(1 << 14, 1)
        return y.sin().exp().cos().sin().mean()

    @torch.compile(backend="eager")
    def double(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    sizes = itertools.count(2)
    return steps(model, lambda x: loss(x) + double(torch.ones(next(sizes)).cuda()).sum())


def reads_the_loss() -> Callable[[], Any]:
    model = nn.Linear(WIDTH, WIDTH).cuda()
    inner = steps(model, lambda x: model(x).mean())

    def step() -> float:
        loss = inner().item()
        return loss if loss < 1e9 else 0.0

    return step


def waits_for_a_value() -> Callable[[], Any]:
    model = nn.Linear(WIDTH, WIDTH).cuda()

    def loss(x: torch.Tensor) -> torch.Tensor:
        # on a GPU true at once; unknown values must not hang here
        while not (model(x) > 0).any():
            x = torch.randn_like(x)
        return model(x).mean()

    return steps(model, loss, (4096, 1024 * WIDTH // 1024))


def recurrent_by_cudnn() -> Callable[[], Any]:
    model = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True).cuda()
    return steps(model, lambda x: model(x)[0].mean(), (8, 20, WIDTH))


def convolution() -> Callable[[], Any]:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3)
    ).cuda()
    return steps(model, lambda x: model(x).mean(), (4, 3, 32, 32))


def transforms_to_frequencies() -> Callable[[], Any]:
    """Each transform has the shape that it has on the host, and gradients pass through it."""
    scale = nn.Parameter(torch.ones(8, 4, 32, 44, device="cuda"))
    model = nn.ParameterList([scale])
    transforms: list[Callable[[torch.Tensor], torch.Tensor]] = [
        torch.fft.rfft2,
        lambda x: torch.fft.irfft2(torch.fft.rfft2(x), s=(32, 44)),
        torch.fft.fft,
        torch.fft.ifftn,
        lambda x: torch.fft.rfftn(x.transpose(1, 3)),
        lambda x: torch.stft(x[0, 0].flatten(), 64, return_complex=True),
    ]

    def loss(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), device="cuda")
        for transform in transforms:
            result = transform(x * scale)
            assert result.shape == transform(torch.zeros(x.shape)).shape
            total = total + result.abs().mean()
        return total

    return steps(model, loss, (8, 4, 32, 44))


def factorises_matrices() -> Callable[[], Any]:
    model = nn.Linear(WIDTH, WIDTH, bias=False).cuda()

    def loss(x: torch.Tensor) -> torch.Tensor:
        a = model.weight @ model.weight.mT + torch.eye(WIDTH, device="cuda")
        factor, info = torch.linalg.cholesky_ex(a)
        assert not info.any()
        solved = torch.linalg.solve(a, x.mT) + torch.linalg.inv(a) @ x.mT
        parts = (factor, solved, torch.linalg.eigh(a)[1], torch.linalg.lu_factor(a)[0])
        return torch.stack([part.mean() for part in parts]).sum() + torch.logdet(a)

    return steps(model, loss)


def aligns_by_ctc() -> Callable[[], Any]:
    """With targets of 32 bits on the host cuDNN computes the gradient together with the loss."""
    model = nn.Linear(WIDTH, 20).cuda()
    lengths = torch.full((16,), 50), torch.full((16,), 10)
    targets = torch.randint(1, 20, (160,), dtype=torch.int32)
    return steps(
        model, lambda x: F.ctc_loss(model(x).log_softmax(-1), targets, *lengths), (50, 16, WIDTH)
    )


def accumulates_with_a_scaler() -> Callable[[], Any]:
    model = nn.Linear(WIDTH, WIDTH).cuda()
    optimizer, scaler = (
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        torch.amp.GradScaler("cuda"),
    )

    def step() -> torch.Tensor:
        for _ in range(3):
            with torch.autocast("cuda", dtype=torch.float16), nullcontext():
                loss = F.mse_loss(
                    model(torch.randn(16, WIDTH, device="cuda")),
                    torch.zeros(16, WIDTH, device="cuda"),
                )
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss

    return step


def copies_its_layers() -> Callable[[], Any]:
    """As torch's own encoder does.

    The average is a copy of the whole, and one parameter is in no module.
    """
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(WIDTH, 2, 128, batch_first=True), 2
    ).cuda()
    average = copy.deepcopy(model).requires_grad_(False)
    scale = nn.Parameter(torch.ones(WIDTH, device="cuda"))
    optimizer = torch.optim.AdamW([*model.parameters(), scale])

    def step() -> torch.Tensor:
        loss = (model(torch.randn(4, 8, WIDTH, device="cuda")) * scale).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for mean, parameter in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(parameter, 0.01)
        return loss

    return step


def shuffles_with_workers() -> Callable[[], Any]:
    data = TensorDataset(torch.randn(64, WIDTH), torch.randint(0, 10, (64,)))
    loader = iter(DataLoader(data, batch_size=4, shuffle=True, num_workers=1, pin_memory=True))
    model = nn.Linear(WIDTH, 10).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> torch.Tensor:
        x, y = next(loader)
        loss = F.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def saves_itself() -> Callable[[], Any]:
    model = nn.Linear(WIDTH, WIDTH).cuda()
    inner = steps(model, lambda x: model(x).mean())

    def step() -> torch.Tensor:
        loss: torch.Tensor = inner()
        torch.save(model.state_dict(), io.BytesIO())
        return loss

    return step


class Adapted(nn.Module):
    """A frozen model with a small trained part, as in LoRA."""

    def __init__(self, vocabulary: int = 4096) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.frozen = nn.Linear(WIDTH, vocabulary)
        self.requires_grad_(False)
        self.down, self.up = nn.Linear(WIDTH, 4), nn.Linear(4, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        return self.frozen(x + self.up(self.down(x)))


def trains_an_adapter() -> Callable[[], Any]:
    model = Adapted().cuda()
    tokens = torch.zeros(8192, dtype=torch.int64, device="cuda")
    return steps(model, lambda _: F.cross_entropy(model(tokens), tokens))


def leaves_out_layers() -> Callable[[], None]:
    kept = iter([1, 2, 1, 3, 2, 64] + [1] * 20)
    x = torch.zeros(1 << 18, device="cuda")

    def step() -> None:
        layers = [x]
        for _ in range(next(kept)):
            layers.append(layers[-1] + 1)

    return step


def fetches_on_another_stream(waits: bool = False) -> Callable[[], Any]:
    """Of which the GPU has much more to do than the host."""
    on_host, side = torch.zeros(1 << 20).pin_memory(), torch.cuda.Stream()
    large = torch.zeros(1 << 13, 1 << 13, device="cuda")

    def step() -> torch.Tensor:
        with torch.cuda.stream(side):
            batch = on_host.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        batch.record_stream(torch.cuda.current_stream())
        for _ in range(25):
            torch.mm(large, large, out=large)
        if waits:
            torch.cuda.synchronize()
        return batch.sum()

    return step


def makes_a_model_in_every_step() -> Callable[[], Any]:
    def step() -> torch.Tensor:
        model = nn.Linear(1024, 1024, device="cuda")
        optimizer = torch.optim.AdamW(model.parameters())
        loss = model(torch.randn(64, 1024, device="cuda")).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class RefusesToBeListed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(WIDTH, device="cuda"))

    def named_modules(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("the model is not complete yet")


def interrupts_itself() -> Callable[[], Any]:
    raise KeyboardInterrupt


def fails_with_a_half_built_model() -> Callable[[], Any]:
    model = RefusesToBeListed()
    raise ValueError(f"the user's mistake, with {len(model.weight)} weights")


def penalises_its_gradient():
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)).cuda()
    x = torch.randn(65536, 64, device="cuda", requires_grad=True)

    def step():
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        slope.square().mean().backward()
        model.zero_grad()
        x.grad = None

    return step


def halves_its_batch_when_out_of_memory(*, batch_size: int = 8192) -> Callable[[], Any]:
    """With 2 GiB it ends with half of the batch."""
    model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(64)]).cuda()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.memory_allocated() == torch.cuda.max_memory_allocated()
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated() > 64 << 22
    rows = batch_size

    def step() -> torch.Tensor:
        nonlocal rows
        while True:
            try:
                loss = model(torch.randn(rows, 1024, device="cuda")).mean()
                loss.backward()
                model.zero_grad()
                return loss.detach()
            except torch.cuda.OutOfMemoryError as error:
                message = str(error)
                free, total = torch.cuda.mem_get_info()
                assert message.startswith("CUDA out of memory. Tried to allocate ")
                assert f"total capacity of {total / 2**30:.2f} GiB of which" in message
                assert "PYTORCH_ALLOC_CONF=expandable_segments:True" in message
                assert torch.cuda.memory_stats()["num_ooms"] > 0
            loss = None
            rows //= 2

    return step


def allows_itself_a_fraction() -> Callable[[], Any]:
    """2 GiB of the 139.8 of an H200."""
    torch.cuda.set_per_process_memory_fraction(2 / 139.8)
    return halves_its_batch_when_out_of_memory()


def allows_itself_a_fraction_at_first() -> Callable[[], Any]:
    step = allows_itself_a_fraction()

    def once() -> Any:
        found = step()
        torch.cuda.set_per_process_memory_fraction(1.0)
        return found

    return once
