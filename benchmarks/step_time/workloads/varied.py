"""Steps of set-ups that users run, of many fields, like those of popular.py: predicted and
committed, then measured. A set has its predictions in SET.jsonl, and SET.md compares.

    python benchmarks/step_time/simulated.py OUT.jsonl .../varied.py:step name=NAME
    python benchmarks/step_time/recording/record.py --out OUT --step .../varied.py:step name=NAME
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from models import FUSED, LAST, PLAIN, decoder, of_timm, of_transformers, speech_to_letters, vision
from torch import nn
from unseen import BF16, Step, training

SMALL = {"hidden_size": 512, "num_hidden_layers": 16, "num_attention_heads": 8}


def masks(
    kind: str, encoder: str, batch: int, size: int, *, last: bool = True, autocast: bool = True
) -> Step:
    """Of segmentation_models_pytorch: pictures and a mask of one class."""
    import segmentation_models_pytorch as smp

    layout = torch.channels_last if last else torch.contiguous_format
    model = getattr(smp, kind)(encoder, encoder_weights=None, classes=1)
    model = model.cuda().to(memory_format=layout)
    x = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=layout)
    wanted = torch.randint(0, 2, (batch, 1, size, size), device="cuda").float()

    def loss() -> torch.Tensor:
        found = model(x).float()
        overlap = (found.sigmoid() * wanted).sum() / (found.sigmoid() + wanted).sum()
        return F.binary_cross_entropy_with_logits(found, wanted) - overlap

    return training(model, loss, autocast=autocast)


def boxes(name: str, batch: int, size: int, *, autocast: bool = False) -> Step:
    """Detection of torchvision: three boxes in each picture."""
    from torchvision import models

    model = models.get_model(name, weights=None, weights_backbone=None).cuda()
    x = [torch.rand(3, size, size, device="cuda") for _ in range(batch)]
    corners = torch.tensor([[20.0, 30, 200, 220], [100, 80, 300, 260], [10, 200, 150, 380]])
    labels = torch.tensor([1, 5, 17])
    wanted = [{"boxes": corners.cuda(), "labels": labels.cuda()} for _ in range(batch)]
    return training(model, lambda: sum(model(x, wanted).values()), autocast=autocast)


def adapted(batch: int, length: int, *, is_checkpointed: bool) -> Step:
    """A small language model in bf16 with LoRA in all its products."""
    import peft
    import transformers

    sizes = decoder(896, 4864, 24, 14, 2, 151_936, tie_word_embeddings=True)
    config = transformers.Qwen2Config(**sizes, use_cache=False)
    model = transformers.Qwen2ForCausalLM(config).to("cuda", BF16)
    if is_checkpointed:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    lora = peft.LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear")
    model = peft.get_peft_model(model, lora)
    model.train()
    x = torch.randint(0, 150_000, (batch, length), device="cuda")
    return training(model, lambda: model(input_ids=x, labels=x).loss, autocast=False, fused=True)


def speech(batch: int, frames: int) -> Step:
    """Conformers with depthwise convolutions, and CTC."""
    from transformers import Wav2Vec2BertConfig, Wav2Vec2BertForCTC

    more = {"intermediate_size": 2048, "vocab_size": 64, "layerdrop": 0.0, "mask_time_prob": 0.0}
    config = Wav2Vec2BertConfig(**SMALL, **more)
    model = Wav2Vec2BertForCTC(config).cuda()
    x = torch.randn(batch, frames, 160, device="cuda")
    labels = torch.randint(1, 64, (batch, 60), device="cuda")
    return training(model, lambda: model(x, labels=labels).loss)


def latents(batch: int, *, width: int = 320) -> Step:
    """A U-Net of latent diffusion that is told what to paint."""
    from diffusers import UNet2DConditionModel

    wide = (width, 2 * width, 4 * width, 4 * width)
    model = UNet2DConditionModel(64, block_out_channels=wide, cross_attention_dim=768).cuda()
    x, noise = (torch.randn(batch, 4, 64, 64, device="cuda") for _ in range(2))
    times = torch.randint(0, 1000, (batch,), device="cuda")
    words = torch.randn(batch, 77, 768, device="cuda")

    def loss() -> torch.Tensor:
        return F.mse_loss(model(x, times, words).sample.float(), noise)

    return training(model, loss)


class Looks(nn.Module):
    """Graph attention, as of GAT: scores of edges, a softmax over those that end in a node."""

    def __init__(self, inside: int, outside: int, heads: int) -> None:
        super().__init__()
        self.project = nn.Linear(inside, heads * outside)
        self.source, self.target = (
            nn.Parameter(torch.randn(heads, outside) * 0.1) for _ in range(2)
        )
        self.shape = heads, outside

    def forward(self, x: torch.Tensor, start: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
        y = self.project(x).view(-1, *self.shape)
        scores = (y * self.source).sum(-1)[start] + (y * self.target).sum(-1)[end]
        weights = F.leaky_relu(scores, 0.2).exp()
        sums = torch.zeros(len(x), self.shape[0], device=x.device).index_add(0, end, weights)
        weights = weights / sums[end]
        taken = torch.zeros_like(y).index_add(0, end, y[start] * weights[..., None])
        return taken.flatten(1)


def graph(nodes: int, edges: int, *, width: int = 64, heads: int = 4) -> Step:
    model = nn.ModuleList(
        Looks(inside, width, heads) for inside in (128, width * heads, width * heads)
    )
    model.append(nn.Linear(width * heads, 40))
    model = model.cuda()
    x = torch.randn(nodes, 128, device="cuda")
    start, end = (torch.randint(0, nodes, (edges,), device="cuda") for _ in range(2))
    labels = torch.randint(0, 40, (nodes,), device="cuda")

    def loss() -> torch.Tensor:
        y = x
        for layer in list(model)[:-1]:
            y = F.dropout(F.elu(layer(y, start, end)), 0.3)
        return F.cross_entropy(model[-1](y), labels)

    return training(model, loss, autocast=False)


def policy(batch: int) -> Step:
    """PPO's update on frames: the convolutions of the Atari paper, clipped ratios, norms."""
    body = nn.Sequential(
        *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU()),
    )
    model = nn.ModuleDict({"body": body, "actor": nn.Linear(512, 18), "critic": nn.Linear(512, 1)})
    model = model.cuda()
    optimizer = torch.optim.Adam(model.parameters(), 2.5e-4, eps=1e-5)
    frames = torch.randint(0, 255, (batch, 4, 84, 84), device="cuda", dtype=torch.uint8)
    actions = torch.randint(0, 18, (batch,), device="cuda")
    old, gains, returns = (torch.randn(batch, device="cuda") for _ in range(3))

    def step() -> torch.Tensor:
        hidden = model["body"](frames.float() / 255.0)
        chosen = torch.distributions.Categorical(logits=model["actor"](hidden))
        ratio = (chosen.log_prob(actions) - old).exp()
        clipped = torch.max(-gains * ratio, -gains * ratio.clamp(0.9, 1.1)).mean()
        missed = 0.5 * (model["critic"](hidden).squeeze(-1) - returns).square().mean()
        loss = clipped - 0.01 * chosen.entropy().mean() + 0.5 * missed
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    return step


def tables(batch: int, columns: int, *, width: int = 192, layers: int = 4) -> Step:
    """An FT-Transformer: every column is a token."""
    layer = partial(nn.TransformerEncoderLayer, width, 8, 4 * width, 0.1, "gelu")
    blocks = [layer(batch_first=True, norm_first=True) for _ in range(layers)]
    model = nn.ModuleDict({"blocks": nn.Sequential(*blocks), "out": nn.Linear(width, 2)})
    model.weight = nn.Parameter(torch.randn(columns, width))
    model.bias = nn.Parameter(torch.zeros(columns, width))
    model = model.cuda()
    x = torch.randn(batch, columns, device="cuda")
    labels = torch.randint(0, 2, (batch,), device="cuda")

    def loss() -> torch.Tensor:
        y = model["blocks"](x[..., None] * model.weight + model.bias)
        return F.cross_entropy(model["out"](y.mean(1)).float(), labels)

    return training(model, loss)


def diffusion_transformer(batch: int) -> Step:
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(12, 64, 4, 4, num_layers=14, sample_size=32, patch_size=2)
    model = model.cuda()
    x, noise = (torch.randn(batch, 4, 32, 32, device="cuda") for _ in range(2))
    times = torch.randint(0, 1000, (batch,), device="cuda")
    labels = torch.randint(0, 1000, (batch,), device="cuda")

    def loss() -> torch.Tensor:
        return F.mse_loss(model(x, times, class_labels=labels).sample.float(), noise)

    return training(model, loss)


def autoencoder(batch: int, size: int) -> Step:
    """Of pictures to latents and back, in fp32."""
    from diffusers import AutoencoderKL

    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 3}
    blocks["up_block_types"] = ("UpDecoderBlock2D",) * 3
    model = AutoencoderKL(block_out_channels=(64, 128, 256), **blocks).cuda()
    x = torch.randn(batch, 3, size, size, device="cuda")

    def loss() -> torch.Tensor:
        found = model.encode(x).latent_dist
        return F.l1_loss(model.decode(found.mean).sample, x) + 1e-6 * found.kl().mean()

    return training(model, loss, autocast=False)


def ratings(batch: int, *, rows: int = 100_000, width: int = 64) -> Step:
    """Recommendation: tables of things, products of all pairs, and layers above."""
    tables_of = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(26))
    below = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
    above = nn.Sequential(
        *(nn.Linear(width + 351, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU()),
        nn.Linear(512, 1),
    )
    model = nn.ModuleDict({"tables": tables_of, "below": below, "above": above}).cuda()
    numbers = torch.randn(batch, 13, device="cuda")
    named = torch.randint(0, rows, (26, batch, 1), device="cuda")
    clicked = torch.randint(0, 2, (batch,), device="cuda").float()
    first, second = torch.triu_indices(27, 27, 1, device="cuda")

    def loss() -> torch.Tensor:
        dense = model["below"](numbers)
        found = [table(rows) for table, rows in zip(model["tables"], named)]
        together = torch.stack([dense, *found], 1)
        pairs = (together @ together.transpose(1, 2))[:, first, second]
        logits = model["above"](torch.cat((dense, pairs), 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(logits, clicked)

    return training(model, loss, autocast=False)


SETS: dict[str, dict[str, Callable[[], Step]]] = {
    "varied": {
        "unet_of_masks": lambda: masks("Unet", "resnet34", 24, 512),
        "seresnext_last": lambda: of_timm("seresnext50_32x4d", 160, **LAST),
        "mobilenet_v4": lambda: of_timm("mobilenetv4_conv_medium", 256, 256, **LAST),
        "resnet50d_fp32": lambda: of_timm("resnet50d", 128, **LAST, **PLAIN),
        "deeplab_plus": lambda: masks("DeepLabV3Plus", "resnet50", 16, 512, last=False),
        "retinanet": lambda: boxes("retinanet_resnet50_fpn", 8, 640),
        "smol_lm": lambda: of_transformers(
            "LlamaForCausalLM", decoder(576, 1536, 30, 9, 3, 49_152), 24, 1024, FUSED
        ),
        "lora": lambda: adapted(16, 1024, is_checkpointed=True),
        "speech": lambda: speech(32, 500),
        "latents": lambda: latents(16),
        "graph": lambda: graph(120_000, 1_500_000),
        "policy": lambda: policy(8192),
        "tables": lambda: tables(4096, 40),
    },
    "varied_more": {
        "resnext_wide": lambda: vision("resnext101_64x4d", 64, **LAST),
        "convnext_last": lambda: of_timm("convnext_tiny", 128, **LAST),
        "deeplab_fp32_last": lambda: masks("DeepLabV3", "resnet34", 16, 384, autocast=False),
        "fcos": lambda: boxes("fcos_resnet50_fpn", 8, 640, autocast=True),
        "cohere": lambda: of_transformers(
            "CohereForCausalLM", decoder(1024, 4096, 12, 16, 4, 64_000), 8, 2048, FUSED
        ),
        "sounds": lambda: speech_to_letters(12, 12, 32),
        "diffusion_transformer": lambda: diffusion_transformer(64),
        "autoencoder": lambda: autoencoder(8, 192),
        "ratings": lambda: ratings(32_768),
    },
}


def step(*, name: str) -> Step:
    for steps in SETS.values():
        if name in steps:
            return steps[name]()
    raise ValueError(f"no step is called {name!r}")
