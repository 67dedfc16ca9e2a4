"""More parts of libraries: videos, molecules of kinds, sounds, volumes, mixtures."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def two_streams_of_tokens(*, batch_size: int = 4, size: int = 32) -> Step:
    """Words and latents in two streams that see each other (diffusers' Stable Diffusion 3)."""
    from diffusers import SD3Transformer2DModel

    model = SD3Transformer2DModel(
        sample_size=size, num_layers=4, attention_head_dim=64, num_attention_heads=6,
        joint_attention_dim=384, caption_projection_dim=384, pooled_projection_dim=256,
        qk_norm="rms_norm",
    ).cuda()  # fmt: skip
    latents = torch.randn(batch_size, 16, size, size, device="cuda")
    words = torch.randn(batch_size, 77, 384, device="cuda")
    pooled = torch.randn(batch_size, 256, device="cuda")

    def loss() -> torch.Tensor:
        noise, t = torch.randn_like(latents), torch.rand(batch_size, device="cuda")
        mixed = torch.lerp(latents, noise, t.view(-1, 1, 1, 1))
        made = model(mixed, words, pooled, timestep=1000 * t).sample
        return F.mse_loss(made, noise - latents)

    return training_step(loss, model.parameters(), autocast="bf16")


def moving_pictures(*, batch_size: int = 1, frames: int = 8, size: int = 32) -> Step:
    """A network over space and time (diffusers' UNet3DConditionModel)."""
    from diffusers import UNet3DConditionModel

    model = UNet3DConditionModel(
        block_out_channels=(64, 128), layers_per_block=1, cross_attention_dim=128,
        down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
        up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"), attention_head_dim=16,
    ).cuda()  # fmt: skip
    latents = torch.randn(batch_size, 4, frames, size, size, device="cuda")
    words = torch.randn(batch_size, 20, 128, device="cuda")

    def loss() -> torch.Tensor:
        t = torch.randint(0, 1000, (batch_size,), device="cuda")
        return F.mse_loss(model(latents, t, words).sample, latents)

    return training_step(loss, model.parameters())


def volume_networks(*, kind: str = "VNet", batch_size: int = 2, size: int = 64) -> Step:
    """More networks of monai for volumes, with losses for rare classes."""
    from monai.losses import DiceFocalLoss, TverskyLoss
    from monai.networks import nets

    model = {
        "VNet": lambda: nets.VNet(in_channels=1, out_channels=3),
        "AttentionUnet": lambda: nets.AttentionUnet(3, 1, 3, (16, 32, 64, 128), (2, 2, 2)),
    }[kind]().cuda()
    judge = TverskyLoss(softmax=True, to_onehot_y=True, alpha=0.3, beta=0.7)
    if kind == "VNet":
        judge = DiceFocalLoss(softmax=True, to_onehot_y=True)
    volume = torch.randn(batch_size, 1, size, size, size, device="cuda")
    labels = torch.randint(0, 3, (batch_size, 1, size, size, size), device="cuda")
    return training_step(lambda: judge(model(volume), labels), model.parameters(), autocast="fp16",
                         scale_loss=True)  # fmt: skip


def graphs_of_kinds(*, kind: str = "autoencoder", nodes: int = 6000, width: int = 96) -> Step:
    """Links that are not there, kinds of nodes, or clusters that are learnt (torch_geometric)."""
    import torch_geometric.nn as pyg

    links = torch.randint(0, nodes, (2, 8 * nodes), device="cuda")
    x = torch.randn(nodes, width, device="cuda")
    if kind == "autoencoder":
        first = pyg.ChebConv(width, 2 * width, 3).cuda()
        parts = nn.ModuleList(pyg.ARMAConv(2 * width, 32, 2) for _ in range(2)).cuda()

        class Encoder(nn.Module):
            def forward(self, x: torch.Tensor, links: torch.Tensor) -> tuple:
                h = first(x, links).relu()
                return parts[0](h, links), parts[1](h, links)

        model = pyg.VGAE(Encoder())

        def loss() -> torch.Tensor:
            return model.recon_loss(model.encode(x, links), links) + model.kl_loss() / nodes

        return training_step(loss, [*first.parameters(), *parts.parameters()])
    if kind == "kinds":
        names = (["paper", "author"], [("author", "writes", "paper"), ("paper", "by", "author")])
        layer = pyg.HGTConv(width, width, names, 4).cuda()
        then = pyg.HGTConv(width, 16, names, 2).cuda()
        both = dict.fromkeys(names[0], x)
        edges = {names[1][0]: links, names[1][1]: links.flip(0)}

        def loss() -> torch.Tensor:
            made = then({k: v.relu() for k, v in layer(both, edges).items()}, edges)
            return made["paper"].square().mean() + made["author"].square().mean()

        return training_step(loss, [*layer.parameters(), *then.parameters()])
    dense = torch.rand(16, 150, 150, device="cuda").round()
    points = torch.randn(16, 150, width, device="cuda")
    assign = pyg.DenseSAGEConv(width, 30).cuda()
    embed = pyg.DenseGINConv(nn.Sequential(nn.Linear(width, width), nn.ReLU())).cuda()

    def loss() -> torch.Tensor:
        made, grid, near, spread = pyg.dense_diff_pool(
            embed(points, dense), dense, assign(points, dense)
        )
        return made.square().mean() + near + spread + grid.mean()

    return training_step(loss, [*assign.parameters(), *embed.parameters()])


def sounds(*, kind: str = "HDemucs", batch_size: int = 1, samples: int = 44_100) -> Step:
    """Music is taken apart, or speech is made from letters (torchaudio)."""
    import torchaudio

    if kind == "HDemucs":
        model = torchaudio.models.HDemucs(sources=["drums", "voice"], channels=24, depth=5).cuda()
        mixed = torch.randn(batch_size, 2, samples, device="cuda")
        return training_step(lambda: F.l1_loss(model(mixed), mixed[:, None].expand(-1, 2, -1, -1)),
                             model.parameters())  # fmt: skip
    speaks = torchaudio.models.Tacotron2(
        decoder_rnn_dim=512, attention_rnn_dim=512, decoder_max_step=100
    ).cuda()
    letters = torch.randint(1, 100, (batch_size, 40), device="cuda")
    lengths = torch.full((batch_size,), 40, device="cuda")
    frames = torch.randn(batch_size, 80, 60, device="cuda")
    long = torch.full((batch_size,), 60, device="cuda")

    def loss() -> torch.Tensor:
        made, better, stop, _ = speaks(letters, lengths, frames, long)
        ends = F.binary_cross_entropy_with_logits(stop, torch.zeros_like(stop))
        return F.mse_loss(made, frames) + F.mse_loss(better, frames) + ends

    return training_step(loss, speaks.parameters())


def several_outputs(*, points: int = 400, outputs: int = 4) -> Step:
    """One process for several outputs: a Kronecker product of kernels (gpytorch)."""
    import gpytorch

    x = torch.rand(points, 3, device="cuda")
    y = torch.randn(points, outputs, device="cuda")
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=outputs).cuda()

    class Process(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), outputs)
            inner = gpytorch.kernels.RBFKernel(ard_num_dims=3) + gpytorch.kernels.PeriodicKernel()
            self.kernel = gpytorch.kernels.MultitaskKernel(inner, num_tasks=outputs, rank=2)

        def forward(self, x: torch.Tensor) -> object:
            made = gpytorch.distributions.MultitaskMultivariateNormal
            return made(self.mean(x), self.kernel(x))

    process = Process().cuda()
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, process)
    return training_step(lambda: -bound(process(x), y), process.parameters())


def enumerated(*, batch_size: int = 3000, kinds: int = 12) -> Step:
    """A mixture whose hidden kinds are summed out in parallel (pyro)."""
    import pyro
    from pyro import distributions as dist
    from pyro.infer import SVI, TraceEnum_ELBO
    from pyro.infer.autoguide import AutoDelta
    from pyro.poutine import block

    data = torch.randn(batch_size, 16, device="cuda")
    one = torch.ones((), device="cuda")

    @pyro.infer.config_enumerate
    def model() -> None:
        shares = pyro.sample("shares", dist.Dirichlet(torch.ones(kinds, device="cuda")))
        with pyro.plate("kinds", kinds):
            means = pyro.sample("means", dist.Normal(0 * one, 3 * one).expand([16]).to_event(1))
        with pyro.plate("rows", batch_size):
            which = pyro.sample("which", dist.Categorical(shares))
            pyro.sample("x", dist.Normal(means[which], one).to_event(1), obs=data)

    pyro.clear_param_store()
    guide = AutoDelta(block(model, expose=["shares", "means"]))
    learn = SVI(model, guide, pyro.optim.Adam({"lr": 0.01}), TraceEnum_ELBO(max_plate_nesting=1))
    return lambda: torch.tensor(float(learn.step()))
