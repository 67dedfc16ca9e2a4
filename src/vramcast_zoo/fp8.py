"""A linear layer that multiplies in 8 bits.

Weights and gradients stay as they are, the operands of each product are rounded.

    forward    y  = x Wᵀ      both as e4m3 (3 bits of fraction, up to 448)
    backward   dx = dy W      dy as e5m2 (2 bits of fraction, up to 57344)
               dW = dyᵀ x

Each tensor is scaled so that its largest entry is the format's largest. A GPU from compute
capability 8.9 on multiplies the 8-bit operands; anything else multiplies the same rounded values in
full, which gives the same result more slowly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
MULTIPLE = 16  # the kernels take no other widths


def quantise(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The rounded tensor and the scale that takes it back."""
    scale = x.abs().amax().float().clamp(min=1e-12) / torch.finfo(dtype).max
    return (x / scale.to(x.dtype)).to(dtype), scale


def product(
    a: Tensor, scale_a: Tensor, b_transposed: Tensor, scale_b: Tensor, out_dtype: torch.dtype
) -> Tensor:
    """a @ b of rounded operands, where b comes transposed, as the kernel wants it."""
    if a.is_cuda and torch.cuda.get_device_capability() >= (8, 9):
        return torch._scaled_mm(a, b_transposed.t(), scale_a, scale_b, out_dtype=out_dtype)
    wide = torch.promote_types(out_dtype, torch.float32)
    return ((a.to(wide) @ b_transposed.to(wide).t()) * (scale_a * scale_b)).to(out_dtype)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        x8, scale_x = quantise(x, FORWARD)
        w8, scale_w = quantise(weight, FORWARD)
        ctx.save_for_backward(x8, scale_x, w8, scale_w)
        return product(x8, scale_x, w8, scale_w, x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x8, scale_x, w8, scale_w = ctx.saved_tensors
        grad, scale = quantise(grads[0], BACKWARD)
        grad_x = product(grad, scale, w8.t().contiguous(), scale_w, grads[0].dtype)
        grad_weight = product(
            grad.t().contiguous(), scale, x8.t().contiguous(), scale_x, grads[0].dtype
        )
        return grad_x, grad_weight


class Fp8Linear(nn.Linear):
    def __init__(self, width_in: int, width_out: int) -> None:
        if width_in % MULTIPLE or width_out % MULTIPLE:
            raise ValueError(
                f"a product in 8 bits needs widths that are multiples of {MULTIPLE}, "
                f"not {width_in} and {width_out}"
            )
        super().__init__(width_in, width_out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        flat = x.flatten(0, -2)
        if flat.shape[0] % MULTIPLE:  # the gradient of the weight sums over the rows
            raise ValueError(
                f"a product in 8 bits needs batch_size · seq_len to be a multiple of {MULTIPLE}, "
                f"not {flat.shape[0]}"
            )
        y = _Product.apply(flat, self.weight.to(x.dtype))
        if self.bias is not None:
            y = y + self.bias.to(y.dtype)
        return y.unflatten(0, x.shape[:-1])


def multiply_in_fp8(model: nn.Module) -> None:
    """The plain linear layers inside the blocks, where their widths are what the kernels take.

    Embeddings and head stay as they are.
    """
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, nn.Module):
        raise ValueError(
            "precision='amp-fp8' multiplies in 8 bits inside the blocks of a model, "
            f"and {type(model).__name__} has none"
        )
    for module in blocks.modules():
        if (
            type(module) is nn.Linear
            and module.in_features % MULTIPLE == 0
            and module.out_features % MULTIPLE == 0
        ):
            module.__class__ = Fp8Linear  # the same weights
