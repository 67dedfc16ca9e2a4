"""Compiled steps and steps with kernels of other libraries: predicted and committed, then measured.
compiled_set.jsonl has what was predicted and measured; compiled_set.md compares.

    python .../simulated.py OUT.jsonl .../compiled_steps.py:step name=NAME
    python .../recording/record.py --out OUT --step .../compiled_steps.py:step name=NAME
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from unseen import BF16, Step, training

from vramcast_zoo.suites.compiled import UNet, compile_parts
from vramcast_zoo.suites.few_bits import small_optimizer

GRAPHS = {"mode": "reduce-overhead"}


def vit(batch: int, layers: int, **how: Any) -> Step:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(num_hidden_layers=layers, num_labels=1000)
    model = ViTForImageClassification(config).cuda()
    compiled = torch.compile(model, **how)
    x = torch.randn(batch, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (batch,), device="cuda")
    return training(model, lambda: compiled(x, labels=labels).loss)


def causal(config: Any, batch: int, length: int, called: str = "model", **how: Any) -> Step:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(config).to("cuda", BF16)
    compiled = compile_parts(model, called, **how)
    x = torch.randint(0, config.vocab_size, (batch, length), device="cuda")
    loss = lambda: compiled(input_ids=x, labels=x, use_cache=False).loss  # noqa: E731
    return training(model, loss, autocast=False, fused=True)


def qwen3(batch: int, length: int, layers: int, **how: Any) -> Step:
    from transformers import Qwen3Config

    config = Qwen3Config(
        vocab_size=32_000,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
    )
    return causal(config, batch, length, **how)


def bert(batch: int, length: int, layers: int, **how: Any) -> Step:
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(num_hidden_layers=layers)).cuda()
    compiled = torch.compile(model, **how)
    x = torch.randint(0, 30_000, (batch, length), device="cuda")
    return training(model, lambda: compiled(input_ids=x, labels=x).loss)


def t5(batch: int, length: int, layers: int, **how: Any) -> Step:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(num_layers=layers, d_model=768, d_ff=2048, num_heads=12, dropout_rate=0.0)
    config.use_cache, config.decoder_start_token_id = False, 0
    model = T5ForConditionalGeneration(config).cuda()
    compiled = torch.compile(model, **how)
    x = torch.randint(5, 30_000, (batch, length), device="cuda")
    return training(model, lambda: compiled(input_ids=x, labels=x).loss)


def resnet(name: str, batch: int, *, last: bool = False, **how: Any) -> Step:
    from torchvision.models import get_model

    layout = torch.channels_last if last else torch.contiguous_format
    model = get_model(name).cuda().to(memory_format=layout)
    compiled = torch.compile(model, **how)
    x = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=layout)
    labels = torch.randint(0, 1000, (batch,), device="cuda")
    return training(model, lambda: F.cross_entropy(compiled(x), labels), autocast=last)


def unet(batch: int, size: int, *, autocast: bool = True, **how: Any) -> Step:
    model = UNet(96).cuda()
    compiled = torch.compile(model, **how)
    x = torch.randn(batch, 3, size, size, device="cuda")
    return training(model, lambda: F.mse_loss(compiled(x).float(), x), autocast=autocast)


def float8(batch: int, *, width: int = 4096, layers: int = 6) -> Step:
    """Blocks of two products in float8, compiled, as torchao says to use them."""
    from torchao.float8 import convert_to_float8_training

    blocks = [
        nn.Sequential(
            nn.Linear(width, 2 * width, bias=False), nn.GELU(), nn.Linear(2 * width, width)
        )
        for _ in range(layers)
    ]
    model = convert_to_float8_training(nn.Sequential(*blocks).to("cuda", BF16))
    compiled = torch.compile(model)
    x = torch.randn(batch, width, device="cuda", dtype=BF16)
    loss = lambda: compiled(x).float().square().mean()  # noqa: E731
    return training(model, loss, autocast=False, fused=True)


STEPS: dict[str, Callable[[], Step]] = {
    "vit": lambda: vit(256, 2),
    "vit_graphs": lambda: vit(32, 2, **GRAPHS),
    "qwen3": lambda: qwen3(6, 2048, 2),
    "qwen3_dynamic": lambda: qwen3(6, 1024, 1, dynamic=True),
    "qwen3_blocks": lambda: qwen3(3, 1024, 8, called="blocks"),
    "bert": lambda: bert(64, 512, 2),
    "bert_graphs": lambda: bert(8, 128, 2, **GRAPHS),
    "t5": lambda: t5(24, 512, 1),
    "resnet": lambda: resnet("resnet34", 128, last=True),
    "resnet_graphs_fp32": lambda: resnet("resnet18", 32, **GRAPHS),
    "unet": lambda: unet(16, 256),
    "unet_dynamic_fp32": lambda: unet(8, 128, autocast=False, dynamic=True),
    "float8": lambda: float8(8192),
    "torchao_8bit": lambda: small_optimizer(library="torchao", depth=1, batch_size=24),
    "torchao_4bit": lambda: small_optimizer(library="torchao", name="AdamW4bit", depth=1),
    "torchao_fp8": lambda: small_optimizer(library="torchao", name="AdamWFp8", depth=1),
    "bitsandbytes_8bit": lambda: small_optimizer(depth=4, batch_size=12),
    "bitsandbytes_lion": lambda: small_optimizer(name="Lion8bit", depth=8, batch_size=4),
    "bitsandbytes_paged": lambda: small_optimizer(name="PagedAdamW8bit", depth=3, batch_size=16),
}


def step(*, name: str) -> Step:
    return STEPS[name]()
