"""Graphs, equations, molecules, medicine: torch_geometric, neuraloperator, gpytorch, monai."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def graph(
    *, kind: str = "GCN", nodes: int = 50_000, edges: int = 500_000, width: int = 256
) -> Step:
    """Classifies the nodes of one graph with a network of torch_geometric."""
    import torch_geometric.nn as pyg

    options = {"v2": True, "heads": 4} if kind == "GAT" else {}
    model = getattr(pyg, kind)(128, width, 3, 40, dropout=0.5, norm="batch_norm", **options).cuda()
    x = torch.randn(nodes, 128, device="cuda")
    links = torch.randint(0, nodes, (2, edges), device="cuda")
    labels = torch.randint(0, 40, (nodes,), device="cuda")
    return training_step(lambda: F.cross_entropy(model(x, links), labels), model.parameters())


def molecules(*, batch_size: int = 64, atoms: int = 20, forces: bool = True) -> Step:
    """Energies of molecules, and forces as their gradient: the loss is differentiated twice."""
    from torch_geometric.nn import radius_graph  # noqa: F401 - said early where it is missing
    from torch_geometric.nn.models import SchNet

    def all_pairs(positions: torch.Tensor, batch: torch.Tensor) -> tuple:
        index = torch.arange(batch_size * atoms, device="cuda").view(batch_size, atoms)
        one = index[:, :, None].expand(-1, -1, atoms).flatten()
        other = index[:, None, :].expand(-1, atoms, -1).flatten()
        return torch.stack([one, other]), (positions[one] - positions[other]).norm(dim=-1)

    model = SchNet(hidden_channels=128, num_interactions=4, interaction_graph=all_pairs).cuda()
    kinds = torch.randint(1, 10, (batch_size * atoms,), device="cuda")
    positions = torch.randn(batch_size * atoms, 3, device="cuda") * 3
    batch = torch.arange(batch_size, device="cuda").repeat_interleave(atoms)

    def loss() -> torch.Tensor:
        moved = positions.clone().requires_grad_(forces)
        energy = model(kinds, moved, batch)
        if not forces:
            return energy.square().mean()
        (force,) = torch.autograd.grad(energy.sum(), moved, create_graph=True)
        return energy.square().mean() + force.square().mean()

    return training_step(loss, model.parameters())


def equivariant(*, nodes: int = 2000, edges: int = 20_000) -> Step:
    """A tensor product of spherical harmonics, with e3nn."""
    from e3nn import o3

    harmonics = o3.Irreps.spherical_harmonics(2)
    features = o3.Irreps("16x0e + 16x1o + 8x2e")
    product = o3.FullyConnectedTensorProduct(features, harmonics, features, shared_weights=False)
    product = product.cuda()
    weights = nn.Sequential(nn.Linear(8, 64), nn.SiLU(), nn.Linear(64, product.weight_numel)).cuda()
    x = features.randn(nodes, -1, device="cuda")
    source, target = torch.randint(0, nodes, (2, edges), device="cuda")
    where = torch.randn(edges, 3, device="cuda")
    radial = torch.randn(edges, 8, device="cuda")

    def loss() -> torch.Tensor:
        directions = o3.spherical_harmonics(harmonics, where, normalize=True)
        messages = product(x[source], directions, weights(radial))
        return torch.zeros_like(x).index_add_(0, target, messages).square().mean()

    return training_step(loss, weights.parameters())


def fourier_operator(*, batch_size: int = 8, size: int = 64, modes: int = 16) -> Step:
    from neuralop.models import FNO

    model = FNO(n_modes=(modes, modes), hidden_channels=64, in_channels=1, out_channels=1).cuda()
    field = torch.randn(batch_size, 1, size, size, device="cuda")
    return training_step(
        lambda: F.mse_loss(model(field), field), model.parameters(), optimizer="adamw"
    )


def fourier_operator_3d(*, batch_size: int = 2, size: int = 32) -> Step:
    from neuralop.models import FNO

    model = FNO(n_modes=(8, 8, 8), hidden_channels=32, in_channels=3, out_channels=3).cuda()
    field = torch.randn(batch_size, 3, size, size, size, device="cuda")
    return training_step(lambda: F.mse_loss(model(field), field), model.parameters())


def physics_informed(*, points: int = 20_000, optimizer: str = "adamw") -> Step:
    """Burgers' equation: first and second derivatives of the network are in the loss."""
    widths = [2, *[128] * 6]
    layers = [m for i, o in zip(widths, widths[1:]) for m in (nn.Linear(i, o), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(128, 1)).cuda()
    inside = torch.rand(points, 2, device="cuda")

    def loss() -> torch.Tensor:
        x = inside.clone().requires_grad_()
        u = model(x)
        (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first[:, 0].sum(), x, create_graph=True)
        return (first[:, 1:] + u * first[:, :1] - 0.003 * second[:, :1]).square().mean()

    if optimizer != "lbfgs":
        return training_step(loss, model.parameters(), optimizer=optimizer)
    update = torch.optim.LBFGS(
        model.parameters(), max_iter=10, history_size=20, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        update.zero_grad()
        value = loss()
        value.backward()
        return value

    return lambda: update.step(closure)


def differential_equation(*, batch_size: int = 512, adjoint: bool = True) -> Step:
    """A neural ODE, integrated with a fixed step."""
    from torchdiffeq import odeint, odeint_adjoint

    class Slope(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64))

        def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.net(y)

    slope = Slope().cuda()
    start = torch.randn(batch_size, 64, device="cuda")
    times = torch.linspace(0.0, 1.0, 20, device="cuda")
    solve = odeint_adjoint if adjoint else odeint
    return training_step(
        lambda: solve(slope, start, times, method="rk4").square().mean(), slope.parameters()
    )


def gaussian_process(*, points: int = 2000) -> Step:
    """Exact inference: a Cholesky factorization of all pairs of points."""
    import gpytorch

    class Process(gpytorch.models.ExactGP):
        def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: nn.Module) -> None:
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.covariance = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5))

        def forward(self, x: torch.Tensor):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

    x, y = torch.rand(points, 8, device="cuda"), torch.randn(points, device="cuda")
    likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
    model = Process(x, y, likelihood).cuda()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def loss() -> torch.Tensor:
        with gpytorch.settings.max_cholesky_size(10_000):
            return -objective(model(x), y)

    return training_step(loss, model.parameters())


def variational_inference(*, batch_size: int = 512, latent: int = 50) -> Step:
    """A variational autoencoder in pyro."""
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO

    encoder = nn.Sequential(nn.Linear(784, 400), nn.Softplus(), nn.Linear(400, 2 * latent)).cuda()
    decoder = nn.Sequential(
        nn.Linear(latent, 400), nn.Softplus(), nn.Linear(400, 784), nn.Sigmoid()
    ).cuda()
    images = torch.rand(batch_size, 784, device="cuda").round()

    def model(x: torch.Tensor) -> None:
        pyro.module("decoder", decoder)
        with pyro.plate("data", len(x)):
            zeros = x.new_zeros(len(x), latent)
            z = pyro.sample("z", dist.Normal(zeros, torch.ones_like(zeros)).to_event(1))
            pyro.sample("x", dist.Bernoulli(decoder(z)).to_event(1), obs=x)

    def guide(x: torch.Tensor) -> None:
        pyro.module("encoder", encoder)
        with pyro.plate("data", len(x)):
            mean, scale = encoder(x).chunk(2, dim=-1)
            pyro.sample("z", dist.Normal(mean, scale.exp()).to_event(1))

    pyro.clear_param_store()
    inference = SVI(model, guide, pyro.optim.Adam({"lr": 1e-3}), Trace_ELBO())
    return lambda: inference.step(images)


def volume_segmentation(
    *, kind: str = "unet", batch_size: int = 2, size: int = 64, autocast: str = ""
) -> Step:
    """Three-dimensional medical images with networks of monai."""
    from monai.losses import DiceCELoss
    from monai.networks import nets

    model = {
        "unet": lambda: nets.UNet(3, 1, 3, (16, 32, 64, 128, 256), (2, 2, 2, 2), num_res_units=2),
        "segresnet": lambda: nets.SegResNet(in_channels=1, out_channels=3, init_filters=16),
        "unetr": lambda: nets.UNETR(1, 3, (size, size, size), feature_size=16),
    }[kind]().cuda()
    volumes = torch.randn(batch_size, 1, size, size, size, device="cuda")
    labels = torch.randint(0, 3, (batch_size, 1, size, size, size), device="cuda")
    loss = DiceCELoss(to_onehot_y=True, softmax=True)
    return training_step(
        lambda: loss(model(volumes), labels), model.parameters(), autocast=autocast
    )


def radiance_field(*, rays: int = 2048, samples: int = 64) -> Step:
    """NeRF: points along rays, encoded by sines, summed by opacity."""
    model = nn.Sequential(
        nn.Linear(60, 256),
        nn.ReLU(),
        *[layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.ReLU())],
        nn.Linear(256, 4),
    ).cuda()
    origins, directions = torch.randn(2, rays, 3, device="cuda")
    wanted = torch.rand(rays, 3, device="cuda")
    scales = 2.0 ** torch.arange(10, device="cuda")

    def loss() -> torch.Tensor:
        depth = torch.linspace(2, 6, samples, device="cuda") + torch.rand(
            rays, samples, device="cuda"
        )
        depth = depth.sort(-1).values
        points = origins[:, None] + directions[:, None] * depth[..., None]
        angles = (points[..., None] * scales).flatten(-2)
        colour, density = model(torch.cat([angles.sin(), angles.cos()], -1)).split([3, 1], -1)
        gaps = torch.diff(depth, append=depth[:, -1:] + 1e10)
        opacity = 1 - torch.exp(-F.relu(density.squeeze(-1)) * gaps)
        through = torch.cumprod(1 - opacity + 1e-10, -1)
        weights = opacity * torch.cat([torch.ones_like(through[:, :1]), through[:, :-1]], -1)
        return F.mse_loss((weights[..., None] * colour.sigmoid()).sum(1), wanted)

    return training_step(loss, model.parameters())
