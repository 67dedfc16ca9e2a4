"""Slow references in float64, written from the equations with plain arithmetic.

One moment after the other, nothing shared with the zoo.

A reference takes the model's parameters by name and returns logits; autograd differentiates it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Parameters = dict[str, Tensor]


def compare(
    model: nn.Module,
    reference: Callable[[Parameters], Tensor],
    inputs: Tensor,
    targets: Tensor,
    tolerance: float = 1e-9,
) -> None:
    """Outputs and the gradient of every parameter.

    `reference` turns parameters into logits [..., classes] for these inputs.
    """
    leaves = {
        name: parameter.detach().clone().requires_grad_()
        for name, parameter in model.named_parameters()
    }
    expected = reference(leaves)
    expected_loss = cross_entropy(expected, targets)
    expected_grads = torch.autograd.grad(expected_loss, list(leaves.values()), allow_unused=True)
    loss = model.loss(inputs, targets)
    loss.backward()
    torch.testing.assert_close(loss, expected_loss, rtol=tolerance, atol=tolerance)
    for (name, parameter), grad in zip(model.named_parameters(), expected_grads):
        assert (parameter.grad is None) == (grad is None), name
        if grad is not None:
            scale = float(grad.abs().max()) or 1.0
            torch.testing.assert_close(
                parameter.grad / scale,
                grad / scale,
                rtol=0,
                atol=10 * tolerance,
                msg=lambda m, n=name: f"{n}: {m}",
            )


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    likelihood = logits.exp() / logits.exp().sum(-1, keepdim=True)
    return -likelihood.gather(-1, targets.unsqueeze(-1)).log().mean()


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def softplus(x: Tensor) -> Tensor:
    return torch.log(1 + torch.exp(x))


def softmax(x: Tensor) -> Tensor:
    return x.exp() / x.exp().sum(-1, keepdim=True)


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def layer_norm(x: Tensor, p: Parameters, name: str, eps: float = 1e-5) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * p[f"{name}.weight"] + p[f"{name}.bias"]


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + eps) * weight


def linear(x: Tensor, p: Parameters, name: str) -> Tensor:
    y = x @ p[f"{name}.weight"].T
    return y + p[f"{name}.bias"] if f"{name}.bias" in p else y


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x [batch, time, channel], weight [channel, 1, taps]: the last tap is the present one."""
    taps = weight.shape[-1]
    moments = []
    for t in range(x.shape[1]):
        past = [
            x[:, t - taps + 1 + i] * weight[:, 0, i] for i in range(taps) if t - taps + 1 + i >= 0
        ]
        moments.append(sum(past) + bias)
    return torch.stack(moments, 1)


def rotated(x: Tensor, theta: float = 10_000.0) -> Tensor:
    """Channels c and c + half as complex numbers, turned by t · theta^(-2c / channels)."""
    half = x.shape[-1] // 2
    points = torch.complex(x[..., :half], x[..., half:])
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * theta ** (
        -torch.arange(half, dtype=torch.float64) / half
    )
    turned = points * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((turned.real, turned.imag), -1)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One head of one sample after the other, one query after the other.

    The heads of k and v serve groups of those of q.
    """
    group = q.shape[1] // k.shape[1]
    out = torch.empty(*q.shape[:3], v.shape[-1], dtype=q.dtype).tolist()
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for t in range(q.shape[2]):
                scores = k[b, h // group, : t + 1] @ q[b, h, t] / math.sqrt(q.shape[-1])
                out[b][h][t] = softmax(scores) @ v[b, h // group, : t + 1]
    return torch.stack([torch.stack([torch.stack(head) for head in sample]) for sample in out])


def heads_of(x: Tensor, heads: int) -> Tensor:
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


# -------------------------------------------------------------------------------- the byte ladder
def ladder(
    p: Parameters, tokens: Tensor, depth: int, layer: Callable[[Tensor, Parameters, str], Tensor]
) -> Tensor:
    x = p["embedding.weight"][tokens]
    for number in range(depth):
        name = f"blocks.{number}"
        x = x + layer(layer_norm(x, p, f"{name}.norm"), p, f"{name}.layer")
    return layer_norm(x, p, "norm") @ p["embedding.weight"].T


def spectrally_normalised(weight: Tensor, u: Tensor) -> Tensor:
    matrix = weight.detach()
    for _ in range(3):
        v = matrix.T @ u / torch.linalg.norm(matrix.T @ u)
        u = matrix @ v / torch.linalg.norm(matrix @ v)
    return weight * 0.99 / (abs(u @ weight @ v) + 1e-8)


def elman_states(drive: Tensor, weight: Tensor) -> Tensor:
    """drive [batch, time, width]."""
    state, states = torch.zeros_like(drive[:, 0]), []
    for t in range(drive.shape[1]):
        state = torch.tanh(drive[:, t] + state @ weight.T)
        states.append(state)
    return torch.stack(states, 1)


def ema(states: Tensor, decay: Tensor) -> Tensor:
    """[batch, time, width], [width]."""
    memory, memories = torch.zeros_like(states[:, 0]), []
    for t in range(states.shape[1]):
        memory = decay * memory + (1 - decay) * states[:, t]
        memories.append(memory)
    return torch.stack(memories, 1)


def e1_layer(u: dict[str, Tensor]) -> Callable[[Tensor, Parameters, str], Tensor]:
    def layer(x: Tensor, p: Parameters, name: str) -> Tensor:
        x, z = linear(x, p, f"{name}.project_in").chunk(2, -1)
        states = elman_states(
            linear(silu(x), p, f"{name}.drive"),
            spectrally_normalised(p[f"{name}.recurrent.weight"], u[name]),
        )
        return linear(states * silu(z), p, f"{name}.project_out")

    return layer


def e5_layer(x: Tensor, p: Parameters, name: str) -> Tensor:
    full = {
        part: p[f"{name}.{part}.up"] @ p[f"{name}.{part}.down"]
        for part in ("recurrent", "input", "gate")
    }
    states = elman_states(x @ full["input"].T + p[f"{name}.bias"], full["recurrent"])
    return states * silu(x @ full["gate"].T)


def e10_layer(u: dict[str, Tensor], banks: int) -> Callable[[Tensor, Parameters, str], Tensor]:
    def layer(x: Tensor, p: Parameters, name: str) -> Tensor:
        x, gate, *bank_gates = linear(x, p, f"{name}.project_in").chunk(2 + banks, -1)
        states = elman_states(
            linear(silu(x), p, f"{name}.drive"),
            spectrally_normalised(p[f"{name}.recurrent.weight"], u[name]),
        )
        out = states * silu(gate)
        for bank in range(banks):
            out = out + ema(states, sigmoid(p[f"{name}.decay_logit"][bank])) * silu(
                bank_gates[bank]
            )
        return linear(out, p, f"{name}.project_out")

    return layer


def state_space(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """S_t = exp(dt A) S + dt x Bᵀ, y = S C.

    x and dt are [batch, time, channel], a [channel], b and c [batch, time, state].
    """
    state = torch.zeros(x.shape[0], x.shape[2], b.shape[2], dtype=x.dtype)
    outputs = []
    for t in range(x.shape[1]):
        state = (
            torch.exp(dt[:, t] * a)[..., None] * state
            + (dt[:, t] * x[:, t])[..., None] * b[:, t, None, :]
        )
        outputs.append((state * c[:, t, None, :]).sum(-1))
    return torch.stack(outputs, 1)


def mamba2_layer(x: Tensor, p: Parameters, name: str) -> Tensor:
    dim = x.shape[-1]
    inner, heads = 2 * dim, 2 * dim // 64
    projected = linear(x, p, f"{name}.project_in")
    state = (projected.shape[-1] - 2 * inner - heads) // 2
    z, mixed, dt = projected.split((inner, inner + 2 * state, heads), -1)
    mixed = silu(causal_conv(mixed, p[f"{name}.conv.weight"], p[f"{name}.conv.bias"]))
    x, b, c = mixed.split((inner, state, state), -1)
    dt = softplus(dt + p[f"{name}.dt_bias"]).repeat_interleave(64, -1)
    a = -p[f"{name}.a_log"].exp().repeat_interleave(64)
    y = state_space(x, dt, a, b, c) + x * p[f"{name}.skip"].repeat_interleave(64)
    return linear(rms_norm(y * silu(z), p[f"{name}.norm.weight"]), p, f"{name}.project_out")


# ----------------------------------------------------------------------------------- transformers
def decoder_block(x: Tensor, p: Parameters, name: str, heads: int, kv_heads: int) -> Tensor:
    n = rms_norm(x, p[f"{name}.norm_1.weight"])
    k, v = linear(n, p, f"{name}.mixer.key_value").chunk(2, -1)
    q, k, v = (
        heads_of(linear(n, p, f"{name}.mixer.query"), heads),
        heads_of(k, kv_heads),
        heads_of(v, kv_heads),
    )
    x = x + linear(joined(attention(rotated(q), rotated(k), v)), p, f"{name}.mixer.out")
    n = rms_norm(x, p[f"{name}.norm_2.weight"])
    gated = silu(linear(n, p, f"{name}.feed_forward.gate")) * linear(
        n, p, f"{name}.feed_forward.up"
    )
    return x + linear(gated, p, f"{name}.feed_forward.down")


def llama(p: Parameters, tokens: Tensor, depth: int, heads: int, kv_heads: int) -> Tensor:
    x = p["embedding.weight"][tokens]
    for number in range(depth):
        x = decoder_block(x, p, f"blocks.{number}", heads, kv_heads)
    return linear(rms_norm(x, p["norm.weight"]), p, "head")


def yxanul(p: Parameters, tokens: Tensor, depth: int, heads: int, kv_heads: int) -> Tensor:
    x = p["embedding.weight"][tokens] @ p["widen.weight"].T
    for number in range(depth):
        x = decoder_block(x, p, f"blocks.{number}", heads, kv_heads)
    x = rms_norm(x, p["norm.weight"])
    return (
        linear(x, p, "head")
        if "head.weight" in p
        else x @ p["widen.weight"] @ p["embedding.weight"].T
    )


def gpt2(p: Parameters, tokens: Tensor, depth: int, heads: int) -> Tensor:
    x = p["embedding.weight"][tokens] + p["position.weight"][: tokens.shape[1]]
    for number in range(depth):
        name = f"blocks.{number}"
        q, k, v = (
            heads_of(t, heads)
            for t in linear(layer_norm(x, p, f"{name}.norm_1"), p, f"{name}.qkv").chunk(3, -1)
        )
        x = x + linear(joined(attention(q, k, v)), p, f"{name}.out")
        x = x + linear(
            gelu_tanh(linear(layer_norm(x, p, f"{name}.norm_2"), p, f"{name}.up")),
            p,
            f"{name}.down",
        )
    return layer_norm(x, p, "norm") @ p["embedding.weight"].T


# ----------------------------------------------------------------------------------------- Elleci
class AsIfNotRounded(torch.autograd.Function):
    """The value of one tensor, the gradient of another."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, rounded: Tensor) -> Tensor:
        return rounded.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


def bit_linear(x: Tensor, p: Parameters, name: str) -> Tensor:
    x, weight = rms_norm(x, p[f"{name}.norm.weight"]), p[f"{name}.weight"]
    largest = x.detach().abs().max(-1, keepdim=True).values
    rounded_x = torch.round(x.detach() * 127 / largest) * largest / 127
    unit = weight.detach().abs().mean()
    rounded_weight = torch.round(weight.detach() / unit).clamp(-1, 1) * unit
    return AsIfNotRounded.apply(x, rounded_x) @ AsIfNotRounded.apply(weight, rounded_weight).T


def latent_attention(x: Tensor, p: Parameters, name: str, heads: int) -> Tensor:
    latent = linear(x, p, f"{name}.down")
    compressed, shared = latent[..., :128], latent[..., 128:]
    k, v = linear(compressed, p, f"{name}.up").chunk(2, -1)
    q, k, v = heads_of(linear(x, p, f"{name}.query"), heads), heads_of(k, heads), heads_of(v, heads)
    q = torch.cat((q[..., :-32], rotated(q[..., -32:])), -1)
    k = torch.cat((k[..., :-32], rotated(k[..., -32:] + shared[:, None])), -1)
    return linear(joined(attention(q, k, v)), p, f"{name}.out")


def elleci_mamba(x: Tensor, p: Parameters, name: str) -> Tensor:
    u, z = linear(x, p, f"{name}.project_in").chunk(2, -1)
    u = silu(causal_conv(u, p[f"{name}.conv.weight"], p[f"{name}.conv.bias"]))
    step, b, c = linear(u, p, f"{name}.select").split((8, 16, 16), -1)
    dt = softplus(linear(step, p, f"{name}.step"))
    width = u.shape[-1] // 8
    y = state_space(u, dt, -p[f"{name}.a_log"].exp().repeat_interleave(width), b, c) + u * p[
        f"{name}.skip"
    ].repeat_interleave(width)
    return linear(layer_norm(y * silu(z), p, f"{name}.norm"), p, f"{name}.project_out")


def elleci(p: Parameters, tokens: Tensor, depth: int, heads: int) -> Tensor:
    x = p["embedding.weight"][tokens] + p["position.weight"][: tokens.shape[1]]
    for number in range(depth):
        name = f"blocks.{number}"
        n = layer_norm(x, p, f"{name}.norm_1")
        x = x + (
            latent_attention(n, p, f"{name}.mixer", heads)
            if number % 2
            else elleci_mamba(n, p, f"{name}.mixer")
        )
        n = layer_norm(x, p, f"{name}.norm_2")
        x = x + bit_linear(
            gelu(bit_linear(n, p, f"{name}.feed_forward.0")), p, f"{name}.feed_forward.2"
        )
    return linear(layer_norm(x, p, "norm"), p, "head")


# -------------------------------------------------------------------------------------------- OD1
def gru(x: Tensor, h: Tensor, p: Parameters, name: str) -> Tensor:
    from_x = (p[f"{name}.weight_ih"] @ x + p[f"{name}.bias_ih"]).chunk(3)
    from_h = (p[f"{name}.weight_hh"] @ h + p[f"{name}.bias_hh"]).chunk(3)
    reset, update = sigmoid(from_x[0] + from_h[0]), sigmoid(from_x[1] + from_h[1])
    return (1 - update) * torch.tanh(from_x[2] + reset * from_h[2]) + update * h


def on_ring(delta: Tensor, length: int) -> Tensor:
    """The representative of a difference in [-length/2, length/2), by taking turns away."""
    return delta - length * torch.floor(delta.detach() / length + 0.5)


def od1(p: Parameters, x: Tensor, starts: Tensor, length: int, num_heads: int) -> Tensor:
    return torch.stack(
        [_od1_sample(p, sample[:, 0], start, length, num_heads) for sample, start in zip(x, starts)]
    )


def _od1_sample(p: Parameters, x: Tensor, pointer: Tensor, length: int, num_heads: int) -> Tensor:
    width = p["input.bias"].shape[0]
    slots = [torch.zeros(width, dtype=x.dtype) for _ in range(length)]
    senses = [torch.zeros_like(p["sense.bias"]) for _ in range(length // 2)]
    g, h = torch.zeros_like(p["sense.bias"]), torch.zeros(width, dtype=x.dtype)
    for t, value in enumerate(x):
        place = t % (length // 2)
        g = gru(
            torch.tanh(p["sense.weight"][:, 0] * value + p["sense.bias"]) + senses[place],
            g,
            p,
            "sense_cell",
        )
        senses[place] = g
        driven = torch.tanh(p["bridge.weight"] @ g + p["bridge.bias"])
        below = math.floor(pointer.item())
        weight = softmax(torch.stack([-((below + k - pointer) ** 2) / 8 for k in range(-2, 3)]))
        context = sum(weight[k + 2] * slots[(below + k) % length] for k in range(-2, 3))
        h = gru(driven + sigmoid(p["context_logit"]) * context, h, p, "cell")
        for k in range(-2, 3):
            slots[(below + k) % length] = slots[(below + k) % length] + weight[k + 2] * h
        pointer = _moved(p, pointer, h, below % length, length)
    slot = math.floor(pointer.item()) % length
    logits = p["heads.weight"] @ (slots[slot] + h) + p["heads.bias"]
    head = slot * num_heads // length
    return logits[256 * head : 256 * (head + 1)]


def _moved(p: Parameters, pointer: Tensor, h: Tensor, slot: int, length: int) -> Tensor:
    jump, walk, inertia, deadzone = p["steer.weight"] @ h + p["steer.bias"]
    target = sigmoid(p["target_logit"][slot]) * (length - 1)
    target = AsIfNotRounded.apply(target, target.detach().round())
    walked = pointer + sigmoid(walk)
    wanted = walked + sigmoid(jump + p["gate_logit"][slot]) * on_ring(target - walked, length)
    delta = on_ring((1 - sigmoid(inertia)) * on_ring(wanted - pointer, length), length)
    pointer = pointer + sigmoid((abs(delta) - softplus(deadzone)) / 0.25) * delta
    return pointer - length * torch.floor(pointer.detach() / length)
