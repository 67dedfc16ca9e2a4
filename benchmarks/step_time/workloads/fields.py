"""Steps of eight fields that no rate was made from, like those of varied.py: predicted and
committed, then measured. They need only torch, torchvision and transformers.

    python benchmarks/step_time/simulated.py OUT.jsonl .../fields.py:step name=NAME
    python benchmarks/step_time/recording/record.py --out OUT --step .../fields.py:step name=NAME
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from unseen import Step, training


class Neighbours(nn.Module):
    """Edge convolution, as of DGCNN: a layer on the differences to the nearest points."""

    def __init__(self, inside: int, outside: int, count: int = 20) -> None:
        super().__init__()
        self.count = count
        self.layer = nn.Sequential(
            nn.Conv2d(2 * inside, outside, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.LeakyReLU(0.2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, width, number = x.shape
        squares = x.square().sum(1)
        far = squares[:, :, None] + squares[:, None] - 2 * x.transpose(1, 2) @ x
        found = far.topk(self.count, largest=False).indices
        found = found + number * torch.arange(batch, device=x.device)[:, None, None]
        rows = x.transpose(1, 2).reshape(-1, width)
        near = rows[found.flatten()].view(batch, number, self.count, width)
        middle = rows.view(batch, number, 1, width).expand_as(near)
        edges = torch.cat((near - middle, middle), 3).permute(0, 3, 1, 2)
        return self.layer(edges.contiguous()).amax(3)


def points(batch: int, number: int) -> Step:
    """Shapes in clouds of points."""
    widths = (3, 64, 64, 128, 256)
    layers = nn.ModuleList(Neighbours(a, b) for a, b in zip(widths, widths[1:]))
    last = nn.Sequential(nn.Conv1d(512, 1024, 1), nn.BatchNorm1d(1024), nn.LeakyReLU(0.2))
    head = nn.Sequential(nn.Linear(2048, 512), nn.ReLU(), nn.Dropout(), nn.Linear(512, 40))
    model = nn.ModuleDict({"layers": layers, "last": last, "head": head}).cuda()
    x = torch.randn(batch, 3, number, device="cuda")
    labels = torch.randint(0, 40, (batch,), device="cuda")

    def loss() -> torch.Tensor:
        y, all_of = x, []
        for layer in model["layers"]:
            y = layer(y)
            all_of.append(y)
        y = model["last"](torch.cat(all_of, 1))
        return F.cross_entropy(model["head"](torch.cat((y.amax(2), y.mean(2)), 1)), labels)

    return training(model, loss, autocast=False)


def waves_of(x: torch.Tensor, count: int) -> torch.Tensor:
    angles = x[..., None] * 2.0 ** torch.arange(count, device=x.device)
    return torch.cat((x, angles.sin().flatten(-2), angles.cos().flatten(-2)), -1)


def rays(number: int, samples: int, *, width: int = 256) -> Step:
    """A radiance field: the colour and density of points along rays, in fp32."""
    first = nn.Sequential(nn.Linear(63, width), nn.ReLU())
    for _ in range(4):
        first.extend([nn.Linear(width, width), nn.ReLU()])
    second = nn.Sequential(nn.Linear(width + 63, width), nn.ReLU())
    for _ in range(2):
        second.extend([nn.Linear(width, width), nn.ReLU()])
    colour = nn.Sequential(nn.Linear(width + 27, 128), nn.ReLU(), nn.Linear(128, 3), nn.Sigmoid())
    parts = {"first": first, "second": second, "density": nn.Linear(width, 1), "colour": colour}
    model = nn.ModuleDict(parts).cuda()
    start, way = (torch.randn(number, 3, device="cuda") for _ in range(2))
    wanted = torch.rand(number, 3, device="cuda")

    def loss() -> torch.Tensor:
        depth = torch.linspace(2, 6, samples, device="cuda") + 0.03 * torch.rand(
            number, samples, device="cuda"
        )
        placed = waves_of(start[:, None] + way[:, None] * depth[..., None], 10)
        y = model["second"](torch.cat((model["first"](placed), placed), -1))
        dense = F.relu(model["density"](y)).squeeze(-1)
        seen = waves_of(F.normalize(way, dim=-1), 4)[:, None].expand(-1, samples, -1)
        colours = model["colour"](torch.cat((y, seen), -1))
        opaque = 1 - torch.exp(-dense * 0.03)
        left = torch.cumprod(torch.cat((torch.ones_like(opaque[:, :1]), 1 - opaque), 1), 1)
        return F.mse_loss(((opaque * left[:, :-1])[..., None] * colours).sum(1), wanted)

    return training(model, loss, autocast=False)


def flow(batch: int, height: int, width: int, *, updates: int = 12) -> Step:
    """How the pixels of one picture moved to the next: RAFT."""
    from torchvision.models.optical_flow import raft_large

    model = raft_large(weights=None).cuda()
    one, other = (torch.rand(batch, 3, height, width, device="cuda") for _ in range(2))
    moved = torch.randn(batch, 2, height, width, device="cuda")

    def loss() -> torch.Tensor:
        found = model(one, other, num_flow_updates=updates)
        return sum(0.8 ** (updates - i) * (f - moved).abs().mean() for i, f in enumerate(found))

    return training(model, loss)


def video(batch: int, frames: int) -> Step:
    """Windows of space and time that are shifted."""
    from torchvision.models.video import swin3d_t

    model = swin3d_t(weights=None, num_classes=400).cuda()
    x = torch.randn(batch, 3, frames, 224, 224, device="cuda")
    labels = torch.randint(0, 400, (batch,), device="cuda")
    return training(model, lambda: F.cross_entropy(model(x).float(), labels))


class Interaction(nn.Module):
    """Continuous filters of distances, as of SchNet."""

    def __init__(self, width: int, waves: int) -> None:
        super().__init__()
        soft = nn.Softplus
        self.filters = nn.Sequential(nn.Linear(waves, width), soft(), nn.Linear(width, width))
        self.given = nn.Linear(width, width, bias=False)
        self.out = nn.Sequential(nn.Linear(width, width), soft(), nn.Linear(width, width))

    def forward(
        self, x: torch.Tensor, waves: torch.Tensor, start: torch.Tensor, end: torch.Tensor
    ) -> torch.Tensor:
        sent = self.given(x)[start] * self.filters(waves)
        return x + self.out(torch.zeros_like(x).index_add(0, end, sent))


def molecules(number: int, atoms: int, near: int, *, width: int = 128, waves: int = 50) -> Step:
    """Energies of molecules, and forces as their gradients: a gradient of gradients."""
    total = number * atoms
    layers = nn.ModuleList(Interaction(width, waves) for _ in range(6))
    head = nn.Sequential(nn.Linear(width, 64), nn.Softplus(), nn.Linear(64, 1))
    parts = {"kinds": nn.Embedding(100, width), "layers": layers, "head": head}
    model = nn.ModuleDict(parts).cuda()
    kinds = torch.randint(1, 20, (total,), device="cuda")
    start = torch.randint(0, total, (total * near,), device="cuda")
    end = torch.arange(total, device="cuda").repeat_interleave(near)
    of = torch.arange(number, device="cuda").repeat_interleave(atoms)
    places = torch.randn(total, 3, device="cuda", requires_grad=True)
    energies, forces = torch.randn(number, device="cuda"), torch.randn(total, 3, device="cuda")
    centres = torch.linspace(0, 6, waves, device="cuda")

    def loss() -> torch.Tensor:
        apart = (places[start] - places[end]).square().sum(1).add(1e-6).sqrt()
        spread = torch.exp(-10 * (apart[:, None] - centres).square())
        x = model["kinds"](kinds)
        for layer in model["layers"]:
            x = layer(x, spread, start, end)
        found = torch.zeros(number, device="cuda").index_add(0, of, model["head"](x).squeeze(1))
        (pulled,) = torch.autograd.grad(found.sum(), places, create_graph=True)
        return F.mse_loss(found, energies) + 100 * F.mse_loss(-pulled, forces)

    return training(model, loss, autocast=False)


def protein(batch: int, length: int) -> Step:
    """Amino acids that were masked: ESM-2 with 150 million parameters."""
    from transformers import EsmConfig, EsmForMaskedLM

    sizes = {"hidden_size": 640, "num_hidden_layers": 30, "num_attention_heads": 20}
    more = {"position_embedding_type": "rotary", "token_dropout": True, "mask_token_id": 32}
    config = EsmConfig(
        vocab_size=33,
        pad_token_id=1,
        intermediate_size=2560,
        **sizes,
        **more,
        emb_layer_norm_before=False,
    )
    model = EsmForMaskedLM(config).cuda()
    x = torch.randint(4, 24, (batch, length), device="cuda")
    return training(model, lambda: model(input_ids=x, labels=x).loss)


def series(batch: int, length: int, channels: int) -> Step:
    """Forecasts of time series from patches of them."""
    from transformers import PatchTSTConfig, PatchTSTForPrediction

    sizes = {"d_model": 256, "ffn_dim": 512, "num_hidden_layers": 4, "num_attention_heads": 16}
    config = PatchTSTConfig(
        num_input_channels=channels, context_length=length, patch_length=16, patch_stride=8, **sizes
    )
    model = PatchTSTForPrediction(config).cuda()
    past = torch.randn(batch, length, channels, device="cuda")
    future = torch.randn(batch, config.prediction_length, channels, device="cuda")
    return training(model, lambda: model(past_values=past, future_values=future).loss)


def towers(batch: int, seen: int, *, rows: int = 1_000_000, width: int = 128) -> Step:
    """Retrieval: what a user has seen against all things of the batch."""
    things = nn.EmbeddingBag(rows, width, mode="mean")
    users = nn.Embedding(rows // 2, width)
    layer = [nn.Linear(2 * width, 512), nn.ReLU(), nn.Linear(512, width)]
    other = [nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, width)]
    parts = {"things": things, "users": users}
    model = nn.ModuleDict(
        {**parts, "query": nn.Sequential(*layer), "item": nn.Sequential(*other)}
    ).cuda()
    past = torch.randint(0, rows, (batch, seen), device="cuda")
    who = torch.randint(0, rows // 2, (batch,), device="cuda")
    wanted = torch.randint(0, rows, (batch, 1), device="cuda")
    labels = torch.arange(batch, device="cuda")

    def loss() -> torch.Tensor:
        query = model["query"](torch.cat((model["things"](past), model["users"](who)), 1))
        item = model["item"](model["things"](wanted))
        scores = F.normalize(query, dim=1) @ F.normalize(item, dim=1).T
        return F.cross_entropy(scores.float() / 0.05, labels)

    return training(model, loss)


STEPS: dict[str, Callable[[], Step]] = {
    "points": lambda: points(32, 2048),
    "rays": lambda: rays(12_288, 128),
    "flow": lambda: flow(6, 368, 496),
    "video": lambda: video(16, 32),
    "molecules": lambda: molecules(1024, 30, 30),
    "protein": lambda: protein(16, 1024),
    "series": lambda: series(256, 512, 21),
    "towers": lambda: towers(40_960, 50),
}


def step(*, name: str) -> Step:
    return STEPS[name]()
