"""Steps of seventh.py on pictures, films and volumes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from unseen import BF16, Step, training


def scaled(model: nn.Module, loss_of: Any, optimizer: torch.optim.Optimizer) -> Step:
    """In fp16 with scaled gradients."""
    scaler = torch.amp.GradScaler("cuda")

    def step() -> torch.Tensor:
        with torch.autocast("cuda", torch.float16):
            loss = loss_of()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 12.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    return step


def nnunet(batch: int, size: int) -> Step:
    """nnU-Net: volumes in fp16, instance norms, losses of several scales."""

    def block(a: int, b: int, stride: int = 1) -> nn.Sequential:
        layers: list[nn.Module] = []
        for i, (inside, outside) in enumerate(((a, b), (b, b))):
            layers.append(nn.Conv3d(inside, outside, 3, stride if i == 0 else 1, 1))
            layers += [nn.InstanceNorm3d(outside, affine=True), nn.LeakyReLU(0.01, inplace=True)]
        return nn.Sequential(*layers)

    widths = (32, 64, 128, 256, 320)
    lists = {
        "down": [block(a, b, 1 if a == 1 else 2) for a, b in zip((1, *widths), widths)],
        "up": [nn.ConvTranspose3d(b, a, 2, 2) for a, b in zip(widths[-2::-1], widths[:0:-1])],
        "right": [block(2 * a, a) for a in widths[-2::-1]],
        "out": [nn.Conv3d(a, 3, 1) for a in widths[-2::-1]],
    }
    model = nn.ModuleDict({name: nn.ModuleList(each) for name, each in lists.items()}).cuda()
    x = torch.randn(batch, 1, size, size, size, device="cuda")
    labels = torch.randint(0, 3, (batch, size, size, size), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.99, weight_decay=3e-5, nesterov=True)

    def loss() -> torch.Tensor:
        y, kept, total = x, [], torch.zeros((), device="cuda")
        for layer in model["down"]:
            y = layer(y)
            kept.append(y)
        y = kept.pop()
        for i, (up, right, out) in enumerate(zip(model["up"], model["right"], model["out"])):
            y = right(torch.cat((up(y), kept.pop()), 1))
            every = 2 ** (len(widths) - 2 - i)
            wanted = labels[:, ::every, ::every, ::every]
            found = out(y).float()
            share, one = found.softmax(1), F.one_hot(wanted, 3).movedim(-1, 1)
            both = (share * one).sum((2, 3, 4))
            dice = (2 * both / (share.sum((2, 3, 4)) + one.sum((2, 3, 4)) + 1e-5)).mean()
            total = total + (F.cross_entropy(found, wanted) - dice) / every
        return total

    return scaled(model, loss, optimizer)


def registration(batch: int, size: int) -> Step:
    """VoxelMorph: a field that moves one volume onto another, integrated, in fp32."""
    widths = (2, 16, 32, 32, 32)
    down = nn.ModuleList(nn.Conv3d(a, b, 3, 2, 1) for a, b in zip(widths, widths[1:]))
    up = nn.ModuleList(nn.Conv3d(a, 32, 3, 1, 1) for a in (32, 64, 64, 48))
    model = nn.ModuleDict({"down": down, "up": up, "flow": nn.Conv3d(34, 3, 3, 1, 1)}).cuda()
    moved, fixed = (torch.rand(batch, 1, size, size, size, device="cuda") for _ in range(2))
    lines = [torch.linspace(-1, 1, size, device="cuda")] * 3
    still = torch.stack(torch.meshgrid(*lines, indexing="ij")[::-1], -1)[None]

    def warped(x: torch.Tensor, flow: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, still + flow.movedim(1, -1), align_corners=True)

    def loss() -> torch.Tensor:
        y = torch.cat((moved, fixed), 1)
        kept = [y]
        for layer in model["down"]:
            y = F.leaky_relu(layer(y), 0.2)
            kept.append(y)
        kept.pop()
        for layer in model["up"]:
            y = F.interpolate(F.leaky_relu(layer(y), 0.2), scale_factor=2)
            y = torch.cat((y, kept.pop()), 1)
        flow = model["flow"](y) / 2**5
        for _ in range(5):
            flow = flow + warped(flow, flow)
        smooth = sum(flow.diff(dim=d).square().mean() for d in (2, 3, 4))
        return F.mse_loss(warped(moved, flow), fixed) + 0.01 * smooth

    return training(model, loss, autocast=False)


class Way(nn.Module):
    """A bottleneck of SlowFast."""

    def __init__(self, inside: int, width: int, outside: int, time: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv3d(inside, width, (time, 1, 1), padding=(time // 2, 0, 0), bias=False),),
            *(nn.BatchNorm3d(width), nn.ReLU(inplace=True)),
            nn.Conv3d(width, width, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False),
            *(nn.BatchNorm3d(width), nn.ReLU(inplace=True)),
            *(nn.Conv3d(width, outside, 1, bias=False), nn.BatchNorm3d(outside)),
        )
        self.skip = nn.Conv3d(inside, outside, 1, (1, stride, stride), bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layers(x) + self.skip(x)).relu()


def slow_and_fast(batch: int, size: int) -> Step:
    """Few frames through a wide network, many through a narrow one that tells the other."""

    def way(start: int, told: tuple[int, ...], time: int) -> nn.ModuleList:
        first = nn.Conv3d(3, start, (time, 7, 7), (1, 2, 2), (time // 2, 3, 3), bias=False)
        layers: list[nn.Module] = [nn.Sequential(first, nn.BatchNorm3d(start), nn.ReLU())]
        inside = start
        for i, more in enumerate(told):
            outside = 4 * start << i
            layers.append(Way(inside + more, start << i, outside, time, 1 if i == 0 else 2))
            inside = outside
        return nn.ModuleList(layers)

    def tell(width: int) -> nn.Conv3d:
        return nn.Conv3d(width, 2 * width, (5, 1, 1), (8, 1, 1), (2, 0, 0), bias=False)

    tells = nn.ModuleList(tell(n) for n in (8, 32, 64, 128))
    parts = {"slow": way(64, (16, 64, 128, 256), 1), "fast": way(8, (0, 0, 0, 0), 3)}
    out = nn.Linear(2048 + 256, 400)
    model = nn.ModuleDict({**parts, "tells": tells, "out": out}).cuda()
    x = torch.randn(batch, 3, 32, size, size, device="cuda")
    labels = torch.randint(0, 400, (batch,), device="cuda")

    def loss() -> torch.Tensor:
        a, b = x[:, :, ::8], x
        for i, (one, other) in enumerate(zip(model["slow"], model["fast"])):
            a, b = one(a), other(b)
            if i == 0:
                a, b = (F.max_pool3d(t, (1, 3, 3), (1, 2, 2), (0, 1, 1)) for t in (a, b))
            if i < 4:
                a = torch.cat((a, model["tells"][i](b)), 1)
        y = torch.cat((a.mean((2, 3, 4)), b.mean((2, 3, 4))), 1)
        return F.cross_entropy(model["out"](y).float(), labels)

    return training(model, loss)


class Cross(nn.Module):
    """YOLO's: half of the channels go through bottlenecks."""

    def __init__(self, inside: int, outside: int, number: int) -> None:
        super().__init__()
        half = outside // 2
        self.one, self.other = self.layer(inside, half, 1), self.layer(inside, half, 1)
        each = [
            nn.Sequential(self.layer(half, half, 1), self.layer(half, half, 3))
            for _ in range(number)
        ]
        self.each, self.join = nn.ModuleList(each), self.layer(outside, outside, 1)

    @staticmethod
    def layer(a: int, b: int, side: int, stride: int = 1) -> nn.Sequential:
        conv = nn.Conv2d(a, b, side, stride, (side - 1) // 2, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(b), nn.SiLU(inplace=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.one(x)
        for layer in self.each:
            y = y + layer(y)
        return self.join(torch.cat((y, self.other(x)), 1))


def yolo(batch: int, size: int) -> Step:
    """Boxes at three scales, in fp16: the larger pools, upsampling, dense losses."""
    widths, layer = (32, 64, 128, 256, 512), Cross.layer
    down = [nn.Sequential(layer(3, 32, 6, 2))]
    for a, b, n in zip(widths, widths[1:], (1, 2, 3, 1)):
        down.append(nn.Sequential(layer(a, b, 3, 2), Cross(b, b, n)))
    parts = {
        "down": nn.ModuleList(down),
        "small": layer(512, 256, 1),
        "after": layer(1024, 512, 1),
        "up": nn.ModuleList((layer(512, 256, 1), Cross(512, 256, 1), layer(256, 128, 1))),
        "top": Cross(256, 128, 1),
        "out": nn.ModuleList(nn.Conv2d(n, 255, 1) for n in (128, 256, 512)),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randn(batch, 3, size, size, device="cuda")
    wanted = [torch.rand(batch, 255, size // n, size // n, device="cuda") for n in (8, 16, 32)]
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.937, nesterov=True)

    def loss() -> torch.Tensor:
        y, kept = x, []
        for part in model["down"]:
            y = part(y)
            kept.append(y)
        y = model["small"](y)
        pooled = [y]
        for _ in range(3):
            pooled.append(F.max_pool2d(pooled[-1], 5, 1, 2))
        deep = model["after"](torch.cat(pooled, 1))
        first, mix, second = model["up"]
        y = torch.cat((F.interpolate(first(deep), scale_factor=2), kept[3]), 1)
        middle = mix(y)
        top = model["top"](torch.cat((F.interpolate(second(middle), scale_factor=2), kept[2]), 1))
        found = [out(t) for out, t in zip(model["out"], (top, middle, deep))]
        each = [F.binary_cross_entropy_with_logits(f.float(), w) for f, w in zip(found, wanted)]
        return torch.stack(each).sum()

    return scaled(model, loss, optimizer)


class Deformable(nn.Module):
    """Deformable DETR's: each word looks at a few points of every scale."""

    def __init__(self, width: int, heads: int, levels: int, points: int) -> None:
        super().__init__()
        self.heads, self.levels, self.points = heads, levels, points
        number = heads * levels * points
        self.away, self.share = nn.Linear(width, 2 * number), nn.Linear(width, number)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, at: torch.Tensor, sizes: list[int]) -> torch.Tensor:
        batch, words, width = x.shape
        own = self.heads, self.levels, self.points
        values = self.value(x).unflatten(2, (self.heads, -1))
        away = self.away(x).unflatten(2, (*own, 2)) * 0.05
        share = self.share(x).unflatten(2, (self.heads, -1)).softmax(-1).unflatten(3, own[1:])
        places = 2 * (at[None, :, None, None, None] + away) - 1
        found = []
        for level, value in enumerate(values.split([n * n for n in sizes], 1)):
            picture = value.permute(0, 2, 3, 1).reshape(batch * self.heads, -1, *[sizes[level]] * 2)
            grid = places[:, :, :, level].transpose(1, 2).flatten(0, 1)
            found.append(F.grid_sample(picture, grid.to(picture.dtype), align_corners=False))
        share = share.permute(0, 2, 1, 3, 4).reshape(batch * self.heads, 1, words, -1)
        y = (torch.cat(found, -1) * share).sum(-1).view(batch, width, words)
        x = self.norms[0](x + self.out(y.transpose(1, 2)))
        return self.norms[1](x + self.down(F.relu(self.up(x))))


def deformable(batch: int, size: int, *, width: int = 256, layers: int = 4) -> Step:
    from torchvision.models import resnet50

    whole = resnet50()
    stem = nn.Sequential(whole.conv1, whole.bn1, whole.relu, whole.maxpool, whole.layer1)
    parts: dict[str, nn.Module] = {
        "stem": stem,
        "body": nn.ModuleList((whole.layer2, whole.layer3, whole.layer4)),
        "narrow": nn.ModuleList(nn.Conv2d(n, width, 1) for n in (512, 1024, 2048)),
        "mix": nn.ModuleList(Deformable(width, 8, 3, 4) for _ in range(layers)),
        "out": nn.Linear(width, 91 + 4),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randn(batch, 3, size, size, device="cuda")
    sizes = [size // n for n in (8, 16, 32)]
    at = torch.cat([torch.rand(n * n, 2, device="cuda") for n in sizes])
    wanted = torch.rand(batch, len(at), 95, device="cuda")

    def loss() -> torch.Tensor:
        y, seen = model["stem"](x), []
        for part, narrow in zip(model["body"], model["narrow"]):
            y = part(y)
            seen.append(narrow(y).flatten(2).transpose(1, 2))
        y = torch.cat(seen, 1)
        for layer in model["mix"]:
            y = layer(y, at, sizes)
        return F.binary_cross_entropy_with_logits(model["out"](y).float(), wanted)

    return training(model, loss)


def psp(batch: int, size: int) -> Step:
    """PSPNet: a dilated ResNet, pools of several sizes that are enlarged again."""
    from torchvision.models import resnet50

    body = resnet50(replace_stride_with_dilation=[False, True, True])
    del body.avgpool, body.fc
    pools = nn.ModuleList(
        nn.Sequential(nn.AdaptiveAvgPool2d(n), nn.Conv2d(2048, 512, 1, bias=False))
        for n in (1, 2, 3, 6)
    )
    head = nn.Sequential(
        *(nn.Conv2d(4096, 512, 3, padding=1, bias=False), nn.BatchNorm2d(512), nn.ReLU()),
        *(nn.Dropout(0.1), nn.Conv2d(512, 21, 1)),
    )
    model = nn.ModuleDict({"body": nn.Sequential(*body.children()), "pools": pools, "head": head})
    model = model.cuda()
    x = torch.randn(batch, 3, size, size, device="cuda")
    labels = torch.randint(0, 21, (batch, size, size), device="cuda")

    def loss() -> torch.Tensor:
        y = model["body"](x)
        more = [F.interpolate(p(y), y.shape[2:], mode="bilinear") for p in model["pools"]]
        y = model["head"](torch.cat((y, *more), 1))
        return F.cross_entropy(F.interpolate(y.float(), (size, size), mode="bilinear"), labels)

    return training(model, loss)


def paired_pictures(batch: int, size: int) -> Step:
    """pix2pix: a U-Net that draws, a network that judges patches, in TF32."""

    def down(a: int, b: int, normed: bool = True) -> nn.Sequential:
        conv = nn.Conv2d(a, b, 4, 2, 1, bias=False)
        return nn.Sequential(
            conv, nn.BatchNorm2d(b) if normed else nn.Identity(), nn.LeakyReLU(0.2)
        )

    widths = (64, 128, 256, 512, 512, 512)
    lists = {
        "down": [down(a, b, a > 3) for a, b in zip((3, *widths), widths)],
        "up": [
            nn.Sequential(
                nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()
            )
            for a, b in ((512, 512), (1024, 512), (1024, 256), (512, 128), (256, 64))
        ],
        "out": [nn.ConvTranspose2d(128, 3, 4, 2, 1)],
        "judge": [down(6, 64, False), down(64, 128), down(128, 256), nn.Conv2d(256, 1, 4, 1, 1)],
    }
    model = nn.ModuleDict({name: nn.ModuleList(each) for name, each in lists.items()}).cuda()
    of_judge = list(model["judge"].parameters())
    own = [p for name in ("down", "up", "out") for p in model[name].parameters()]
    first, second = (torch.optim.Adam(p, 2e-4, (0.5, 0.999)) for p in (own, of_judge))
    x, wanted = (torch.randn(batch, 3, size, size, device="cuda") for _ in range(2))

    def drawn() -> torch.Tensor:
        y, kept = x, []
        for layer in model["down"]:
            y = layer(y)
            kept.append(y)
        y = kept.pop()
        for layer in model["up"]:
            y = torch.cat((layer(y), kept.pop()), 1)
        return model["out"][0](y).tanh()

    def judged(y: torch.Tensor, is_real: bool) -> torch.Tensor:
        y = torch.cat((x, y), 1)
        for layer in model["judge"]:
            y = layer(y)
        return F.binary_cross_entropy_with_logits(y, torch.full_like(y, float(is_real)))

    def step() -> torch.Tensor:
        made = drawn()
        second.zero_grad()
        (0.5 * (judged(made.detach(), False) + judged(wanted, True))).backward()
        second.step()
        first.zero_grad()
        loss = judged(made, True) + 100 * F.l1_loss(made, wanted)
        loss.backward()
        first.step()
        return loss.detach()

    return step


def crops(batch: int) -> Step:
    """DINO: views of two sizes, a teacher that is an average, centred targets."""
    import timm

    def made() -> nn.Module:
        body = timm.create_model("vit_small_patch16_224", num_classes=0, dynamic_img_size=True)
        head = nn.Sequential(nn.Linear(384, 2048), nn.GELU(), nn.Linear(2048, 256))
        return nn.Sequential(body, head, nn.Linear(256, 32_768, bias=False)).cuda()

    model, teacher = made(), made().requires_grad_(False)
    large = torch.randn(2 * batch, 3, 224, 224, device="cuda")
    small = torch.randn(6 * batch, 3, 96, 96, device="cuda")
    middle = torch.zeros(1, 32_768, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.04)

    def step() -> torch.Tensor:
        with torch.autocast("cuda", BF16):
            with torch.no_grad():
                told = teacher(large).float()
            seen = [model(large).float(), model(small).float()]
        shares = ((told - middle) / 0.04).softmax(-1).chunk(2)
        views = [(v / 0.1).log_softmax(-1) for v in (*seen[0].chunk(2), *seen[1].chunk(6))]
        each = [
            -(s * v).sum(-1).mean()
            for i, s in enumerate(shares)
            for j, v in enumerate(views)
            if i != j
        ]
        loss = torch.stack(each).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            middle.lerp_(told.mean(0, keepdim=True), 0.1)
            torch._foreach_lerp_(list(teacher.parameters()), list(model.parameters()), 0.004)
        return loss.detach()

    return step


def prototypes(ways: int, seen: int, asked: int) -> Step:
    """Few examples of new classes: ResNet-12, distances to the means of each class, in TF32."""
    layers: list[nn.Module] = []
    for a, b in ((3, 64), (64, 160), (160, 320), (320, 640)):
        for i in range(3):
            layers += [nn.Conv2d(a if i == 0 else b, b, 3, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(b), nn.LeakyReLU(0.1)]
        layers.append(nn.MaxPool2d(2))
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).cuda()
    x = torch.randn(ways * (seen + asked), 3, 84, 84, device="cuda")
    labels = torch.arange(ways, device="cuda").repeat_interleave(asked)

    def loss() -> torch.Tensor:
        y = model(x)
        means = y[: ways * seen].unflatten(0, (ways, seen)).mean(1)
        far = (y[ways * seen :, None] - means).square().sum(-1)
        return F.cross_entropy(-far, labels)

    return training(model, loss, autocast=False)


def shifted_views(batch: int) -> Step:
    """DrQ: pictures of games moved a little by sampling, an actor and two critics."""
    eye = nn.Sequential(
        *(nn.Conv2d(9, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU()),
        *(nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten()),
    )
    narrow = nn.Sequential(nn.Linear(32 * 35 * 35, 50), nn.LayerNorm(50), nn.Tanh())
    heads = nn.ModuleList(
        nn.Sequential(
            nn.Linear(56, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1)
        )
        for _ in range(2)
    )
    model = nn.ModuleDict({"eye": eye, "narrow": narrow, "heads": heads}).cuda()
    x = torch.randint(0, 256, (2 * batch, 9, 84, 84), device="cuda", dtype=torch.uint8)
    acts, worth = torch.randn(2 * batch, 6, device="cuda"), torch.randn(2 * batch, 1, device="cuda")
    lines = torch.linspace(-1 + 1 / 92, 1 - 1 / 92, 92, device="cuda")[:84]
    still = torch.stack(torch.meshgrid(lines, lines, indexing="xy"), -1)[None]

    def loss() -> torch.Tensor:
        wide = F.pad(x.float(), (4,) * 4, mode="replicate")
        moved = torch.randint(0, 9, (2 * batch, 1, 1, 2), device="cuda") * (2 / 92)
        seen = F.grid_sample(wide, still + moved, align_corners=False) / 255 - 0.5
        y = torch.cat((model["narrow"](model["eye"](seen)), acts), 1)
        return sum(F.mse_loss(head(y), worth) for head in model["heads"])

    return training(model, loss, autocast=False)
