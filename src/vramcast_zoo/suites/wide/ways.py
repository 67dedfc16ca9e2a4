"""Ways to learn in plain torch: own optimizers, teachers, replay, quantization, few bytes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def _net(*widths: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, o in zip(widths, widths[1:]):
        layers += [nn.Linear(i, o), act()]
    return nn.Sequential(*layers[:-1])


class Shampoo(torch.optim.Optimizer):
    """Both sides of a matrix have a preconditioner, whose root is made anew in every step."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float = 1e-3) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                slope = p.grad.flatten(1) if p.ndim > 1 else p.grad[:, None]
                for side in range(2):
                    size = slope.shape[side]
                    eye = torch.eye(size, device=p.device)
                    seen = self.state[p].setdefault(side, 1e-4 * eye)
                    seen.add_(slope @ slope.mT if side == 0 else slope.mT @ slope)
                    values, vectors = torch.linalg.eigh(seen)
                    root = vectors * values.clamp(min=1e-8).pow(-0.25) @ vectors.mT
                    slope = root @ slope if side == 0 else slope @ root
                p.add_(slope.view_as(p), alpha=-group["lr"])


class Lamb(torch.optim.Optimizer):
    """Adam, but every matrix moves by a share of its own length; lists of tensors at once."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float = 1e-3) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            weights, slopes = group["params"], [p.grad for p in group["params"]]
            for p in weights:
                self.state[p].setdefault("mean", torch.zeros_like(p))
                self.state[p].setdefault("square", torch.zeros_like(p))
            means = [self.state[p]["mean"] for p in weights]
            squares = [self.state[p]["square"] for p in weights]
            torch._foreach_lerp_(means, slopes, 0.1)
            torch._foreach_mul_(squares, 0.999)
            torch._foreach_addcmul_(squares, slopes, slopes, 0.001)
            roots = torch._foreach_sqrt(squares)
            torch._foreach_add_(roots, 1e-6)
            moves = torch._foreach_div(means, roots)
            torch._foreach_add_(moves, weights, alpha=0.01)
            long, far = torch._foreach_norm(weights), torch._foreach_norm(moves)
            share = [torch.where(m > 0, w / m, 1.0).clamp(max=10) for w, m in zip(long, far)]
            torch._foreach_mul_(moves, share)
            torch._foreach_add_(weights, moves, alpha=-group["lr"])


def own_optimizer(*, name: str = "Shampoo", batch_size: int = 256, width: int = 1024) -> Step:
    model = _net(784, width, width, width, 10, act=nn.GELU).cuda()
    update = {"Shampoo": Shampoo, "Lamb": Lamb}[name](model.parameters())
    x = torch.randn(batch_size, 784, device="cuda")
    labels = torch.randint(0, 10, (batch_size,), device="cuda")

    def step() -> torch.Tensor:
        update.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        update.step()
        return loss.detach()

    return step


def hutchinson(*, batch_size: int = 4, length: int = 512, width: int = 512, depth: int = 4) -> Step:
    """Sophia: the diagonal of the Hessian by a random vector, through a graph of gradients."""
    embed = nn.Embedding(8000, width).cuda()
    blocks = nn.ModuleList(_net(width, 4 * width, width, act=nn.SiLU) for _ in range(depth)).cuda()
    tokens = torch.randint(0, 8000, (batch_size, length + 1), device="cuda")
    weights = [*embed.parameters(), *blocks.parameters()]
    means, bends = ([torch.zeros_like(p) for p in weights] for _ in range(2))

    def step() -> torch.Tensor:
        x = embed(tokens[:, :-1])
        for block in blocks:
            past = x.cumsum(1) / torch.arange(1, length + 1, device="cuda")[:, None]
            x = x + block(F.layer_norm(past, (width,)))
        loss = F.cross_entropy((x @ embed.weight.mT).flatten(0, 1), tokens[:, 1:].flatten())
        slopes = torch.autograd.grad(loss, weights, create_graph=True)
        drawn = [torch.randint_like(p, 2) * 2 - 1 for p in weights]
        bent = torch.autograd.grad(slopes, weights, drawn)
        with torch.no_grad():
            for p, slope, mean, bend, b, z in zip(weights, slopes, means, bends, bent, drawn):
                mean.lerp_(slope, 0.04)
                bend.lerp_(b * z, 0.01)
                p.sub_(1e-3 * (mean / bend.clamp(min=1e-4)).clamp_(-1, 1))
        return loss.detach()

    return step


def teacher_and_crops(*, batch_size: int = 16, size: int = 160, name: str = "vit_b_16") -> Step:
    """DINO: a student sees small and large crops, its slow copy only the large ones."""
    import torchvision

    model = torchvision.models.get_model(name, weights=None, image_size=size).cuda()
    model.heads = _net(768, 2048, 256, 8192, act=nn.GELU).cuda()
    teacher = copy.deepcopy(model).requires_grad_(False)
    center = torch.zeros(8192, device="cuda")
    update = torch.optim.AdamW(model.parameters(), fused=True)
    pictures = torch.rand(batch_size, 3, 224, 224, device="cuda")

    def crops(low: int, number: int) -> list[torch.Tensor]:
        made = []
        for k in range(number):
            part = pictures[..., 8 * k : 8 * k + low, 4 * k : 4 * k + low]
            part = F.interpolate(part, (size, size), mode="bicubic", antialias=True)
            made.append(part.flip(-1) if k % 2 else part)
        return made

    def step() -> torch.Tensor:
        large, small = crops(192, 2), crops(96, 4)
        with torch.autocast("cuda", torch.bfloat16):
            with torch.no_grad():
                truth = teacher(torch.cat(large))
            guess = model(torch.cat(large + small))
        odds = ((truth.float() - center) / 0.04).softmax(-1).chunk(2)
        logs = (guess.float() / 0.1).log_softmax(-1).chunk(6)
        pairs = [(o, g) for i, o in enumerate(odds) for j, g in enumerate(logs) if i != j]
        loss = sum(-(o * g).sum(-1).mean() for o, g in pairs) / len(pairs)
        update.zero_grad()
        loss.backward()
        update.step()
        with torch.no_grad():
            center.lerp_(truth.float().mean(0), 0.1)
            for slow, fast in zip(teacher.parameters(), model.parameters()):
                slow.lerp_(fast, 0.004)
        return loss.detach()

    return step


def replay(*, batch_size: int = 256, room: int = 100_000, width: int = 512) -> Step:
    """Soft actor-critic: a ring of memories on the GPU, two critics and their slow copies."""
    see, do = 64, 8
    actor = _net(see, width, width, 2 * do).cuda()
    critics = nn.ModuleList(_net(see + do, width, width, 1) for _ in range(2)).cuda()
    slow = copy.deepcopy(critics).requires_grad_(False)
    heat = torch.zeros((), device="cuda", requires_grad=True)
    updates = [torch.optim.Adam(p) for p in (actor.parameters(), critics.parameters(), [heat])]
    kept = torch.zeros(room, 2 * see + do + 2, device="cuda")
    place = 0

    def act(seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log = actor(seen).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log.clamp(-5, 2).exp())
        raw = normal.rsample()
        odds = normal.log_prob(raw) - (1 - raw.tanh().square() + 1e-6).log()
        return raw.tanh(), odds.sum(-1, keepdim=True)

    def worth(which: nn.ModuleList, seen: torch.Tensor, done: torch.Tensor) -> torch.Tensor:
        return torch.min(*(critic(torch.cat([seen, done], -1)) for critic in which))

    def learn(update: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        update.zero_grad()
        loss.backward()
        update.step()

    def step() -> torch.Tensor:
        nonlocal place
        kept[place : place + 64] = torch.randn(64, kept.shape[1], device="cuda")
        place = (place + 64) % (room - 64)
        some = kept[torch.randint(0, room, (batch_size,), device="cuda")]
        seen, then, done, got, end = some.split([see, see, do, 1, 1], -1)
        with torch.no_grad():
            new, odds = act(then)
            goal = got + 0.99 * (1 - end) * (worth(slow, then, new) - heat.exp() * odds)
        pairs = [critic(torch.cat([seen, done], -1)) for critic in critics]
        lost = sum(F.mse_loss(made, goal) for made in pairs)
        learn(updates[1], lost)
        new, odds = act(seen)
        learn(updates[0], (heat.exp().detach() * odds - worth(critics, seen, new)).mean())
        learn(updates[2], -(heat * (odds.detach() + do)).mean())
        torch._foreach_lerp_(list(slow.parameters()), list(critics.parameters()), 0.005)
        return lost.detach()

    return step


def fake_bits(*, batch_size: int = 32, size: int = 64, width: int = 64) -> Step:
    """Quantization in training: ranges are watched, weights rounded by channel, evaluated too."""
    lines = nn.ModuleList(nn.Conv2d(3 if i == 0 else width, width, 3, padding=1) for i in range(5))
    head = nn.Linear(width, 10)
    every = nn.ModuleList([lines, head]).cuda()
    most = torch.ones(6, device="cuda")
    images, new = (torch.rand(batch_size, 3, size, size, device="cuda") for _ in range(2))
    labels = torch.randint(0, 10, (batch_size,), device="cuda")
    zero, zeros = torch.zeros(1, device="cuda").int(), torch.zeros(width, device="cuda").int()

    def rounded(weight: torch.Tensor) -> torch.Tensor:
        scale = weight.detach().abs().amax((1, 2, 3)) / 127
        return torch.fake_quantize_per_channel_affine(weight, scale, zeros, 0, -128, 127)

    def forward(x: torch.Tensor) -> torch.Tensor:
        for number, line in enumerate(lines):
            if torch.is_grad_enabled():
                most[number].lerp_(x.detach().abs().max(), 0.01)
            x = torch.fake_quantize_per_tensor_affine(
                x, most[number : number + 1] / 127, zero, -128, 127
            )
            x = F.relu6(F.conv2d(x, rounded(line.weight), line.bias, padding=1))
        return head(x.mean((2, 3)))

    step = training_step(lambda: F.cross_entropy(forward(images), labels), every.parameters())

    def with_evaluation() -> torch.Tensor:
        loss = step()
        every.eval()
        with torch.no_grad():
            right = (forward(new).argmax(1) == labels).float().mean()
        every.train()
        return loss + 0 * right

    return with_evaluation


def weights_from_weights(*, batch_size: int = 64, parts: int = 32, width: int = 256) -> Step:
    """A hypernetwork makes the weights of a small network for every task of the batch."""
    target = _net(32, width, width, 1, act=nn.Tanh)
    shapes = [p.shape for p in target.parameters()]
    sizes = [shape.numel() for shape in shapes]
    maker = _net(64, 512, parts * 16).cuda()
    bases = nn.Parameter(0.01 * torch.randn(parts * 16, sum(sizes), device="cuda"))
    tasks = torch.randn(batch_size, 64, device="cuda")
    x, y = (
        torch.randn(batch_size, 128, 32, device="cuda"),
        torch.randn(batch_size, 128, device="cuda"),
    )

    def run(flat: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        made = [part.view(shape) for part, shape in zip(flat.split(sizes), shapes)]
        names = [name for name, _ in target.named_parameters()]
        return torch.func.functional_call(target, dict(zip(names, made)), (points,)).squeeze(-1)

    def loss() -> torch.Tensor:
        return F.mse_loss(torch.func.vmap(run)(maker(tasks) @ bases, x), y)

    return training_step(loss, [*maker.parameters(), bases])


def long_text_in_parts(
    *, batch_size: int = 4, length: int = 1024, width: int = 1024, depth: int = 6
):
    """Blocks computed again, called by keywords, with loss scaling, over four small batches."""
    embed = nn.Embedding(32_000, width).cuda()
    blocks = nn.ModuleList(
        nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "mlp": _net(width, 4 * width, width)})
        for _ in range(depth)
    ).cuda()
    tokens = torch.randint(0, 32_000, (batch_size, length + 1), device="cuda")
    angles = torch.outer(torch.arange(length), 1e4 ** -torch.linspace(0, 1, 32)).cuda()

    def turned(x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        spun = pairs * torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(spun).flatten(-2).type_as(x)

    def block(x: torch.Tensor, *, part: nn.ModuleDict, causal: bool = True) -> torch.Tensor:
        split = part["qkv"](F.rms_norm(x, (width,))).unflatten(-1, (3, -1, 64))
        q, k, v = split.permute(2, 0, 3, 1, 4)
        made = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=causal)
        x = x + made.transpose(1, 2).flatten(2)
        return x + part["mlp"](F.rms_norm(x, (width,)))

    def loss() -> torch.Tensor:
        x = embed(tokens[:, :-1])
        for part in blocks:
            x = checkpoint(block, x, part=part, use_reentrant=False)
        pieces = zip(x.chunk(4, 1), tokens[:, 1:].chunk(4, 1))
        lost = [
            checkpoint(_word_loss, hidden, embed.weight, words, use_reentrant=False)
            for hidden, words in pieces
        ]
        return sum(lost) / 4

    weights = [*embed.parameters(), *blocks.parameters()]
    return training_step(loss, weights, autocast="fp16", scale_loss=True, accumulate=4)


def _word_loss(x: torch.Tensor, table: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy((x @ table.mT).float().flatten(0, 1), words.flatten())


class _Solved(torch.autograd.Function):
    """The adjoint of an ordinary differential equation, integrated backwards by hand."""

    @staticmethod
    def forward(ctx, field, steps: int, x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for _ in range(steps):
            k1 = field(x)
            k2 = field(x + k1 / (2 * steps))
            k3 = field(x + k2 / (2 * steps))
            x = x + (k1 + 2 * k2 + 2 * k3 + field(x + k3 / steps)) / (6 * steps)
        ctx.field, ctx.steps = field, steps
        ctx.save_for_backward(x, *weights)
        return x

    @staticmethod
    def backward(ctx, slope: torch.Tensor) -> tuple:
        x, *weights = ctx.saved_tensors
        totals = [torch.zeros_like(w) for w in weights]
        for _ in range(ctx.steps):
            with torch.enable_grad():
                seen = x.detach().requires_grad_()
                made = ctx.field(seen)
            moved, *parts = torch.autograd.grad(made, [seen, *weights], slope)
            x = x - made.detach() / ctx.steps
            slope = slope + moved / ctx.steps
            for total, part in zip(totals, parts):
                total.add_(part, alpha=1 / ctx.steps)
        return (None, None, slope, *totals)


def by_adjoint(*, batch_size: int = 64, width: int = 64, size: int = 32, steps: int = 8) -> Step:
    """A continuous network of convolutions, whose backward pass keeps no activations."""
    first = nn.Conv2d(3, width, 3, padding=1).cuda()
    field = nn.Sequential(
        nn.GroupNorm(8, width), nn.Softplus(), nn.Conv2d(width, width, 3, padding=1),
        nn.GroupNorm(8, width), nn.Softplus(), nn.Conv2d(width, width, 3, padding=1),
    ).cuda()  # fmt: skip
    head = nn.Linear(width, 10).cuda()
    images = torch.randn(batch_size, 3, size, size, device="cuda")
    labels = torch.randint(0, 10, (batch_size,), device="cuda")

    def loss() -> torch.Tensor:
        made = _Solved.apply(field, steps, first(images), *field.parameters())
        return F.cross_entropy(head(made.mean((2, 3))), labels)

    every = nn.ModuleList([first, field, head])
    return training_step(loss, every.parameters(), optimizer="sgd")
