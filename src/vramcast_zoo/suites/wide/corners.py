"""Corners of torch: layers, masks, hooks, optimizers and ways to compute again, few use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import distributions as D
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def volumes_and_grids(*, batch_size: int = 4, size: int = 32, width: int = 32) -> Step:
    """A volume is warped, pooled with places, unpooled, and padded in every way."""
    first = nn.Conv3d(1, width, 3, padding=1, padding_mode="circular").cuda()
    second = nn.Conv3d(width, width, 3, groups=4).cuda()
    last = nn.ConvTranspose3d(width, 1, 4, 2, 1).cuda()
    shift = nn.Parameter(torch.eye(3, 4, device="cuda").expand(batch_size, -1, -1).clone())
    volumes = torch.rand(batch_size, 1, size, size, size, device="cuda")

    def loss() -> torch.Tensor:
        grid = F.affine_grid(shift, volumes.shape, align_corners=False)
        x = F.grid_sample(volumes, grid, padding_mode="border", align_corners=False)
        x, places = F.max_pool3d(first(x), 2, return_indices=True)
        x = F.pad(F.rrelu(x, training=True), (1,) * 6, mode="replicate")
        x = F.max_unpool3d(second(x), places, 2)
        x = F.interpolate(x, scale_factor=0.5, mode="trilinear", recompute_scale_factor=True)
        x = last(F.local_response_norm(x, 3))
        return F.smooth_l1_loss(x, volumes) + F.adaptive_avg_pool3d(x, 3).var()

    modules = nn.ModuleList([first, second, last])
    return training_step(loss, [*modules.parameters(), shift])


def patches(*, batch_size: int = 6, size: int = 128, width: int = 48) -> Step:
    """Local attention over unfolded windows, folded back; shuffled pixels; odd poolings."""
    enter = nn.Conv2d(3, width, 3, padding=1, padding_mode="reflect").cuda()
    turn = nn.Linear(width * 9, width * 9).cuda()
    wide, leave = nn.Conv2d(width, 4 * width, 1).cuda(), nn.Conv2d(width, 3, 3, padding=1).cuda()
    images = torch.rand(batch_size, 3, size, size, device="cuda")

    def loss() -> torch.Tensor:
        x = enter(F.pixel_unshuffle(images, 2)[:, :3])
        near = F.unfold(x, 3, padding=1).mT
        x = F.fold(F.silu(turn(near)).mT, x.shape[2:], 3, padding=1) / 9
        x = F.pixel_shuffle(wide(x), 2)
        soft = F.lp_pool2d(x, 2.0, 4) + F.adaptive_max_pool2d(x, size // 4)
        part, _ = F.fractional_max_pool2d(soft, 2, output_ratio=(0.7, 0.7), return_indices=True)
        up = F.interpolate(part, (size, size), mode="bicubic", align_corners=True)
        return F.l1_loss(leave(x + F.channel_shuffle(up, 4)), images)

    modules = nn.ModuleList([enter, turn, wide, leave])
    return training_step(loss, modules.parameters(), optimizer="sgd")


def judged_by_eval(*, batch_size: int = 16, length: int = 256, width: int = 512) -> Step:
    """A student of torch's encoder; its teacher evaluates padded sentences on the fast path."""

    def make(depth: int) -> nn.TransformerEncoder:
        layer = nn.TransformerEncoderLayer(width, 8, batch_first=True, activation="gelu")
        return nn.TransformerEncoder(layer, depth).cuda()

    student, teacher = make(4), make(6).eval().requires_grad_(False)
    words = nn.Embedding(10_000, width).cuda()
    tokens = torch.randint(0, 10_000, (batch_size, length), device="cuda")
    lengths = torch.randint(length // 4, length, (batch_size,))
    padding = (torch.arange(length) >= lengths[:, None]).cuda()

    def loss() -> torch.Tensor:
        x = words(tokens)
        with torch.no_grad():
            goal = teacher(x, src_key_padding_mask=padding)
        made = student(x, src_key_padding_mask=padding)
        longest = goal.shape[1]
        return F.mse_loss(made[:, :longest][~padding[:, :longest]], goal[~padding[:, :longest]])

    return training_step(loss, [*student.parameters(), *words.parameters()])


def heads_with_extras(*, batch_size: int = 12, length: int = 320, width: int = 384) -> Step:
    """MultiheadAttention with every mask, a bias for keys, a zero, and weights of every head."""
    across = nn.MultiheadAttention(width, 6, 0.1, add_bias_kv=True, add_zero_attn=True).cuda()
    other = nn.MultiheadAttention(width, 6, kdim=128, vdim=96, batch_first=True).cuda()
    x = torch.randn(length, batch_size, width, device="cuda")
    keys = torch.randn(batch_size, 200, 128, device="cuda")
    values = torch.randn(batch_size, 200, 96, device="cuda")
    causal = nn.Transformer.generate_square_subsequent_mask(length, device="cuda")
    padding = torch.zeros(batch_size, length, device="cuda").masked_fill(
        torch.arange(length, device="cuda") > 250, float("-inf")
    )

    def loss() -> torch.Tensor:
        made, weights = across(
            x, x, x, attn_mask=causal, key_padding_mask=padding, average_attn_weights=False
        )
        made, _ = other(made.transpose(0, 1), keys, values, need_weights=False)
        return F.mse_loss(made, x.transpose(0, 1)) - 1e-3 * torch.special.entr(weights).mean()

    return training_step(loss, nn.ModuleList([across, other]).parameters())


def every_backend(*, batch_size: int = 4, length: int = 768, heads: int = 8) -> Step:
    """Attention by each of torch's kernels in turn, in half precision."""
    width = 64 * heads
    kinds = [
        SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH,
        SDPBackend.CUDNN_ATTENTION,
    ]  # fmt: skip
    enter = nn.ModuleList(nn.Linear(width, 3 * width) for _ in kinds).cuda().half()
    x = torch.randn(batch_size, length, width, device="cuda", dtype=torch.half)

    def loss() -> torch.Tensor:
        made = x
        for kind, layer in zip(kinds, enter):
            q, k, v = layer(F.layer_norm(made, (width,))).unflatten(-1, (3, heads, 64)).unbind(2)
            with sdpa_kernel(kind):
                out = F.scaled_dot_product_attention(
                    q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
                )
            made = made + out.transpose(1, 2).flatten(2)
        return made.float().square().mean()

    return training_step(loss, enter.parameters(), optimizer="sgd", clip=0)


def flexible(*, batch_size: int = 2, length: int = 512, width: int = 512) -> Step:
    """FlexAttention without a compiler: a window and a score that falls with the distance."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    enter = nn.Linear(width, 3 * width).cuda()
    x = torch.randn(batch_size, length, width, device="cuda")

    def near(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q - k < 128)

    mask = create_block_mask(near, None, None, length, length, device="cuda")

    def loss() -> torch.Tensor:
        q, k, v = enter(x).unflatten(-1, (3, 8, -1)).permute(2, 0, 3, 1, 4)
        made = flex_attention(q, k, v, lambda s, b, h, i, j: s - 0.1 * (i - j), block_mask=mask)
        return F.mse_loss(made.transpose(1, 2).flatten(2), x)

    return training_step(loss, enter.parameters())


def cells_in_a_loop(*, batch_size: int = 96, length: int = 40, width: int = 384) -> Step:
    """Cells of three kinds, one step after the other, with old-style normed weights."""
    kinds = nn.ModuleList([nn.LSTMCell(64, width), nn.GRUCell(width, width)]).cuda()
    plain = nn.utils.weight_norm(nn.RNNCell(width, width), "weight_hh").cuda()
    leave = nn.utils.spectral_norm(nn.Linear(width, 64)).cuda()
    x = torch.randn(length, batch_size, 64, device="cuda")

    def loss() -> torch.Tensor:
        h = c = g = r = torch.zeros(batch_size, width, device="cuda")
        made = []
        for now in x:
            h, c = kinds[0](now, (h, c))
            g = kinds[1](F.feature_alpha_dropout(h, 0.1, True), g)
            r = plain(g, r)
            made.append(leave(r))
        return F.mse_loss(torch.stack(made), x)

    modules = nn.ModuleList([kinds, plain, leave])
    return training_step(loss, modules.parameters(), clip=0.5)


def bags_of_every_mode(*, batch_size: int = 2048, rows: int = 60_000, width: int = 96) -> Step:
    """Bags by sum, mean and largest; rows too long are shortened; Adagrad with a penalty."""
    modes = ("sum", "mean", "max")
    bags = nn.ModuleList(
        nn.EmbeddingBag(rows, width, mode=mode, max_norm=2.0 if mode == "mean" else None)
        for mode in modes
    ).cuda()
    table = nn.Embedding(rows, width, padding_idx=0, scale_grad_by_freq=True).cuda()
    head = nn.Bilinear(3 * width, width, 1).cuda()
    words = torch.randint(1, rows, (batch_size * 12,), device="cuda")
    begins = torch.arange(0, batch_size * 12, 12, device="cuda")
    wanted = torch.randint(0, 2, (batch_size, 1), device="cuda").float()
    every = nn.ModuleList([bags, table, head])
    update = torch.optim.Adagrad(every.parameters(), weight_decay=1e-5, lr_decay=1e-3)

    def step() -> torch.Tensor:
        update.zero_grad(set_to_none=False)
        joined = torch.cat([bag(words, begins) for bag in bags], -1)
        near = table(words.view(batch_size, -1)).logsumexp(1)
        weight = torch.tensor(3.0, device="cuda")
        made = head(joined, near)
        loss = F.binary_cross_entropy_with_logits(made, wanted, pos_weight=weight)
        loss.backward()
        nn.utils.clip_grad_value_(every.parameters(), 0.1)
        update.step()
        return loss.detach()

    return step


def hard_triplets(*, batch_size: int = 384, width: int = 512, size: int = 32) -> Step:
    """The hardest of each class are mined, and a dozen losses of torch are added up."""
    lines = nn.Sequential(
        nn.Conv2d(3, 64, 5, 2, dilation=2), nn.ReLU6(), nn.Conv2d(64, 128, 3, 2), nn.GLU(1),
        nn.AdaptiveMaxPool2d(3), nn.Flatten(), nn.Linear(576, width), nn.Softsign(),
    ).cuda()  # fmt: skip
    images = torch.rand(batch_size, 3, size, size, device="cuda")
    labels = torch.arange(batch_size, device="cuda") % 24

    def loss() -> torch.Tensor:
        x = F.normalize(lines(images))
        far = 1 - x @ x.mT
        same = labels[:, None] == labels
        pull = far.masked_fill(~same, -1).argmax(1)
        push = far.masked_fill(same, 4).argmin(1)
        signs = torch.where(labels % 2 == 0, 1.0, -1.0)
        odds, other = x[:, :24].log_softmax(-1), x[:, 24:48].softmax(-1)
        parts = [
            F.triplet_margin_loss(x, x[pull], x[push], margin=0.3, swap=True),
            F.cosine_embedding_loss(x, x[push], signs),
            F.margin_ranking_loss(far.amax(1), far.mean(1), signs),
            F.hinge_embedding_loss(far[:, 0], signs),
            F.multi_margin_loss(x[:, :24], labels),
            F.multilabel_soft_margin_loss(x[:, :24], F.one_hot(labels, 24).float()),
            F.soft_margin_loss(far[:, 1], signs),
            F.kl_div(odds, other.log(), log_target=True, reduction="batchmean"),
            F.poisson_nll_loss(x[:, 0], labels.float(), full=True),
            F.gaussian_nll_loss(x[:, 1], x[:, 2], x[:, 3].square() + 1e-3),
            F.nll_loss(odds, labels, weight=torch.rand(24, device="cuda")),
            F.binary_cross_entropy(x.sigmoid(), x.detach().sigmoid()),
        ]
        return torch.stack(parts).sum()

    return training_step(loss, lines.parameters())


def optimizer_with(
    *,
    name: str = "NAdam",
    batch_size: int = 256,
    width: int = 1280,
    depth: int = 4,
    tensor_lr: bool = False,
    options: str = "",
) -> Step:
    """An optimizer of torch with options (`foreach capturable`), on groups that differ."""
    layers = [nn.Sequential(nn.Linear(width, width), nn.RMSNorm(width)) for _ in range(depth)]
    model = nn.Sequential(*layers).cuda()
    matrices = [p for p in model.parameters() if p.ndim == 2]
    groups = [
        {"params": matrices[:2], "weight_decay": 0.1}, {"params": matrices[2:], "lr": 2e-4},
        {"params": [p for p in model.parameters() if p.ndim < 2]},
    ]  # fmt: skip
    lr = torch.tensor(1e-4, device="cuda") if tensor_lr else 1e-4
    update = getattr(torch.optim, name)(groups, lr=lr, **dict.fromkeys(options.split(), True))
    plan = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(update, 5)
    x = torch.randn(batch_size, width, device="cuda")

    def step() -> torch.Tensor:
        update.zero_grad()
        loss = F.mse_loss(model(x), x)
        loss.backward()
        update.step()
        plan.step()
        return loss.detach()

    return step


def averaged(*, batch_size: int = 64, size: int = 32) -> Step:
    """Averaged weights: kept beside the model, its statistics found anew in every step."""
    from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

    model = nn.Sequential(
        nn.Conv2d(3, 96, 3, padding=1), nn.BatchNorm2d(96), nn.Hardtanh(), nn.AvgPool2d(2),
        nn.Conv2d(96, 192, 3, padding=1, groups=2), nn.BatchNorm2d(192), nn.LogSigmoid(),
        nn.Flatten(), nn.LazyLinear(100),
    ).cuda()  # fmt: skip
    images = torch.rand(batch_size, 3, size, size, device="cuda")
    labels = torch.randint(0, 100, (batch_size,), device="cuda")
    model(images)
    slow = AveragedModel(model, use_buffers=False)
    update = torch.optim.ASGD(model.parameters(), lr=1e-3)
    plan = SWALR(update, 1e-3)

    def step() -> torch.Tensor:
        update.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        update.step()
        slow.update_parameters(model)
        plan.step()
        update_bn([(part, None) for part in images.chunk(2)], slow)
        return loss.detach()

    return step


def again_within_again(*, batch_size: int = 8, length: int = 256, width: int = 512) -> Step:
    """Segments that are computed again hold blocks that are, one way inside the other."""
    blocks = nn.ModuleList(
        nn.TransformerEncoderLayer(width, 8, 4 * width, 0.1, batch_first=True, norm_first=True)
        for _ in range(6)
    ).cuda()
    x = torch.randn(batch_size, length, width, device="cuda")

    def segment(y: torch.Tensor, first: int) -> torch.Tensor:
        for block in blocks[first : first + 3]:
            y = checkpoint(block, y, use_reentrant=False, preserve_rng_state=False)
        return y

    def loss() -> torch.Tensor:
        y = x.clone().requires_grad_()
        y = checkpoint(segment, y, 0, use_reentrant=True)
        return F.mse_loss(checkpoint(segment, y, 3, use_reentrant=False), x)

    return training_step(loss, blocks.parameters(), autocast="bf16")


def own_generator(*, batch_size: int = 32, length: int = 512, width: int = 512) -> Step:
    """A generator that the program made draws which tokens are kept, and with them the sizes."""
    dice = torch.Generator("cuda").manual_seed(1234)
    net = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)).cuda()
    x = torch.randn(batch_size, length, width, device="cuda", generator=dice)

    def loss() -> torch.Tensor:
        kept = torch.rand(batch_size, length, device="cuda", generator=dice) < 0.3
        order = torch.randperm(int(kept.sum()), device="cuda", generator=dice)
        part = x[kept][order]
        return F.mse_loss(net(part), part)

    return training_step(loss, net.parameters())


def drawn_from_everything(*, batch_size: int = 2048, width: int = 256) -> Step:
    """A network whose heads are distributions: mixtures, covariances, Gammas, Dirichlets."""
    net = nn.Sequential(nn.Linear(32, width), nn.Softplus(), nn.Linear(width, 8 * 17 + 64)).cuda()
    x, y = torch.randn(batch_size, 32, device="cuda"), torch.randn(batch_size, 8, device="cuda")

    def loss() -> torch.Tensor:
        made, rest = net(x).split([8 * 17, 64], -1)
        odds, places, scales = made[:, :8], made[:, 8:72].view(-1, 8, 8), made[:, 72:136]
        normal = D.Normal(places, F.softplus(scales).view(-1, 8, 8) + 1e-3)
        mixed = D.MixtureSameFamily(D.Categorical(logits=odds), D.Independent(normal, 1))
        lower = torch.tril(rest.view(-1, 8, 8), -1) + torch.eye(8, device="cuda")
        whole = D.MultivariateNormal(places[:, 0], scale_tril=lower)
        gamma = D.Gamma(F.softplus(rest[:, :8]) + 0.1, torch.ones(8, device="cuda"))
        share = D.Dirichlet(F.softplus(odds) + 0.1)
        beta = D.Beta(F.softplus(rest[:, 8:16]) + 1, F.softplus(rest[:, 16:24]) + 1)
        drawn = share.rsample() * gamma.rsample() + beta.rsample() + whole.rsample()
        prior = D.LowRankMultivariateNormal(
            torch.zeros(8, device="cuda"), lower[:, :, :2], torch.ones(8, device="cuda")
        )
        known = D.StudentT(3.0, places[:, 1]).log_prob(y).sum(-1) + prior.log_prob(drawn)
        apart = D.kl_divergence(beta, D.Beta(2.0, 2.0)).mean()
        return apart - (mixed.log_prob(drawn) + known + whole.log_prob(y)).mean()

    return training_step(loss, net.parameters())


def changing_lengths(*, batch_size: int = 12, width: int = 512, seed: int = 7) -> Step:
    """Sentences of another length in every step, and a short batch now and then."""
    import random

    dice = random.Random(seed)
    words = nn.Embedding(16_000, width).cuda()
    core = nn.Transformer(width, 8, 2, 2, 4 * width, batch_first=True).cuda()

    def loss() -> torch.Tensor:
        rows = batch_size if dice.random() < 0.8 else batch_size // 3
        long, short = dice.randint(100, 500), dice.randint(50, 300)
        source = torch.randint(0, 16_000, (rows, long), device="cuda")
        target = torch.randint(0, 16_000, (rows, short), device="cuda")
        mask = nn.Transformer.generate_square_subsequent_mask(short, device="cuda")
        made = core(words(source), words(target), tgt_mask=mask, tgt_is_causal=True)
        return F.cross_entropy((made @ words.weight.mT).flatten(0, 1), target.flatten())

    return training_step(loss, [*words.parameters(), *core.parameters()], autocast="bf16")
