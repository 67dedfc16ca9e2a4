"""Steps of ninth.py that are written here: pictures, films, volumes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from unseen import BF16, Step, training


def aura_flow(batch: int, size: int, words: int) -> Step:
    """AuraFlow's transformer in bf16: two blocks of both streams, ten of one, as a flow."""
    from diffusers import AuraFlowTransformer2DModel

    model = AuraFlowTransformer2DModel(
        num_mmdit_layers=2,
        num_single_dit_layers=8,
        attention_head_dim=128,
        num_attention_heads=8,
        joint_attention_dim=1024,
        caption_projection_dim=1024,
    ).to("cuda", BF16)
    x, noise = (torch.randn(batch, 4, size, size, device="cuda", dtype=BF16) for _ in range(2))
    told = torch.randn(batch, words, 1024, device="cuda", dtype=BF16)

    def loss() -> torch.Tensor:
        when = torch.rand(batch, device="cuda", dtype=BF16)
        share = when[:, None, None, None]
        found = model((1 - share) * x + share * noise, told, when).sample
        return F.mse_loss(found.float(), (noise - x).float())

    return training(model, loss, autocast=False, fused=True)


def deep_compression(batch: int, size: int) -> Step:
    """DC-AE: residual blocks, then linear attention, 32 times smaller and back."""
    from diffusers import AutoencoderDC

    kinds = ("ResBlock", "ResBlock", "ResBlock", "EfficientViTBlock", "EfficientViTBlock")
    sizes: dict[str, Any] = {"attention_head_dim": 32, "latent_channels": 32}
    for side in ("encoder", "decoder"):
        sizes |= {
            f"{side}_block_types": kinds,
            f"{side}_block_out_channels": (64, 128, 256, 512, 512),
            f"{side}_layers_per_block": (1, 2, 2, 2, 2),
            f"{side}_qkv_multiscales": ((), (), (), (5,), (5,)),
        }
    model = AutoencoderDC(**sizes).cuda()
    x = torch.randn(batch, 3, size, size, device="cuda")
    return training(model, lambda: F.l1_loss(model(x).sample.float(), x))


def enlarged_by_windows(batch: int, size: int) -> Step:
    """Swin2SR: pictures twice as large, attention by cosines inside windows."""
    from transformers import Swin2SRConfig, Swin2SRForImageSuperResolution

    config = Swin2SRConfig(embed_dim=120, depths=[4] * 3, num_heads=[4] * 3, drop_path_rate=0.0)
    model = Swin2SRForImageSuperResolution(config).cuda()
    x = torch.randn(batch, 3, size, size, device="cuda")
    wanted = torch.randn(batch, 3, 2 * size, 2 * size, device="cuda")
    return training(model, lambda: F.l1_loss(model(x).reconstruction.float(), wanted))


def future_of_films(batch: int, frames: int, size: int) -> Step:
    """V-JEPA 2: a film of which parts are hidden, told by a predictor as a slow copy has them."""
    from transformers import VJEPA2Config, VJEPA2Model

    sizes = {"hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 6}
    sizes |= {"crop_size": size, "frames_per_clip": frames, "pred_num_hidden_layers": 3}
    config = VJEPA2Config(**sizes)
    model, slow = VJEPA2Model(config).cuda(), VJEPA2Model(config).cuda().requires_grad_(False)
    x = torch.randn(batch, frames, 3, size, size, device="cuda")
    order = torch.rand(batch, frames // 2 * (size // 16) ** 2, device="cuda").argsort(1)
    seen, hidden = order.tensor_split([order.shape[1] // 4], dim=1)

    def loss() -> torch.Tensor:
        with torch.no_grad():
            wanted = slow(x, skip_predictor=True).last_hidden_state
            wanted = wanted.gather(1, hidden[..., None].expand(-1, -1, wanted.shape[2]))
        found = model(x, context_mask=[seen], target_mask=[hidden])
        return F.l1_loss(found.predictor_output.last_hidden_state.float(), wanted.float())

    return training(model, loss)


class Drawn(nn.Module):
    """A residual block of a generator whose batch norms are told what to draw."""

    def __init__(self, inside: int, outside: int, told: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(size, affine=False) for size in (inside, outside))
        self.told = nn.ModuleList(nn.Linear(told, 2 * size) for size in (inside, outside))
        self.layers = nn.ModuleList(
            spectral_norm(nn.Conv2d(size, outside, 3, padding=1)) for size in (inside, outside)
        )
        self.beside = spectral_norm(nn.Conv2d(inside, outside, 1))

    def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        y = x
        for i, (norm, tells, layer) in enumerate(zip(self.norms, self.told, self.layers)):
            scale, shift = tells(told)[..., None, None].chunk(2, 1)
            y = F.relu(norm(y) * (1 + scale) + shift)
            y = layer(y if i else F.interpolate(y, scale_factor=2))
        return y + self.beside(F.interpolate(x, scale_factor=2))


class Maker(nn.Module):
    def __init__(self, width: int, kinds: int, times: int) -> None:
        super().__init__()
        self.kinds, self.into = nn.Embedding(kinds, 128), nn.Linear(128, 16 * width)
        widths = [width // 2**i for i in range(times + 1)]
        self.blocks = nn.ModuleList(Drawn(a, b, 256) for a, b in zip(widths, widths[1:]))
        last = widths[-1]
        self.out = nn.Sequential(nn.BatchNorm2d(last), nn.ReLU(), nn.Conv2d(last, 3, 3, padding=1))

    def forward(self, noise: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        told = torch.cat((noise, self.kinds(kind)), -1)
        y = self.into(noise).unflatten(1, (-1, 4, 4))
        for block in self.blocks:
            y = block(y, told)
        return self.out(y).tanh()


class Judge(nn.Module):
    """Convolutions whose largest factor is one, and a product with the kind."""

    def __init__(self, width: int, kinds: int, times: int) -> None:
        super().__init__()
        widths = [3, *(width // 2**i for i in range(times - 1, -1, -1))]
        layers: list[nn.Module] = []
        for a, b in zip(widths, widths[1:]):
            layers += [spectral_norm(nn.Conv2d(a, b, 3, padding=1)), nn.LeakyReLU(0.1)]
            layers += [spectral_norm(nn.Conv2d(b, b, 4, 2, 1)), nn.LeakyReLU(0.1)]
        self.layers, self.out = nn.Sequential(*layers), spectral_norm(nn.Linear(width, 1))
        self.kinds = spectral_norm(nn.Embedding(kinds, width))

    def forward(self, x: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        y = self.layers(x).sum((2, 3))
        return self.out(y)[:, 0] + (self.kinds(kind) * y).sum(-1)


def judged_with_norms(batch: int, size: int, *, kinds: int = 200) -> Step:
    """A class-conditional GAN with spectral norms and hinge losses, in TF32."""
    torch.set_float32_matmul_precision("high")
    times = (size // 4).bit_length() - 1
    maker, judge = Maker(1024, kinds, times).cuda(), Judge(1024, kinds, times).cuda()
    optimizers = [torch.optim.Adam(part.parameters(), 2e-4, (0.0, 0.9)) for part in (judge, maker)]
    real = torch.randn(batch, 3, size, size, device="cuda")
    kind = torch.randint(0, kinds, (batch,), device="cuda")

    def step() -> torch.Tensor:
        made = maker(torch.randn(batch, 128, device="cuda"), kind)
        first = F.relu(1 - judge(real, kind)).mean() + F.relu(1 + judge(made.detach(), kind)).mean()
        optimizers[0].zero_grad()
        first.backward()
        optimizers[0].step()
        second = -judge(made, kind).mean()
        optimizers[1].zero_grad()
        second.backward()
        optimizers[1].step()
        return second.detach()

    return step


class Wide(nn.Module):
    """MedNeXt's block: one large filter a channel, four times as many channels, and back."""

    def __init__(self, inside: int, outside: int, how: str = "") -> None:
        super().__init__()
        kind = nn.ConvTranspose3d if how == "up" else nn.Conv3d
        stride = 2 if how else 1
        more = {"output_padding": 1} if how == "up" else {}
        near = kind(inside, inside, 5, stride, 2, groups=inside, **more)
        self.layers = nn.Sequential(
            near,
            nn.GroupNorm(inside, inside),
            nn.Conv3d(inside, 4 * inside, 1),
            nn.GELU(),
            nn.Conv3d(4 * inside, outside, 1),
        )
        self.is_added = not how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        return x + y if self.is_added else y


def large_filters_of_volumes(batch: int, size: int, *, width: int = 32, organs: int = 14) -> Step:
    """MedNeXt: a U-Net of volumes out of blocks with one filter of 5 x 5 x 5 a channel."""
    widths = [width * 2**i for i in range(4)]
    model = nn.ModuleDict({"into": nn.Conv3d(1, width, 1), "out": nn.Conv3d(width, organs, 1)})
    model["down"] = nn.ModuleList(
        nn.Sequential(Wide(a, a), Wide(a, a), Wide(a, b, "down"))
        for a, b in zip(widths, widths[1:])
    )
    model["up"] = nn.ModuleList(
        nn.ModuleList((Wide(b, a, "up"), nn.Sequential(Wide(a, a), Wide(a, a))))
        for a, b in zip(widths, widths[1:])
    )
    model["middle"] = Wide(widths[-1], widths[-1])
    model = model.cuda()
    x = torch.randn(batch, 1, *[size] * 3, device="cuda")
    labels = torch.randint(0, organs, (batch, *[size] * 3), device="cuda")

    def loss() -> torch.Tensor:
        y, kept = model["into"](x), []
        for part in model["down"]:
            kept.append(part[:2](y))
            y = part[2](kept[-1])
        y = model["middle"](y)
        for larger, part in reversed(model["up"]):
            y = part(larger(y) + kept.pop())
        found = model["out"](y).float()
        shares, wanted = found.softmax(1), F.one_hot(labels, organs).movedim(-1, 1)
        both = (shares * wanted).sum((2, 3, 4))
        dice = 2 * both / (shares.sum((2, 3, 4)) + wanted.sum((2, 3, 4)) + 1e-5)
        return F.cross_entropy(found, labels) - dice.mean()

    return training(model, loss)


def scenes_by_levels(batch: int, size: int) -> Step:
    """UperNet over a ConvNeXt: a pyramid of pools and levels, what each pixel is."""
    from transformers import ConvNextConfig, UperNetConfig, UperNetForSemanticSegmentation

    levels = [f"stage{i}" for i in range(1, 5)]
    body = ConvNextConfig(out_features=levels, hidden_sizes=[96, 192, 384, 768])
    config = UperNetConfig(backbone_config=body, num_labels=150, auxiliary_in_channels=384)
    model = UperNetForSemanticSegmentation(config).cuda()
    x = torch.randn(batch, 3, size, size, device="cuda")
    labels = torch.randint(0, 150, (batch, size, size), device="cuda")
    return training(model, lambda: model(x, labels=labels).loss)


def video_of_words(batch: int, frames: int, height: int, width: int) -> Step:
    """CogVideoX's transformer in bf16: words and all pieces of a film attend together."""
    from diffusers import CogVideoXTransformer3DModel

    model = CogVideoXTransformer3DModel(
        num_attention_heads=16,
        num_layers=8,
        text_embed_dim=1024,
        sample_width=width,
        sample_height=height,
        sample_frames=4 * (frames - 1) + 1,
    ).to("cuda", BF16)
    sizes = (batch, frames, 16, height, width)
    x, noise = (torch.randn(sizes, device="cuda", dtype=BF16) for _ in range(2))
    told = torch.randn(batch, 226, 1024, device="cuda", dtype=BF16)
    when = torch.randint(0, 1000, (batch,), device="cuda")

    def loss() -> torch.Tensor:
        return F.mse_loss(model(x + noise, told, when).sample.float(), noise.float())

    return training(model, loss, autocast=False, fused=True)


def without_negatives(batch: int) -> Step:
    """VICReg: two views, wide numbers of both that are alike, spread and not alike one another."""
    from torchvision.models import resnet50

    widths = (2048, 4096, 4096)
    layers: list[nn.Module] = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()]
    model = resnet50(weights=None)
    model.fc = nn.Sequential(*layers, nn.Linear(4096, 4096, bias=False))
    model = model.cuda().to(memory_format=torch.channels_last)
    views = [
        torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
        for _ in range(2)
    ]

    def loss() -> torch.Tensor:
        one, other = (model(view).float() for view in views)
        total = 25 * F.mse_loss(one, other)
        for part in (one, other):
            part = part - part.mean(0)
            total = total + 25 * F.relu(1 - (part.var(0) + 1e-4).sqrt()).mean()
            alike = (part.T @ part) / (batch - 1)
            alike = alike - torch.diag(alike.diagonal())
            total = total + alike.square().sum() / alike.shape[0]
        return total

    return training(model, loss)
