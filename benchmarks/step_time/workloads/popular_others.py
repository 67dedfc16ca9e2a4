"""Steps of popular.py that are written out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from unseen import Step, classified, training


def whisper_small() -> Step:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sizes = {f"{part}_{what}": n for part in ("encoder", "decoder") for what, n in _OF_WHISPER}
    model = WhisperForConditionalGeneration(WhisperConfig(d_model=768, use_cache=False, **sizes))
    model = model.cuda()
    x = torch.randn(16, 80, 3000, device="cuda")
    labels = torch.randint(0, 50_000, (16, 128), device="cuda")
    return training(model, lambda: model(input_features=x, labels=labels).loss)


_OF_WHISPER = (("layers", 12), ("attention_heads", 12), ("ffn_dim", 3072))


def pairs(kind: str, batch: int, length: int) -> Step:
    """Images and their texts: CLIP, and what came after it."""
    import transformers

    config = getattr(transformers, f"{kind}Config")()
    model = getattr(transformers, f"{kind}Model")(config).cuda()
    x = torch.randn(batch, 3, 224, 224, device="cuda")
    words = torch.randint(0, 30_000, (batch, length), device="cuda")
    return training(model, lambda: model(input_ids=words, pixel_values=x, return_loss=True).loss)


def wav2vec_long() -> Step:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(layerdrop=0.0, mask_time_prob=0.0)
    model = Wav2Vec2Model(config).cuda()
    x = torch.randn(8, 16_000 * 15, device="cuda")
    return training(model, lambda: model(x).last_hidden_state.float().square().mean())


def videomae() -> Step:
    from transformers import VideoMAEConfig, VideoMAEForVideoClassification

    model = VideoMAEForVideoClassification(VideoMAEConfig(num_labels=400)).cuda()
    x = torch.randn(12, 16, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 400, (12,), device="cuda")
    return training(model, lambda: F.cross_entropy(model(x).logits.float(), labels))


def spectrograms() -> Step:
    from transformers import ASTConfig, ASTForAudioClassification

    model = ASTForAudioClassification(ASTConfig(num_labels=527)).cuda()
    x = torch.randn(24, 1024, 128, device="cuda")
    labels = torch.randint(0, 527, (24,), device="cuda")
    return training(model, lambda: F.cross_entropy(model(x).logits.float(), labels))


def masked_images() -> Step:
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    model = ViTMAEForPreTraining(ViTMAEConfig()).cuda()
    x = torch.randn(320, 3, 224, 224, device="cuda")
    return training(model, lambda: model(x).loss)


def super_resolution(*, batch: int = 16, width: int = 128, blocks: int = 16) -> Step:
    """Plain convolutions at one size, then twice as large."""
    body = [
        nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1))
        for _ in range(blocks)
    ]
    first, last = nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 12, 3, 1, 1)
    model = nn.ModuleList([first, *body, last]).cuda()
    x, y = (torch.randn(batch, 3, n, n, device="cuda") for n in (96, 192))

    def loss() -> torch.Tensor:
        found = model[0](x)
        for part in list(model)[1:-1]:
            found = found + part(found)
        return F.l1_loss(F.pixel_shuffle(model[-1](found), 2).float(), y)

    return training(model, loss)


def waves(*, batch: int = 8, length: int = 32_000, width: int = 128) -> Step:
    """Dilated convolutions of sound with gates."""
    layers = nn.ModuleList(
        nn.Conv1d(width, 2 * width, 3, 1, 2**n, 2**n) for n in (*range(8), *range(8))
    )
    model = nn.ModuleDict({"in": nn.Conv1d(1, width, 1), "layers": layers})
    model["out"] = nn.Conv1d(width, 256, 1)
    model = model.cuda()
    x = torch.randn(batch, 1, length, device="cuda")
    labels = torch.randint(0, 256, (batch, length), device="cuda")

    def loss() -> torch.Tensor:
        y = model["in"](x)
        for layer in model["layers"]:
            inner, gate = layer(y).chunk(2, 1)
            y = y + inner.tanh() * gate.sigmoid()
        return F.cross_entropy(model["out"](y), labels)

    return training(model, loss, autocast=False)


def columns(*, batch: int = 16_384, width: int = 2048) -> Step:
    """Tables: wide layers with batch norm and dropout."""
    sizes = (256, *[width] * 6)
    layers = [
        nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o), nn.SiLU(), nn.Dropout(0.1))
        for i, o in zip(sizes, sizes[1:])
    ]
    model = nn.Sequential(*layers, nn.Linear(width, 10)).cuda()
    x = torch.randn(batch, 256, device="cuda")
    labels = torch.randint(0, 10, (batch,), device="cuda")
    return training(model, lambda: F.cross_entropy(model(x).float(), labels))


def gates(*, batch: int = 192, length: int = 300, width: int = 768) -> Step:
    """Speech: recurrent layers in both directions, then CTC."""
    model = nn.ModuleList(
        [nn.GRU(160, width, 3, batch_first=True, bidirectional=True), nn.Linear(2 * width, 128)]
    ).cuda()
    x = torch.randn(batch, length, 160, device="cuda")
    labels = torch.randint(0, 128, (batch, length), device="cuda")

    def loss() -> torch.Tensor:
        return F.cross_entropy(model[1](model[0](x)[0]).transpose(1, 2), labels)

    return training(model, loss, autocast=False)


def levels(*, dims: int, batch: int, size: int, width: int, autocast: bool) -> Step:
    """A U-Net of sound or of volumes with group norm, whose way up is transposed convolutions."""
    conv, back = ((nn.Conv1d, nn.ConvTranspose1d), (nn.Conv3d, nn.ConvTranspose3d))[dims == 3]

    def block(inside: int, outside: int) -> nn.Module:
        parts = [conv(inside, outside, 3, 1, 1), nn.GroupNorm(8, outside), nn.SiLU()]
        return nn.Sequential(*parts, conv(outside, outside, 3, 1, 1), nn.GroupNorm(8, outside))

    widths = [width << n for n in range(4)]
    down = [block(i, o) for i, o in zip((2, *widths), widths)]
    up = [block(2 * w, w) for w in widths[:-1]]
    ups = [back(2 * w, w, 2, 2) for w in widths[:-1]]
    parts = map(nn.ModuleList, (down, up, ups))
    model = nn.ModuleDict(zip(("down", "up", "ups"), parts))
    model["out"] = conv(width, 2, 1)
    model = model.cuda()
    pool = (F.max_pool1d, F.max_pool3d)[dims == 3]
    x = torch.randn(batch, 2, *[size] * dims, device="cuda")

    def loss() -> torch.Tensor:
        y, kept = x, []
        for level, part in enumerate(model["down"]):
            y = F.silu(part(y if level == 0 else pool(y, 2)))
            kept.append(y)
        for level in (2, 1, 0):
            y = torch.cat((model["ups"][level](y), kept[level]), 1)
            y = F.silu(model["up"][level](y))
        return F.mse_loss(model["out"](y).float(), x)

    return training(model, loss, autocast=autocast)


def encoder(*, batch: int, length: int, layers: int = 8, is_compiled: bool = False) -> Step:
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, 0.0, "gelu", batch_first=True)
    model = nn.TransformerEncoder(layer, layers).cuda()
    called = torch.compile(model) if is_compiled else model
    x = torch.randn(batch, length, 1024, device="cuda")
    return training(model, lambda: called(x).float().square().mean(), fused=True)


def generator(*, batch: int = 256) -> Step:
    """Of pictures out of noise: transposed convolutions with batch norm, and a critic."""
    widths = (1024, 512, 256, 128)
    makes = [nn.ConvTranspose2d(128, widths[0], 4), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    judges: list[nn.Module] = [nn.Conv2d(3, 128, 4, 2, 1), nn.LeakyReLU(0.2)]
    for inside, outside in zip(widths, widths[1:]):
        makes += [nn.ConvTranspose2d(inside, outside, 4, 2, 1), nn.BatchNorm2d(outside), nn.ReLU()]
    for outside, inside in reversed(list(zip(widths, widths[1:]))):
        judges += [nn.Conv2d(inside, outside, 4, 2, 1), nn.BatchNorm2d(outside), nn.LeakyReLU(0.2)]
    makes.append(nn.ConvTranspose2d(128, 3, 4, 2, 1))
    model = nn.Sequential(*makes, *judges, nn.Conv2d(1024, 1, 4)).cuda()
    x = torch.randn(batch, 128, 1, 1, device="cuda")
    return training(model, lambda: F.softplus(-model(x)).mean(), autocast=False)


def compiled_gpt() -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(use_cache=False, vocab_size=50_304)).cuda()
    compiled = torch.compile(model)
    x = torch.randint(0, 50_304, (24, 1024), device="cuda")
    return training(model, lambda: compiled(input_ids=x, labels=x).loss)


def compiled_resnet() -> Step:
    from torchvision.models import resnet50

    model = resnet50()
    model.forward = torch.compile(model.forward)
    return classified(model, 128, 224, last=True)


def scaled(*, batch: int = 192) -> Step:
    """fp16 with a GradScaler, norms of gradients and SGD."""
    from torchvision.models import resnet50

    model = resnet50().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    x = torch.randn(batch, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (batch,), device="cuda")

    def step() -> torch.Tensor:
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(model(x), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    return step


def diffusion(*, batch: int = 48) -> Step:
    from diffusers import UNet2DModel

    model = UNet2DModel(64, 3, 3, block_out_channels=(128, 256, 384, 512)).cuda()
    x, noise = (torch.randn(batch, 3, 64, 64, device="cuda") for _ in range(2))
    times = torch.randint(0, 1000, (batch,), device="cuda")
    return training(model, lambda: F.mse_loss(model(x, times).sample.float(), noise))


def conformer(*, batch: int = 8) -> Step:
    from transformers import Wav2Vec2ConformerConfig, Wav2Vec2ConformerModel

    config = Wav2Vec2ConformerConfig(layerdrop=0.0, mask_time_prob=0.0)
    model = Wav2Vec2ConformerModel(config).cuda()
    x = torch.randn(batch, 16_000 * 15, device="cuda")
    return training(model, lambda: model(x).last_hidden_state.float().square().mean())
