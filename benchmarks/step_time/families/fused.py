"""Functions for torch.compile to fuse, from parts of networks that people write, in several sizes.

recording/fused_kernels.py compiles each, and records its kernels, how Inductor called them, and
how long they took. Sizes are drawn at random, always the same ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16
LAST = torch.channels_last
# per example of a function: the more elements, the more its memory tells
FEWEST, MOST = 3e5, 6e7
Tensors = list[torch.Tensor]


class Fused(NamedTuple):
    name: str
    function: Callable[..., torch.Tensor]
    tensors: Callable[[], Tensors]


def normal(*sizes: int, dtype: torch.dtype = FP32, last: bool = False) -> torch.Tensor:
    x = torch.randn(sizes, dtype=torch.float32, device="cuda").to(dtype)
    x = x.contiguous(memory_format=LAST) if last else x
    return x.requires_grad_()


def whole(most: int, *sizes: int) -> torch.Tensor:
    return torch.randint(0, most, sizes, device="cuda")


# What comes before a product: activations, gates, norms ----------------------------------------


def gelu_of_bias(x, b):
    return F.gelu(x + b)


def tanh_gelu(x, b):
    return F.gelu(x + b, approximate="tanh")


def gated_silu(x):
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


def gated_gelu(x):
    a, b = x.chunk(2, -1)
    return a * F.gelu(b)


def squared(x, b):
    return F.relu(x + b).square()


def glu_of_channels(x):
    return F.glu(x, 1)


def mish_and_scale(x, s):
    return F.mish(x) * s + F.softplus(s)


def elu_and_clamp(x):
    return F.elu(x).clamp(-3, 3) + F.leaky_relu(x, 0.2)


def layer_norm(x, r, w, b):
    y = x + r
    return F.layer_norm(y.float(), y.shape[-1:], w, b).to(x.dtype) + y


def layer_norm_dropout(x, r, w, b):
    y = r + F.dropout(x, 0.1)
    return F.layer_norm(y, y.shape[-1:], w.to(y.dtype), b.to(y.dtype)) * y


def rms_norm(x, w):
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)
    return w * y.to(x.dtype)


def rms_of_sum(x, r, w):
    y = x + r
    return F.rms_norm(y, y.shape[-1:], w.to(y.dtype)) + y


def modulated(x, scale, shift, gate):
    y = F.layer_norm(x, x.shape[-1:])
    return x + gate.unsqueeze(1) * (y * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1))


def group_norm_silu(x, w, b):
    return F.silu(F.group_norm(x, 32, w.to(x.dtype), b.to(x.dtype)))


def batch_norm_relu(x, w, b):
    return F.relu(F.batch_norm(x, None, None, w, b, training=True))


def batch_norm_of_two(x, y, w, b):
    return F.relu(F.batch_norm(x, None, None, w, b, training=True) + y)


def instance_norm_leaky(x):
    return F.leaky_relu(F.instance_norm(x), 0.01)


def scaled_layer(x, r, g):
    return r + g * x


def drop_path(x, r, g):
    kept = (torch.rand(x.shape[0], 1, 1, device=x.device) > 0.1).to(x.dtype)
    return r + x * g * kept / 0.9


# Attention by hand, positions ---------------------------------------------------------------------


def masked_softmax(s):
    mask = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril()
    return F.softmax((s * 0.125).masked_fill(~mask, -1e4), -1, dtype=torch.float32).to(s.dtype)


def biased_softmax(s, bias):
    return F.dropout(F.softmax(s + bias, -1), 0.1)


def capped_softmax(s):
    return F.softmax(30 * torch.tanh(s / 30), -1)


def sigmoid_scores(s, b):
    return torch.sigmoid(s + b) / s.shape[-1]


def turned_halves(q, k, cos, sin):
    def turned(x):
        a, b = x.chunk(2, -1)
        return torch.cat((-b, a), -1)

    q, k = q.transpose(1, 2), k.transpose(1, 2)
    return q * cos + turned(q) * sin + (k * cos + turned(k) * sin)


def turned_pairs(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def heads_apart(x):
    b, t, c = x.shape
    q, k, v = x.view(b, t, 3, 8, c // 24).permute(2, 0, 3, 1, 4)
    return (q * 0.125 + k).contiguous() * v


def relative_table(s, table, index):
    heads, side = s.shape[1], s.shape[2]
    bias = table[index.view(-1)].view(side, side, heads).permute(2, 0, 1)
    return s + bias.unsqueeze(0)


def waves(t):
    half = 128
    f = torch.exp(-math.log(10000) * torch.arange(half, device=t.device) / half)
    a = t[:, None] * f
    return torch.cat((a.cos(), a.sin()), -1)


def fourier_features(x, f):
    a = 2 * math.pi * (x.unsqueeze(-1) * f).sum(1)
    return torch.cat((a.sin(), a.cos()), -1)


# Losses -------------------------------------------------------------------------------------------


def cross_entropy(x, t):
    return F.cross_entropy(x.float(), t)


def cross_entropy_in_16_bits(x, t):
    return F.cross_entropy(x, t)


def smoothed_and_z(x, t):
    x = x.float()
    return F.cross_entropy(x, t, label_smoothing=0.1) + 1e-4 * x.logsumexp(-1).square().mean()


def capped_cross_entropy(x, t):
    return F.cross_entropy(15 * torch.tanh(x.float() / 15), t)


def distilled(x, y):
    p = F.log_softmax(y.float() / 2, -1)
    return F.kl_div(F.log_softmax(x.float() / 2, -1), p, log_target=True, reduction="batchmean")


def of_pixels(x, t):
    return F.cross_entropy(x.float(), t)


def binary(x, y):
    return F.binary_cross_entropy_with_logits(x, y.sigmoid())


def focal(x, y):
    p, t = x.float().sigmoid(), (y > 0).float()
    return (-(1 - p * t).square() * torch.log(p.clamp(1e-6))).mean()


def huber_and_cosine(x, y):
    return F.huber_loss(x, y) + (1 - F.cosine_similarity(x, y, -1)).mean()


def contrast(x):
    x = x.float() / 0.07
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape)
    one_way = F.cross_entropy(x, rows % x.shape[1])
    return one_way + F.cross_entropy(x.t(), columns % x.shape[0])


def mixture(x, m, s, p):
    z = (x.unsqueeze(-1) - m) * torch.exp(-s)
    return -torch.logsumexp(F.log_softmax(p, -1) - s - 0.5 * z.square(), -1).mean()


def dice(x, y):
    p, y = x.sigmoid(), y.sigmoid()
    both = (p * y).sum((2, 3))
    return 1 - (2 * both / (p.sum((2, 3)) + y.sum((2, 3)) + 1)).mean()


# Sums, and what is chosen -------------------------------------------------------------------------


def sum_of_rows(x):
    return x.float().sum(0)


def sum_of_columns(x):
    return x.float().square().sum(-1)


def sum_of_middle(x):
    return x.sum(1) * 0.5


def sum_of_pixels(x):
    return x.mean((2, 3))


def largest_of_middle(x):
    return x.amax(1) + x.mean(1)


def variance(x):
    v, m = torch.var_mean(x, -1, keepdim=True)
    return (x - m) / (v + 1e-5).sqrt()


def unit_length(x, w):
    return F.normalize(x, dim=-1) * F.normalize(w, dim=0)


def running_sums(x):
    return torch.exp(-F.softplus(x).cumsum(1))


def chunk_gates(a):
    c = a.cumsum(-1)
    d = c.unsqueeze(-1) - c.unsqueeze(-2)
    return torch.exp(d.masked_fill(~torch.ones_like(d, dtype=torch.bool).tril(), -torch.inf))


def nearest_codes(x, codes):
    return (x.unsqueeze(1) - codes).square().sum(-1).min(1).values


def pairs_of_nodes(a, b, w):
    return (F.relu(a.unsqueeze(2) + b.unsqueeze(1)) * w).sum(-1)


def words(table, index):
    return F.embedding(index, table) * 2.0


def words_and_places(table, places, index, w):
    y = F.embedding(index, table) + places
    return F.layer_norm(y, y.shape[-1:], w)


def messages(x, source, target):
    return torch.zeros_like(x).index_add(0, target, F.silu(x[source]))


def softmax_of_nodes(s, target):
    e = torch.exp(s - s.amax())
    total = torch.zeros(1 + s.shape[0] // 16, s.shape[1], device=s.device)
    return e / (total.index_add(0, target, e)[target] + 1e-9)


def chosen(x, index):
    return x.gather(1, index) * 2 + x.take_along_dim(index, 1)


def best_experts(s):
    p = F.softmax(s, -1)
    v, i = p.topk(2, -1)
    weights = torch.zeros_like(p).scatter(-1, i, v / v.sum(-1, keepdim=True))
    return weights * p.mean(0)


# Where things lie ---------------------------------------------------------------------------------


def joined(x, y):
    return F.relu(torch.cat((x, y * 2), 1))


def joined_last(x, y):
    return torch.cat((x, F.silu(y)), -1) * 0.5


def windows(x):
    b, h, w, c = x.shape
    y = torch.roll(x, (-3, -3), (1, 2)).view(b, h // 8, 8, w // 8, 8, c)
    return F.gelu(y.permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, c))


def patches(x):
    b, c, h, w = x.shape
    y = x.view(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1)
    return F.layer_norm(y.reshape(b, h * w // 16, 16 * c), (16 * c,))


def shuffled(x):
    return F.relu(F.pixel_shuffle(x, 2))


def turned(x):
    return (x.transpose(1, 2) * 2).contiguous()


def turned_norm(x, w):
    return F.layer_norm(x.flatten(2).transpose(1, 2), x.shape[1:2], w)


def channels_to_last(x):
    return (x.permute(0, 2, 3, 1) + 1).contiguous()


def padded(x):
    return F.pad(x, (1, 1, 1, 1), mode="reflect") * 2


def shifted_convolution(x, w):
    y = F.pad(x, (0, 0, 3, 0))
    return F.silu(sum(y[:, i : i + x.shape[1]] * w[i] for i in range(4)))


def mixed_in_time(x, m):
    before = F.pad(x, (0, 0, 1, -1))
    return x * m + before * (1 - m)


def repeated_heads(k, q):
    b, t, h, d = k.shape
    k = k[:, :, :, None].expand(b, t, h, 4, d).reshape(b, t, 4 * h, d)
    return (q * k).transpose(1, 2).contiguous()


def pooled(x):
    return F.max_pool2d(F.relu(x), 2)


def pooled_over(x):
    return F.max_pool2d(x, 3, 2, 1)


def averaged(x):
    return F.avg_pool2d(F.silu(x), 2)


def enlarged(x, y):
    return F.interpolate(x, scale_factor=2.0) + y


def enlarged_smoothly(x, y):
    return F.interpolate(x, scale_factor=2.0, mode="bilinear") + y


def squeezed(x, s):
    return x * torch.sigmoid(s)[:, :, None, None]


def seen(x):
    return (x.permute(0, 3, 1, 2).float() / 255 - 0.45) / 0.22


def noised(x, n, t):
    a = torch.cos(t)[:, None, None, None]
    return a * x + (1 - a * a).sqrt() * n


def quantised(x, s):
    y = (x / s).round().clamp(-127, 127) * s
    return x + (y - x).detach()


def flow(x, s, t):
    s = 2 * torch.tanh(s)
    return (x * torch.exp(s) + t).square() + s


def lstm_like(g, c):
    i, f, o, n = g.chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(n)
    return torch.sigmoid(o) * torch.tanh(c)


def exponential_average(p, q):
    return torch.lerp(p, q, 0.01)


# Sizes --------------------------------------------------------------------------------------------

WIDTHS = (64, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 1536, 2048, 2304, 3072, 4096)
SIDES = (7, 14, 16, 28, 32, 48, 56, 64, 96, 112, 128, 192, 224, 256)
WORDS = (1000, 8192, 30_522, 32_000, 50_257, 50_304, 65_536, 128_256, 151_936)
DTYPES = (BF16, BF16, FP16, FP32, FP32)


def rows_of(draw: random.Random, width: int, most: float = MOST) -> int:
    at_least, at_most = math.log(FEWEST / width), math.log(most / width)
    return max(1, int(math.exp(draw.uniform(at_least, max(at_least, at_most)))))


def of_rows(
    function: Callable[..., Any], *kinds: str, wide: int = 1, widths: tuple[int, ...] = WIDTHS
) -> Callable[[random.Random], Fused]:
    """Each tensor is as large as the first (x), a row of it (w), or a row in fp32 (f)."""

    def made(draw: random.Random) -> Fused:
        dtype, width = draw.choice(DTYPES), wide * draw.choice(widths)
        rows = rows_of(draw, width)
        length = draw.choice((1, 64, 197, 512, 1024))
        batch = max(1, rows // length)
        sizes = {"x": (batch, length, width), "w": (width,), "f": (width,), "s": (batch, width)}

        def tensors() -> Tensors:
            return [normal(*sizes[k], dtype=FP32 if k == "f" else dtype) for k in kinds]

        return Fused(f"{function.__name__} {batch}x{length}x{width} {dtype}", function, tensors)

    return made


def of_pictures(
    function: Callable[..., Any], *kinds: str, least: int = 8
) -> Callable[[random.Random], Fused]:
    """Each is as large as the first (x), twice its side (X), has a number for each channel in fp32
    (f), each picture (n), or each channel of a picture (s)."""

    def made(draw: random.Random) -> Fused:
        dtype, last = draw.choice(DTYPES), draw.random() < 0.5
        side = draw.choice([side for side in SIDES if side >= least and side % 8 == 0 or side > 48])
        side -= side % 8
        channels = draw.choice((32, 64, 96, 128, 256, 512, 1024)) if side < 200 else 32
        batch = min(512, rows_of(draw, channels * side * side))
        shapes = {
            "x": (batch, channels, side, side),
            "X": (batch, channels, 2 * side, 2 * side),
            "f": (channels,),
            "n": (batch,),
            "s": (batch, channels),
        }

        def tensors() -> Tensors:
            return [
                normal(*shapes[k], dtype=FP32 if k == "f" else dtype, last=last and k in "xX")
                for k in kinds
            ]

        layout = "last" if last else "first"
        name = f"{function.__name__} {batch}x{channels}x{side} {dtype} {layout}"
        return Fused(name, function, tensors)

    return made


def of_scores(function: Callable[..., Any], *kinds: str) -> Callable[[random.Random], Fused]:
    def made(draw: random.Random) -> Fused:
        dtype, length = draw.choice(DTYPES), draw.choice((49, 64, 128, 197, 256, 512, 1024, 2048))
        heads = draw.choice((4, 8, 12, 16))
        batch = rows_of(draw, heads * length * length)
        shapes = {"x": (batch, heads, length, length), "b": (heads, length, length)}

        def tensors() -> Tensors:
            found = [normal(*shapes[k], dtype=dtype) for k in kinds if k in shapes]
            if "t" in kinds:
                found.append(normal(512, heads, dtype=FP32))
            return [*found, whole(512, length * length)] if "i" in kinds else found

        return Fused(f"{function.__name__} {batch}x{heads}x{length} {dtype}", function, tensors)

    return made


def of_words(function: Callable[..., Any], *, is_class: bool = True) -> Callable[..., Fused]:
    def made(draw: random.Random) -> Fused:
        dtype, width = draw.choice(DTYPES), draw.choice(WORDS)
        rows = max(64, rows_of(draw, width, 4e8))

        def tensors() -> Tensors:
            other = whole(width, rows) if is_class else normal(rows, width, dtype=dtype)
            return [normal(rows, width, dtype=dtype), other]

        return Fused(f"{function.__name__} {rows}x{width} {dtype}", function, tensors)

    return made


def shaped(
    function: Callable[..., Any], *choices: tuple[Any, ...], most: float = MOST
) -> Callable[[random.Random], Fused]:
    """Of a choice each tuple is a tensor: its sizes, N one that is drawn, after WHOLE and a limit
    if it has whole numbers, after ALWAYS_FP32 if it has that precision."""

    def made(draw: random.Random) -> Fused:
        dtype, choice = draw.choice(DTYPES), draw.choice(choices)
        elements = max(math.prod(s for s in sizes if not isinstance(s, str)) for sizes in choice)
        n = rows_of(draw, elements, most)

        def tensor(sizes: tuple[Any, ...]) -> torch.Tensor:
            kind, *numbers = [n if size == N else size for size in sizes]
            if kind == WHOLE:
                return whole(*numbers)
            return (
                normal(*numbers, dtype=FP32)
                if kind == ALWAYS_FP32
                else normal(kind, *numbers, dtype=dtype)
            )

        name = f"{function.__name__} {n} {choice[0]} {dtype}"
        return Fused(name, function, lambda: [tensor(sizes) for sizes in choice])

    return made


N, WHOLE, ALWAYS_FP32 = "N", "whole", "fp32"
HEADS = [((N, 1024, h, d), (N, 1024, h, d), (1024, d), (1024, d)) for h, d in ((8, 128), (12, 64))]
PAIRS = [((N, 1024, h, d), (1024, 1, d // 2), (1024, 1, d // 2)) for h, d in ((8, 128), (12, 64))]
TABLES = [(rows, width) for rows in (1000, 32_000) for width in (256, 768, 2048)]
NODES = [(nodes, width) for nodes in (20_000, 200_000) for width in (32, 64, 128)]

MAKERS: tuple[Callable[[random.Random], Fused], ...] = (
    of_rows(gelu_of_bias, "x", "w"),
    of_rows(tanh_gelu, "x", "w"),
    of_rows(gated_silu, "x", wide=2),
    of_rows(gated_gelu, "x", wide=2),
    of_rows(squared, "x", "w"),
    of_rows(mish_and_scale, "x", "w"),
    of_rows(elu_and_clamp, "x"),
    of_rows(layer_norm, "x", "x", "f", "f"),
    of_rows(layer_norm_dropout, "x", "x", "f", "f"),
    of_rows(rms_norm, "x", "w"),
    of_rows(rms_of_sum, "x", "x", "f"),
    of_rows(modulated, "x", "s", "s", "s"),
    of_rows(scaled_layer, "x", "x", "w"),
    of_rows(drop_path, "x", "x", "w"),
    of_rows(sum_of_columns, "x"),
    of_rows(sum_of_middle, "x"),
    of_rows(largest_of_middle, "x"),
    of_rows(variance, "x"),
    of_rows(unit_length, "x", "w"),
    of_rows(running_sums, "x", widths=(64, 128, 256, 512)),
    of_rows(huber_and_cosine, "x", "x"),
    of_rows(binary, "x", "x"),
    of_rows(focal, "x", "x"),
    of_rows(turned, "x"),
    of_rows(joined_last, "x", "x"),
    of_rows(quantised, "x", "w"),
    of_rows(flow, "x", "x", "x"),
    of_rows(exponential_average, "x", "x"),
    of_pictures(glu_of_channels, "x"),
    of_pictures(group_norm_silu, "x", "f", "f"),
    of_pictures(batch_norm_relu, "x", "f", "f"),
    of_pictures(batch_norm_of_two, "x", "x", "f", "f"),
    of_pictures(instance_norm_leaky, "x"),
    of_pictures(sum_of_pixels, "x"),
    of_pictures(joined, "x", "x"),
    of_pictures(patches, "x"),
    of_pictures(shuffled, "x"),
    of_pictures(turned_norm, "x", "f"),
    of_pictures(channels_to_last, "x"),
    of_pictures(padded, "x"),
    of_pictures(pooled, "x"),
    of_pictures(pooled_over, "x"),
    of_pictures(averaged, "x"),
    of_pictures(enlarged, "x", "X"),
    of_pictures(enlarged_smoothly, "x", "X"),
    of_pictures(squeezed, "x", "s"),
    of_pictures(noised, "x", "x", "n"),
    of_pictures(dice, "x", "x"),
    of_scores(masked_softmax, "x"),
    of_scores(biased_softmax, "x", "b"),
    of_scores(capped_softmax, "x"),
    of_scores(sigmoid_scores, "x", "b"),
    of_scores(relative_table, "x", "t", "i"),
    of_words(cross_entropy),
    of_words(cross_entropy_in_16_bits),
    of_words(smoothed_and_z),
    of_words(capped_cross_entropy),
    of_words(distilled, is_class=False),
    shaped(turned_halves, *HEADS),
    shaped(turned_pairs, *PAIRS),
    shaped(heads_apart, ((N, 256, 768),), ((N, 1024, 1536),), ((N, 197, 2304),)),
    shaped(waves, ((N,),), most=2e6),
    shaped(fourier_features, ((N, 3), (1, 3, 128)), most=1e8),
    shaped(contrast, ((N, 4096),), ((N, 16_384),)),
    shaped(of_pixels, ((N, 21, 128, 128), (WHOLE, 21, N, 128, 128))),
    shaped(mixture, ((N, 1), *[(N, 1, 10)] * 3), ((N, 1), *[(N, 1, 32)] * 3)),
    shaped(lstm_like, ((N, 8192), (N, 2048)), ((N, 1024), (N, 256))),
    shaped(sum_of_rows, ((N, 64),), ((N, 1024),), ((N, 4096),), ((N, 50_257),)),
    shaped(chunk_gates, ((N, 8, 64),), ((N, 16, 128),), ((N, 4, 256),), most=5e5),
    shaped(nearest_codes, ((N, 32), (512, 32)), ((N, 8), (1024, 8)), most=2e8),
    shaped(pairs_of_nodes, ((N, 64, 32), (N, 64, 32), (32,)), most=2e6),
    shaped(windows, ((N, 56, 56, 96),), ((N, 32, 32, 192),), ((N, 16, 16, 384),)),
    shaped(shifted_convolution, ((N, 512, 1536), (4, 1536)), ((N, 2048, 768), (4, 768))),
    shaped(mixed_in_time, ((N, 512, 1024), (1024,)), ((N, 2048, 512), (512,))),
    shaped(repeated_heads, ((N, 1024, 4, 64), (N, 1024, 16, 64))),
    shaped(seen, ((WHOLE, 256, N, 224, 224, 3),), most=4e5),
    shaped(best_experts, ((N, 8),), ((N, 16),), ((N, 64),)),
    shaped(chosen, ((N, 1024), (WHOLE, 1024, N, 512))),
    *[shaped(words, *[((r, w), (WHOLE, r, N, 512)) for r, w in TABLES], most=1e8)],
    shaped(
        words_and_places,
        *[((ALWAYS_FP32, r, w), (512, w), (WHOLE, r, N, 512), (w,)) for r, w in TABLES],
        most=1e8,
    ),
    shaped(messages, *[((n, w), *[(WHOLE, n, 8 * n)] * 2) for n, w in NODES]),
    shaped(softmax_of_nodes, *[((ALWAYS_FP32, 16 * n, 8), (WHOLE, n, 16 * n)) for n, _ in NODES]),
)


def drawn(seed: int, each: int) -> Iterator[Fused]:
    draw = random.Random(seed)
    for maker in MAKERS:
        yield from (maker(draw) for _ in range(each))
