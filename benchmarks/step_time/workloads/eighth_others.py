"""Steps of eighth.py that are written here: graphs, sound, rays, prices, games, tables."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from unseen import Step, training


def layers_of(*widths: int, last: bool = False) -> nn.Sequential:
    """Products with a SiLU after each, but not after the last one."""
    parts: list[nn.Module] = []
    for inside, outside in zip(widths, widths[1:]):
        parts += [nn.Linear(inside, outside), nn.SiLU()]
    return nn.Sequential(*(parts if last else parts[:-1]))


def answered_by_memory(batch: int, length: int, *, width: int = 512) -> Step:
    """Questions that look up a table of 65,536 keys by two halves, as product-key memories do."""
    half, rows = width // 2, 256
    parts = {
        "words": nn.Embedding(32_000, width),
        "body": nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, 8, 2048, 0.0, batch_first=True),
            4,
            enable_nested_tensor=False,
        ),
        "asked": nn.ModuleList(nn.Linear(half, rows, bias=False) for _ in range(2)),
        "kept": nn.Embedding(rows * rows, width),
        "out": nn.Linear(width, 32_000),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randint(0, 32_000, (batch, length), device="cuda")

    def loss() -> torch.Tensor:
        y = model["body"](model["words"](x))
        pairs = [key(part).topk(16, -1) for key, part in zip(model["asked"], y.chunk(2, -1))]
        (first, at), (second, beside) = pairs
        score = (first[..., :, None] + second[..., None, :]).flatten(-2)
        place = (at[..., :, None] * rows + beside[..., None, :]).flatten(-2)
        best, which = score.topk(16, -1)
        found = model["kept"](place.gather(-1, which))
        y = y + (best.softmax(-1)[..., None] * found).sum(-2)
        return F.cross_entropy(model["out"](y).flatten(0, 1).float(), x.flatten())

    return training(model, loss)


class Experts(nn.Module):
    """Every word goes to two of the experts; each expert takes its words in a loop."""

    def __init__(self, width: int, inner: int, number: int) -> None:
        super().__init__()
        self.route = nn.Linear(width, number, bias=False)
        self.of = nn.ModuleList(
            nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
            for _ in range(number)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = self.route(x).float().softmax(-1)
        y = torch.zeros_like(x)
        room = 2 * len(x) // len(self.of)
        for number, expert in enumerate(self.of):
            weight, which = share[:, number].topk(room)
            y = y.index_add(0, which, (expert(x[which]) * weight[:, None]).to(y.dtype))
        return y


def balanced_experts(batch: int, length: int, *, width: int = 1024, layers: int = 6) -> Step:
    """Experts choose their words, so that all have as many."""
    attention = [
        nn.TransformerEncoderLayer(width, 16, 2048, 0.0, batch_first=True, norm_first=True)
        for _ in range(layers)
    ]
    parts = {
        "table": nn.Embedding(32_000, width),
        "attention": nn.ModuleList(attention),
        "experts": nn.ModuleList(Experts(width, 2048, 8) for _ in range(layers)),
        "out": nn.Linear(width, 32_000, bias=False),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randint(0, 32_000, (batch, length), device="cuda")

    def loss() -> torch.Tensor:
        y = model["table"](x)
        for attend, experts in zip(model["attention"], model["experts"]):
            y = attend(y)
            y = y + experts(y.flatten(0, 1)).view_as(y)
        return F.cross_entropy(model["out"](y).flatten(0, 1).float(), x.flatten())

    return training(model, loss)


def believed_prices(batch: int, length: int, *, width: int = 256) -> Step:
    """DeepAR: a GRU that tells mean and spread of the next value of many series, in fp32."""
    parts = {"in": nn.Linear(6, width), "gru": nn.GRU(width, width, 3, batch_first=True)}
    model = nn.ModuleDict({**parts, "out": nn.Linear(width, 2)}).cuda()
    x = torch.randn(batch, length, 6, device="cuda")
    wanted = torch.randn(batch, length, device="cuda")

    def loss() -> torch.Tensor:
        mean, spread = model["out"](model["gru"](F.relu(model["in"](x)))[0]).unbind(-1)
        return F.gaussian_nll_loss(mean, wanted, F.softplus(spread) + 1e-4)

    return training(model, loss, autocast=False)


def betas(batch: int, size: int) -> Step:
    """A variational autoencoder of pictures, transposed convolutions, in fp32."""
    widths = (3, 64, 128, 256, 512)
    down: list[nn.Module] = []
    up: list[nn.Module] = []
    for inside, outside in zip(widths, widths[1:]):
        down += [nn.Conv2d(inside, outside, 4, 2, 1), nn.BatchNorm2d(outside), nn.LeakyReLU(0.2)]
        up = [nn.ConvTranspose2d(outside, inside, 4, 2, 1), nn.BatchNorm2d(inside), nn.ReLU(), *up]
    side = size // 16
    parts = {
        "down": nn.Sequential(*down, nn.Flatten(), nn.Linear(512 * side * side, 512)),
        "grow": nn.Linear(256, 512 * side * side),
        "up": nn.Sequential(nn.Unflatten(1, (512, side, side)), *up[:-2]),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.rand(batch, 3, size, size, device="cuda")

    def loss() -> torch.Tensor:
        mean, spread = model["down"](x).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        far = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(1).mean()
        found = model["up"](model["grow"](code)).sigmoid()
        return F.binary_cross_entropy(found, x, reduction="sum") / batch + 4 * far

    return training(model, loss, autocast=False)


def critics(batch: int, *, width: int = 1024) -> Step:
    """Soft actor-critic: two critics, their slow copies and an actor, three optimizers' work."""
    actor = layers_of(67, width, width, 42).cuda()
    both = nn.ModuleList(layers_of(88, width, width, width, 1) for _ in range(2)).cuda()
    slow = nn.ModuleList(layers_of(88, width, width, width, 1) for _ in range(2)).cuda()
    of_critics = torch.optim.Adam(both.parameters(), 3e-4)
    of_actor = torch.optim.Adam(actor.parameters(), 3e-4)
    seen, then = (torch.randn(8 * batch, 67, device="cuda") for _ in range(2))
    did, gained = (
        torch.randn(8 * batch, 21, device="cuda"),
        torch.randn(8 * batch, 1, device="cuda"),
    )

    def acted(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, spread = actor(x).chunk(2, 1)
        spread = spread.clamp(-5, 2).exp()
        raw = mean + spread * torch.randn_like(mean)
        chance = (-0.5 * ((raw - mean) / spread).square() - spread.log()).sum(1, keepdim=True)
        return raw.tanh(), chance - torch.log(1 - raw.tanh().square() + 1e-6).sum(1, keepdim=True)

    def least(of: nn.ModuleList, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        return torch.min(*(each(torch.cat((x, a), 1)) for each in of))

    def step() -> torch.Tensor:
        with torch.no_grad():
            next_act, chance = acted(then)
            goal = gained + 0.99 * (least(slow, then, next_act) - 0.2 * chance)
        loss = sum(F.mse_loss(each(torch.cat((seen, did), 1)), goal) for each in both)
        of_critics.zero_grad()
        loss.backward()
        of_critics.step()
        act, chance = acted(seen)
        of_actor.zero_grad()
        (0.2 * chance - least(both, seen, act)).mean().backward()
        of_actor.step()
        with torch.no_grad():
            for kept, new in zip(slow.parameters(), both.parameters()):
                kept.lerp_(new, 0.005)
        return loss.detach()

    return step


def depth_of_two(batch: int, height: int, width: int) -> Step:
    """Depth from two cameras: a volume of differences, 3-d convolutions over it, in bf16."""
    sees = nn.Sequential(
        *(nn.Conv2d(3, 32, 5, 2, 2), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1)),
    )
    thinks = nn.Sequential(
        *(nn.Conv3d(64, 32, 3, 1, 1), nn.BatchNorm3d(32), nn.ReLU()),
        *(nn.Conv3d(32, 32, 3, 1, 1), nn.BatchNorm3d(32), nn.ReLU(), nn.Conv3d(32, 1, 3, 1, 1)),
    )
    model = nn.ModuleDict({"sees": sees, "thinks": thinks}).cuda()
    left, right = (torch.randn(batch, 3, height, width, device="cuda") for _ in range(2))
    wanted = 48 * torch.rand(batch, height, width, device="cuda")

    def loss() -> torch.Tensor:
        a, b = model["sees"](left), model["sees"](right)
        steps = [torch.cat((a, b.roll(shift, 3)), 1) for shift in range(24)]
        cost = model["thinks"](torch.stack(steps, 2))
        cost = F.interpolate(cost.float(), (48, height, width), mode="trilinear").squeeze(1)
        found = (cost.softmax(1) * torch.arange(48, device="cuda").view(1, -1, 1, 1)).sum(1)
        return F.smooth_l1_loss(found, wanted)

    return training(model, loss)


def hashed_rays(rays: int, points: int, *, levels: int = 12, rows: int = 2**19) -> Step:
    """Instant-NGP in plain torch: corners of a grid by their hash, then a small network."""
    tables = nn.ModuleList(nn.Embedding(rows, 2) for _ in range(levels))
    parts = {"tables": tables, "dense": layers_of(24, 64, 16), "color": layers_of(19, 64, 64, 3)}
    model = nn.ModuleDict(parts).cuda()
    start, way = (torch.rand(rays, 1, 3, device="cuda") for _ in range(2))
    wanted = torch.rand(rays, 3, device="cuda")
    corners = torch.tensor([[i >> 2, i >> 1 & 1, i & 1] for i in range(8)], device="cuda")
    primes = torch.tensor([1, 2_654_435_761, 805_459_861], device="cuda")

    def known(x: torch.Tensor) -> torch.Tensor:
        found = []
        for level, table in enumerate(model["tables"]):
            scaled = x * 16 * 1.5**level
            low = scaled.floor()
            part = (scaled - low)[:, None]
            near = low.long()[:, None] + corners
            code = near * primes
            place = (code[..., 0] ^ code[..., 1] ^ code[..., 2]) % rows
            share = torch.where(corners.bool(), part, 1 - part).prod(-1, keepdim=True)
            found.append((share * table(place)).sum(1))
        return torch.cat(found, 1)

    def loss() -> torch.Tensor:
        far = torch.rand(rays, points, 1, device="cuda").sort(1).values
        at = (start + way * far).flatten(0, 1)
        dense = model["dense"](known(at))
        look = way.expand(-1, points, -1).flatten(0, 1)
        color = model["color"](torch.cat((dense, look), 1)).sigmoid().view(rays, points, 3)
        thick = F.softplus(dense[:, 0]).view(rays, points) / points
        light = torch.exp(-torch.cumsum(thick, 1)) * (1 - torch.exp(-thick))
        return F.mse_loss((light[..., None] * color).sum(1), wanted)

    return training(model, loss, autocast=False)


def knowledge(batch: int, wrong: int, *, width: int = 512, nodes: int = 200_000) -> Step:
    """RotatE: facts against many wrong ones, tables with sparse rows but dense gradients."""
    parts = {"nodes": nn.Embedding(nodes, 2 * width), "kinds": nn.Embedding(1000, width)}
    model = nn.ModuleDict(parts).cuda()
    head, tail = (torch.randint(0, nodes, (batch,), device="cuda") for _ in range(2))
    kind = torch.randint(0, 1000, (batch,), device="cuda")
    others = torch.randint(0, nodes, (batch, wrong), device="cuda")

    def scored(tails: torch.Tensor) -> torch.Tensor:
        real, turned = model["nodes"](head).chunk(2, -1)
        angle = model["kinds"](kind)
        a = real * angle.cos() - turned * angle.sin()
        b = real * angle.sin() + turned * angle.cos()
        c, d = tails.chunk(2, -1)
        return 12 - torch.stack((a[:, None] - c, b[:, None] - d)).norm(dim=0).sum(-1)

    def loss() -> torch.Tensor:
        good = scored(model["nodes"](tail)[:, None])
        bad = scored(model["nodes"](others))
        share = bad.softmax(1).detach()
        return -F.logsigmoid(good).mean() - (share * F.logsigmoid(-bad)).sum(1).mean()

    return training(model, loss, autocast=False)


def masked_spectrograms(batch: int, length: int, *, width: int = 768) -> Step:
    """Patches of spectrograms, most of them hidden, the rest told from them."""
    encoder, decoder = (
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(size, heads, 4 * size, 0.0, "gelu", batch_first=True),
            number,
            enable_nested_tensor=False,
        )
        for size, heads, number in ((width, 12, 8), (512, 16, 4))
    )
    number = length // 16 * 8
    parts = {
        "patches": nn.Conv2d(1, width, 16, 16),
        "encoder": encoder,
        "narrow": nn.Linear(width, 512),
        "decoder": decoder,
        "out": nn.Linear(512, 256),
    }
    model = nn.ModuleDict(parts).cuda()
    hidden = nn.Parameter(torch.zeros(1, 1, 512, device="cuda"))
    x = torch.randn(batch, 1, length, 128, device="cuda")
    keep = number // 4

    def loss() -> torch.Tensor:
        y = model["patches"](x).flatten(2).transpose(1, 2)
        order = torch.rand(batch, number, device="cuda").argsort(1)
        chosen = order[:, :keep, None].expand(-1, -1, width)
        y = model["narrow"](model["encoder"](y.gather(1, chosen)))
        y = torch.cat((y, hidden.to(y.dtype).expand(batch, number - keep, -1)), 1)
        back = order.argsort(1)[..., None].expand(-1, -1, 512)
        found = model["out"](model["decoder"](y.gather(1, back)))
        wanted = F.unfold(x, 16, stride=16).transpose(1, 2)
        return (found.float() - wanted).square().mean()

    return training(model, loss)


def molecules(batch: int, atoms: int, *, width: int = 192, layers: int = 6) -> Step:
    """SchNet on dense pairs of small molecules, forces by a second gradient, in fp32."""
    parts = {
        "kinds": nn.Embedding(100, width),
        "filters": nn.ModuleList(layers_of(32, width, width) for _ in range(layers)),
        "mixes": nn.ModuleList(layers_of(width, width, width) for _ in range(layers)),
        "out": layers_of(width, width // 2, 1),
    }
    model = nn.ModuleDict(parts).cuda()
    few = batch // 16
    kind = torch.randint(0, 100, (few, atoms), device="cuda")
    place = torch.randn(few, atoms, 3, device="cuda", requires_grad=True)
    wanted = torch.randn(few, atoms, 3, device="cuda")
    centers = torch.linspace(0, 5, 32, device="cuda")

    def loss() -> torch.Tensor:
        away = place[:, :, None] - place[:, None]
        far = (away.square().sum(-1) + 1e-6).sqrt()
        bumps = torch.exp(-10 * (far[..., None] - centers).square())
        y = model["kinds"](kind)
        for filtered, mix in zip(model["filters"], model["mixes"]):
            y = y + mix((filtered(bumps) * y[:, None]).sum(2))
        energy = model["out"](y).sum()
        (pulled,) = torch.autograd.grad(energy, place, create_graph=True)
        return F.mse_loss(-pulled, wanted)

    return training(model, loss, autocast=False)


def momentum_pairs(batch: int, size: int) -> Step:
    """MoCo: a slow copy of a ResNet in eval() for the keys, a queue of 65,536 of them."""
    from torchvision.models import resnet50

    model, slow = (resnet50(weights=None, num_classes=128).cuda() for _ in range(2))
    slow.requires_grad_(False)
    slow.eval()
    queue = F.normalize(torch.randn(128, 65_536, device="cuda"), dim=0)
    one, two = (torch.randn(batch, 3, size, size, device="cuda") for _ in range(2))
    labels = torch.zeros(batch, dtype=torch.long, device="cuda")

    def loss() -> torch.Tensor:
        with torch.no_grad():
            for kept, new in zip(slow.parameters(), model.parameters()):
                kept.mul_(0.999).add_(new, alpha=0.001)
            keys = F.normalize(slow(two), dim=1)
        asked = F.normalize(model(one), dim=1)
        good = (asked * keys).sum(1, keepdim=True)
        return F.cross_entropy(torch.cat((good, asked @ queue.to(asked.dtype)), 1) / 0.07, labels)

    return training(model, loss)


def quantised_sound(batch: int, length: int, *, width: int = 32) -> Step:
    """SoundStream: strided 1-d convolutions, residual codes, transposed ones back, in fp32."""
    strides, sizes = (2, 4, 5, 8), [width * 2**i for i in range(5)]
    down: list[nn.Module] = [nn.Conv1d(1, width, 7, padding=3)]
    up: list[nn.Module] = [nn.ConvTranspose1d(width, 1, 7, padding=3)]
    for inside, outside, stride in zip(sizes, sizes[1:], strides):
        near = [nn.ELU(), nn.Conv1d(inside, inside, 3, padding=1)]
        down += [*near, nn.ELU(), nn.Conv1d(inside, outside, 2 * stride, stride, stride // 2)]
        wider = nn.ConvTranspose1d(outside, inside, 2 * stride, stride, stride // 2)
        up = [wider, nn.ELU(), nn.Conv1d(inside, inside, 3, padding=1), nn.ELU(), *up]
    codes = nn.ParameterList(torch.randn(1024, sizes[-1]) for _ in range(8))
    model = nn.ModuleDict({"down": nn.Sequential(*down), "up": nn.Sequential(*up)}).cuda()
    model["codes"] = codes.cuda()
    x = torch.randn(batch, 1, length, device="cuda")

    def loss() -> torch.Tensor:
        left = model["down"](x).transpose(1, 2)
        total, near = torch.zeros_like(left), torch.zeros((), device="cuda")
        for table in model["codes"]:
            found = table[torch.cdist(left.detach().flatten(0, 1), table).argmin(1)].view_as(left)
            near = near + F.mse_loss(left, found.detach()) + F.mse_loss(found, left.detach())
            total, left = total + left + (found - left).detach(), left - found.detach()
        y = model["up"](total.transpose(1, 2))
        least = min(y.shape[2], length)
        parts = [
            torch.stft(
                part[:, 0, :least],
                512,
                128,
                window=torch.hann_window(512, device="cuda"),
                return_complex=True,
            ).abs()
            for part in (x, y)
        ]
        return near + F.l1_loss(*parts)

    return training(model, loss, autocast=False)


def smooth_critic(batch: int, size: int) -> Step:
    """A Wasserstein GAN whose critic is held by gradients of its gradients, in fp32."""
    widths = (3, 64, 128, 256, 512)
    layers: list[nn.Module] = []
    for inside, outside in zip(widths, widths[1:]):
        layers += [nn.Conv2d(inside, outside, 4, 2, 1), nn.InstanceNorm2d(outside, affine=True)]
        layers.append(nn.LeakyReLU(0.2))
    critic = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512 * (size // 16) ** 2, 1)).cuda()
    made: list[nn.Module] = [nn.Linear(128, 512 * 16), nn.Unflatten(1, (512, 4, 4))]
    for outside, inside in zip(widths[-2::-1], widths[:0:-1]):
        made += [nn.Upsample(scale_factor=2), nn.Conv2d(inside, outside, 3, padding=1)]
        made += [nn.BatchNorm2d(outside), nn.ReLU()] if outside != 3 else [nn.Tanh()]
    maker = nn.Sequential(*made).cuda()
    optimizers = [torch.optim.Adam(part.parameters(), 1e-4, (0.0, 0.9)) for part in (critic, maker)]
    real = torch.randn(4 * batch, 3, size, size, device="cuda")

    def step() -> torch.Tensor:
        for _ in range(2):
            fake = maker(torch.randn(4 * batch, 128, device="cuda")).detach()
            share = torch.rand(4 * batch, 1, 1, 1, device="cuda")
            mixed = (share * real + (1 - share) * fake).requires_grad_()
            (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
            steep = (slope.flatten(1).norm(dim=1) - 1).square().mean()
            loss = critic(fake).mean() - critic(real).mean() + 10 * steep
            optimizers[0].zero_grad()
            loss.backward()
            optimizers[0].step()
        optimizers[1].zero_grad()
        (-critic(maker(torch.randn(4 * batch, 128, device="cuda"))).mean()).backward()
        optimizers[1].step()
        return loss.detach()

    return step


def told_in_turn(batch: int, length: int, *, width: int = 1024) -> Step:
    """Translation by LSTMs both ways with attention, in bf16."""
    parts = {
        "words": nn.Embedding(32_000, width),
        "reads": nn.LSTM(width, width // 2, 2, batch_first=True, bidirectional=True),
        "tells": nn.LSTM(width, width, 2, batch_first=True),
        "mix": nn.Linear(2 * width, width),
        "out": nn.Linear(width, 32_000),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randint(0, 32_000, (batch, length), device="cuda")

    def loss() -> torch.Tensor:
        read = model["reads"](model["words"](x))[0]
        told = model["tells"](model["words"](x))[0]
        seen = F.scaled_dot_product_attention(told, read, read)
        y = model["out"](model["mix"](torch.cat((told, seen), -1)).tanh())
        return F.cross_entropy(y.flatten(0, 1).float(), x.flatten())

    return training(model, loss)


class Spectral(nn.Module):
    """A Fourier layer on a sphere's grid: the lowest waves are mixed, the others dropped."""

    def __init__(self, width: int, waves: int) -> None:
        super().__init__()
        self.waves = waves
        self.by = nn.Parameter(0.02 * torch.randn(2, width, width, waves, waves, 2))
        self.beside, self.norm = nn.Conv2d(width, width, 1), nn.GroupNorm(8, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low, f = self.waves, torch.fft.rfft2(x.float(), norm="ortho")
        out = torch.zeros_like(f)
        for part, rows in zip(torch.view_as_complex(self.by), (slice(low), slice(-low, None))):
            out[:, :, rows, :low] = torch.einsum("bixy,ioxy->boxy", f[:, :, rows, :low], part)
        y = torch.fft.irfft2(out, x.shape[-2:], norm="ortho")
        return F.gelu(self.norm(y + self.beside(x)))


def waves_of_air(batch: int, height: int, width: int) -> Step:
    """Weather on a grid by Fourier layers, in fp32."""
    body = [Spectral(64, 24) for _ in range(6)]
    model = nn.Sequential(nn.Conv2d(20, 64, 1), *body, nn.Conv2d(64, 20, 1)).cuda()
    x, wanted = (torch.randn(batch, 20, height, width, device="cuda") for _ in range(2))
    return training(model, lambda: F.mse_loss(model(x), wanted), autocast=False)
