"""Ways to attend and to remember, as papers have them, and long texts within little memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def next_item(*, batch_size: int = 128, length: int = 50, items: int = 20_000) -> Step:
    """SASRec: what a user takes next, by torch's encoder with a causal mask and BPR."""
    table = nn.Embedding(items, 96, padding_idx=0)
    places = nn.Embedding(length, 96)
    layer = nn.TransformerEncoderLayer(96, 2, 192, 0.2, "gelu", batch_first=True, norm_first=True)
    body = nn.TransformerEncoder(layer, 2, nn.LayerNorm(96), enable_nested_tensor=False)
    every = nn.ModuleList([table, places, body]).cuda()
    seen = torch.randint(1, items, (batch_size, length + 1), device="cuda")
    seen[: batch_size // 2, : length // 3] = 0
    mask = nn.Transformer.generate_square_subsequent_mask(length, device="cuda")

    def loss() -> torch.Tensor:
        x = table(seen[:, :-1]) * 96**0.5 + places.weight
        h = body(F.dropout(x, 0.2), mask=mask, is_causal=True)
        other = torch.randint(1, items, (batch_size, length), device="cuda")
        good, bad = (h * table(seen[:, 1:])).sum(-1), (h * table(other)).sum(-1)
        return -F.logsigmoid(good - bad)[seen[:, 1:] > 0].mean()

    return training_step(loss, every.parameters())


def said_and_heard(*, batch_size: int = 32, length: int = 30, words: int = 6000) -> Step:
    """Translation by cells: a packed encoder, attention, and guesses fed back now and then."""
    enter = nn.Embedding(words, 256)
    reads = nn.GRU(256, 256, bidirectional=True, batch_first=True)
    cell, asks = nn.LSTMCell(256 + 512, 512), nn.Linear(512, 512)
    leave = nn.Linear(1024, words)
    every = nn.ModuleList([enter, reads, cell, asks, leave]).cuda()
    source, target = torch.randint(1, words, (2, batch_size, length), device="cuda")
    lengths = torch.linspace(length, length // 2, batch_size).long()
    mask = torch.arange(length, device="cuda") >= lengths.cuda()[:, None]

    def loss() -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(enter(source), lengths, batch_first=True)
        keys, _ = nn.utils.rnn.pad_packed_sequence(reads(packed)[0], batch_first=True)
        h = c = keys.new_zeros(batch_size, 512)
        word, seen, out = target[:, 0], keys.mean(1), []
        for i in range(1, length):
            h, c = cell(torch.cat([enter(word), seen], -1), (h, c))
            share = torch.bmm(keys, asks(h)[:, :, None]).squeeze(-1).masked_fill(mask, -1e9)
            seen = torch.bmm(share.softmax(-1)[:, None], keys).squeeze(1)
            out.append(leave(torch.cat([h, seen], -1)))
            word = out[-1].argmax(-1) if i % 4 == 0 else target[:, i]
        return F.cross_entropy(torch.stack(out, 1).flatten(0, 1), target[:, 1:].flatten())

    return training_step(loss, every.parameters())


def tape_of_memory(*, batch_size: int = 32, length: int = 20, slots: int = 128, width: int = 40):
    """A neural Turing machine: reads and writes by content and by shifts of an address."""
    brain = nn.LSTMCell(8 + width, 200)
    reads, writes = nn.Linear(200, width + 6), nn.Linear(200, 3 * width + 6)
    leave = nn.Linear(200 + width, 8)
    every = nn.ModuleList([brain, reads, writes, leave]).cuda()
    bits = torch.rand(length, batch_size, 8, device="cuda").round()

    def address(p: torch.Tensor, memory: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        key, rest = p[:, :width].tanh(), p[:, width : width + 6]
        near = F.cosine_similarity(memory + 1e-8, key[:, None] + 1e-8, dim=-1)
        by = (F.softplus(rest[:, :1]) * near).softmax(-1)
        by = torch.lerp(old, by, rest[:, 1:2].sigmoid())
        turns = rest[:, 2:5].softmax(-1)
        moved = sum(torch.roll(by, k - 1, 1) * turns[:, k : k + 1] for k in range(3))
        sharp = moved.clamp(min=1e-6) ** (1 + F.softplus(rest[:, 5:]))
        return sharp / sharp.sum(-1, True)

    def loss() -> torch.Tensor:
        memory = torch.full((batch_size, slots, width), 1e-6, device="cuda")
        at = to = torch.zeros(batch_size, slots, device="cuda").index_fill(
            1, torch.tensor([0], device="cuda"), 1.0
        )
        read = memory[:, 0]
        state, out = None, []
        for x in torch.cat([bits, torch.zeros_like(bits)]):
            state = brain(torch.cat([x, read], -1), state)
            w = writes(state[0])
            to = address(w, memory, to)
            wiped, added = w[:, width + 6 :].chunk(2, -1)
            memory = memory * (1 - to[..., None] * wiped.sigmoid()[:, None])
            memory = memory + to[..., None] * added.tanh()[:, None]
            at = address(reads(state[0]), memory, at)
            read = torch.bmm(at[:, None], memory).squeeze(1)
            out.append(leave(torch.cat([state[0], read], -1)))
        return F.binary_cross_entropy_with_logits(torch.stack(out[length:]), bits)

    return training_step(loss, every.parameters())


class _Turns(nn.Module):
    """Attention as several papers have it, in blocks of one text model."""

    def __init__(self, kind: str, width: int, heads: int) -> None:
        super().__init__()
        self.kind, self.heads = kind, heads
        if kind == "latent":
            self.down, self.up = nn.Linear(width, width // 4), nn.Linear(width // 4, 2 * width)
            self.ask, self.norm = nn.Linear(width, width), nn.RMSNorm(width // 4)
        else:
            self.qkv = nn.Linear(width, 3 * width, bias=False)
        if kind == "delta":
            self.rate = nn.Linear(width, heads)
        self.share = nn.Parameter(torch.full((heads, 1, 1), 0.3))
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, w = x.shape
        if self.kind == "latent":
            k, v = self.up(self.norm(self.down(x))).chunk(2, -1)
            q = self.ask(x)
        else:
            q, k, v = self.qkv(x).chunk(3, -1)
        q, k, v = (y.view(b, n, self.heads, -1).transpose(1, 2) for y in (q, k, v))
        if self.kind == "latent":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        elif self.kind == "difference":
            halves = zip(q.chunk(2, -1), k.chunk(2, -1))
            a, c = (F.scaled_dot_product_attention(i, j, v, is_causal=True) for i, j in halves)
            y = F.rms_norm(a - self.share * c, (a.shape[-1],)) * 0.2
        elif self.kind == "retention":
            decay = torch.log(1 - 2.0 ** (-5 - torch.arange(self.heads, device=x.device)))
            ages = torch.arange(n, device=x.device)
            ages = (ages[:, None] - ages).clamp(min=0)
            fade = torch.exp(decay[:, None, None] * ages).tril()
            y = F.rms_norm((q @ k.mT * q.shape[-1] ** -0.5 * fade.to(q.dtype)) @ v, (v.shape[-1],))
        else:
            y = self._delta(q, k, v, self.rate(x).sigmoid().transpose(1, 2)[..., None])
        return self.out(y.transpose(1, 2).reshape(b, n, w))

    def _delta(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rate: torch.Tensor
    ) -> torch.Tensor:
        """The delta rule in pieces of 64 tokens, each solved as a triangular system."""
        k, size = F.normalize(k.float(), dim=-1), 64
        q, v, rate = q.float(), v.float(), rate.float()
        q, k, v, rate = (y.unflatten(2, (-1, size)) for y in (q, k, v, rate))
        eye = torch.eye(size, device=q.device)
        low = (rate * k @ k.mT).tril(-1) + eye
        w = torch.linalg.solve_triangular(low, rate * k, upper=False)
        u = torch.linalg.solve_triangular(low, rate * v, upper=False)
        state, out = torch.zeros_like(k[:, :, 0].mT @ v[:, :, 0]), []
        for i in range(q.shape[2]):
            new = u[:, :, i] - w[:, :, i] @ state
            inner = (q[:, :, i] @ k[:, :, i].mT).tril()
            out.append(q[:, :, i] @ state + inner @ new)
            state = state + k[:, :, i].mT @ new
        return torch.cat(out, 2)


def other_attention(
    *,
    kind: str = "latent",
    batch_size: int = 4,
    length: int = 512,
    width: int = 512,
    depth: int = 4,
) -> Step:
    """A text model with latent, differential or retentive attention, or the delta rule."""
    blocks = nn.ModuleList(
        nn.ModuleDict({
            "a": _Turns(kind, width, 8), "n": nn.RMSNorm(width), "m": nn.RMSNorm(width),
            "f": nn.Sequential(nn.Linear(width, 3 * width), nn.SiLU(), nn.Linear(3 * width, width)),
        })
        for _ in range(depth)
    ).cuda()  # fmt: skip
    table, heads = nn.Embedding(8000, width).cuda(), nn.Linear(width, 2 * width).cuda()
    ids = torch.randint(0, 8000, (batch_size, length + 2), device="cuda")

    def loss() -> torch.Tensor:
        x = table(ids[:, :-2])
        for block in blocks:
            x = x + block["a"](block["n"](x))
            x = x + block["f"](block["m"](x))
        ahead = zip(heads(x).chunk(2, -1), (ids[:, 1:-1], ids[:, 2:]))
        return sum(
            F.cross_entropy((h @ table.weight.T).flatten(0, 1).float(), y.flatten())
            for h, y in ahead
        )

    every = [*blocks.parameters(), *table.parameters(), *heads.parameters()]
    return training_step(loss, every, autocast="bf16", optimizer="adamw-fused")


def grouped_experts(*, tokens: int = 4096, width: int = 512, experts: int = 8, dtype: str = "bf16"):
    """Experts as one grouped product: tokens are sorted by who takes them; none is dropped."""
    up = nn.Parameter(0.02 * torch.randn(experts, width, 2 * width, device="cuda"))
    down = nn.Parameter(0.02 * torch.randn(experts, 2 * width, width, device="cuda"))
    gate = nn.Linear(width, experts).cuda()
    x = torch.randn(tokens, width, device="cuda")

    def loss() -> torch.Tensor:
        odds = gate(x).softmax(-1)
        best, who = odds.topk(2, -1)
        order = who.flatten().argsort(stable=True)
        ends = torch.bincount(who.flatten(), minlength=experts).cumsum(0).to(torch.int32)
        sent = x[order // 2].to(torch.bfloat16)
        h = F.silu(F.grouped_mm(sent, up.to(torch.bfloat16), offs=ends))
        back = F.grouped_mm(h, down.to(torch.bfloat16), offs=ends).float()
        y = torch.zeros_like(x).index_add(0, order // 2, back * best.flatten()[order, None])
        balance = (odds.mean(0) * F.one_hot(who, experts).float().mean((0, 1))).sum() * experts
        return F.mse_loss(x + y, x.roll(1, 0)) + 0.01 * balance

    return training_step(loss, [up, down, *gate.parameters()])


def packed_texts(*, tokens: int = 4096, width: int = 512, heads: int = 8, depth: int = 3) -> Step:
    """Documents in one row, kept apart by torch's attention of any length."""
    from torch.nn.attention.varlen import varlen_attn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)
            self.feed = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(),
                                      nn.Linear(4 * width, width))  # fmt: skip

        def forward(self, x: torch.Tensor, at: torch.Tensor, longest: int) -> torch.Tensor:
            q, k, v = (y.view(tokens, heads, -1) for y in self.qkv(self.norm(x)).chunk(3, -1))
            made = varlen_attn(q, k, v, at, at, longest, longest, window_size=(-1, 0))
            x = x + self.out(made.flatten(1))
            return x + self.feed(x)

    table = nn.Embedding(8000, width)
    model = nn.ModuleList([table, *(Block() for _ in range(depth))]).cuda().to(torch.bfloat16)
    ids = torch.randint(0, 8000, (tokens,), device="cuda")
    at = torch.tensor([0, 700, 1000, 2100, 2500, tokens], dtype=torch.int32, device="cuda")

    def loss() -> torch.Tensor:
        x = table(ids)
        for block in list(model)[1:]:
            x = block(x, at, tokens - 2500)
        return F.cross_entropy((x @ table.weight.T)[:-1].float(), ids[1:])

    return training_step(loss, model.parameters())


def long_memory(
    *, batch_size: int = 8, length: int = 128, width: int = 384, depth: int = 3
) -> Step:
    """Transformer-XL: what was seen before is kept from step to step; relative positions."""
    layers = nn.ModuleList(
        nn.ModuleDict({
            "q": nn.Linear(width, width), "kv": nn.Linear(width, 2 * width),
            "r": nn.Linear(width, width), "o": nn.Linear(width, width), "n": nn.LayerNorm(width),
            "f": nn.Sequential(nn.Linear(width, 1024), nn.ReLU(), nn.Dropout(0.1),
                               nn.Linear(1024, width), nn.LayerNorm(width)),
        })
        for _ in range(depth)
    ).cuda()  # fmt: skip
    table = nn.Embedding(10_000, width).cuda()
    bias = nn.Parameter(torch.zeros(2, 6, 1, width // 6, device="cuda"))
    ids = torch.randint(0, 10_000, (batch_size, length + 1), device="cuda")
    far = torch.randn(2 * length, width, device="cuda")
    old: list[torch.Tensor] = [
        torch.zeros(batch_size, length, width, device="cuda") for _ in range(depth)
    ]

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (6, -1)).transpose(-2, -3)

    def loss() -> torch.Tensor:
        x, kept = table(ids[:, :-1]), []
        hide = torch.ones(length, 2 * length, device="cuda", dtype=torch.bool).triu(1 + length)
        for layer, memory in zip(layers, old):
            kept.append(x.detach())
            k, v = layer["kv"](torch.cat([memory, x], 1)).chunk(2, -1)
            q = heads(layer["q"](x))
            near = (q + bias[0]) @ heads(k).mT
            away = (q + bias[1]) @ heads(layer["r"](far)).mT
            away = F.pad(away, (1, 0)).view(batch_size, 6, 2 * length + 1, length)[:, :, 1:]
            away = away.reshape(batch_size, 6, length, 2 * length)
            share = (near + away).mul(8**-1).masked_fill(hide, -1e9).softmax(-1)
            seen = (F.dropout(share, 0.1) @ heads(v)).transpose(1, 2).flatten(2)
            x = layer["n"](x + layer["o"](seen))
            x = layer["f"](x)
        old[:] = kept
        return F.cross_entropy((x @ table.weight.T).flatten(0, 1), ids[:, 1:].flatten())

    return training_step(loss, [*layers.parameters(), *table.parameters(), bias], clip=0.25)


def offloaded_and_again(*, batch_size: int = 8, length: int = 512, width: int = 512) -> Step:
    """Checkpoints whose inputs wait on the host, pinned; the optimizer's state is there as well."""
    from torch.utils.checkpoint import checkpoint

    layers = nn.ModuleList(
        nn.TransformerEncoderLayer(width, 8, 4 * width, 0.1, batch_first=True, norm_first=True)
        for _ in range(6)
    ).cuda()
    leave = nn.Linear(width, 100).cuda()
    x = torch.randn(batch_size, length, width, device="cuda")
    labels = torch.randint(0, 100, (batch_size, length), device="cuda")
    every = [*layers.parameters(), *leave.parameters()]
    shadow = [p.detach().cpu().requires_grad_() for p in every]
    update = torch.optim.AdamW(shadow, lr=1e-4)

    def step() -> torch.Tensor:
        h = x
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            for layer in layers:
                h = checkpoint(layer, h, use_reentrant=False)
            loss = F.cross_entropy(leave(h).flatten(0, 1), labels.flatten())
        loss.backward()
        for here, there in zip(every, shadow):
            there.grad = here.grad.to("cpu", non_blocking=True)
            here.grad = None
        torch.cuda.synchronize()
        update.step()
        with torch.no_grad():
            for here, there in zip(every, shadow):
                here.copy_(there, non_blocking=True)
        return loss.detach()

    return step


def words_at_a_time(*, batch_size: int = 4, length: int = 512, words: int = 50_000) -> Step:
    """A large vocabulary in pieces: logits of a few rows, computed again for their gradients."""
    from torch.utils.checkpoint import checkpoint

    width = 512
    layer = nn.TransformerEncoderLayer(width, 8, 2048, 0.0, "gelu", batch_first=True)
    body = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).cuda()
    table = nn.Embedding(words, width).cuda()
    ids = torch.randint(0, words, (batch_size, length + 1), device="cuda")
    mask = nn.Transformer.generate_square_subsequent_mask(length, device="cuda")

    def piece(h: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = 30 * torch.tanh((h @ table.weight.T) / 30)
        return F.cross_entropy(logits.float(), y, reduction="sum") + 1e-4 * (
            logits.float().logsumexp(-1).square().sum()
        )

    def loss() -> torch.Tensor:
        h = body(table(ids[:, :-1]), mask=mask, is_causal=True).flatten(0, 1)
        parts = zip(h.split(256), ids[:, 1:].flatten().split(256))
        return sum(checkpoint(piece, a, b, use_reentrant=False) for a, b in parts) / len(h)

    return training_step(loss, [*body.parameters(), *table.parameters()], autocast="bf16")
