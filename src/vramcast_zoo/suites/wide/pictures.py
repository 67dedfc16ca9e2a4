"""Pictures and sounds in plain torch: flows, codes, spectra, whitening, sorted losses, bytes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def glow(*, batch_size: int = 32, size: int = 64, depth: int = 8, width: int = 256) -> Step:
    """Squeezed pictures through mixed channels and couplings; determinants are in the loss."""
    levels = nn.ModuleList()
    for channels in (12, 24, 48):
        steps = nn.ModuleList()
        for _ in range(depth):
            net = nn.Sequential(
                nn.Conv2d(channels // 2, width, 3, padding=1), nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 1), nn.ReLU(inplace=True),
                nn.Conv2d(width, channels, 3, padding=1),
            )  # fmt: skip
            mix = nn.Linear(channels, channels, bias=False)
            nn.init.orthogonal_(mix.weight)
            norm = nn.Linear(1, channels)
            steps.append(nn.ModuleDict({"net": net, "mix": mix, "norm": norm}))
        levels.append(steps)
    levels.cuda()
    images = torch.rand(batch_size, 3, size, size, device="cuda")

    def move(x: torch.Tensor, step: nn.ModuleDict) -> tuple[torch.Tensor, torch.Tensor]:
        pixels = x.shape[2] * x.shape[3]
        scale = step["norm"].weight.view(1, -1, 1, 1)
        x = (x + step["norm"].bias.view(1, -1, 1, 1)) * scale.exp()
        matrix = step["mix"].weight
        x = F.conv2d(x, matrix[:, :, None, None])
        kept, changed = x.chunk(2, 1)
        shift, log = step["net"](kept).chunk(2, 1)
        log = F.logsigmoid(log + 2)
        x = torch.cat([kept, (changed + shift) * log.exp()], 1)
        fixed = pixels * (scale.sum() + torch.linalg.slogdet(matrix).logabsdet)
        return x, fixed + log.sum((1, 2, 3))

    def loss() -> torch.Tensor:
        x = images + torch.rand_like(images) / 256
        total = torch.zeros(batch_size, device="cuda")
        for number, steps in enumerate(levels):
            x = F.pixel_unshuffle(x, 2)
            for step in steps:
                x, change = move(x, step)
                total = total + change
            if number < 2:
                x, done = x.chunk(2, 1)
                total = total - done.square().sum((1, 2, 3)) / 2
        return -(total - x.square().sum((1, 2, 3)) / 2).mean() / images[0].numel()

    return training_step(loss, levels.parameters(), optimizer="adamw")


def moving_codes(*, batch_size: int = 64, size: int = 128, codes: int = 1024) -> Step:
    """VQ-VAE whose codes are averages of what they stand for; unused ones start again."""
    encode = nn.Sequential(
        nn.Conv2d(3, 128, 4, 2, 1), nn.ReLU(), nn.Conv2d(128, 256, 4, 2, 1), nn.ReLU(),
        nn.Conv2d(256, 64, 3, 1, 1),
    ).cuda()  # fmt: skip
    decode = nn.Sequential(
        nn.Conv2d(64, 256, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(256, 128, 4, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(128, 3, 4, 2, 1),
    ).cuda()  # fmt: skip
    table = torch.randn(codes, 64, device="cuda")
    sums, counts = table.clone(), torch.ones(codes, device="cuda")
    images = torch.rand(batch_size, 3, size, size, device="cuda")

    @torch.no_grad()
    def follow(flat: torch.Tensor, near: torch.Tensor) -> None:
        hot = F.one_hot(near, codes).to(flat.dtype)
        counts.mul_(0.99).add_(hot.sum(0), alpha=0.01)
        sums.mul_(0.99).add_(hot.T @ flat, alpha=0.01)
        table.copy_(sums / counts.clamp(min=1e-5)[:, None])
        fresh = flat[torch.randperm(len(flat), device="cuda")[:codes]]
        table.copy_(torch.where(counts[:, None] < 1e-2, fresh, table))

    def loss() -> torch.Tensor:
        made = encode(images)
        flat = made.permute(0, 2, 3, 1).reshape(-1, 64)
        far = flat.square().sum(1, True) - 2 * flat @ table.T + table.square().sum(1)
        near = far.argmin(1)
        found = F.embedding(near, table).view(batch_size, size // 4, size // 4, 64)
        found = found.permute(0, 3, 1, 2)
        follow(flat.detach(), near)
        again = decode(made + (found - made).detach())
        return F.mse_loss(again, images) + 0.25 * F.mse_loss(made, found)

    every = nn.ModuleList([encode, decode])
    return training_step(loss, every.parameters())


def splines(*, batch_size: int = 2048, widths: tuple = (64, 512, 512, 10), knots: int = 8) -> Step:
    """A Kolmogorov-Arnold network: every edge is a spline, by the recursion of de Boor."""
    grid = torch.linspace(-2, 2, knots + 7, device="cuda")
    pairs = list(zip(widths, widths[1:]))
    bend = nn.ParameterList(0.1 * torch.randn(o, i * (knots + 3)) for i, o in pairs).cuda()
    base = nn.ParameterList(torch.randn(o, i) / i**0.5 for i, o in pairs).cuda()
    x = torch.randn(batch_size, widths[0], device="cuda")
    labels = torch.randint(0, widths[-1], (batch_size,), device="cuda")

    def bases(x: torch.Tensor) -> torch.Tensor:
        x = x[..., None]
        made = ((x >= grid[:-1]) & (x < grid[1:])).to(x.dtype)
        for k in range(1, 4):
            left = (x - grid[: -k - 1]) / (grid[k:-1] - grid[: -k - 1])
            right = (grid[k + 1 :] - x) / (grid[k + 1 :] - grid[1:-k])
            made = left * made[..., :-1] + right * made[..., 1:]
        return made.flatten(1)

    def loss() -> torch.Tensor:
        h = x
        for spline, line in zip(bend, base):
            h = F.linear(F.silu(h), line) + F.linear(bases(h), spline)
        return F.cross_entropy(h, labels)

    return training_step(loss, [*bend, *base])


def whitened(*, batch_size: int = 1024, width: int = 256) -> Step:
    """Two views made white by Cholesky and by eigenvectors, and kept of full rank by an SVD."""
    net = nn.Sequential(
        nn.Linear(1024, 2048), nn.BatchNorm1d(2048), nn.ReLU(), nn.Linear(2048, width)
    )
    net.cuda()
    views = [torch.randn(batch_size, 1024, device="cuda") for _ in range(2)]
    eye = torch.eye(width, device="cuda")

    def loss() -> torch.Tensor:
        here, there = (net(v) for v in views)
        here, there = here - here.mean(0), there - there.mean(0)
        root = torch.linalg.cholesky(here.mT @ here / batch_size + 1e-2 * eye)
        first = torch.linalg.solve_triangular(root, here.mT, upper=False).mT
        values, vectors = torch.linalg.eigh(there.mT @ there / batch_size + 1e-2 * eye)
        second = there @ (vectors * values.rsqrt()) @ vectors.mT
        cross = torch.linalg.solve(eye + 0.1 * first.mT @ second / batch_size, first.mT)
        rank = -torch.linalg.svdvals(torch.cat([here, there])[::2]).clamp(min=1e-3).log().mean()
        return F.mse_loss(first, second) + 0.01 * rank + 1e-3 * cross.square().mean()

    return training_step(loss, net.parameters())


def complex_waves(*, batch_size: int = 16, samples: int = 32_768, width: int = 64) -> Step:
    """A complex network over a spectrum, whose lowest waves are mixed by learnt matrices."""
    rows = 128
    into = nn.Linear(257, width, dtype=torch.complex64).cuda()
    mixes = nn.ParameterList(
        0.02 * torch.randn(rows // 2, width, width, dtype=torch.complex64) for _ in range(3)
    ).cuda()
    out = nn.Linear(width, 257, dtype=torch.complex64).cuda()
    noisy, clean = (torch.randn(batch_size, samples, device="cuda") for _ in range(2))
    window = torch.hann_window(512, device="cuda")

    def loss() -> torch.Tensor:
        seen = torch.stft(noisy, 512, 256, window=window, return_complex=True).mT[:, :rows]
        h = into(seen)
        for mix in mixes:
            waves = torch.fft.fft(h, dim=1)[:, : rows // 2]
            waves = torch.einsum("bki,kio->bko", waves, mix)
            h = h + torch.fft.ifft(F.pad(waves, (0, 0, 0, rows // 2)), dim=1)
            h = torch.complex(F.relu(h.real), F.relu(h.imag))
        mask = torch.polar(out(h).abs().tanh(), out(h).angle())
        made = torch.istft((mask * seen).mT, 512, 256, window=window)
        return F.l1_loss(made, clean[:, : made.shape[1]])

    return training_step(loss, [*into.parameters(), *mixes, *out.parameters()])


def vocoder(*, batch_size: int = 16, frames: int = 32, width: int = 512) -> Step:
    """HiFi-GAN: transposed lines with normalized weights, judged on folded sound."""
    layers: list[nn.Module] = [weight_norm(nn.Conv1d(80, width, 7, padding=3))]
    for number, rate in enumerate((8, 8, 2, 2)):
        i, o = width >> number, width >> (number + 1)
        layers += [nn.LeakyReLU(0.1)]
        layers += [weight_norm(nn.ConvTranspose1d(i, o, 2 * rate, rate, rate // 2))]
        for gap in (1, 3, 5):
            layers += [nn.LeakyReLU(0.1)]
            layers += [weight_norm(nn.Conv1d(o, o, 7, padding=3 * gap, dilation=gap))]
    layers += [nn.LeakyReLU(), weight_norm(nn.Conv1d(width >> 4, 1, 7, padding=3)), nn.Tanh()]
    maker = nn.Sequential(*layers).cuda()
    judges = nn.ModuleList()
    for _ in (2, 3, 5):
        sizes = [(1, 32), (32, 128), (128, 512)]
        parts: list[nn.Module] = []
        for i, o in sizes:
            parts += [weight_norm(nn.Conv2d(i, o, (5, 1), (3, 1), (2, 0))), nn.LeakyReLU(0.1)]
        judges.append(nn.Sequential(*parts, weight_norm(nn.Conv2d(512, 1, (3, 1), padding=(1, 0)))))
    judges.cuda()
    speech = torch.randn(batch_size, 1, frames * 256, device="cuda")
    spectrum = torch.randn(batch_size, 80, frames, device="cuda")
    updates = [torch.optim.AdamW(m.parameters(), fused=True) for m in (maker, judges)]

    def scores(sound: torch.Tensor) -> list[torch.Tensor]:
        made = []
        for period, judge in zip((2, 3, 5), judges):
            padded = F.pad(sound, (0, -sound.shape[2] % period), "reflect")
            made.append(judge(padded.unflatten(2, (-1, period))))
        return made

    def step() -> torch.Tensor:
        made = maker(spectrum)
        lost = sum((1 - r).square().mean() for r in scores(speech))
        lost = lost + sum(f.square().mean() for f in scores(made.detach()))
        updates[1].zero_grad()
        lost.backward()
        updates[1].step()
        loss = sum((1 - f).square().mean() for f in scores(made)) + 45 * F.l1_loss(made, speech)
        updates[0].zero_grad()
        loss.backward()
        updates[0].step()
        return loss.detach()

    return step


def sorted_errors(*, batch_size: int = 4, size: int = 96, width: int = 32) -> Step:
    """A three-dimensional U-Net under Lovasz's loss, balanced by how often a class is there."""

    def block(i: int, o: int) -> nn.Sequential:
        line = nn.Conv3d(i, o, 3, padding=1)
        return nn.Sequential(line, nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(inplace=True))

    down = nn.ModuleList([block(1, width), block(width, 2 * width), block(2 * width, 4 * width)])
    up = nn.ModuleList(nn.ConvTranspose3d(2 * w, w, 2, 2) for w in (2 * width, width))
    join = nn.ModuleList(block(2 * w, w) for w in (2 * width, width))
    head = nn.Conv3d(width, 4, 1)
    every = nn.ModuleList([down, up, join, head]).cuda()
    scans = torch.randn(batch_size, 1, size, size, size // 2, device="cuda")
    truth = torch.randint(0, 4, (batch_size, size, size, size // 2), device="cuda")

    def lovasz(odds: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        total = odds.new_zeros(())
        for kind in torch.unique(labels).tolist():
            here = (labels == kind).float()
            errors, order = torch.sort((here - odds[:, kind]).abs(), descending=True)
            here = here[order]
            inside = here.sum() - here.cumsum(0)
            union = here.sum() + (1 - here).cumsum(0)
            share = 1 - inside / union
            total = total + errors @ torch.cat([share[:1], share.diff()])
        return total / 4

    def loss() -> torch.Tensor:
        x, kept = scans, []
        for number, layer in enumerate(down):
            x = layer(F.max_pool3d(x, 2) if number else x)
            kept.append(x)
        for rise, layer, old in zip(up, join, kept[1::-1]):
            x = layer(torch.cat([rise(x), old], 1))
        logits = head(x)
        often = torch.bincount(truth.flatten(), minlength=4).float()
        flat = logits.float().softmax(1).movedim(1, -1).reshape(-1, 4)
        plain = F.cross_entropy(logits, truth, weight=often.sum() / (4 * often))
        return lovasz(flat, truth.flatten()) + plain

    return training_step(loss, every.parameters(), autocast="bf16")


def bytes_to_classes(*, batch_size: int = 128, name: str = "resnet18", size: int = 176) -> Step:
    """A set of byte pictures on the GPU; each step draws, crops, mixes and normalizes a batch."""
    import torchvision

    model = torchvision.models.get_model(name, weights=None).to(
        "cuda", memory_format=torch.channels_last
    )
    store = torch.randint(0, 256, (1024, 3, 224, 224), dtype=torch.uint8, device="cuda")
    labels = torch.randint(0, 1000, (1024,), device="cuda")
    mean = torch.tensor([0.48, 0.45, 0.4], device="cuda")[:, None, None]
    ticks = torch.arange(size, device="cuda")

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        drawn = torch.randperm(len(store), device="cuda")[:batch_size]
        top, left = torch.randint(0, 224 - size, (2, batch_size, 1), device="cuda")
        rows, columns = (top + ticks)[:, :, None], (left + ticks)[:, None, :]
        crops = store[drawn[:, None, None], :, rows, columns].permute(0, 3, 1, 2)
        x = crops.float().div_(255).sub_(mean).div_(0.25)
        x = torch.where(torch.rand(batch_size, 1, 1, 1, device="cuda") < 0.5, x.flip(-1), x)
        hot = F.one_hot(labels[drawn], 1000).float()
        share = torch.distributions.Beta(0.4, 0.4).sample().item()
        x = x.mul_(share).add_(x.flip(0), alpha=1 - share)
        return x.contiguous(memory_format=torch.channels_last), hot.lerp(hot.flip(0), 1 - share)

    def loss() -> torch.Tensor:
        x, truth = batch()
        return F.cross_entropy(model(x), truth)

    return training_step(
        loss, model.parameters(), optimizer="sgd", autocast="fp16", scale_loss=True
    )


def hidden_patches(*, batch_size: int = 64, width: int = 768, depth: int = 6) -> Step:
    """A masked autoencoder: a quarter of the patches is kept, chosen by sorting noise."""
    into = nn.Linear(768, width).cuda()
    place = nn.Parameter(torch.randn(196, width, device="cuda"))
    blank = nn.Parameter(torch.zeros(1, 1, width, device="cuda"))
    layer = nn.TransformerEncoderLayer(width, 12, 4 * width, 0.0, F.gelu, True, norm_first=True)
    encode = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False).cuda()
    decode = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).cuda()
    head = nn.Linear(width, 768).cuda()
    images = torch.rand(batch_size, 3, 224, 224, device="cuda")

    def loss() -> torch.Tensor:
        patches = F.unfold(images, 16, stride=16).mT
        order = torch.rand(batch_size, 196, device="cuda").argsort(1)
        back = order.argsort(1)
        kept = order[:, :49, None].expand(-1, -1, width)
        seen = encode((into(patches) + place).gather(1, kept))
        full = torch.cat([seen, blank.expand(batch_size, 147, -1)], 1)
        full = full.gather(1, back[..., None].expand(-1, -1, width))
        made, hidden = head(decode(full + place)), back >= 49
        goal = (patches - patches.mean(-1, True)) / (patches.var(-1, keepdim=True) + 1e-6).sqrt()
        return (made[hidden] - goal[hidden]).square().mean()

    every = nn.ModuleList([into, encode, decode, head])
    weights = [*every.parameters(), place, blank]
    return training_step(loss, weights, autocast="bf16", optimizer="adamw-foreach")
