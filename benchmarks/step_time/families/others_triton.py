"""Operators of Liger Kernel and of flash-linear-attention, forward and backward, at drawn sizes."""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from own_triton import BF16, Launch

WIDTHS = (512, 768, 1024, 2048, 2560, 3072, 4096, 5120, 8192)
VOCABULARIES = (32000, 50257, 128256, 151936)


def some(*sizes: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(sizes, device="cuda", dtype=dtype, requires_grad=True)


def of(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def trained(call: Callable[[], Any]) -> Launch:
    def launch() -> None:
        found = call()
        outputs = [
            each for each in (found if isinstance(found, tuple) else (found,)) if each is not None
        ]
        torch.autograd.backward(outputs[:1], [torch.ones_like(outputs[0])])

    return launch


def tokens_and_width(draw: random.Random, most: float = 8.2) -> tuple[int, int]:
    width = draw.choice(WIDTHS)
    return int(10 ** draw.uniform(6.8, most)) // width // 64 * 64, width


def liger_rms_norm(draw: random.Random) -> Launch:
    tokens, width = tokens_and_width(draw)
    x, weight = some(tokens, width), some(width)
    apply, mode = (
        of("liger_kernel.ops.rms_norm", "LigerRMSNormFunction").apply,
        draw.choice(("llama", "gemma", "none")),
    )
    return trained(lambda: apply(x, weight, 1e-6, 0.0, mode, False))


def liger_layer_norm(draw: random.Random) -> Launch:
    tokens, width = tokens_and_width(draw)
    x, weight, bias = some(tokens, width), some(width), some(width)
    apply = of("liger_kernel.ops.layer_norm", "LigerLayerNormFunction").apply
    return trained(lambda: apply(x, weight, bias, 1e-6))


def liger_glu(draw: random.Random) -> Launch:
    width = draw.choice((1536, 2048, 4096, 8192, 11008, 14336))
    tokens = int(10 ** draw.uniform(6.8, 8.2)) // width
    gate, up = some(tokens, width), some(tokens, width)
    swiglu = of("liger_kernel.ops.swiglu", "LigerSiLUMulFunction").apply
    geglu = of("liger_kernel.ops.geglu", "LigerGELUMulFunction").apply
    apply = draw.choice((swiglu, geglu))
    return trained(lambda: apply(gate, up))


def liger_cross_entropy(draw: random.Random) -> Launch:
    words = draw.choice(VOCABULARIES)
    tokens = int(10 ** draw.uniform(7.2, 8.8)) // words
    logits, targets = some(tokens, words), torch.randint(0, words, (tokens,), device="cuda")
    apply = of("liger_kernel.ops.cross_entropy", "LigerCrossEntropyFunction").apply
    return trained(lambda: apply(logits.clone(), targets, None)[0])


def liger_rope(draw: random.Random) -> Launch:
    batch, length = draw.choice((1, 2, 4, 8)), draw.choice((512, 1024, 2048, 4096))
    heads, kept, width = draw.choice(((32, 8, 128), (16, 16, 64), (24, 8, 128), (8, 1, 256)))
    q = some(batch, length, heads, width).transpose(1, 2)
    k = some(batch, length, kept, width).transpose(1, 2)
    cos = torch.randn(1, length, width, device="cuda", dtype=BF16)
    apply = of("liger_kernel.ops.rope", "LigerRopeFunction").apply
    return trained(lambda: apply(q, k, cos, cos))


def liger_softmax(draw: random.Random) -> Launch:
    tokens, width = tokens_and_width(draw)
    x = some(tokens, width)
    apply = of("liger_kernel.ops.softmax", "LigerSoftmaxFunction").apply
    return trained(lambda: apply(x))


def liger_kl(draw: random.Random) -> Launch:
    words = draw.choice(VOCABULARIES)
    tokens = int(10 ** draw.uniform(7.2, 8.4)) // words
    one, other = some(tokens, words, dtype=torch.float32), some(tokens, words, dtype=torch.float32)
    apply = of("liger_kernel.ops.jsd", "LigerJSDFunction").apply
    one_log, other_log = (
        F.log_softmax(each.detach(), -1).requires_grad_() for each in (one, other)
    )
    return trained(lambda: apply(one_log, other_log))


def liger_group_norm(draw: random.Random) -> Launch:
    batch, channels, side = draw.choice((8, 16, 32)), draw.choice((128, 256, 512)), 32
    x, weight, bias = some(batch, channels, side * side), some(channels), some(channels)
    apply = of("liger_kernel.ops.group_norm", "LigerGroupNormFunction").apply
    return trained(lambda: apply(x, weight, bias, channels, 32, 1e-6))


def fla_small(draw: random.Random) -> Launch:
    batch, length = draw.choice((1, 2, 4, 8)), draw.choice((1024, 2048, 4096))
    width = draw.choice((512, 1024, 2048, 4096))
    x, y, weight = some(batch, length, width), some(batch, length, width), some(width)
    taps = some(width, 4)
    norms, glu = "fla.modules.norm", "fla.modules.activations"
    calls: tuple[Callable[[], Any], ...] = (
        lambda: of(f"{norms}.layernorm", "rms_norm")(x, weight, None),
        lambda: of(f"{norms}.fused_norm_gate", "rms_norm_gated")(x, y, weight, None),
        lambda: of(glu, "swiglu")(x, y),
        lambda: of("fla.modules.token_shift", "token_shift")(x),
        lambda: of("fla.modules.causal_conv1d", "causal_conv1d")(x, taps, activation="silu"),
    )
    return trained(draw.choice(calls))


def fla_cross_entropy(draw: random.Random) -> Launch:
    words = draw.choice(VOCABULARIES)
    tokens = int(10 ** draw.uniform(7.2, 8.6)) // words
    logits, targets = some(tokens, words), torch.randint(0, words, (tokens,), device="cuda")
    call = of("fla.modules.fused_cross_entropy", "cross_entropy_loss")
    return trained(lambda: call(logits, targets)[0])


def fla_attention(draw: random.Random) -> Launch:
    batch, length = draw.choice((1, 2, 4, 8)), draw.choice((1024, 2048, 4096))
    heads, width = draw.choice((8, 16, 32)), 128
    q, k, v, gates = (some(batch, length, heads, width) for _ in range(4))
    beta = some(batch, length, heads)
    logs = F.logsigmoid(beta.detach().float()).requires_grad_()
    calls: tuple[Callable[[], Any], ...] = (
        lambda: of("fla.ops.retention", "chunk_retention")(q, k, v)[0],
        lambda: of("fla.ops.simple_gla", "chunk_simple_gla")(q, k, v, logs)[0],
        lambda: of("fla.ops.gla", "chunk_gla")(q, k, v, F.logsigmoid(gates))[0],
        lambda: of("fla.ops.delta_rule", "chunk_delta_rule")(
            q, F.normalize(k, dim=-1), v, beta.sigmoid()
        )[0],
        lambda: of("fla.ops.gated_delta_rule", "chunk_gated_delta_rule")(
            q, F.normalize(k, dim=-1), v, logs, beta.sigmoid()
        )[0],
    )
    return trained(calls[draw.randrange(len(calls))])


CASES: tuple[Callable[[random.Random], Launch], ...] = (
    liger_rms_norm,
    liger_layer_norm,
    liger_glu,
    liger_cross_entropy,
    liger_rope,
    liger_softmax,
    liger_kl,
    liger_group_norm,
    fla_small,
    fla_cross_entropy,
    fla_attention,
)
