"""Causal attention and rotary positions, as the transformers of the zoo use them.

Tensors are [batch, head, time, channel].
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

# "auto": torch chooses among its kernels; "plain": the products and the softmax written out
Attention = Literal["auto", "flash", "efficient", "cudnn", "math", "plain"]
KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


def causal_attention(q: Tensor, k: Tensor, v: Tensor, attention: Attention = "auto") -> Tensor:
    """softmax(q kᵀ / √channels, no moment later than its own) v.

    Keys and values may have fewer heads than queries: each serves a group.
    """
    groups = q.shape[1] // k.shape[1]
    kernel_takes_groups = attention in ("auto", "flash", "cudnn", "math") and q.dtype in (
        torch.float16,
        torch.bfloat16,
    )
    if groups > 1 and not kernel_takes_groups:
        k, v, groups = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1), 1
    if attention == "plain":
        return _plain(q, k, v)
    if attention == "auto":
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=groups > 1)
    with sdpa_kernel(KERNELS[attention]):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=groups > 1)


def _plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(future, -math.inf).softmax(-1).to(v.dtype) @ v


def split_heads(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def rotary_angles(
    length: int, channels: int, theta: float, device: torch.device
) -> tuple[Tensor, Tensor]:
    """cos and sin of t · theta^(-2c / channels), each [length, channels / 2]."""
    frequency = theta ** (
        -torch.arange(0, channels, 2, device=device, dtype=torch.float32) / channels
    )
    angle = torch.outer(torch.arange(length, device=device, dtype=torch.float32), frequency)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channels c and c + half, as a point in the plane, by the angle of their position."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
