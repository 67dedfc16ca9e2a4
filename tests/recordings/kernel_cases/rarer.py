"""Cases: operators that fewer programs use, at sizes where their temporary memory is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from kernel_cases.base import add, bf16, both, forward, ints, lazily, module, rand

Maker = Callable[[], Any]


def _mask(*shape: int) -> Maker:
    """True in the first quarter of the last dimension."""

    def make() -> torch.Tensor:
        mask = torch.zeros(shape, dtype=torch.bool, device="cuda")
        mask[..., : shape[-1] // 4] = True
        return mask

    return make


def _numbers(high: int, *shape: int) -> Maker:
    """The same ones in every run."""
    return lambda: (torch.arange(torch.Size(shape).numel()) * 7919 % high).view(shape).cuda()


def _positive(*shape: int, **options: Any) -> Maker:
    return lambda: torch.rand(*shape, device="cuda", **options) + 0.1


def _both(name: str, function: Callable[..., Any], *makers: Maker) -> None:
    both(f"rarer-{name}", function, *makers)


def _forward(name: str, function: Callable[..., Any], *makers: Maker) -> None:
    forward(f"rarer-{name}", function, *makers)


class _Adaptive(nn.AdaptiveLogSoftmaxWithLoss):
    def __init__(self) -> None:
        super().__init__(64, 1000, [100, 400])

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x, torch.arange(500, device="cuda") * 2).loss


class _Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(300, 500), nn.GELU(), nn.Linear(500, 300))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, checkpoint(self.inner, x, use_reentrant=True),
                          use_reentrant=False)  # fmt: skip


WIDE = lazily(300, 1000, grad=True)
PICTURES = lazily(4, 16, 64, 48, grad=True)
LINE = lazily(200_000, grad=True)

# where and which
for name, dtype in (("f32", torch.float32), ("bf16", bf16)):
    _both(
        f"masked_scatter-{name}",
        lambda x, m, s: x.masked_scatter(m.unsqueeze(-1).expand_as(x), s),
        lazily(4, 256, 512, grad=True, dtype=dtype),
        _mask(4, 256),
        lazily(4 * 64, 512, grad=True, dtype=dtype),
    )
_both(
    "masked_scatter-dense",
    lambda x, m, s: x.masked_scatter(m, s),
    lazily(300, 1000, grad=True),
    _mask(300, 1000),
    lazily(75_000, grad=True),
)
_both("masked_select-broadcast", lambda x, m: x.masked_select(m), WIDE, _mask(1000))
_both("masked_select-dense", lambda x, m: x.masked_select(m), WIDE, _mask(300, 1000))
_both("where-scalars", lambda x, m: torch.where(m, x, 0.0), WIDE, _mask(1000))
_both("index-mask", lambda x, m: x[m], lazily(3000, 64, grad=True), _mask(3000))
_forward(
    "mask-assigned-values",
    lambda x, m, v: x.__setitem__(m, v),
    lazily(300, 1000),
    _mask(300, 1000),
    lazily(75_000),
)
_both("take", lambda x, i: x.take(i), WIDE, lambda: ints(300_000, 5000))
_both("take_along_dim", lambda x, i: x.take_along_dim(i, 1), WIDE, lambda: ints(1000, 300, 20))
_both("index_copy", lambda x, i, v: x.index_copy(0, i, v), WIDE, lambda: torch.arange(50).cuda(),
      lazily(50, 1000, grad=True))  # fmt: skip
_both("index_fill", lambda x, i: x.index_fill(0, i, 0.0), WIDE, lambda: torch.arange(50).cuda())
for reduce in ("amax", "mean", "prod", "sum"):
    _both(
        f"scatter_reduce-{reduce}",
        lambda x, i, v, r=reduce: x.scatter_reduce(0, i, v, r),
        lazily(300, 64, grad=True),
        lambda: ints(300, 2000, 64),
        lazily(2000, 64, grad=True),
    )
    if reduce != "sum":
        _both(
            f"index_reduce-{reduce}",
            lambda x, i, v, r=reduce: x.index_reduce(0, i, v, r),
            lazily(300, 64, grad=True),
            lambda: ints(300, 2000),
            lazily(2000, 64, grad=True),
        )
_both("gather-wide", lambda x, i: x.gather(1, i), WIDE, lambda: ints(1000, 300, 700))
_forward("isin-few", lambda x: torch.isin(x, torch.tensor([1, 2, 3], device="cuda")),
         _numbers(9, 64, 1000))  # fmt: skip
_forward("isin-many", torch.isin, _numbers(50_000, 100_000), _numbers(50_000, 20_000))
_forward("bucketize", torch.bucketize, lazily(300, 1000), lambda: torch.arange(64.0).cuda())
_forward("equal", torch.equal, lazily(300, 1000), lazily(300, 1000))
_forward("allclose", torch.allclose, lazily(300, 1000), lazily(300, 1000))
_forward("isclose", torch.isclose, lazily(300, 1000), lazily(300, 1000))
_forward("bincount-weights", lambda x, w: x.bincount(w), _numbers(500, 9000), lazily(9000))
_forward("histc-range", lambda x: x.histc(64, -1, 1), lazily(300, 1000))
_forward("histc-any", lambda x: x.histc(64), lazily(300, 1000))
_forward("unique-inverse", lambda x: x.unique(return_inverse=True), _numbers(500, 90_000))
_forward("unique-all", lambda x: x.unique(return_inverse=True, return_counts=True),
         _numbers(500, 90_000))  # fmt: skip
_forward("unique-dim", lambda x: x.unique(dim=0), _numbers(3, 2000, 4))
_forward("unique_consecutive", lambda x: x.unique_consecutive(), _numbers(3, 90_000))
_forward("repeat_interleave-each", lambda x, n: x.repeat_interleave(n, 0), lazily(300, 64),
         _numbers(5, 300))  # fmt: skip
_forward("nonzero-tuple", lambda x: x.nonzero(as_tuple=True), _mask(300, 1000))
_forward("argwhere", torch.argwhere, _mask(300, 1000))

# in order
for name, make in (("line", LINE), ("rows", WIDE)):
    _both(f"median-all-{name}", lambda x: x.median(), make)
    _both(f"nanmedian-all-{name}", lambda x: x.nanmedian(), make)
_both("median-dim", lambda x: x.median(1).values, WIDE)
_both("median-first", lambda x: x.median(0).values, WIDE)
_both("kthvalue", lambda x: x.kthvalue(7, 1).values, WIDE)
_both("mode", lambda x: x.mode(1).values, WIDE)
_both("mode-wide", lambda x: x.mode(1).values, lazily(3, 5000, grad=True))
_both("quantile", lambda x: x.quantile(0.3), WIDE)
_both("quantile-rows", lambda x: x.quantile(torch.tensor([0.1, 0.9], device="cuda"), 1), WIDE)
_both("nanquantile", lambda x: x.nanquantile(0.3, 1), WIDE)
_both("cummax", lambda x: x.cummax(1).values, WIDE)
_both("cummin-first", lambda x: x.cummin(0).values, WIDE)
_both("logcumsumexp", lambda x: x.logcumsumexp(1), WIDE)
_both("cumprod-back", lambda x: x.cumprod(1), WIDE)
_both("cumsum-flip", lambda x: x.flip(1).cumsum(1).flip(1), WIDE)
_both("prod-dim", lambda x: x.prod(1), WIDE)
_both("msort", lambda x: x.msort(), WIDE)
_both("topk-unsorted", lambda x: x.topk(50, 1, sorted=False).values, WIDE)
_both("amax-rows", lambda x: x.amax((0, 1)), WIDE)

# sums
_both("norm-1", lambda x: x.norm(1, 1), WIDE)
_both("norm-inf", lambda x: torch.linalg.vector_norm(x, float("inf"), 1), WIDE)
_both("norm-3", lambda x: torch.linalg.vector_norm(x, 3, 1), WIDE)
_both("norm-all", lambda x: x.norm(), WIDE)
_both("normalize", lambda x: F.normalize(x, dim=1), WIDE)
_both("renorm", lambda x: x.renorm(2, 0, 1.0), WIDE)
_both("cosine_similarity", lambda x, y: F.cosine_similarity(x, y), WIDE, WIDE)
_both("pairwise_distance", lambda x, y: F.pairwise_distance(x, y), WIDE, WIDE)
_both("pdist", lambda x: F.pdist(x), lazily(200, 100, grad=True))
for p in (1.0, 2.0, 3.0):
    _both(f"cdist-{p:.0f}", lambda x, y, p=p: torch.cdist(x, y, p),
          lazily(300, 64, grad=True), lazily(200, 64, grad=True))  # fmt: skip
_both("std-dim", lambda x: x.std(1), WIDE)
_both("var-all", lambda x: x.var(), WIDE)
_both("cov", lambda x: x.cov(), lazily(64, 2000, grad=True))
_both("corrcoef", lambda x: x.corrcoef(), lazily(64, 2000, grad=True))
_both("logsumexp-2", lambda x: x.logsumexp((0, 1)), WIDE)
_both("nansum", lambda x: x.nansum(1), WIDE)
_both("nanmean", lambda x: x.nanmean(1), WIDE)
_both("trapezoid", lambda x: torch.trapezoid(x, dim=1), WIDE)
_both("diff", lambda x: x.diff(dim=1), WIDE)
_both("dist", torch.dist, WIDE, WIDE)

# losses
_both("multi_margin", lambda x, y: F.multi_margin_loss(x, y), WIDE, lambda: ints(1000, 300))
_both("multilabel_margin", lambda x, y: F.multilabel_margin_loss(x, y),
      lazily(300, 100, grad=True), lambda: ints(100, 300, 100))  # fmt: skip
_both("multilabel_soft_margin", lambda x, y: F.multilabel_soft_margin_loss(x, y), WIDE,
      _positive(300, 1000))  # fmt: skip
_both("soft_margin", lambda x, y: F.soft_margin_loss(x, y), WIDE, lazily(300, 1000))
_both("triplet", F.triplet_margin_loss, WIDE, WIDE, WIDE)
_both("triplet-swap", lambda a, b, c: F.triplet_margin_loss(a, b, c, swap=True), WIDE, WIDE, WIDE)
_both("margin_ranking", F.margin_ranking_loss, LINE, LINE, lazily(200_000))
_both("cosine_embedding", F.cosine_embedding_loss, WIDE, WIDE, lambda: ints(2, 300) * 2 - 1)
_both("hinge_embedding", F.hinge_embedding_loss, WIDE, lambda: ints(2, 300, 1000) * 2 - 1)
_both("gaussian_nll", F.gaussian_nll_loss, WIDE, lazily(300, 1000), _positive(300, 1000))
_both("poisson_nll", F.poisson_nll_loss, WIDE, _positive(300, 1000))
_both("huber", lambda x, y: F.huber_loss(x, y, delta=0.5), WIDE, lazily(300, 1000))
_both("smooth_l1", F.smooth_l1_loss, WIDE, lazily(300, 1000))
_both("smooth_l1-none", lambda x, y: F.smooth_l1_loss(x, y, reduction="none"), WIDE,
      lazily(300, 1000))  # fmt: skip
_both("l1", F.l1_loss, WIDE, lazily(300, 1000))
_both("bce-weights", lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, w, pos_weight=w),
      WIDE, _positive(300, 1000), _positive(1000))  # fmt: skip
_both("kl-log", lambda x, y: F.kl_div(x, y, log_target=True), WIDE, lazily(300, 1000))
_both("nll-pictures", lambda x, y: F.nll_loss(x, y), PICTURES, lambda: ints(16, 4, 64, 48))
_both("cross_entropy-probabilities", F.cross_entropy, WIDE, _positive(300, 1000))
_both("cross_entropy-pictures-smooth",
      lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1, ignore_index=3),
      PICTURES, lambda: ints(16, 4, 64, 48))  # fmt: skip
_both("ctc-long", lambda x, y: F.ctc_loss(x.log_softmax(2), y, (200,) * 8, (40,) * 8),
      lazily(200, 8, 50, grad=True), lambda: ints(49, 8, 40) + 1)  # fmt: skip

# activations and noise
ACTIVATIONS = "logsigmoid softplus mish celu selu hardswish hardsigmoid softshrink tanhshrink"
for activation in (*ACTIVATIONS.split(), "softsign", "relu6", "leaky_relu", "elu"):
    _both(activation, getattr(F, activation), WIDE)
_both("logsigmoid-bf16", F.logsigmoid, lazily(300, 1000, grad=True, dtype=bf16))
_both("logsigmoid-number", F.logsigmoid, lazily(grad=True))
_both("rrelu", lambda x: F.rrelu(x, training=True), WIDE)
_both("prelu-many", F.prelu, PICTURES, lazily(16, grad=True))
_both("gumbel", lambda x: F.gumbel_softmax(x, hard=True), WIDE)
_both("softmin", lambda x: F.softmin(x, 1), WIDE)
_both("glu-middle", lambda x: F.glu(x, 1), PICTURES)
_both("dropout2d", lambda x: F.dropout2d(x, 0.3), PICTURES)
_both("alpha_dropout", lambda x: F.alpha_dropout(x, 0.3, training=True), WIDE)
_both("feature_alpha_dropout", lambda x: F.feature_alpha_dropout(x, 0.3, training=True), PICTURES)
_forward("normal-tensors", torch.normal, lazily(300, 1000), _positive(300, 1000))
_forward("normal-deviations", lambda s: torch.normal(0.0, s), _positive(300, 1000))
_forward("bernoulli", torch.bernoulli, lambda: torch.rand(300, 1000, device="cuda"))
_forward("bernoulli-number", lambda x: x.bernoulli(0.3), lazily(300, 1000))
_forward("poisson", torch.poisson, _positive(300, 1000))
_forward("multinomial-one", lambda x: x.multinomial(1), _positive(64, 5000))
_forward("multinomial-few", lambda x: x.multinomial(9), _positive(64, 5000))
_forward("multinomial-line", lambda x: x.multinomial(900), _positive(5000))
_both("gamma", lambda x: torch._standard_gamma(x), lambda: _positive(300, 1000)().requires_grad_())

# pictures
_both("max_pool3d", lambda x: F.max_pool3d(x, 2), lazily(2, 4, 16, 32, 32, grad=True))
_both("avg_pool3d", lambda x: F.avg_pool3d(x, 2), lazily(2, 4, 16, 32, 32, grad=True))
_both("max_pool1d", lambda x: F.max_pool1d(x, 2), lazily(4, 16, 1000, grad=True))
_both("avg_pool1d", lambda x: F.avg_pool1d(x, 2), lazily(4, 16, 1000, grad=True))
_both("lp_pool2d", lambda x: F.lp_pool2d(x, 2, 2), PICTURES)
_both("fractional_max_pool2d", lambda x: F.fractional_max_pool2d(x, 2, 20), PICTURES)
_both("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, 7), PICTURES)
_both("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, 3),
      lazily(2, 4, 16, 32, 32, grad=True))  # fmt: skip
_both("max_unpool2d", lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
      PICTURES)  # fmt: skip
_both("local_response_norm", lambda x: F.local_response_norm(x, 5), PICTURES)
_both("unfold", lambda x: F.unfold(x, 3, padding=1), PICTURES)
_both("fold", lambda x: F.fold(x, (32, 32), 4, stride=4), lazily(4, 64, 64, grad=True))
_both("tensor-unfold", lambda x: x.unfold(2, 8, 4), PICTURES)
_both("pixel_shuffle", lambda x: F.pixel_shuffle(x, 4), PICTURES)
_both("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), PICTURES,
      lazily(4, 32, 32, 2, grad=True))  # fmt: skip
_both("grid_sample-3d", lambda x, g: F.grid_sample(x, g, align_corners=False),
      lazily(2, 4, 16, 32, 32, grad=True), lazily(2, 8, 8, 8, 3, grad=True))  # fmt: skip
_both("affine_grid", lambda t: F.affine_grid(t, [4, 16, 64, 48], align_corners=False),
      lazily(4, 2, 3, grad=True))  # fmt: skip
for mode in ("bicubic", "nearest-exact", "area"):
    _both(f"interpolate-{mode}", lambda x, m=mode: F.interpolate(x, scale_factor=2, mode=m),
          PICTURES)  # fmt: skip
_both("interpolate-antialias",
      lambda x: F.interpolate(x, size=(30, 20), mode="bilinear", antialias=True),
      PICTURES)  # fmt: skip
_both("interpolate-trilinear", lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"),
      lazily(2, 4, 8, 16, 16, grad=True))  # fmt: skip
for mode in ("replicate", "circular", "constant"):
    _both(f"pad-{mode}", lambda x, m=mode: F.pad(x, (3, 2, 1, 4), m), PICTURES)
_both("group_norm-points", lambda x: F.group_norm(x, 4), lazily(300, 64, grad=True))
_both("instance_norm-eval", lambda x: F.instance_norm(x), PICTURES)
_both("batch_norm-eval",
      lambda x, m, v: F.batch_norm(x, m, v, training=False),
      PICTURES, lazily(16), _positive(16))  # fmt: skip
_both("batch_norm-eval-weight",
      lambda x, m, v, w: F.batch_norm(x, m, v, w, w, training=False),
      PICTURES, lazily(16), _positive(16), lazily(16, grad=True))  # fmt: skip
_both("batch_norm-plain", lambda x, m, v: F.batch_norm(x, m, v, training=True),
      PICTURES, lazily(16), _positive(16))  # fmt: skip

# embeddings
for mode in ("sum", "mean", "max"):
    _both(f"embedding_bag-{mode}",
          lambda w, i, o, m=mode: F.embedding_bag(i, w, o, mode=m),
          lazily(2000, 64, grad=True), lambda: ints(2000, 6000),
          lambda: torch.arange(0, 6000, 10).cuda())  # fmt: skip
_both("embedding-max_norm", lambda w, i: F.embedding(i, w.clone(), max_norm=1.0),
      lazily(2000, 64, grad=True), lambda: ints(2000, 500))  # fmt: skip
_both("embedding-frequency", lambda w, i: F.embedding(i, w, scale_grad_by_freq=True),
      lazily(2000, 64, grad=True), lambda: ints(2000, 5000))  # fmt: skip

# complex numbers, shapes
_both("complex-rotation",
      lambda x, f: torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * f),
      lazily(4, 128, 8, 64, grad=True),
      lambda: torch.polar(torch.ones(128, 1, 32), torch.ones(128, 1, 32)).cuda())  # fmt: skip
_both("complex-abs", lambda x: torch.view_as_complex(x).abs(), lazily(300, 500, 2, grad=True))
_both("complex-angle", lambda x: torch.view_as_complex(x).angle(), lazily(300, 500, 2, grad=True))
_both("kron", torch.kron, lazily(20, 30, grad=True), lazily(30, 10, grad=True))
_both("diag_embed", lambda x: x.diag_embed(), lazily(50, 64, grad=True))
_both("diagonal", lambda x: x.diagonal(dim1=1, dim2=2), lazily(50, 64, 64, grad=True))
_both("trace", lambda x: x.trace(), lazily(500, 500, grad=True))
_both("triu", lambda x: x.triu(1), lazily(500, 500, grad=True))
_both("cross", lambda x, y: torch.linalg.cross(x, y), lazily(9000, 3, grad=True),
      lazily(9000, 3, grad=True))  # fmt: skip
_both("repeat", lambda x: x.repeat(3, 2), WIDE)
_both("tile-first", lambda x: x.expand(3, 300, 1000).contiguous(), WIDE)
_both("rot90", lambda x: x.rot90(1, (2, 3)), PICTURES)
_both("lerp", torch.lerp, WIDE, WIDE, lazily(1000, grad=True))
_both("addcmul", torch.addcmul, WIDE, WIDE, lazily(1000, grad=True))
_both("addcdiv", torch.addcdiv, WIDE, WIDE, lambda: _positive(1000)().requires_grad_())
_both("atan2", torch.atan2, WIDE, WIDE)
_both("xlogy", torch.xlogy, WIDE, lambda: _positive(300, 1000)().requires_grad_())
_both("logaddexp", torch.logaddexp, WIDE, WIDE)
_both("ldexp", torch.ldexp, WIDE, lambda: ints(4, 300, 1000))
_both("clamp-tensors", torch.clamp, WIDE, lazily(1000), lazily(300, 1))
_both("maximum", torch.maximum, WIDE, WIDE)
_both("fmod", lambda x: x.fmod(2.0), WIDE)
_both("pow-tensor", torch.pow, lambda: _positive(300, 1000)().requires_grad_(), WIDE)
_both("erfinv", lambda x: x.erfinv(), WIDE)
_both("lgamma", lambda x: x.lgamma(), WIDE)
_both("sinc", lambda x: x.sinc(), WIDE)
_both("nan_to_num", lambda x: x.nan_to_num(), WIDE)
_both("hypot", torch.hypot, WIDE, WIDE)
_both("tensordot", lambda x, y: torch.tensordot(x, y, 2), lazily(20, 30, 40, grad=True),
      lazily(30, 40, 50, grad=True))  # fmt: skip
_both("bilinear", F.bilinear, lazily(64, 30, grad=True), lazily(64, 40, grad=True),
      lazily(20, 30, 40, grad=True))  # fmt: skip
_both("addbmm", torch.addbmm, lazily(30, 50, grad=True), lazily(8, 30, 40, grad=True),
      lazily(8, 40, 50, grad=True))  # fmt: skip
_both("addr", torch.addr, lazily(300, 200, grad=True), lazily(300, grad=True),
      lazily(200, grad=True))  # fmt: skip
_both("outer", torch.outer, lazily(300, grad=True), lazily(200, grad=True))
_both("chain_matmul", lambda x, y, z: torch.linalg.multi_dot((x, y, z)),
      lazily(30, 200, grad=True), lazily(200, 40, grad=True),
      lazily(40, 50, grad=True))  # fmt: skip
_both("matrix_power", lambda x: torch.linalg.matrix_power(x, 5), lazily(64, 64, grad=True))
_both("segment_reduce", lambda x, n: torch.segment_reduce(x, "mean", lengths=n),
      lazily(6000, 8, grad=True), lambda: torch.full((600,), 10, device="cuda"))  # fmt: skip

# modules
module(
    "rarer-transformer-encoder-f32",
    lambda: nn.TransformerEncoderLayer(128, 4, 256),
    lazily(32, 8, 128),
)
module(
    "rarer-transformer-decoder",
    lambda: nn.TransformerDecoderLayer(128, 4, 256),
    lazily(32, 8, 128),
    lazily(40, 8, 128),
)
module("rarer-adaptive-softmax", lambda: _Adaptive(), lazily(500, 64))
module(
    "rarer-weight_norm",
    lambda: nn.utils.parametrizations.weight_norm(nn.Linear(300, 200)),
    lazily(64, 300),
)
module(
    "rarer-spectral_norm",
    lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(300, 200)),
    lazily(64, 300),
)
module(
    "rarer-old_weight_norm", lambda: nn.utils.weight_norm(nn.Conv1d(64, 64, 3)), lazily(8, 64, 500)
)
module("rarer-bilinear-module", lambda: nn.Bilinear(30, 40, 50), lazily(64, 30), lazily(64, 40))
module(
    "rarer-fold-module",
    lambda: nn.Sequential(nn.Unfold(3, padding=1), nn.Fold((32, 32), 3, padding=1)),
    lazily(4, 8, 32, 32, grad=True),
)
module("rarer-local_response", lambda: nn.LocalResponseNorm(5), lazily(4, 16, 64, 48, grad=True))
module(
    "rarer-instance_norm",
    lambda: nn.InstanceNorm2d(16, affine=True, track_running_stats=True),
    lazily(4, 16, 64, 48, grad=True),
)
module("rarer-sync_batch_norm", lambda: nn.SyncBatchNorm(16), lazily(4, 16, 64, 48, grad=True))
module("rarer-embedding_bag-module", lambda: nn.EmbeddingBag(500, 64), lambda: ints(500, 64, 20))
module("rarer-checkpointed", lambda: _Checkpointed(), lazily(64, 300, grad=True))

# optimizers
SIZES = ((300, 200), (1000,), (64, 64, 3), (5,), (2000, 30))
KINDS: dict[str, dict[str, Any]] = {
    "Adadelta": {"weight_decay": 0.1},
    "Adagrad": {"lr_decay": 0.1, "weight_decay": 0.1},
    "Adamax": {"weight_decay": 0.1},
    "NAdam": {"weight_decay": 0.1, "decoupled_weight_decay": True},
    "RAdam": {"weight_decay": 0.1},
    "RMSprop": {"momentum": 0.9, "centered": True, "weight_decay": 0.1},
    "Rprop": {},
    "Adam": {"weight_decay": 0.1, "amsgrad": True, "maximize": True},
    "SGD": {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1, "maximize": True},
}


def _updates(kind: str, dtype: torch.dtype, options: dict[str, Any]) -> Callable[[], Any]:
    parameters = [rand(*size, dtype=dtype, grad=True) for size in SIZES]
    optimizer = getattr(torch.optim, kind)(parameters, **options)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return optimizer.step


for kind, options in KINDS.items():
    for foreach in (False, True):
        for name, dtype in (("f32", torch.float32), ("bf16", bf16)):
            add(
                f"rarer-{kind}-{'foreach' if foreach else 'loop'}-{name}",
                lambda k=kind, d=dtype, o={**options, "foreach": foreach}: _updates(k, d, o),
            )
