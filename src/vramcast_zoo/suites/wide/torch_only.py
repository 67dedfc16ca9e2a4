"""What torch alone offers: optimizers, torch.func, hooks, spectra, recurrence, own filters."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def _perceptron(width: int, depth: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.SiLU()]
    return nn.Sequential(*layers)


def optimizer_of_torch(
    *, name: str = "Muon", batch_size: int = 512, width: int = 1024, depth: int = 8
) -> Step:
    """Any optimizer of torch.optim; Muon takes the matrices and AdamW the rest."""
    model = _perceptron(width, depth).cuda()
    batch = torch.randn(batch_size, width, device="cuda")
    parameters = list(model.parameters())
    matrices = [p for p in parameters if p.ndim == 2] if name == "Muon" else parameters
    updates = [getattr(torch.optim, name)(matrices, lr=1e-3)]
    if name == "Muon":
        updates.append(torch.optim.AdamW([p for p in parameters if p.ndim < 2]))

    def error() -> torch.Tensor:
        for update in updates:
            update.zero_grad()
        loss = F.mse_loss(model(batch), batch)
        loss.backward()
        return loss

    def step() -> torch.Tensor:
        if name == "LBFGS":
            return updates[0].step(error).detach()
        loss = error()
        for update in updates:
            update.step()
        return loss.detach()

    return step


def gradient_of_every_sample(*, batch_size: int = 64, width: int = 512, depth: int = 4) -> Step:
    """torch.func: gradients by sample, each clipped, and their mean."""
    from torch.func import functional_call, grad, vmap

    model = _perceptron(width, depth).cuda()
    update = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(batch_size, width, device="cuda")

    def error(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(model, weights, (x[None],)).square().mean()

    def step() -> torch.Tensor:
        weights = {name: p.detach() for name, p in model.named_parameters()}
        slopes = vmap(grad(error), (None, 0))(weights, batch)
        norms = torch.stack([s.flatten(1).norm(dim=1) for s in slopes.values()]).norm(dim=0)
        share = (1 / norms).clamp(max=1)
        for name, p in model.named_parameters():
            p.grad = torch.einsum("b,b...->...", share, slopes[name]) / batch_size
        update.step()
        return norms.mean()

    return step


def curvature(*, batch_size: int = 256, width: int = 768, depth: int = 4) -> Step:
    """Forward over reverse: the Hessian times the gradient, by torch.func."""
    from torch.func import functional_call, grad, jvp

    model = _perceptron(width, depth).cuda()
    update = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(batch_size, width, device="cuda")

    def error(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        return functional_call(model, weights, (batch,)).square().mean()

    def step() -> torch.Tensor:
        weights = {name: p.detach() for name, p in model.named_parameters()}
        slopes = grad(error)(weights)
        _, bent = jvp(grad(error), (weights,), (slopes,))
        for name, p in model.named_parameters():
            p.grad = slopes[name] - 0.01 * bent[name]
        update.step()
        return bent["0.weight"].norm()

    return step


def spectral_loss(*, batch_size: int = 8, samples: int = 65536, width: int = 64) -> Step:
    """A network of dilated lines that makes sound, judged by spectra of three lengths."""
    layers: list[nn.Module] = [nn.Conv1d(1, width, 7, padding=3)]
    for power in range(6):
        layers += [nn.GELU(), nn.Conv1d(width, width, 3, padding=2**power, dilation=2**power)]
    model = nn.Sequential(*layers, nn.GELU(), nn.Conv1d(width, 1, 7, padding=3)).cuda()
    sound = torch.randn(batch_size, 1, samples, device="cuda")
    windows = [torch.hann_window(n, device="cuda") for n in (512, 1024, 2048)]

    def spectrum(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        n = len(window)
        return torch.stft(x.squeeze(1), n, n // 4, window=window, return_complex=True).abs()

    def loss() -> torch.Tensor:
        made = model(sound)
        return sum(F.l1_loss(spectrum(made, w), spectrum(sound, w)) for w in windows)

    return training_step(loss, model.parameters())


def modulated_generator(*, batch_size: int = 16, width: int = 128, size: int = 64) -> Step:
    """Filters of its own for every sample, as StyleGAN 2 has them, and a penalty on the critic."""
    styles = nn.ModuleList(nn.Linear(width, width) for _ in range(4)).cuda()
    filters = nn.ParameterList(torch.randn(width, width, 3, 3) for _ in range(4)).cuda()
    start = nn.Parameter(torch.randn(width, size // 16, size // 16, device="cuda"))
    picture = nn.Conv2d(width, 3, 1).cuda()
    layers: list[nn.Module] = []
    for i, o in ((3, width), (width, width), (width, 2 * width)):
        layers += [nn.utils.parametrizations.spectral_norm(nn.Conv2d(i, o, 3, 2, 1))]
        layers += [nn.LeakyReLU(0.2)]
    judge = nn.Sequential(*layers, nn.Flatten(), nn.Linear(2 * width * (size // 8) ** 2, 1)).cuda()
    real = torch.randn(batch_size, 3, size, size, device="cuda")
    maker = torch.optim.Adam([start, *styles.parameters(), *filters, *picture.parameters()])
    critic = torch.optim.Adam(judge.parameters())

    def make() -> torch.Tensor:
        noise = torch.randn(batch_size, width, device="cuda")
        x = start.expand(batch_size, -1, -1, -1)
        for style, weight in zip(styles, filters):
            own = weight * style(noise)[:, None, :, None, None]
            own = own * own.square().sum((2, 3, 4), keepdim=True).add(1e-8).rsqrt()
            x = F.interpolate(x, scale_factor=2, mode="bilinear")
            rows = x.reshape(1, -1, *x.shape[2:])
            made = F.conv2d(rows, own.flatten(0, 1), padding=1, groups=batch_size)
            x = F.leaky_relu(made.view(batch_size, width, *x.shape[2:]), 0.2)
        return picture(x)

    def step() -> torch.Tensor:
        seen = real.detach().requires_grad_()
        score = judge(seen)
        (slope,) = torch.autograd.grad(score.sum(), seen, create_graph=True)
        lost = F.relu(1 - score).mean() + F.relu(1 + judge(make().detach())).mean()
        critic.zero_grad()
        (lost + 5 * slope.square().sum((1, 2, 3)).mean()).backward()
        critic.step()
        maker.zero_grad()
        loss = -judge(make()).mean()
        loss.backward()
        maker.step()
        return loss.detach()

    return step


def packed_in_bytes(*, batch_size: int = 16, width: int = 1024, depth: int = 8) -> Step:
    """Hooks keep what backward needs in 8 bits."""
    model = _perceptron(width, depth).cuda()
    x = torch.randn(batch_size, 256, width, device="cuda")

    def pack(saved: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | torch.Tensor:
        if saved.numel() < 1_000_000 or isinstance(saved, nn.Parameter):
            return saved
        scale = saved.abs().amax() / 127
        return (saved / scale).round().to(torch.int8), scale

    def unpack(kept: tuple[torch.Tensor, torch.Tensor] | torch.Tensor) -> torch.Tensor:
        return kept if isinstance(kept, torch.Tensor) else kept[0].float() * kept[1]

    def loss() -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return model(x).square().mean()

    return training_step(loss, model.parameters())


def cells_of_lines(*, batch_size: int = 8, frames: int = 8, width: int = 64) -> Step:
    """A convolutional LSTM that predicts frames; every second of them is computed again."""
    gates = nn.Conv2d(2 * width, 4 * width, 5, padding=2).cuda()
    first, last = nn.Conv2d(1, width, 3, padding=1).cuda(), nn.Conv2d(width, 1, 1).cuda()
    movie = torch.randn(batch_size, frames + 1, 1, 64, 64, device="cuda")

    def cell(
        x: torch.Tensor, hidden: torch.Tensor, memory: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        i, f, o, g = gates(torch.cat([first(x), hidden], 1)).chunk(4, 1)
        memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
        return o.sigmoid() * memory.tanh(), memory

    def loss() -> torch.Tensor:
        state = (torch.zeros(batch_size, width, 64, 64, device="cuda"),) * 2
        total = torch.zeros((), device="cuda")
        for i in range(frames):
            if i % 2:
                state = checkpoint(cell, movie[:, i], *state, use_reentrant=False)
            else:
                state = cell(movie[:, i], *state)
            total = total + F.mse_loss(last(state[0]), movie[:, i + 1])
        return total

    everything = nn.ModuleList([gates, first, last])
    return training_step(loss, everything.parameters(), autocast="fp16", scale_loss=True)


def language_model_of_cells(*, kind: str = "LSTM", batch_size: int = 32, length: int = 128) -> Step:
    """Recurrent layers between an embedding with sparse gradients and an adaptive softmax."""
    embed = nn.Embedding(50_000, 512, sparse=True).cuda()
    cells = getattr(nn, kind)(512, 512, 2, batch_first=True, dropout=0.2).cuda()
    head = nn.AdaptiveLogSoftmaxWithLoss(512, 50_000, [2000, 10_000]).cuda()
    dense = torch.optim.NAdam([*cells.parameters(), *head.parameters()])
    sparse = torch.optim.SparseAdam(embed.parameters())
    tokens = torch.randint(0, 50_000, (batch_size, length + 1), device="cuda")

    def step() -> torch.Tensor:
        for update in (dense, sparse):
            update.zero_grad()
        made, _ = cells(embed(tokens[:, :-1]))
        loss = head(made.flatten(0, 1), tokens[:, 1:].flatten()).loss
        loss.backward()
        for update in (dense, sparse):
            update.step()
        return loss.detach()

    return step


def weighted_bags(*, batch_size: int = 4096, rows: int = 500_000, width: int = 32) -> Step:
    """Bags of different lengths with weights, and gradients that are dense."""
    bags = nn.EmbeddingBag(rows, width, mode="sum").cuda()
    head = nn.Linear(width, 1).cuda()
    ends = torch.arange(0, batch_size * 8, 8, device="cuda")
    which = torch.randint(0, rows, (batch_size * 8,), device="cuda")
    shares = torch.rand(batch_size * 8, device="cuda")
    clicked = torch.randint(0, 2, (batch_size,), device="cuda").float()

    def loss() -> torch.Tensor:
        made = bags(which, ends, per_sample_weights=shares)
        return F.binary_cross_entropy_with_logits(head(made).squeeze(1), clicked)

    both = nn.ModuleList([bags, head])
    return training_step(loss, both.parameters(), optimizer="adafactor")


def transformer_of_torch(
    *, batch_size: int = 16, length: int = 256, parts: int = 3, autocast: str = "bf16"
) -> Step:
    """nn.TransformerEncoder with padding, its layers checkpointed in parts, and an average."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, 0.1, batch_first=True)
    model = nn.Sequential(*(nn.TransformerEncoder(layer, 1).layers[0] for _ in range(6))).cuda()
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99)
    )
    embed = nn.Embedding(30_000, 512).cuda()
    tokens = torch.randint(0, 30_000, (batch_size, length), device="cuda")

    def loss() -> torch.Tensor:
        hidden = checkpoint_sequential(model, parts, embed(tokens), use_reentrant=False)
        return F.cross_entropy((hidden @ embed.weight.t()).flatten(0, 1), tokens.flatten())

    step = training_step(loss, [*model.parameters(), *embed.parameters()], autocast=autocast)

    def with_average() -> torch.Tensor:
        made = step()
        average.update_parameters(model)
        return made

    return with_average


def matching(*, batch_size: int = 8, points: int = 1024, rounds: int = 20) -> Step:
    """Sinkhorn's transport between two clouds, differentiated through its rounds."""
    model = nn.Sequential(nn.Linear(3, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()
    here, there = (torch.randn(batch_size, points, 3, device="cuda") for _ in range(2))

    def loss() -> torch.Tensor:
        cost = torch.cdist(model(here), model(there))
        plan = -cost / 0.1
        for _ in range(rounds):
            plan = plan - plan.logsumexp(2, keepdim=True)
            plan = plan - plan.logsumexp(1, keepdim=True)
        return (plan.exp() * cost).sum((1, 2)).mean()

    return training_step(loss, model.parameters(), optimizer="adamw-fused")
