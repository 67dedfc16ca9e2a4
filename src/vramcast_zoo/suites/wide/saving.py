"""Ways to save memory in plain torch: reversed, recomputed, projected, rounded, captured."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


class Block(nn.Module):
    """Attention of several queries to one key, and a gated network."""

    def __init__(self, width: int, heads: int = 8, groups: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        self.size, self.dropout = width // heads, dropout
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * groups * self.size)
        self.out, self.up = nn.Linear(width, width), nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        h = self.norms[0](x)
        q = self.q(h).unflatten(-1, (-1, self.size)).transpose(1, 2)
        k, v = self.kv(h).unflatten(-1, (2, -1, self.size)).unbind(2)
        made = F.scaled_dot_product_attention(
            q, k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask,
            dropout_p=self.dropout, is_causal=mask is None, enable_gqa=True,
        )  # fmt: skip
        x = x + self.out(made.transpose(1, 2).flatten(2))
        gate, up = self.up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Language(nn.Module):
    def __init__(self, width: int, depth: int, words: int = 16_000, **options) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, **options) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor, run=lambda block, x: block(x)) -> torch.Tensor:
        x = self.embed(tokens[:, :-1])
        for block in self.blocks:
            x = run(block, x)
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def _tokens(batch_size: int, length: int) -> torch.Tensor:
    return torch.randint(0, 16_000, (batch_size, length + 1), device="cuda")


def masked_queries(
    *, batch_size: int = 8, length: int = 1024, width: int = 768, mask: str = "alibi"
):
    """Grouped queries with a mask: of floats that fall with the distance, or of padding."""
    model = Language(width, 6, dropout=0.1).cuda()
    tokens = _tokens(batch_size, length)
    ticks = torch.arange(length, device="cuda")
    seen = ticks[:, None] >= ticks
    if mask == "alibi":
        slopes = 2.0 ** -torch.arange(1, 9, device="cuda")[:, None, None]
        given = torch.where(seen, slopes * (ticks - ticks[:, None]), -math.inf)[None].bfloat16()
    else:
        ends = torch.linspace(length // 2, length, batch_size, device="cuda").long()
        given = seen & (ticks < ends[:, None])[:, None, None]
    loss = lambda: model(tokens, lambda block, x: block(x, given))  # noqa: E731
    return training_step(loss, model.parameters(), autocast="bf16")


def kept_products(*, batch_size: int = 8, length: int = 1024, width: int = 768) -> Step:
    """Selective checkpoints: products and attention are kept, all else is computed again."""
    model = Language(width, 8).cuda()
    tokens = _tokens(batch_size, length)
    kept = (torch.ops.aten.addmm.default, torch.ops.aten.mm.default)

    def policy(ctx, op, *arguments, **options) -> CheckpointPolicy:
        keep = op in kept or "attention" in str(op)
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    def run(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        contexts = lambda: create_selective_checkpoint_contexts(policy)  # noqa: E731
        return checkpoint(block, x, use_reentrant=False, context_fn=contexts)

    return training_step(lambda: model(tokens, run), model.parameters(), autocast="bf16")


def updated_in_backward(*, batch_size: int = 4, length: int = 1024, width: int = 1024) -> Step:
    """Every weight has an optimizer, which is called when its gradient is there and frees it."""
    model = Language(width, 8).cuda()
    tokens = _tokens(batch_size, length)
    updates = {p: torch.optim.AdamW([p], foreach=False) for p in model.parameters()}

    def update(p: torch.Tensor) -> None:
        updates[p].step()
        updates[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)

    def step() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens)
        loss.backward()
        return loss.detach()

    return step


class _Reversed(torch.autograd.Function):
    """What went into two coupled halves is found again from what came out."""

    @staticmethod
    def forward(ctx, pairs, x, y, *weights):
        with torch.no_grad():
            for f, g in pairs:
                x = x + f(y)
                y = y + g(x)
        ctx.pairs, ctx.num_weights = pairs, len(weights)
        ctx.save_for_backward(x, y)
        return x, y

    @staticmethod
    def backward(ctx, dx, dy):
        x, y = ctx.saved_tensors
        slopes = []
        for f, g in reversed(ctx.pairs):
            parts = []
            for net, here in ((g, "y"), (f, "x")):
                with torch.enable_grad():
                    seen = (x if here == "y" else y).detach().requires_grad_()
                    made = net(seen)
                own = list(net.parameters())
                slope, *rest = torch.autograd.grad(made, [seen, *own], dy if here == "y" else dx)
                parts.append(rest)
                if here == "y":
                    y, dx = y - made.detach(), dx + slope
                else:
                    x, dy = x - made.detach(), dy + slope
            slopes[:0] = [*parts[1], *parts[0]]
        return (None, dx, dy, *slopes)


def reversible(
    *, batch_size: int = 8, length: int = 2048, width: int = 512, depth: int = 8
) -> Step:
    """A reversible network: no activations are kept, whatever the depth."""

    def net() -> nn.Sequential:
        layers = [nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(approximate="tanh")]
        return nn.Sequential(*layers, nn.Linear(4 * width, width))

    pairs = nn.ModuleList(nn.ModuleList([net(), net()]) for _ in range(depth)).cuda()
    embed = nn.Embedding(16_000, width).cuda()
    tokens = _tokens(batch_size, length)

    def loss() -> torch.Tensor:
        x = embed(tokens[:, :-1])
        x, y = _Reversed.apply(pairs, x, x.roll(1, 1), *pairs.parameters())
        logits = (x + y) @ embed.weight.mT
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    return training_step(loss, [*pairs.parameters(), *embed.parameters()])


class Projected(torch.optim.Optimizer):
    """GaLore: Adam's averages live in a space of low rank, found anew every fifth step."""

    def __init__(self, parameters, lr: float = 1e-3, rank: int = 64, every: int = 5) -> None:
        super().__init__(parameters, {"lr": lr, "rank": rank, "every": every})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state, slope = self.state[p], p.grad
                if p.ndim == 2:
                    if state.setdefault("step", 0) % group["every"] == 0:
                        left = torch.linalg.svd(slope.float(), full_matrices=False).U
                        state["space"] = left[:, : group["rank"]].clone()
                    state["step"] += 1
                    slope = state["space"].mT @ slope
                mean = state.setdefault("mean", torch.zeros_like(slope)).lerp_(slope, 0.1)
                square = state.setdefault("square", torch.zeros_like(slope))
                square.mul_(0.999).addcmul_(slope, slope, value=0.001)
                move = mean / (square.sqrt() + 1e-8)
                p.sub_(group["lr"] * (state["space"] @ move if p.ndim == 2 else move))


class EightBits(torch.optim.Optimizer):
    """Adam with averages in bytes, 256 of them to a scale, looked up in a table."""

    def __init__(self, parameters, lr: float = 1e-3) -> None:
        super().__init__(parameters, {"lr": lr})
        self.table = torch.linspace(-1, 1, 256, device="cuda").pow(3)

    def _read(self, p: torch.Tensor, name: str) -> torch.Tensor:
        rows = -(-p.numel() // 256)
        if name not in self.state[p]:
            codes = torch.full((rows, 256), 127, dtype=torch.uint8, device="cuda")
            self.state[p][name] = codes, torch.zeros(rows, 1, device="cuda")
        codes, scale = self.state[p][name]
        return (self.table[codes.int()] * scale).flatten()[: p.numel()].view_as(p)

    def _write(self, p: torch.Tensor, name: str, value: torch.Tensor) -> None:
        codes, scale = self.state[p][name]
        rows = F.pad(value.flatten(), (0, codes.numel() - p.numel())).view_as(codes)
        torch.amax(rows.abs(), 1, keepdim=True, out=scale)
        codes.copy_(torch.bucketize(rows / scale.clamp(min=1e-12), self.table).clamp_(max=255))

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                mean = self._read(p, "mean").lerp_(p.grad, 0.1)
                square = (
                    self._read(p, "square").abs_().mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
                )
                p.addcdiv_(mean, square.sqrt().add_(1e-8), value=-group["lr"])
                self._write(p, "mean", mean)
                self._write(p, "square", square)


class Kahan(torch.optim.Optimizer):
    """AdamW in bfloat16, which keeps what rounding took from every weight."""

    def __init__(self, parameters, lr: float = 1e-3) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update({n: torch.zeros_like(p) for n in ("mean", "square", "lost")})
                state["mean"].lerp_(p.grad, 0.1)
                state["square"].mul_(0.999).addcmul_(p.grad, p.grad.conj(), value=0.001)
                state["lost"].addcdiv_(
                    state["mean"], state["square"].sqrt().add_(1e-8), value=-group["lr"]
                )
                before = p.detach().clone()
                p.add_(state["lost"])
                state["lost"].add_(before.sub_(p))


def small_states(
    *, name: str = "Projected", batch_size: int = 4, width: int = 768, dtype: str = ""
):
    model = Language(width, 6).cuda().to(torch.bfloat16 if dtype == "bf16" else torch.float32)
    kinds = {"Projected": Projected, "EightBits": EightBits, "Kahan": Kahan}
    update = kinds[name](model.parameters())
    tokens = _tokens(batch_size, 512)

    def step() -> torch.Tensor:
        loss = model(tokens)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        update.step()
        update.zero_grad()
        return loss.detach()

    return step


class _Float8(torch.autograd.Function):
    """A product of 8-bit floats, forward and backward, scaled by their largest elements."""

    @staticmethod
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        packed = []
        for x in (a, b):
            scale = 448 / x.abs().amax().float().clamp(min=1e-12)
            packed += [(x * scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale.reciprocal()]
        a, scale_a, b, scale_b = packed
        b = b.t().contiguous().t()
        return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16)

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return _Float8.product(x, weight.t())

    @staticmethod
    def backward(ctx, slope):
        x, weight = ctx.saved_tensors
        slope = slope.contiguous()
        return _Float8.product(slope, weight), _Float8.product(slope.t().contiguous(), x)


def float8(*, rows: int = 8192, width: int = 1024, depth: int = 6) -> Step:
    """Linear layers whose products are of 8-bit floats."""
    sizes = [(width, 4 * width), (4 * width, width)] * depth
    weights = nn.ParameterList(torch.randn(o, i) / i**0.5 for i, o in sizes).cuda().bfloat16()
    x = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)

    def loss() -> torch.Tensor:
        h = x
        for up, down in zip(weights[::2], weights[1::2]):
            made = F.silu(_Float8.apply(F.rms_norm(h, (width,)), up))
            h = h + _Float8.apply(made, down)
        return h.float().square().mean()

    return training_step(loss, weights)


def captured_middle(*, batch_size: int = 64, width: int = 1024, depth: int = 6) -> Step:
    """Forward and backward pass of the middle are captured as CUDA graphs."""
    first, last = nn.Linear(256, width).cuda(), nn.Linear(width, 10).cuda()
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.GELU()]
    middle = nn.Sequential(*layers).cuda()
    sample = torch.randn(batch_size, 128, width, device="cuda", requires_grad=True)
    middle = torch.cuda.make_graphed_callables(middle, (sample,))
    x = torch.randn(batch_size, 128, 256, device="cuda")
    labels = torch.randint(0, 10, (batch_size,), device="cuda")

    def loss() -> torch.Tensor:
        return F.cross_entropy(last(middle(first(x)).mean(1)), labels)

    every = nn.ModuleList([first, middle, last])
    return training_step(loss, every.parameters())
