"""Workloads as people write them for a GPU; DEVICE is replaced by "cpu" for the CPU."""

import functools

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "cuda"


def model(width=8):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(width, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, width))


def training(net, x, optimizer, loss_of=lambda net, x: net(x).square().mean()):
    def step():
        optimizer.zero_grad()
        loss = loss_of(net, x)
        loss.backward()
        optimizer.step()
        return loss

    return step


def plain():
    net = model().to(DEVICE)
    return training(
        net, torch.randn(4, 8, device=DEVICE), torch.optim.SGD(net.parameters(), lr=0.1)
    )


def method_cuda():
    net = model()
    x = torch.randn(4, 8)
    if DEVICE == "cuda":
        net, x = net.cuda(), x.cuda(non_blocking=True)
    return training(net, x, torch.optim.AdamW(net.parameters()))


def to_in_all_its_forms():
    net = model().to(device=torch.device(DEVICE))
    x = torch.randn(4, 8)
    x = x.to(DEVICE, torch.float64).to(device="cuda:0" if DEVICE == "cuda" else DEVICE)
    x = x.to(torch.device(DEVICE), torch.float32, non_blocking=True).to(
        torch.zeros(1, device=DEVICE)
    )
    if DEVICE == "cuda":
        net, x = net.to(0).to(device=0).cuda(0), x.to(0).cuda(0).to(torch.float32)
    x = x.to(device=DEVICE, dtype=torch.float32, copy=True)
    return training(net, x, torch.optim.Adam(net.parameters(), foreach=True))


def factories():
    d = torch.device(DEVICE)
    net = model().to(d)
    parts = [
        torch.randn(1, 8, device=d),
        torch.zeros(1, 8, device=DEVICE),
        torch.arange(8.0, device=d)[None],
    ]
    parts += [torch.ones(1, 8).new_full((1, 8), 2.0, device=d)]
    parts += [
        torch.tensor([[0.5] * 8], device=DEVICE),
        torch.empty(1, 8, device=d).fill_(3),
        torch.rand_like(parts[0], device=d),
    ]
    parts += [
        torch.as_tensor([[1.0] * 8], device=DEVICE),
        torch.linspace(0, 1, 8, device=d)[None],
        torch.eye(8, device=DEVICE)[:1],
    ]
    return training(net, torch.cat(parts), torch.optim.SGD(net.parameters(), lr=0.1))


def device_context():
    with torch.device(DEVICE):
        net = model()
        x = torch.randn(4, 8)
    return training(net, x, torch.optim.SGD(net.parameters(), lr=0.1))


def default_device():
    torch.set_default_device(DEVICE)
    net = model()
    x = torch.randn(4, 8)
    return training(net, x, torch.optim.SGD(net.parameters(), lr=0.1))


def autocast(dtype):
    net = model().to(DEVICE)

    def loss_of(net, x):
        with torch.autocast(DEVICE, dtype=dtype):
            out = net(x)
            assert out.dtype == dtype
        return out.float().square().mean()

    return training(
        net, torch.randn(4, 8, device=DEVICE), torch.optim.SGD(net.parameters(), lr=0.1), loss_of
    )


autocast_bf16 = functools.partial(autocast, torch.bfloat16)
autocast_fp16 = functools.partial(autocast, torch.float16)


def scaled(scaler, context):
    net = model().to(DEVICE)
    x = torch.randn(4, 8, device=DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        with context():
            loss = net(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step


def scaler():
    return scaled(
        torch.amp.GradScaler(DEVICE),
        lambda: torch.amp.autocast(device_type=DEVICE, dtype=torch.float16),
    )


def old_scaler():
    if DEVICE == "cpu":
        return scaler()
    return scaled(torch.cuda.amp.GradScaler(), lambda: torch.cuda.amp.autocast(dtype=torch.float16))


def checkpointed(use_reentrant, dtype=torch.bfloat16):
    net = model().to(DEVICE)

    def loss_of(net, x):
        with torch.autocast(DEVICE, dtype=dtype):
            return checkpoint(net, x, use_reentrant=use_reentrant).float().square().mean()

    return training(
        net,
        torch.randn(4, 8, device=DEVICE, requires_grad=True),
        torch.optim.SGD(net.parameters(), lr=0.1),
        loss_of,
    )


checkpoint_old = functools.partial(checkpointed, True)
checkpoint_new = functools.partial(checkpointed, False)


def dropout_under_checkpoint():
    net = nn.Sequential(model(), nn.Dropout(0.5)).to(DEVICE)
    x = torch.randn(4, 8, device=DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return training(
        net, x, optimizer, lambda net, x: checkpoint(net, x, use_reentrant=False).square().mean()
    )


def generator():
    source = torch.Generator(device=DEVICE)
    source.manual_seed(5)
    assert isinstance(source, torch.Generator)
    assert isinstance(torch.default_generator, torch.Generator)
    net = model().to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return lambda: training(net, torch.randn(4, 8, device=DEVICE, generator=source), optimizer)()


def loader():
    net = model().to(DEVICE)
    order = torch.Generator().manual_seed(1)
    data = DataLoader(
        TensorDataset(torch.randn(16, 8)),
        batch_size=4,
        pin_memory=True,
        shuffle=True,
        generator=order,
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    batches = iter([b for _ in range(20) for b in data])
    return lambda: training(net, next(batches)[0].to(DEVICE, non_blocking=True), optimizer)()


def pinned():
    net = model().to(DEVICE)
    x = torch.randn(4, 8, pin_memory=DEVICE == "cuda").to(DEVICE, non_blocking=True)
    y = torch.randn(4, 8)
    y = (y.pin_memory() if DEVICE == "cuda" else y).to(DEVICE)
    return training(net, x + y, torch.optim.SGD(net.parameters(), lr=0.1))


def fused():
    net = model().to(DEVICE)
    return training(
        net, torch.randn(4, 8, device=DEVICE), torch.optim.AdamW(net.parameters(), fused=True)
    )


def schedule_free():
    import schedulefree

    net = model().to(DEVICE)
    optimizer = schedulefree.AdamWScheduleFree(net.parameters(), lr=0.01)
    optimizer.train()
    return training(net, torch.randn(4, 8, device=DEVICE), optimizer)


class WithBuffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, device=DEVICE))
        self.register_buffer("scale", torch.full((8,), 2.0, device=DEVICE))
        self.register_buffer("mask", torch.tril(torch.ones(4, 4, device=DEVICE)).bool())

    def forward(self, x):
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        return self.mask.to(x.device, x.dtype) @ (x * self.weight * self.scale)


def buffers():
    net = WithBuffers()
    return training(
        net,
        torch.linspace(0, 1, 32, device=DEVICE).view(4, 8),
        torch.optim.SGD(net.parameters(), lr=0.1),
    )


def questions():
    """What scripts ask of torch.cuda on the way."""
    if DEVICE == "cuda":
        assert torch.cuda.is_available()
        torch.cuda.set_device(0)
        torch.cuda.manual_seed_all(3)
        torch.cuda.manual_seed(3)
        assert torch.cuda.get_device_capability()[0] >= 0
        assert torch.cuda.get_device_name(0)
        assert torch.cuda.get_device_properties(0).total_memory > 0
        assert torch.cuda.mem_get_info()[1] > 0
        torch.cuda.reset_peak_memory_stats()
        assert {
            "allocated_bytes.all.current",
            "reserved_bytes.all.peak",
            "num_ooms",
        } <= torch.cuda.memory_stats().keys()
        assert torch.cuda.current_stream() is not None
        with torch.cuda.device(0), torch.cuda.stream(stream=torch.cuda.Stream()):
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            event.synchronize()
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
        torch.cuda.nvtx.range_push("x")
        torch.cuda.nvtx.range_pop()
    else:
        torch.manual_seed(3)
    return plain()


def attention():
    net = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).to(DEVICE)
    x = torch.randn(2, 5, 16, device=DEVICE)

    def loss_of(net, x):
        return (net(x) + F.scaled_dot_product_attention(x, x, x, is_causal=True)).square().mean()

    return training(net, x, torch.optim.SGD(net.parameters(), lr=0.1), loss_of)
