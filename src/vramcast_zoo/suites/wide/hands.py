"""What people do to memory by hand: storages, hooks, buffers, packed bits, their own optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call, stack_module_state, vmap

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def shards_by_hand(*, batch_size: int = 32, width: int = 1024, depth: int = 6) -> Step:
    """Weights are gathered before a layer and their storage is emptied after it, as in FSDP."""
    layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)]).cuda()
    shards = [nn.Parameter(layer.weight.detach().clone().view(-1)) for layer in layers]
    update = torch.optim.AdamW(shards, lr=1e-4)
    x = torch.randn(batch_size, 64, width, device="cuda")

    def free(layer: nn.Module, *_: Any) -> None:
        layer.weight.untyped_storage().resize_(0)

    def gather(layer: nn.Module, *_: Any) -> None:
        storage = layer.weight.untyped_storage()
        if not storage.size():
            storage.resize_(width * width * 4)
            number = next(i for i, other in enumerate(layers) if other is layer)
            with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(layer.weight):
                layer.weight.copy_(shards[number].view(width, width))

    for layer in layers:
        layer.register_forward_pre_hook(gather)
        layer.register_forward_hook(free)
        layer.register_full_backward_pre_hook(gather)
        layer.weight.register_post_accumulate_grad_hook(lambda p: None)
        free(layer)

    def step() -> torch.Tensor:
        y = x
        for layer in layers:
            y = y + F.gelu(layer(y))
        loss = y.square().mean()
        loss.backward()
        for layer, shard in zip(layers, shards, strict=True):
            shard.grad, layer.weight.grad = layer.weight.grad.view(-1), None
            layer.bias.grad = None
            free(layer)
        update.step()
        update.zero_grad()
        return loss.detach()

    return step


def small_activations(*, batch_size: int = 16, length: int = 256, width: int = 512) -> Step:
    """What is kept for the backward pass is kept in 8 bits, and masks in single bits."""
    net = nn.Sequential(
        *[nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(),
                        nn.Dropout(0.1), nn.Linear(4 * width, width)) for _ in range(4)]
    ).cuda()  # fmt: skip
    x = torch.randn(batch_size, length, width, device="cuda")
    places = 2 ** torch.arange(8, device="cuda", dtype=torch.uint8)

    def pack(tensor: torch.Tensor) -> Any:
        if tensor.dtype == torch.bool:
            bits = tensor.flatten().view(-1, 8)
            return tensor.shape, (bits * places).sum(1, dtype=torch.uint8)
        if tensor.dtype != torch.float32 or tensor.numel() < 1 << 20 or tensor.is_leaf:
            return tensor
        rows = tensor.reshape(-1, 256)
        scale = rows.abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
        return tensor.shape, (rows / scale).round().to(torch.int8), scale

    def unpack(kept: Any) -> torch.Tensor:
        if isinstance(kept, torch.Tensor):
            return kept
        if len(kept) == 2:
            return (kept[1][:, None] & places).ne(0).view(kept[0])
        return (kept[1].float() * kept[2]).view(kept[0])

    def loss() -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return net(x).square().mean()

    return training_step(loss, net.parameters())


class AdjointOde(torch.autograd.Function):
    """Fourth order steps forwards; backwards the state is computed again from its end."""

    @staticmethod
    def forward(ctx: Any, net: nn.Module, x: torch.Tensor, *own: torch.Tensor) -> torch.Tensor:
        ctx.net, end = net, x
        for _ in range(8):
            end = runge_kutta(net, end, 0.125)
        ctx.save_for_backward(end, *own)
        return end

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        end, *own = ctx.saved_tensors
        sums = [torch.zeros_like(p) for p in own]
        for _ in range(8):
            begin = runge_kutta(ctx.net, end, -0.125).detach().requires_grad_()
            with torch.enable_grad():
                again = runge_kutta(ctx.net, begin, 0.125)
            grad, *grads = torch.autograd.grad(again, [begin, *own], grad)
            torch._foreach_add_(sums, grads)
            end = begin.detach()
        return None, grad, *sums


def runge_kutta(net: nn.Module, x: torch.Tensor, time: float) -> torch.Tensor:
    one = net(x)
    two = net(x + time / 2 * one)
    three = net(x + time / 2 * two)
    four = net(x + time * three)
    return x + time / 6 * (one + 2 * two + 2 * three + four)


def adjoint_ode(*, batch_size: int = 2048, width: int = 256) -> Step:
    net = nn.Sequential(nn.Linear(64, width), nn.Softplus(), nn.Linear(width, 64)).cuda()
    x, goal = torch.randn(2, batch_size, 64, device="cuda")

    def loss() -> torch.Tensor:
        return F.mse_loss(AdjointOde.apply(net, x, *net.parameters()), goal)

    return training_step(loss, net.parameters())


def own_weights_each(*, batch_size: int = 32, size: int = 48, width: int = 24) -> Step:
    """A hypernetwork: every picture has filters of its own, by vmap over convolutions."""
    says = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, width * 3 * 9 + width * width
                                                                   * 9)).cuda()  # fmt: skip
    out = nn.Conv2d(width, 3, 1).cuda()
    pictures = torch.rand(batch_size, 3, size, size, device="cuda")
    codes = nn.Parameter(torch.randn(batch_size, 32, device="cuda"))

    def drawn(picture: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        first, second = weights.split([width * 3 * 9, width * width * 9])
        x = F.relu(F.conv2d(picture[None], first.view(width, 3, 3, 3), padding=1))
        return F.conv2d(x, second.view(width, width, 3, 3), padding=1)[0]

    def loss() -> torch.Tensor:
        return F.l1_loss(out(vmap(drawn)(pictures, says(codes) / 10)), pictures)

    return training_step(loss, [codes, *says.parameters(), *out.parameters()])


def turned_adam(*, batch_size: int = 256, width: int = 384) -> Step:
    """SOAP: Adam in the axes of each weight's second moments, which a QR turns in every step."""
    net = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)).cuda()
    x, y = torch.randn(2, batch_size, width, device="cuda")
    states: dict[nn.Parameter, dict[str, torch.Tensor]] = {}

    def begin(grad: torch.Tensor) -> dict[str, torch.Tensor]:
        state = {"left": grad @ grad.T, "right": grad.T @ grad, "one": torch.zeros_like(grad),
                 "two": torch.zeros_like(grad)}  # fmt: skip
        for side in ("left", "right"):
            ridge = 1e-6 * torch.eye(len(state[side]), device="cuda")
            state[side + "_axes"] = torch.linalg.eigh(state[side] + ridge)[1].flip(1)
        return state

    @torch.no_grad()
    def update(p: nn.Parameter) -> None:
        grad = p.grad
        if grad.dim() < 2:
            p.sub_(grad, alpha=1e-3)
            return
        if p not in states:
            states[p] = begin(grad)
        state = states[p]
        for side, moment in (("left", grad @ grad.T), ("right", grad.T @ grad)):
            state[side].lerp_(moment, 0.05)
        turned = state["left_axes"].T @ grad @ state["right_axes"]
        state["one"].lerp_(grad, 0.1)
        state["two"].lerp_(turned.square(), 0.05)
        ahead = state["left_axes"].T @ state["one"] @ state["right_axes"]
        ahead = ahead / (state["two"].sqrt() + 1e-8)
        p.sub_(state["left_axes"] @ ahead @ state["right_axes"].T, alpha=1e-3)
        for side in ("left", "right"):
            state[side + "_axes"] = torch.linalg.qr(state[side] @ state[side + "_axes"])[0]

    def step() -> torch.Tensor:
        loss = F.mse_loss(net(x), y)
        net.zero_grad()
        loss.backward()
        for p in net.parameters():
            update(p)
        return loss.detach()

    return step


def straightened(*, batch_size: int = 16, length: int = 128, width: int = 512) -> Step:
    """Muon: momentum is made orthogonal by five products in bfloat16; the rest has AdamW."""
    table = nn.Embedding(8192, width).cuda()
    layers = nn.ModuleList(
        [nn.TransformerEncoderLayer(width, 8, 4 * width, 0.0, batch_first=True) for _ in range(3)]
    ).cuda()
    matrices = [p for p in layers.parameters() if p.dim() == 2]
    others = [p for p in layers.parameters() if p.dim() < 2] + [table.weight]
    rest = torch.optim.AdamW(others, lr=3e-4, fused=True)
    momenta = [torch.zeros_like(p) for p in matrices]
    texts = torch.randint(0, 8192, (batch_size, length + 1), device="cuda")

    def straight(grad: torch.Tensor) -> torch.Tensor:
        x = grad.bfloat16()
        x = x.T if (is_tall := len(x) > x.shape[1]) else x
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
        return x.T if is_tall else x

    def step() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            x = table(texts[:, :-1])
            for layer in layers:
                x = layer(x)
            loss = F.cross_entropy((x @ table.weight.T).flatten(0, 1), texts[:, 1:].flatten())
        loss.backward()
        with torch.no_grad():
            for p, momentum in zip(matrices, momenta, strict=True):
                momentum.lerp_(p.grad, 0.05)
                turned = straight(p.grad.lerp_(momentum, 0.95))
                p.add_(turned, alpha=-0.02 * max(1, len(p) / p.shape[1]) ** 0.5)
        rest.step()
        for p in (*matrices, *others):
            p.grad = None
        return loss.detach()

    return step


class ThreeLevels(torch.autograd.Function):
    """Weights of -1, 0 and 1, four to a byte, unpacked for each product."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        scale = weight.abs().mean().clamp(min=1e-5)
        levels = (weight / scale).round_().clamp_(-1, 1).add_(1).to(torch.uint8)
        parts = levels.view(-1, 4, weight.shape[1])
        packed = parts[:, 0] | parts[:, 1] << 2 | parts[:, 2] << 4 | parts[:, 3] << 6
        ctx.save_for_backward(x, packed, scale)
        return x @ ThreeLevels.unpacked(packed, scale, x.dtype).T

    @staticmethod
    def unpacked(packed: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        parts = torch.stack([packed >> shift & 3 for shift in (0, 2, 4, 6)], 1)
        return (parts.flatten(0, 1).to(dtype) - 1).mul_(scale)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, packed, scale = ctx.saved_tensors
        weight = ThreeLevels.unpacked(packed, scale, grad.dtype)
        return grad @ weight, grad.flatten(0, 1).T @ x.flatten(0, 1)


def packed_levels(*, batch_size: int = 8, length: int = 512, width: int = 1024) -> Step:
    weights = nn.ParameterList([torch.randn(width, width) / 32 for _ in range(6)]).cuda()
    x = torch.randn(batch_size, length, width, device="cuda", dtype=torch.bfloat16)

    def loss() -> torch.Tensor:
        y = x
        for weight in weights:
            y = y + F.silu(ThreeLevels.apply(F.rms_norm(y, (width,)), weight.bfloat16()))
        return y.float().square().mean()

    return training_step(loss, weights)


def blocks_chosen(*, batch_size: int = 2, length: int = 2048, heads: int = 8) -> Step:
    """Sparse attention: every block of queries looks at the four blocks of keys it scores best."""
    block, inner, kept = 64, 64, 4
    enter, leave = nn.Linear(512, 3 * 512).cuda(), nn.Linear(512, 512).cuda()
    x = torch.randn(batch_size, length, 512, device="cuda")

    def loss() -> torch.Tensor:
        parts = enter(x).view(batch_size, length // block, block, 3, heads, inner)
        query, key, value = parts.permute(3, 0, 4, 1, 2, 5)
        scores = query.mean(3) @ key.mean(3).mT
        chosen = scores.topk(kept, -1).indices
        batch = torch.arange(batch_size, device="cuda")[:, None, None, None]
        head = torch.arange(heads, device="cuda")[:, None, None]
        near, told = (t[batch, head, chosen].flatten(3, 4) for t in (key, value))
        found = F.scaled_dot_product_attention(query, near, told)
        return leave(found.permute(0, 2, 3, 1, 4).reshape(x.shape)).square().mean()

    return training_step(loss, [*enter.parameters(), *leave.parameters()], autocast="bf16")


def quantiles_at_once(*, models: int = 12, batch_size: int = 256, width: int = 256) -> Step:
    """An ensemble by torch.func with its own noise for each, and a loss of quantiles."""
    nets = [nn.Sequential(nn.Linear(32, width), nn.GELU(), nn.Dropout(0.1), nn.Linear(width, 9))
            for _ in range(models)]  # fmt: skip
    nets = [net.cuda() for net in nets]
    weights, buffers = stack_module_state(nets)
    weights = {name: w.detach().requires_grad_() for name, w in weights.items()}
    base, levels = nets[0].to("meta"), torch.linspace(0.1, 0.9, 9, device="cuda")
    x, y = torch.randn(batch_size, 32, device="cuda"), torch.randn(batch_size, 1, device="cuda")

    def one(own: dict[str, torch.Tensor], its: dict[str, torch.Tensor]) -> torch.Tensor:
        apart = y - functional_call(base, (own, its), (x,))
        return torch.maximum(levels * apart, (levels - 1) * apart).mean()

    def loss() -> torch.Tensor:
        return vmap(one, randomness="different")(weights, buffers).sum()

    return training_step(loss, weights.values())


def buffers_reused(*, batch_size: int = 512, width: int = 1024) -> Step:
    """Gradients by hand into buffers that are there: out=, in place, lists, no autograd."""
    weights = [torch.randn(width, width, device="cuda") / 32 for _ in range(4)]
    momenta = [torch.zeros_like(w) for w in weights]
    grads = [torch.empty_like(w) for w in weights]
    states = [torch.empty(batch_size, width, device="cuda") for _ in range(5)]
    slope = torch.empty(batch_size, width, device="cuda")
    goal = torch.randn(batch_size, width, device="cuda")

    @torch.no_grad()
    def step() -> torch.Tensor:
        states[0].normal_()
        for weight, before, after in zip(weights, states, states[1:], strict=False):
            torch.mm(before, weight, out=after).tanh_()
        torch.sub(states[-1], goal, out=slope)
        loss = slope.square().mean()
        for number in reversed(range(4)):
            slope.mul_(torch.addcmul(torch.ones_like(slope), states[number + 1],
                                     states[number + 1], value=-1))  # fmt: skip
            torch.mm(states[number].T, slope, out=grads[number])
            slope.copy_(slope @ weights[number].T)
        norms = torch._foreach_norm(grads)
        factor = (1.0 / (torch.stack(norms).norm() + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(grads, factor)
        torch._foreach_lerp_(momenta, grads, 0.1)
        torch._foreach_addcdiv_(weights, momenta, torch._foreach_add(torch._foreach_abs(grads),
                                                                     1e-3), -1e-3)  # fmt: skip
        return loss

    return step


class ChunkedLoss(torch.autograd.Function):
    """The loss of a large vocabulary a few rows at a time; gradients at once, in place."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight, dtype=torch.float32)
        total = torch.zeros((), device="cuda")
        for rows, labels, grad in zip(x.chunk(8), y.chunk(8), grad_x.chunk(8), strict=True):
            logits = (rows @ weight.T).float()
            total += logits.logsumexp(1).sum() - logits.gather(1, labels[:, None]).sum()
            shares = logits.sub_(logits.logsumexp(1, keepdim=True)).exp_()
            shares[torch.arange(len(labels), device="cuda"), labels] -= 1
            shares = shares.to(x.dtype)
            torch.mm(shares, weight, out=grad)
            grad_weight.addmm_(shares.T.float(), rows.float())
        ctx.save_for_backward(grad_x.div_(len(x)), grad_weight.div_(len(x)).to(weight.dtype))
        return total / len(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        grad_x, grad_weight = ctx.saved_tensors
        return grad_x.mul_(grad), grad_weight.mul_(grad), None


def chunked_loss(*, batch_size: int = 8, length: int = 512, width: int = 512) -> Step:
    table = nn.Embedding(32_000, width).cuda().bfloat16()
    body = nn.GRU(width, width, 2, batch_first=True).cuda().bfloat16()
    texts = torch.randint(0, 32_000, (batch_size, length + 1), device="cuda")

    def loss() -> torch.Tensor:
        x = body(table(texts[:, :-1]))[0].flatten(0, 1)
        return ChunkedLoss.apply(x, table.weight, texts[:, 1:].flatten())

    return training_step(loss, [*table.parameters(), *body.parameters()])
