# mypy: ignore-errors
"""Triton kernels of silu(causal depthwise convolution over four moments) and of its backward pass.

They are launched by launch.py.

On [batch, time, channel]. A program walks a block of channels of one sample through a stretch of
time, the last moments in registers: memory sees each number about once. Backward walks the other
way and computes the convolution again instead of having kept it.
"""

import triton
import triton.language as tl


@triton.jit
def _at(base, t, length, stride, inside):
    return tl.load(
        base + t.to(tl.int64) * stride, mask=(inside & (t >= 0) & (t < length)) != 0, other=0.0
    ).to(tl.float32)


@triton.jit
def _taps(weight, bias, channels, inside):
    """The weights of the moments three, two and one ago and of this one, and the bias."""
    w0 = tl.load(weight + channels * 4, mask=inside, other=0.0).to(tl.float32)
    w1 = tl.load(weight + channels * 4 + 1, mask=inside, other=0.0).to(tl.float32)
    w2 = tl.load(weight + channels * 4 + 2, mask=inside, other=0.0).to(tl.float32)
    w3 = tl.load(weight + channels * 4 + 3, mask=inside, other=0.0).to(tl.float32)
    return w0, w1, w2, w3, tl.load(bias + channels, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def conv_forward(
    out, u, weight, bias, length, width, stride, CHANNELS: tl.constexpr, STRETCH: tl.constexpr
):
    sample, begin = tl.program_id(0).to(tl.int64), tl.program_id(2) * STRETCH
    channels = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = channels < width
    w0, w1, w2, w3, shift = _taps(weight, bias, channels, inside)
    u += sample * length * stride + channels
    out += sample * length * width + channels
    u0 = _at(u, begin - 3, length, stride, inside)
    u1 = _at(u, begin - 2, length, stride, inside)
    u2 = _at(u, begin - 1, length, stride, inside)
    upcoming = _at(u, begin, length, stride, inside)
    for step in range(tl.minimum(STRETCH, length - begin)):
        t = begin + step
        u3 = upcoming
        upcoming = _at(u, t + 1, length, stride, inside)
        total = shift + w0 * u0 + w1 * u1 + w2 * u2 + w3 * u3
        tl.store(
            out + t.to(tl.int64) * width,
            (total / (1 + tl.exp(-total))).to(out.dtype.element_ty),
            mask=inside,
        )
        u0, u1, u2 = u1, u2, u3


@triton.jit
def conv_backward(
    grad_u,
    grad_parts,
    grad,
    u,
    weight,
    bias,
    length,
    width,
    stride,
    stretches,
    CHANNELS: tl.constexpr,
    STRETCH: tl.constexpr,
):
    """`grad_parts` [sample · stretches, 5, channel].

    The gradients of the four weights and of the bias, a stretch of a sample at a time.

    A stretch begins with the three moments after it, for what they send back into it.
    """
    sample, stretch = tl.program_id(0).to(tl.int64), tl.program_id(2)
    channels = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = channels < width
    w0, w1, w2, w3, shift = _taps(weight, bias, channels, inside)
    u += sample * length * stride + channels
    grad += sample * length * width + channels
    grad_u += sample * length * width + channels
    begin = stretch * STRETCH
    end = tl.minimum(begin + STRETCH, length)
    last = end + 2
    u1 = _at(u, last - 2, length, stride, inside)
    u2 = _at(u, last - 1, length, stride, inside)
    u3 = _at(u, last, length, stride, inside)
    # g of the moments one, two and three later. These first values are never used: the three
    # moments after the stretch come first. Were they equal, Triton 3.6 would take g2 and g3 for
    # constants.
    g1, g2, g3 = u1, u2, u3
    zero = tl.zeros((CHANNELS,), tl.float32)
    s0, s1, s2, s3, s4 = zero, zero, zero, zero, zero
    next_u, next_grad = (
        _at(u, last - 3, length, stride, inside),
        _at(grad, last, length, width, inside),
    )
    for step in range(last - begin + 1):
        t = last - step
        u0, dy = next_u, next_grad
        next_u, next_grad = (
            _at(u, t - 4, length, stride, inside),
            _at(grad, t - 1, length, width, inside),
        )
        total = shift + w0 * u0 + w1 * u1 + w2 * u2 + w3 * u3
        sigmoid = 1 / (1 + tl.exp(-total))
        g = dy * sigmoid * (1 + total * (1 - sigmoid))
        if t < end:
            back = w3 * g + w2 * g1 + w1 * g2 + w0 * g3
            tl.store(grad_u + t.to(tl.int64) * width, back.to(grad_u.dtype.element_ty), mask=inside)
            s0, s1, s2, s3, s4 = s0 + g * u0, s1 + g * u1, s2 + g * u2, s3 + g * u3, s4 + g
        g3, g2, g1 = g2, g1, g
        u3, u2, u1 = u2, u1, u0
    parts = grad_parts + (sample * stretches + stretch) * 5 * width + channels
    tl.store(parts, s0, mask=inside)
    tl.store(parts + width, s1, mask=inside)
    tl.store(parts + 2 * width, s2, mask=inside)
    tl.store(parts + 3 * width, s3, mask=inside)
    tl.store(parts + 4 * width, s4, mask=inside)
