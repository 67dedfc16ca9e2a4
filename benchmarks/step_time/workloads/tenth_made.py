"""Steps of tenth.py that are written here: pictures that are made, films, volumes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from unseen import BF16, Step, training

from vramcast_zoo.suites.training import training_step


def adapted_pictures(batch: int, side: int, words: int) -> Step:
    """Qwen-Image's transformer in bf16, not trained but for LoRA; all blocks computed twice."""
    from diffusers import QwenImageTransformer2DModel
    from peft import LoraConfig

    model = QwenImageTransformer2DModel(
        num_layers=8, num_attention_heads=12, joint_attention_dim=1024
    ).to("cuda", BF16)
    model.requires_grad_(False)
    targets = ["to_k", "to_q", "to_v", "to_out.0"]
    model.add_adapter(LoraConfig(r=16, lora_alpha=16, target_modules=targets))
    model.enable_gradient_checkpointing()
    shapes = [[(1, side, side)]] * batch
    x, noise = (torch.randn(batch, side * side, 64, device="cuda", dtype=BF16) for _ in range(2))
    told = torch.randn(batch, words, 1024, device="cuda", dtype=BF16)

    def loss() -> torch.Tensor:
        share = torch.rand(batch, device="cuda", dtype=BF16)
        mixed = torch.lerp(x, noise, share[:, None, None])
        found = model(mixed, told, timestep=share, img_shapes=shapes).sample
        return F.mse_loss(found.float(), (noise - x).float())

    return training_step(loss, model.parameters(), optimizer="adamw-fused")


def cascade(batch: int, side: int) -> Step:
    """Stable Cascade's network of 24 x 24 latents in bf16: filters of each channel, attention."""
    from diffusers import StableCascadeUNet

    model = StableCascadeUNet(
        conditioning_dim=1024,
        block_out_channels=(1024, 1024),
        num_attention_heads=(16, 16),
        down_num_layers_per_block=(3, 6),
        up_num_layers_per_block=(6, 3),
        clip_text_in_channels=1280,
        clip_image_in_channels=768,
        switch_level=(False,),
    ).to("cuda", BF16)
    x, noise = (torch.randn(batch, 16, side, side, device="cuda", dtype=BF16) for _ in range(2))
    words = torch.randn(batch, 77, 1280, device="cuda", dtype=BF16)
    pooled = torch.randn(batch, 1, 1280, device="cuda", dtype=BF16)
    seen = torch.zeros(batch, 1, 768, device="cuda", dtype=BF16)

    def loss() -> torch.Tensor:
        when = torch.rand(batch, device="cuda", dtype=BF16)
        share = when[:, None, None, None]
        told = {"clip_text_pooled": pooled, "clip_text": words, "clip_img": seen}
        found = model((1 - share) * x + share * noise, when, **told).sample
        return F.mse_loss(found.float(), noise.float())

    return training(model, loss, autocast=False, fused=True)


def masked_codes(batch: int, side: int) -> Step:
    """aMUSEd's U-ViT: codes of pictures, most of them masked, told from words."""
    from diffusers import UVit2DModel

    sizes = {"hidden_size": 768, "block_out_channels": 768, "num_attention_heads": 12}
    model = UVit2DModel(**sizes, num_hidden_layers=12, intermediate_size=2048).cuda()
    codes = torch.randint(0, 8192, (batch, side, side), device="cuda")
    words, pooled = (torch.randn(batch, *shape, 768, device="cuda") for shape in ((77,), ()))
    shapes = torch.full((batch, 5), 256.0, device="cuda")

    def loss() -> torch.Tensor:
        share = torch.cos(torch.rand(batch, 1, 1, device="cuda") * torch.pi / 2)
        hidden = torch.rand(batch, side, side, device="cuda") < share
        found = model(codes.masked_fill(hidden, 8255), words, pooled, shapes)
        labels = codes.masked_fill(~hidden, -100)
        return F.cross_entropy(found.float(), labels, label_smoothing=0.1)

    return training(model, loss)


def codes_judged_by_features(batch: int, size: int) -> Step:
    """A VQ autoencoder; what a VGG sees of the picture and of what was made is to be alike."""
    from diffusers import VQModel
    from torchvision.models import vgg16

    model = VQModel(
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(96, 192, 384),
        layers_per_block=2,
        latent_channels=4,
        num_vq_embeddings=8192,
    ).cuda()
    sees = vgg16(weights=None).features[:23].cuda().eval().requires_grad_(False)
    x = torch.randn(batch, 3, size, size, device="cuda")

    def seen(y: torch.Tensor) -> list[torch.Tensor]:
        levels = []
        for i, layer in enumerate(sees):
            y = layer(y)
            if i in (3, 8, 15, 22):
                levels.append(F.normalize(y, dim=1))
        return levels

    def loss() -> torch.Tensor:
        made = model(x)
        with torch.no_grad():
            wanted = seen(x)
        total = F.l1_loss(made.sample.float(), x) + made.commit_loss.mean()
        for one, other in zip(seen(made.sample), wanted):
            total = total + (one - other).square().sum(1).mean()
        return total

    return training(model, loss)


def films_of_words(batch: int, frames: int, height: int, width: int) -> Step:
    """LTX-Video's transformer in bf16: pieces of a film, words beside it, as a flow."""
    from diffusers import LTXVideoTransformer3DModel

    sizes = {"num_attention_heads": 24, "num_layers": 10, "cross_attention_dim": 1536}
    model = LTXVideoTransformer3DModel(**sizes, caption_channels=2048).to("cuda", BF16)
    shape = (batch, frames * height * width, 128)
    x, noise = (torch.randn(shape, device="cuda", dtype=BF16) for _ in range(2))
    told = torch.randn(batch, 128, 2048, device="cuda", dtype=BF16)
    is_word = torch.ones(batch, 128, device="cuda", dtype=BF16)

    def loss() -> torch.Tensor:
        share = torch.rand(batch, device="cuda", dtype=BF16)
        mixed = torch.lerp(x, noise, share[:, None, None])
        found = model(mixed, told, 1000 * share, is_word, frames, height, width).sample
        return F.mse_loss(found.float(), (noise - x).float())

    return training(model, loss, autocast=False, fused=True)


class Attended(nn.Module):
    """What was kept is weighed by a gate of it and of what comes from below."""

    def __init__(self, kept: int, below: int) -> None:
        super().__init__()
        self.kept, self.below = nn.Conv3d(kept, kept // 2, 1), nn.Conv3d(below, kept // 2, 1)
        self.gate = nn.Sequential(nn.ReLU(), nn.Conv3d(kept // 2, 1, 1), nn.Sigmoid())

    def forward(self, kept: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
        larger = F.interpolate(self.below(below), scale_factor=2, mode="trilinear")
        return kept * self.gate(self.kept(kept) + larger)


def twice(inside: int, outside: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a in (inside, outside):
        layers += [nn.Conv3d(a, outside, 3, padding=1), nn.BatchNorm3d(outside), nn.ReLU()]
    return nn.Sequential(*layers)


class AttendedVolumes(nn.Module):
    def __init__(self, width: int, levels: int, organs: int) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(levels)]
        pairs = list(zip(widths, widths[1:]))
        self.into, self.out = twice(1, width), nn.Conv3d(width, organs, 1)
        self.down = nn.ModuleList(twice(a, b) for a, b in pairs)
        self.gates = nn.ModuleList(Attended(a, b) for a, b in pairs)
        self.larger = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, 2) for a, b in pairs)
        self.up = nn.ModuleList(twice(2 * a, a) for a, _ in pairs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = [self.into(x)]
        for part in self.down:
            kept.append(part(F.max_pool3d(kept[-1], 2)))
        y = kept.pop()
        for gate, larger, part in zip(*map(reversed, (self.gates, self.larger, self.up))):
            y = part(torch.cat((gate(kept.pop(), y), larger(y)), 1))
        return self.out(y)


def attended_volumes(batch: int, size: int, *, organs: int = 6) -> Step:
    """An attention U-Net of volumes in fp16 with scaled gradients, channels last, Tversky."""
    last = {"memory_format": torch.channels_last_3d}
    model = AttendedVolumes(32, 4, organs).cuda().to(**last)
    x = torch.randn(batch, 1, *[size] * 3, device="cuda").to(**last)
    labels = torch.randint(0, organs, (batch, *[size] * 3), device="cuda")

    def loss() -> torch.Tensor:
        shares = model(x).float().softmax(1)
        wanted = F.one_hot(labels, organs).movedim(-1, 1)
        both, whole = (shares * wanted).sum((2, 3, 4)), wanted.sum((2, 3, 4))
        wrong = 0.3 * (shares.sum((2, 3, 4)) - both) + 0.7 * (whole - both)
        return (1 - both / (both + wrong + 1)).pow(0.75).mean()

    how: dict[str, Any] = {"autocast": "fp16", "scale_loss": True, "optimizer": "adamw-fused"}
    return training_step(loss, model.parameters(), **how)


class Shifted(nn.Module):
    """An eighth of the channels comes from the frame before, an eighth from the one after."""

    def __init__(self, layer: nn.Module, frames: int) -> None:
        super().__init__()
        self.layer, self.frames = layer, frames

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        films = x.unflatten(0, (-1, self.frames))
        part, moved = x.shape[1] // 8, torch.zeros_like(films)
        moved[:, :-1, :part] = films[:, 1:, :part]
        moved[:, 1:, part : 2 * part] = films[:, :-1, part : 2 * part]
        moved[:, :, 2 * part :] = films[:, :, 2 * part :]
        return self.layer(moved.flatten(0, 1))


def shifted_frames(batch: int, frames: int) -> Step:
    """TSM: a ResNet whose residual blocks see parts of the frames beside theirs, SGD."""
    from torchvision.models import resnet50

    model = resnet50(weights=None, num_classes=174)
    for level in (model.layer1, model.layer2, model.layer3, model.layer4):
        for block in level:
            block.conv1 = Shifted(block.conv1, frames)
    model = model.cuda().to(memory_format=torch.channels_last)
    x = torch.randn(batch * frames, 3, 224, 224, device="cuda")
    x = x.to(memory_format=torch.channels_last)
    labels = torch.randint(0, 174, (batch,), device="cuda")

    def loss() -> torch.Tensor:
        return F.cross_entropy(model(x).float().unflatten(0, (batch, frames)).mean(1), labels)

    return training_step(loss, model.parameters(), optimizer="sgd", autocast="bf16", clip=20.0)
