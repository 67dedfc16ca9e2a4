"""Steps of tenth.py that are written here: what is bought, tables, series, games, robots."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from ninth_others import layers_of
from torch import nn
from unseen import BF16, Step, training

from vramcast_zoo.suites.training import training_step


class Dice(nn.Module):
    """A slope below zero where zero is a mean over the batch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width, affine=False)
        self.slope = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = torch.sigmoid(self.norm(x))
        return x * (share + self.slope * (1 - share))


def interests(batch: int, length: int, *, things: int = 600_000, width: int = 64) -> Step:
    """DIN: what was bought is weighed by the thing that is offered, in TF32."""
    torch.set_float32_matmul_precision("high")
    weigh = (nn.Linear(4 * width, 80), nn.PReLU(), nn.Linear(80, 40), nn.PReLU(), nn.Linear(40, 1))
    after = (nn.Linear(3 * width, 512), Dice(512), nn.Linear(512, 256), Dice(256))
    parts = {
        "things": nn.Embedding(things, width),
        "users": nn.Embedding(things // 2, width),
        "weigh": nn.Sequential(*weigh),
        "after": nn.Sequential(*after, nn.Linear(256, 1)),
    }
    model = nn.ModuleDict(parts).cuda()
    bought = torch.randint(0, things, (batch, length), device="cuda")
    offered, user = (torch.randint(0, things // 2, (batch,), device="cuda") for _ in range(2))
    is_padding = torch.rand(batch, length, device="cuda") < 0.3
    labels = torch.randint(0, 2, (batch,), device="cuda").float()

    def loss() -> torch.Tensor:
        thing, past = model["things"](offered), model["things"](bought)
        asked = thing[:, None].expand_as(past)
        scores = model["weigh"](torch.cat((asked, past, asked - past, asked * past), -1))
        weights = scores[..., 0].masked_fill(is_padding, 0.0)
        liked = (weights[:, None] @ past)[:, 0]
        found = model["after"](torch.cat((model["users"](user), liked, thing), -1))
        return F.binary_cross_entropy_with_logits(found[:, 0], labels)

    return training(model, loss, autocast=False)


class Rows(nn.Module):
    """SAINT's: columns of a row see each other, then rows of the batch do."""

    def __init__(self, columns: int, width: int) -> None:
        super().__init__()
        whole = columns * width
        self.columns = nn.TransformerEncoderLayer(
            width, 8, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.rows = nn.TransformerEncoderLayer(
            whole, 8, 2 * whole, 0.1, "gelu", batch_first=True, norm_first=True
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.columns(x)
        return self.rows(y.flatten(1)[None])[0].view_as(x)


def rows_that_see_rows(batch: int, columns: int, *, width: int = 32) -> Step:
    """SAINT: numbers and kinds as words, attention over columns and over rows."""
    parts = {
        "numbers": nn.Linear(1, width),
        "kinds": nn.Embedding(1000, width),
        "places": nn.Embedding(columns, width),
        "layers": nn.Sequential(*(Rows(columns, width) for _ in range(4))),
        "out": layers_of(columns * width, 256, 10),
    }
    model = nn.ModuleDict(parts).cuda()
    numbers = torch.randn(batch, columns // 2, 1, device="cuda")
    kinds = torch.randint(0, 1000, (batch, columns - columns // 2), device="cuda")
    labels = torch.randint(0, 10, (batch,), device="cuda")

    def loss() -> torch.Tensor:
        x = torch.cat((F.relu(model["numbers"](numbers)), model["kinds"](kinds)), 1)
        y = model["layers"](x + model["places"].weight)
        return F.cross_entropy(model["out"](y.flatten(1)).float(), labels)

    return training(model, loss)


class Basis(nn.Module):
    """N-BEATS' block: layers, then what explains the past and what tells of the future."""

    def __init__(self, past: int, ahead: int, width: int, waves: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            layers_of(past, width, width, width, width),
            nn.ReLU(),
            nn.Linear(width, 2 * waves if waves else past + ahead),
        )
        place = torch.linspace(-past / ahead, 1, past + ahead)
        angles = torch.arange(waves // 2)[:, None] * place * 2 * torch.pi
        self.register_buffer("basis", torch.cat((angles.cos(), angles.sin())))
        self.past, self.waves = past, waves

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.layers(x)
        if not self.waves:
            return y[:, : self.past], y[:, self.past :]
        back, on = y.chunk(2, -1)
        return back @ self.basis[:, : self.past], on @ self.basis[:, self.past :]


def what_is_left(batch: int, past: int, ahead: int, *, width: int = 1024) -> Step:
    """N-BEATS: blocks that each explain what the ones before left; relative errors, TF32."""
    torch.set_float32_matmul_precision("high")
    waves = [32 if i % 3 == 0 else 0 for i in range(18)]
    model = nn.ModuleList(Basis(past, ahead, width, number) for number in waves).cuda()
    x = torch.rand(batch, past, device="cuda") + 1
    wanted = torch.rand(batch, ahead, device="cuda") + 1

    def loss() -> torch.Tensor:
        left, total = x, x[:, -1:]
        for block in model:
            back, on = block(left)
            left, total = left - back, total + on
        apart = (total - wanted).abs()
        return (2 * apart / (total.abs() + wanted).detach().clamp(min=1e-3)).mean()

    return training(model, loss, autocast=False)


class Squeezed(nn.Module):
    """Two convolutions, scaled and shifted by what the whole board shows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
            layers.append(nn.ReLU())
        self.layers, self.whole = nn.Sequential(*layers[:-1]), layers_of(width, 64, 2 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        scale, shift = self.whole(y.mean((2, 3)))[..., None, None].chunk(2, 1)
        return F.relu(y * scale.sigmoid() + shift + x)


def boards(batch: int, side: int, *, width: int = 192, blocks: int = 15) -> Step:
    """AlphaZero's network of Go boards: moves, who wins, whose each point is; SGD."""
    parts = {
        "into": nn.Conv2d(17, width, 3, padding=1),
        "body": nn.Sequential(*(Squeezed(width) for _ in range(blocks))),
        "moves": nn.Conv2d(width, 2, 1),
        "out": nn.Linear(2 * side * side, side * side + 1),
        "worth": nn.Sequential(nn.Conv2d(width, 32, 1), nn.ReLU()),
        "wins": layers_of(32 * side * side, 256, 3),
        "whose": nn.Conv2d(32, 1, 1),
    }
    model = nn.ModuleDict(parts).cuda().to(memory_format=torch.channels_last)
    x = torch.randint(0, 2, (batch, 17, side, side), device="cuda").float()
    x = x.to(memory_format=torch.channels_last)
    moves = torch.rand(batch, side * side + 1, device="cuda").softmax(-1)
    wins = torch.randint(0, 3, (batch,), device="cuda")
    whose = torch.randint(0, 2, (batch, 1, side, side), device="cuda").float()

    def loss() -> torch.Tensor:
        y = model["body"](F.relu(model["into"](x)))
        worth = model["worth"](y)
        chosen = model["out"](F.relu(model["moves"](y)).flatten(1)).float()
        owned = F.binary_cross_entropy_with_logits(model["whose"](worth).float(), whose)
        won = F.cross_entropy(model["wins"](worth.flatten(1)).float(), wins)
        return F.cross_entropy(chosen, moves) + won + owned

    return training_step(loss, model.parameters(), optimizer="sgd", autocast="bf16", clip=0.0)


class World(nn.Module):
    """DreamerV3's: frames to numbers, a GRU with drawn kinds, and frames again."""

    def __init__(self, width: int, kinds: int, moves: int) -> None:
        super().__init__()
        sizes = (3, 32, 64, 128, 256)
        sees: list[nn.Module] = []
        draws: list[nn.Module] = []
        for a, b in zip(sizes, sizes[1:]):
            sees += [nn.Conv2d(a, b, 4, 2, 1), nn.GroupNorm(1, b), nn.SiLU()]
            draws = [nn.ConvTranspose2d(b, a, 4, 2, 1), nn.GroupNorm(1, a), nn.SiLU(), *draws]
        self.sees, self.draws = nn.Sequential(*sees, nn.Flatten()), nn.Sequential(*draws[:-2])
        self.kinds, drawn = kinds, kinds * kinds
        self.into = nn.Sequential(nn.Linear(drawn + moves, width), nn.LayerNorm(width), nn.SiLU())
        self.cell = nn.GRUCell(width, width)
        self.before = layers_of(width, width, drawn, act=nn.SiLU)
        self.after = layers_of(width + 4096, width, drawn, act=nn.SiLU)
        self.shown = nn.Linear(width + drawn, 4096)
        self.worth = layers_of(width + drawn, 512, 255, act=nn.SiLU)

    def drawn(self, scores: torch.Tensor) -> torch.Tensor:
        """One of each 32 kinds; its gradient is that of the chances."""
        chances = scores.unflatten(-1, (self.kinds, self.kinds)).float().softmax(-1)
        chances = 0.99 * chances + 0.01 / self.kinds
        best = (chances.log() + -torch.log(-torch.log(torch.rand_like(chances)))).argmax(-1)
        hard = F.one_hot(best, self.kinds).float()
        return (hard + chances - chances.detach()).flatten(-2)

    def forward(self, seen: torch.Tensor, moves: torch.Tensor) -> list[torch.Tensor]:
        state = torch.zeros(len(seen), self.cell.hidden_size, device=seen.device)
        kind = torch.zeros(len(seen), self.kinds**2, device=seen.device)
        found = []
        for frame, move in zip(seen.unbind(1), moves.unbind(1)):
            state = self.cell(self.into(torch.cat((kind, move), -1)), state)
            after = self.after(torch.cat((state, frame), -1))
            kind = self.drawn(after)
            found.append((torch.cat((state, kind), -1), self.before(state), after))
        return [torch.stack(parts, 1) for parts in zip(*found)]


def apart(one: torch.Tensor, other: torch.Tensor, kinds: int) -> torch.Tensor:
    """The divergence of chances, at least one."""
    one, other = (part.unflatten(-1, (kinds, kinds)).float() for part in (one, other))
    found = (one.softmax(-1) * (one.log_softmax(-1) - other.log_softmax(-1))).sum((-2, -1))
    return found.clamp(min=1.0).mean()


def dreamt_world(batch: int, length: int, *, width: int = 1024, kinds: int = 32) -> Step:
    """DreamerV3's model of the world: frames and rewards of what happened, step by step."""
    model = World(width, kinds, 18).cuda()
    frames = torch.randint(0, 256, (batch, length, 3, 64, 64), dtype=torch.uint8, device="cuda")
    moves = F.one_hot(torch.randint(0, 18, (batch, length), device="cuda"), 18).float()
    rewards = torch.randint(0, 255, (batch, length), device="cuda")

    def loss() -> torch.Tensor:
        x = frames.flatten(0, 1) / 255 - 0.5
        seen = model.sees(x).unflatten(0, (batch, length))
        state, before, after = model(seen.float(), moves)
        made = model.draws(model.shown(state.flatten(0, 1)).unflatten(1, (256, 4, 4)))
        told = F.cross_entropy(model.worth(state).float().flatten(0, 1), rewards.flatten())
        moved = apart(after.detach(), before, kinds) + 0.1 * apart(after, before.detach(), kinds)
        return (made.float() - x).square().sum((1, 2, 3)).mean() + told + moved

    return training(model, loss)


def several_moves(batch: int, moves: int, *, cameras: int = 3, width: int = 512) -> Step:
    """ACT: cameras by a ResNet, a hidden style of the moves, a transformer that tells them."""
    from torchvision.models import resnet18
    from torchvision.ops import FrozenBatchNorm2d

    how = {"dim_feedforward": 3200, "dropout": 0.1, "batch_first": True}
    styles = nn.TransformerEncoderLayer(width, 8, **how)
    body = resnet18(weights=None, norm_layer=FrozenBatchNorm2d)
    parts = {
        "sees": nn.Sequential(*list(body.children())[:-2], nn.Conv2d(512, width, 1)),
        "joints": nn.Linear(14, width),
        "moved": nn.Linear(14, width),
        "styles": nn.TransformerEncoder(styles, 4, enable_nested_tensor=False),
        "style": nn.Linear(width, 64),
        "told": nn.Linear(32, width),
        "tells": nn.Transformer(width, 8, 4, 7, **how),
        "asked": nn.Embedding(moves, width),
        "out": nn.Linear(width, 14),
    }
    model = nn.ModuleDict(parts).cuda()
    pictures = torch.randn(batch, cameras, 3, 240, 320, device="cuda")
    joints = torch.randn(batch, 1, 14, device="cuda")
    wanted = torch.randn(batch, moves, 14, device="cuda")

    def loss() -> torch.Tensor:
        now = model["joints"](joints)
        first = model["styles"](torch.cat((now, model["moved"](wanted)), 1))[:, 0]
        mean, spread = model["style"](first).float().chunk(2, -1)
        drawn = mean + (spread / 2).exp() * torch.randn_like(mean)
        seen = model["sees"](pictures.flatten(0, 1)).flatten(2).transpose(1, 2)
        seen = seen.reshape(batch, -1, width)
        known = torch.cat((model["told"](drawn)[:, None], now, seen), 1)
        asked = model["asked"].weight.expand(batch, -1, -1)
        found = model["out"](model["tells"](known.to(BF16), asked.to(BF16)))
        kept = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(-1).mean()
        return F.l1_loss(found.float(), wanted) + 10 * kept

    return training(model, loss)
