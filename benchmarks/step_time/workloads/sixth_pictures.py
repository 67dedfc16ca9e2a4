"""Steps of sixth.py on pictures, films and volumes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from unseen import BF16, Step, training


def detr(batch: int, size: int, *, width: int = 256, queries: int = 100) -> Step:
    """Boxes as a set: a ResNet, a transformer with queries, losses of a given matching."""
    from torchvision.models import resnet50

    body = nn.Sequential(*list(resnet50().children())[:-2], nn.Conv2d(2048, width, 1))
    parts: dict[str, nn.Module] = {
        "body": body,
        "mix": nn.Transformer(width, 8, 6, 6, 2048, batch_first=True),
        "names": nn.Linear(width, 92),
        "boxes": nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)),
    }
    model = nn.ModuleDict(parts).cuda()
    model.queries = nn.Parameter(torch.randn(1, queries, width, device="cuda"))
    model.places = nn.Parameter(torch.randn(1, (size // 32) ** 2, width, device="cuda"))
    x = torch.randn(batch, 3, size, size, device="cuda")
    names = torch.randint(0, 92, (batch, queries), device="cuda")
    boxes = torch.rand(batch, queries, 4, device="cuda")

    def loss() -> torch.Tensor:
        seen = model["body"](x).flatten(2).transpose(1, 2) + model.places
        y = model["mix"](seen, model.queries.expand(batch, -1, -1))
        found = F.cross_entropy(model["names"](y).flatten(0, 1).float(), names.flatten())
        return found + 5 * F.l1_loss(model["boxes"](y).sigmoid().float(), boxes)

    return training(model, loss)


def flux(batch: int, size: int, words: int) -> Step:
    """Flux's transformer: joint blocks, single blocks, turned queries, trained as a flow."""
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        num_layers=3,
        num_single_layers=6,
        attention_head_dim=128,
        num_attention_heads=12,
        joint_attention_dim=2048,
        pooled_projection_dim=768,
        axes_dims_rope=(16, 56, 56),
    ).to("cuda", BF16)
    x, noise = (torch.randn(batch, size**2, 64, device="cuda", dtype=BF16) for _ in range(2))
    told = torch.randn(batch, words, 2048, device="cuda", dtype=BF16)
    pooled = torch.randn(batch, 768, device="cuda", dtype=BF16)
    times = torch.rand(batch, device="cuda", dtype=BF16)
    places, none = (torch.zeros(n, 3, device="cuda") for n in (size**2, words))

    def loss() -> torch.Tensor:
        at = times[:, None, None]
        more = {"img_ids": places, "txt_ids": none, "return_dict": False}
        found = model(
            (1 - at) * x + at * noise,
            encoder_hidden_states=told,
            pooled_projections=pooled,
            timestep=times,
            **more,
        )[0]
        return F.mse_loss(found.float(), (noise - x).float())

    return training(model, loss, autocast=False, fused=True)


class Frames(nn.Module):
    """Of an autoencoder of films: group norm, SiLU, filters that look back in time."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, width) for width in (inside, outside))
        self.layers = nn.ModuleList(nn.Conv3d(a, outside, 3) for a in (inside, outside))
        self.beside = nn.Conv3d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for norm, layer in zip(self.norms, self.layers):
            y = layer(F.pad(F.silu(norm(y)), (1, 1, 1, 1, 2, 0)))
        return self.beside(x) + y


def films(batch: int, frames: int, size: int, *, width: int = 64) -> Step:
    widths = (width, 2 * width, 4 * width)
    down: list[nn.Module] = [nn.Conv3d(3, width, 3, padding=1)]
    up: list[nn.Module] = [nn.Conv3d(8, widths[-1], 3, padding=1)]
    for a, b in zip(widths, widths[1:]):
        down += [Frames(a, a), nn.Conv3d(a, b, 3, (1, 2, 2), 1)]
        up[1:1] = [nn.Upsample(scale_factor=(1, 2, 2)), nn.Conv3d(b, a, 3, padding=1), Frames(a, a)]
    down += [Frames(widths[-1], widths[-1]), nn.Conv3d(widths[-1], 16, 1)]
    model = nn.ModuleList([nn.Sequential(*down), nn.Sequential(*up, nn.Conv3d(width, 3, 1))]).cuda()
    x = torch.rand(batch, 3, frames, size, size, device="cuda")

    def loss() -> torch.Tensor:
        mean, spread = model[0](x).float().chunk(2, 1)
        found = model[1](mean + torch.randn_like(mean) * (0.5 * spread).exp())
        far = 0.5 * (mean.square() + spread.exp() - 1 - spread).mean()
        return F.l1_loss(found.float(), x) + 1e-6 * far

    return training(model, loss)


def organs_last(batch: int, size: int, *, width: int = 32) -> Step:
    """A U-Net of volumes in bf16 whose channels are neighbours in memory."""

    def block(inside: int, outside: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for a in (inside, outside):
            layers += [nn.Conv3d(a, outside, 3, padding=1, bias=False), nn.BatchNorm3d(outside)]
            layers.append(nn.ReLU())
        return nn.Sequential(*layers)

    widths = (width, 2 * width, 4 * width, 8 * width)
    lists = {
        "down": [block(a, b) for a, b in zip((1, *widths), widths)],
        "up": [nn.ConvTranspose3d(b, a, 2, 2) for a, b in zip(widths[-2::-1], widths[:0:-1])],
        "right": [block(2 * a, a) for a in widths[-2::-1]],
        "out": [nn.Conv3d(width, 4, 1)],
    }
    model = nn.ModuleDict({name: nn.ModuleList(each) for name, each in lists.items()}).cuda()
    model = model.to(memory_format=torch.channels_last_3d)
    x = torch.randn(batch, 1, size, size, size, device="cuda")
    labels = torch.randint(0, 4, (batch, size, size, size), device="cuda")

    def loss() -> torch.Tensor:
        y, kept = x.contiguous(memory_format=torch.channels_last_3d), []
        for layer in model["down"]:
            y = layer(F.max_pool3d(y, 2) if kept else y)
            kept.append(y)
        y = kept.pop()
        for up, right in zip(model["up"], model["right"]):
            y = right(torch.cat((up(y), kept.pop()), 1))
        return F.cross_entropy(model["out"][0](y).float(), labels)

    return training(model, loss)


def views(batch: int) -> Step:
    """SimCLR in fp16 with scaled gradients: two views, products of all pairs."""
    from torchvision.models import resnet34

    body = resnet34()
    body.fc = nn.Sequential(
        nn.Linear(512, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 128)
    )
    model = body.cuda()
    x = torch.randn(2 * batch, 3, 160, 160, device="cuda")
    labels = torch.arange(2 * batch, device="cuda").roll(batch)
    own = torch.eye(2 * batch, device="cuda", dtype=torch.bool)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cuda")

    def step() -> torch.Tensor:
        with torch.autocast("cuda", torch.float16):
            y = F.normalize(model(x).float(), dim=1)
            alike = (y @ y.T).float().masked_fill(own, -1e4)
            loss = F.cross_entropy(alike / 0.1, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    return step


def averaged(batch: int, size: int) -> Step:
    """EfficientNet with an average of its weights and mixed labels."""
    import timm

    model = timm.create_model("efficientnetv2_rw_t").cuda()
    slow = [p.detach().clone() for p in model.parameters()]
    x = torch.randn(batch, 3, size, size, device="cuda")
    labels = torch.rand(batch, 1000, device="cuda").softmax(-1)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> torch.Tensor:
        mixed = 0.7 * x + 0.3 * x.flip(0)
        with torch.autocast("cuda", BF16):
            loss = F.cross_entropy(model(mixed), labels, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch._foreach_lerp_(slow, [p.detach() for p in model.parameters()], 1e-4)
        return loss.detach()

    return step


class Conditioned(nn.Module):
    """DiT's block: what is told scales, shifts and gates."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.six, self.heads = nn.Linear(width, 6 * width), heads
        self.three, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        a, b, c, d, e, f = self.six(F.silu(told))[:, None].chunk(6, -1)
        y = F.layer_norm(x, x.shape[-1:]) * (1 + a) + b
        q, k, v = self.three(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + c * self.out(y)
        y = F.layer_norm(x, x.shape[-1:]) * (1 + d) + e
        return x + f * self.down(F.gelu(self.up(y), approximate="tanh"))


def dit_compiled(batch: int, words: int, *, width: int = 1024, layers: int = 6) -> Step:
    model = nn.ModuleList(Conditioned(width, 16) for _ in range(layers)).cuda()
    x, told = (torch.randn(*s, device="cuda") for s in ((batch, words, width), (batch, width)))

    def found(x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        for layer in model:
            x = layer(x, told)
        return x

    run = torch.compile(found)
    return training(model, lambda: F.mse_loss(run(x, told).float(), x))


def rays_compiled(rays: int, samples: int, *, width: int = 256, waves: int = 10) -> Step:
    """NeRF: waves of places, layers, what is seen along each ray, in fp32."""
    sizes = [6 * waves + 3, *[width] * 6]
    layers = [m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(width, 4)).cuda()
    x = torch.rand(rays, samples, 3, device="cuda")
    wanted = torch.rand(rays, 3, device="cuda")

    def found(x: torch.Tensor) -> torch.Tensor:
        angles = x[..., None] * 2.0 ** torch.arange(waves, device="cuda")
        y = model(torch.cat((x, angles.sin().flatten(2), angles.cos().flatten(2)), -1))
        solid = 1 - torch.exp(-F.relu(y[..., 3]) / samples)
        seen = torch.cumprod(1 - solid + 1e-9, -1) * solid
        return (seen[..., None] * y[..., :3].sigmoid()).sum(1)

    run = torch.compile(found)
    return training(model, lambda: F.mse_loss(run(x), wanted), autocast=False)
