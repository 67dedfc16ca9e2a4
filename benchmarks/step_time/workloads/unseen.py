"""Steps that no rate was made from, of several fields: predicted and committed, then measured.

    python benchmarks/step_time/simulated.py OUT.jsonl benchmarks/step_time/workloads/unseen.py:NAME
    python benchmarks/step_time/recording/record.py --out OUT --step .../unseen.py:NAME

unseen.jsonl has what was predicted and measured; unseen.md compares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Step = Callable[[], Any]
BF16 = torch.bfloat16


def training(
    model: nn.Module, loss_of: Callable[[], torch.Tensor], *, autocast: bool = True, **of_adam: Any
) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **of_adam)

    def step() -> torch.Tensor:
        with torch.autocast("cuda", BF16, enabled=autocast):
            loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def classified(model: nn.Module, batch: int, size: int, *, last: bool = False, **more: Any) -> Step:
    """Images with labels; a model of transformers returns its logits in a record."""
    layout = torch.channels_last if last else torch.contiguous_format
    model = model.cuda().to(memory_format=layout)
    x = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=layout)
    labels = torch.randint(0, 1000, (batch,), device="cuda")

    def loss() -> torch.Tensor:
        found = model(x)
        return F.cross_entropy(getattr(found, "logits", found).float(), labels)

    return training(model, loss, **more)


# ------------------------------------------------------------------------ the GPU is busy
def convnext(*, batch_size: int = 64) -> Step:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(num_labels=1000)
    return classified(ConvNextForImageClassification(config), batch_size, 224)


def swin(*, batch_size: int = 64) -> Step:
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(num_labels=1000)
    return classified(SwinForImageClassification(config), batch_size, 224)


def segformer(*, batch_size: int = 16) -> Step:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    model = SegformerForSemanticSegmentation(SegformerConfig(num_labels=150)).cuda()
    x = torch.randn(batch_size, 3, 512, 512, device="cuda")
    labels = torch.randint(0, 150, (batch_size, 512, 512), device="cuda")
    return training(model, lambda: model(x, labels=labels).loss)


def qwen(*, batch_size: int = 4, seq_len: int = 2048) -> Step:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=60_000,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=12,
        num_attention_heads=16,
        num_key_value_heads=4,
        use_cache=False,
    )
    model = Qwen2ForCausalLM(config).to("cuda", BF16)
    x = torch.randint(0, 60_000, (batch_size, seq_len), device="cuda")
    loss = lambda: model(input_ids=x, labels=x).loss  # noqa: E731
    return training(model, loss, autocast=False, fused=True)


def sets(*, batch_size: int = 8192, members: int = 12) -> Step:
    """Attention of many short sequences, as of players, columns or points."""
    layer = nn.TransformerEncoderLayer(96, 4, 256, dropout=0.0, batch_first=True, norm_first=True)
    model = nn.Sequential(*(nn.TransformerEncoder(layer, 4), nn.Linear(96, 1))).cuda()
    x = torch.randn(batch_size, members, 96, device="cuda")
    return training(model, lambda: model(x).float().square().mean())


def language_lstm(*, batch_size: int = 64, seq_len: int = 120) -> Step:
    model = nn.ModuleDict(
        {
            "table": nn.Embedding(20_000, 650),
            "cells": nn.LSTM(650, 650, 2, batch_first=True),
            "out": nn.Linear(650, 20_000),
        }
    ).cuda()
    x = torch.randint(0, 20_000, (batch_size, seq_len + 1), device="cuda")

    def loss() -> torch.Tensor:
        y = model["out"](model["cells"](model["table"](x[:, :-1]))[0])
        return F.cross_entropy(y.flatten(0, 1), x[:, 1:].flatten())

    return training(model, loss, autocast=False)


def tokens_in_the_middle(*, batch_size: int = 24, seq_len: int = 200) -> Step:
    """The loss of [batch, words, places], as many translate: a softmax across rows."""
    model = nn.Sequential(
        nn.Embedding(24_000, 512),
        *(nn.TransformerEncoderLayer(512, 8, 1024, batch_first=True) for _ in range(3)),
        nn.Linear(512, 24_000),
    ).cuda()
    x = torch.randint(0, 24_000, (batch_size, seq_len), device="cuda")
    return training(model, lambda: F.cross_entropy(model(x).transpose(1, 2), x))


def spline_bins(*, batch_size: int = 16_384, features: int = 48, bins: int = 10) -> Step:
    """What spline flows do: softmax, running sums and a search over short rows."""
    net = nn.Sequential(nn.Linear(features, 256), nn.ReLU(), nn.Linear(256, features * 2 * bins))
    net = net.cuda()
    x = torch.rand(batch_size, features, device="cuda")

    def loss() -> torch.Tensor:
        y, total = x, x.new_zeros(())
        for _ in range(4):
            widths, heights = net(y).view(-1, features, 2, bins).softmax(-1).unbind(2)
            edges, tops = widths.cumsum(-1), heights.cumsum(-1)
            place = (y[..., None] > edges).sum(-1, keepdim=True).clamp(max=bins - 1)
            left, width = (edges - widths).gather(-1, place), widths.gather(-1, place)
            low, height = (tops - heights).gather(-1, place), heights.gather(-1, place)
            y = (low + height * (y[..., None] - left) / width)[..., 0].clamp(0, 1)
            total = total + (height / width).log().mean()
        return -total

    return training(net, loss, autocast=False)


def offloaded(*, batch_size: int = 8, seq_len: int = 1024) -> Step:
    """What is kept for backward waits in pinned memory of the host."""
    layers = (
        nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True, norm_first=True)
        for _ in range(6)
    )
    model = nn.Sequential(*layers).cuda()
    x = torch.randn(batch_size, seq_len, 1024, device="cuda")

    def loss() -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return model(x).float().square().mean()

    return training(model, loss)


def messages(*, nodes: int = 60_000, degree: int = 20, width: int = 128) -> Step:
    """A graph network without a library."""
    model = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(4)).cuda()
    x = torch.randn(nodes, width, device="cuda")
    source, target = (torch.randint(0, nodes, (nodes * degree,), device="cuda") for _ in range(2))

    def loss() -> torch.Tensor:
        y = x
        for layer in model:
            sums = torch.zeros_like(y).index_add(0, target, y.index_select(0, source))
            y = F.relu(layer(torch.cat([y, sums / degree], -1)))
        return y.square().mean()

    return training(model, loss, autocast=False)


# ------------------------------------------------------------------------ the host is slower
def wav2vec(*, batch_size: int = 4, seconds: int = 5) -> Step:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(num_hidden_layers=6, layerdrop=0.0, mask_time_prob=0.0)
    model = Wav2Vec2Model(config).cuda()
    x = torch.randn(batch_size, 16_000 * seconds, device="cuda")
    return training(model, lambda: model(x).last_hidden_state.float().square().mean())


def bart(*, batch_size: int = 4, seq_len: int = 64) -> Step:
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        vocab_size=10_000, d_model=512, encoder_layers=4, decoder_layers=4, use_cache=False
    )
    model = BartForConditionalGeneration(config).cuda()
    x = torch.randint(5, 10_000, (batch_size, seq_len), device="cuda")
    return training(model, lambda: model(input_ids=x, labels=x).loss)


def policy(*, batch_size: int = 512) -> Step:
    """Actor and critic of small networks."""
    actor = nn.Sequential(nn.Linear(24, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
    model = nn.ModuleDict({"body": actor, "mean": nn.Linear(128, 6), "value": nn.Linear(128, 1)})
    model = model.cuda()
    x, action = (
        torch.randn(batch_size, 24, device="cuda"),
        torch.randn(batch_size, 6, device="cuda"),
    )
    advantage = torch.randn(batch_size, device="cuda")

    def loss() -> torch.Tensor:
        y = model["body"](x)
        chosen = torch.distributions.Normal(model["mean"](y), 1.0)
        ratio = (chosen.log_prob(action).sum(-1) - 1.0).exp()
        clipped = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        return F.mse_loss(model["value"](y)[:, 0], advantage) - clipped.mean()

    return training(model, loss, autocast=False)


# ------------------------------------------------------------------------ compiled
def compiled_convnext(*, batch_size: int = 32) -> Step:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(num_labels=1000, depths=[1, 1, 3, 1])
    return classified(torch.compile(ConvNextForImageClassification(config).cuda()), batch_size, 224)


def compiled_mixer(*, batch_size: int = 16, depth: int = 6) -> Step:
    """Small: the host is slower."""

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(256) for _ in range(2))
            self.tokens, self.channels = (
                nn.Sequential(nn.Linear(n, 2 * n), nn.GELU(), nn.Linear(2 * n, n))
                for n in (196, 256)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.norms[1](x))

    model = torch.compile(nn.Sequential(*(Mixer() for _ in range(depth))).cuda())
    x = torch.randn(batch_size, 196, 256, device="cuda")
    return training(model, lambda: model(x).float().square().mean())


def compiled_llama(*, batch_size: int = 4, seq_len: int = 1024) -> Step:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32_000,
        hidden_size=1536,
        intermediate_size=4096,
        num_hidden_layers=4,
        num_attention_heads=12,
        num_key_value_heads=4,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).to("cuda", BF16)
    compiled = torch.compile(model)
    x = torch.randint(0, 32_000, (batch_size, seq_len), device="cuda")
    loss = lambda: compiled(input_ids=x, labels=x).loss  # noqa: E731
    return training(model, loss, autocast=False, fused=True)


def compiled_autoencoder(*, batch_size: int = 8) -> Step:
    """Small convolutions: the host is slower."""
    down = [
        nn.Sequential(nn.Conv2d(i, o, 3, 2, 1), nn.GroupNorm(8, o), nn.SiLU())
        for i, o in ((3, 32), (32, 64), (64, 128), (128, 256))
    ]
    up = [
        nn.Sequential(nn.ConvTranspose2d(i, o, 4, 2, 1), nn.GroupNorm(1, o), nn.SiLU())
        for i, o in ((256, 128), (128, 64), (64, 32), (32, 3))
    ]
    model = nn.Sequential(*down, *up).cuda()
    compiled = torch.compile(model)
    x = torch.randn(batch_size, 3, 128, 128, device="cuda")
    return training(model, lambda: F.mse_loss(compiled(x).float(), x))
