"""Steps of tenth.py that are written here: what is where in pictures, pictures that are made."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from unseen import Step, training

from vramcast_zoo.suites.training import training_step


def of_chances(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """The focal loss of chances."""
    wrong = F.binary_cross_entropy_with_logits(found, wanted, reduction="none")
    return ((1 - torch.exp(-wrong)).square() * wrong).mean()


def asked_under_conditions(batch: int, size: int) -> Step:
    """Conditional DETR over a ResNet that learns too; the matching on the host is left out."""
    from transformers import ConditionalDetrConfig, ConditionalDetrForObjectDetection, ResNetConfig

    body = ResNetConfig(out_features=["stage4"])
    config = ConditionalDetrConfig(backbone_config=body, num_labels=91, auxiliary_loss=True)
    model = ConditionalDetrForObjectDetection(config).cuda()
    for name, parameter in model.named_parameters():
        if any(f"stages.{i}." in name for i in (1, 2, 3)):
            parameter.requires_grad_(True)
    x = torch.randn(batch, 3, size, size, device="cuda")
    kinds = torch.randint(0, 91, (batch, 300), device="cuda")
    boxes = torch.rand(batch, 300, 4, device="cuda")

    def loss() -> torch.Tensor:
        found = model(pixel_values=x)
        wanted = F.one_hot(kinds, 91).float()
        apart = F.l1_loss(found.pred_boxes.float(), boxes)
        return of_chances(found.logits.float(), wanted) + 5 * apart

    return training(model, loss)


def masks_of_words(batch: int, size: int) -> Step:
    """EoMT: a vision transformer whose last blocks see words too, each word tells a mask."""
    from transformers import EomtConfig, EomtForUniversalSegmentation

    sizes = {"hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12}
    config = EomtConfig(**sizes, image_size=size, num_blocks=3, num_queries=100, num_labels=80)
    model = EomtForUniversalSegmentation(config).cuda()
    x = torch.randn(batch, 3, size, size, device="cuda")
    kinds = torch.randint(0, 81, (batch, 100), device="cuda")
    wanted = torch.randint(0, 2, (batch, 100, size // 4, size // 4), device="cuda").float()

    def loss() -> torch.Tensor:
        found = model(pixel_values=x)
        masks = found.masks_queries_logits.float()
        shares = masks.sigmoid()
        both = 2 * (shares * wanted).sum((2, 3)) + 1
        dice = 1 - both / (shares.sum((2, 3)) + wanted.sum((2, 3)) + 1)
        named = F.cross_entropy(found.class_queries_logits.float().flatten(0, 1), kinds.flatten())
        wrong = F.binary_cross_entropy_with_logits(masks, wanted)
        return 2 * named + 5 * wrong + 5 * dice.mean()

    return training(model, loss)


class Centres(nn.Module):
    """CenterNet: a ResNet, enlarged three times; how likely, how large, how far off."""

    def __init__(self, kinds: int) -> None:
        super().__init__()
        from torchvision.models import resnet34

        body = resnet34(weights=None)
        self.body = nn.Sequential(*list(body.children())[:-2])
        larger: list[nn.Module] = []
        for a, b in ((512, 256), (256, 128), (128, 64)):
            larger += [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
            larger += [nn.ConvTranspose2d(b, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        self.larger = nn.Sequential(*larger)
        self.out = nn.ModuleList(
            nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, number, 1))
            for number in (kinds, 2, 2)
        )

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        y = self.larger(self.body(x))
        return [out(y) for out in self.out]


def centres(batch: int, size: int, *, kinds: int = 80) -> Step:
    """Objects as peaks, in fp16 with scaled gradients and channels last."""
    model = Centres(kinds).cuda().to(memory_format=torch.channels_last)
    x = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=torch.channels_last)
    near = torch.rand(batch, kinds, size // 4, size // 4, device="cuda")
    places = torch.randint(0, (size // 4) ** 2, (batch, 1, 64), device="cuda").expand(-1, 2, -1)
    wanted = torch.rand(2, batch, 2, 64, device="cuda")

    def loss() -> torch.Tensor:
        heat, large, off = (part.float() for part in model(x))
        chance = heat.sigmoid().clamp(1e-4, 1 - 1e-4)
        is_centre = near.gt(0.999).float()
        good = (1 - chance).square() * chance.log() * is_centre
        bad = chance.square() * (1 - chance).log() * (1 - near).pow(4) * (1 - is_centre)
        total = -(good + bad).sum() / is_centre.sum().clamp(min=1)
        for part, true in zip((large, off), wanted):
            total = total + F.l1_loss(part.flatten(2).gather(2, places), true)
        return total

    how: dict[str, Any] = {"autocast": "fp16", "scale_loss": True, "clip": 0.0}
    return training_step(loss, model.parameters(), **how)
