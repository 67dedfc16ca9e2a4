"""More compiled steps, of networks and settings that compiled.py has none of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from vramcast_zoo.suites.compiled import Step, compile_update
from vramcast_zoo.suites.training import training_step

BF16 = torch.bfloat16


def training(model: nn.Module, loss: Callable[[], torch.Tensor], **how: Any) -> Step:
    return training_step(loss, model.parameters(), **{"autocast": "bf16", **how})


class Attention(nn.Module):
    """With turned queries and keys; `attend` may be another one than torch's."""

    def __init__(self, width: int, heads: int, attend: Any, length: int) -> None:
        super().__init__()
        self.three, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.heads, self.attend = heads, attend
        angles = torch.outer(
            torch.arange(length), 1e-4 ** torch.linspace(0, 1, width // heads // 2)
        )
        self.register_buffer("turns", torch.stack((angles.cos(), angles.sin())), persistent=False)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        cos, sin = self.turns[:, : x.shape[2]].to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.three(x).unflatten(-1, (3, self.heads, -1))
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = self.attend(self.turned(q), self.turned(k), v)
        return self.out(y.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    def __init__(self, width: int, inner: int, act: Any) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width)
        self.act = act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.up(x).chunk(2, -1)
        return self.down(self.act(a) * b)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, inner: int, attend: Any, **how: Any) -> None:
        super().__init__()
        norm, act, length = how.get("norm", nn.RMSNorm), how.get("act", F.silu), how["length"]
        self.norms = nn.ModuleList(norm(width) for _ in range(2))
        self.attention = Attention(width, heads, attend, length)
        self.gated = Gated(width, inner, act)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.gated(self.norms[1](x))


class Text(nn.Module):
    """Words, blocks, and the loss of every word."""

    def __init__(self, words: int, width: int, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.table, self.blocks = nn.Embedding(words, width), nn.ModuleList(blocks)
        self.norm, self.out = nn.RMSNorm(width), nn.Linear(width, words, bias=False)
        self.around: Any = lambda block, x: block(x)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        y = self.table(x)
        for block in self.blocks:
            y = self.around(block, y)
        logits = self.out(self.norm(y))
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def tokens(words: int, batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, words, (batch, length), device="cuda")


causal = partial(F.scaled_dot_product_attention, is_causal=True)


def encoder(batch: int, length: int, *, width: int = 768, layers: int = 3) -> Step:
    """As ModernBERT: two of three layers see 64 words to each side, gates of GELU."""
    place = torch.arange(length, device="cuda")
    near = (place[:, None] - place).abs() <= 64
    local = partial(F.scaled_dot_product_attention, attn_mask=near)
    how = {"norm": partial(nn.LayerNorm, bias=False), "act": F.gelu, "length": length}
    ways = [local if i % 3 else F.scaled_dot_product_attention for i in range(layers)]
    blocks: list[nn.Module] = [Block(width, 12, 1152, way, **how) for way in ways]
    model = Text(50_368, width, blocks).cuda()
    compiled = torch.compile(model)
    x = tokens(50_368, batch, length)
    return training(model, lambda: compiled(x, x))


def convnext_v2(batch: int) -> Step:
    """Norms of responses, one filter a channel, not channels last."""
    import timm

    sizes = {"depths": (1, 1, 2, 1), "dims": (96, 192, 384, 768)}
    model = timm.models.ConvNeXt(**sizes, use_grn=True, ls_init_value=None).cuda()
    compiled = torch.compile(model)
    x = torch.randn(batch, 3, 224, 224, device="cuda")
    labels = tokens(1000, 1, batch)[0]
    return training(model, lambda: F.cross_entropy(compiled(x).float(), labels))


class TwoStreams(nn.Module):
    """As Stable Diffusion 3: pictures and words have weights of their own and attend together."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.told = nn.Linear(width, 12 * width)
        self.three = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.after = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
            for _ in range(2)
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor, told: torch.Tensor) -> Any:
        parts = self.told(F.silu(told))[:, None].chunk(12, -1)
        both, three = [x, y], []
        for i, z in enumerate(both):
            shift, scale = parts[6 * i : 6 * i + 2]
            z = F.layer_norm(z, z.shape[-1:]) * (1 + scale) + shift
            three.append(self.three[i](z).unflatten(-1, (3, self.heads, -1)))
        q, k, v = torch.cat(three, 1).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(F.rms_norm(q, q.shape[-1:]), k, v)
        seen = found.transpose(1, 2).flatten(2).split([x.shape[1], y.shape[1]], 1)
        for i, z in enumerate(both):
            gate, shift, scale, last = parts[6 * i + 2 : 6 * i + 6]
            z = z + gate * self.out[i](seen[i])
            both[i] = z + last * self.after[i](F.layer_norm(z, z.shape[-1:]) * (1 + scale) + shift)
        return both


class Painter(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(TwoStreams(width, 16) for _ in range(layers))
        self.into, self.out = nn.Conv2d(16, width, 2, 2), nn.Linear(width, 64)

    def forward(self, x: torch.Tensor, y: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        x = self.into(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x, y = block(x, y, told)
        return self.out(x) + 0 * y.mean()


def painter(batch: int, size: int, words: int, *, width: int = 1024, layers: int = 3) -> Step:
    model = Painter(width, layers).cuda()
    compiled = torch.compile(model)
    x = torch.randn(batch, 16, size, size, device="cuda")
    y = torch.randn(batch, words, width, device="cuda")
    told = torch.randn(batch, width, device="cuda")
    noise = torch.randn(batch, size * size // 4, 64, device="cuda")
    return training(model, lambda: F.mse_loss(compiled(x, y, told).float(), noise))


def flex(batch: int, length: int, *, width: int = 1024, layers: int = 3) -> Step:
    """FlexAttention with documents of 1,000 words, and scores that fall with distance."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    document = torch.arange(length, device="cuda") // 1000
    slopes = torch.exp2(-torch.arange(16, device="cuda") / 2)

    def seen(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (document[q] == document[k])

    def farther(score: Any, batch: Any, head: Any, q: Any, k: Any) -> Any:
        return score - slopes[head] * (q - k)

    mask = create_block_mask(seen, None, None, length, length, device="cuda")
    attend = partial(flex_attention, score_mod=farther, block_mask=mask)
    blocks: list[nn.Module] = [Block(width, 16, 2816, attend, length=length) for _ in range(layers)]
    model = Text(32_000, width, blocks).to("cuda", BF16)
    compiled = torch.compile(model)
    x = tokens(32_000, batch, length)
    return training(model, lambda: compiled(x, x), autocast="", optimizer="adamw-fused")


class Scan(nn.Module):
    """A linear recurrence with a gate for each number, as running sums of logarithms."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm, self.into = nn.RMSNorm(width), nn.Linear(width, 3 * inner, bias=False)
        self.short = nn.Parameter(0.1 * torch.randn(4, inner))
        self.out = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values, gate, open = self.into(self.norm(x)).chunk(3, -1)
        near = F.pad(values, (0, 0, 3, 0))
        values = sum(near[:, i : i + x.shape[1]] * self.short[i] for i in range(4))
        gate = gate.float()
        kept = -F.softplus(gate).cumsum(1)
        new = F.logsigmoid(gate) + F.softplus(values.float()) - kept
        state = (kept + new.logcumsumexp(1)).exp()
        return x + self.out((state * F.silu(open)).to(x.dtype))


def scan(batch: int, length: int, *, width: int = 768, layers: int = 3) -> Step:
    blocks: list[nn.Module] = [Scan(width, 1536) for _ in range(layers)]
    model = Text(8192, width, blocks).cuda()
    compiled = torch.compile(model)
    x = tokens(8192, batch, length)
    return training(model, lambda: compiled(x, x))


def decoder(words: int, width: int, layers: int, length: int) -> Text:
    how = {"attend": causal, "length": length}
    return Text(words, width, [Block(width, width // 128, 4 * width, **how) for _ in range(layers)])


def blocks_and_update(batch: int, length: int, *, width: int = 2048, layers: int = 6) -> Step:
    """Every block compiled by itself, and so is the update."""
    model = decoder(32_000, width, layers, length).to("cuda", BF16)
    for block in model.blocks:
        block.compile(fullgraph=True)
    x = tokens(32_000, batch, length)
    return training(model, lambda: model(x, x), autocast="", prepare=compile_update)


def two_lengths(batch: int, *, width: int = 1024, layers: int = 2) -> Step:
    """dynamic=True: gradients of a batch of short and one of long texts are added."""
    model = decoder(50_304, width, layers, 1536).cuda()
    compiled = torch.compile(model, dynamic=True)
    short, long = tokens(50_304, batch, 640), tokens(50_304, batch, 1536)
    return training(model, lambda: compiled(short, short) + compiled(long, long))


def chosen_checkpoints(batch: int, length: int, *, width: int = 1536, layers: int = 3) -> Step:
    """Inside of what is compiled, everything but products and attention is computed again."""
    names = ("mm", "_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention")
    kept = {getattr(torch.ops.aten, name).default for name in names}

    def decide(context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        is_kept = operator in kept
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = partial(create_selective_checkpoint_contexts, decide)
    model = decoder(32_000, width, layers, length).cuda()
    model.around = partial(checkpoint, use_reentrant=False, context_fn=contexts)
    compiled = torch.compile(model)
    x = tokens(32_000, batch, length)
    return training(model, lambda: compiled(x, x))


def lora(batch: int, length: int, *, layers: int = 4) -> Step:
    """peft's LoRA with dropout of a Qwen2 in bf16."""
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": layers}
    sizes |= {"num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 32_000}
    model = Qwen2ForCausalLM(Qwen2Config(**sizes, use_cache=False)).to("cuda", BF16)
    targets = ["q_proj", "v_proj", "down_proj"]
    settings = LoraConfig(r=32, lora_dropout=0.05, use_rslora=True, target_modules=targets)
    adapted = get_peft_model(model, settings)
    compiled = torch.compile(adapted)
    x = tokens(32_000, batch, length)
    loss = lambda: compiled(input_ids=x, labels=x).loss  # noqa: E731
    return training(adapted, loss, autocast="")


def vit_graphs(batch: int) -> Step:
    """Layers that are scaled, no token of its own, in CUDA graphs."""
    import timm

    sizes = {"embed_dim": 384, "depth": 4, "num_heads": 6, "init_values": 1e-5}
    model = timm.models.VisionTransformer(**sizes, class_token=False, global_pool="avg").cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    x = torch.randn(batch, 3, 224, 224, device="cuda")
    labels = tokens(1000, 1, batch)[0]
    return training(model, lambda: F.cross_entropy(compiled(x).float(), labels))


def unet_last(batch: int, size: int) -> Step:
    """diffusers' U-Net with attention at its lowest resolution, channels last."""
    from diffusers import UNet2DModel

    down, up = ("DownBlock2D", "AttnDownBlock2D"), ("AttnUpBlock2D", "UpBlock2D")
    sizes = {"block_out_channels": (64, 128), "layers_per_block": 1}
    model = UNet2DModel(sample_size=size, down_block_types=down, up_block_types=up, **sizes)
    model = model.cuda().to(memory_format=torch.channels_last)
    compiled = torch.compile(model)
    x = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=torch.channels_last)
    times = tokens(1000, 1, batch)[0]
    return training(model, lambda: F.mse_loss(compiled(x, times).sample.float(), x))


class Mixing(nn.Module):
    """As gMLP: words are mixed by a matrix over places, which gates."""

    def __init__(self, width: int, inner: int, places: int) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * inner)
        self.down = nn.Linear(inner, width)
        self.mixed, self.over = nn.LayerNorm(inner), nn.Linear(places, places)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = F.gelu(self.up(self.norm(x))).chunk(2, -1)
        return x + self.down(a * self.over(self.mixed(b).mT).mT)


def mixing(batch: int, *, width: int = 384, layers: int = 6) -> Step:
    into = nn.Sequential(nn.Conv2d(3, width, 16, 16), nn.Flatten(2))
    blocks = nn.Sequential(*(Mixing(width, 1152, 196) for _ in range(layers)))
    parts = {"into": into, "blocks": blocks, "out": nn.Linear(width, 1000)}
    model = nn.ModuleDict(parts).cuda()
    x = torch.randn(batch, 3, 224, 224, device="cuda")
    labels = tokens(1000, 1, batch)[0]

    @torch.compile
    def loss() -> torch.Tensor:
        y = model["blocks"](model["into"](x).mT)
        return F.cross_entropy(model["out"](y.mean(1)).float(), labels, label_smoothing=0.1)

    return training(model, loss)


STEPS: dict[str, Callable[[], Step]] = {
    "encoder": lambda: encoder(24, 1024),
    "convnext_v2": lambda: convnext_v2(256),
    "painter": lambda: painter(64, 32, 160),
    "flex": lambda: flex(8, 4096),
    "scan": lambda: scan(48, 1024),
    "blocks_and_update": lambda: blocks_and_update(4, 1024),
    "two_lengths": lambda: two_lengths(8),
    "chosen_checkpoints": lambda: chosen_checkpoints(8, 1024),
    "lora": lambda: lora(8, 1024),
    "vit_graphs": lambda: vit_graphs(512),
    "unet_last": lambda: unet_last(32, 128),
    "mixing": lambda: mixing(384),
}


def build(*, name: str) -> Step:
    return STEPS[name]()
