"""Sequences in plain torch: scans, routing, search, and losses that sum over paths."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def selective_scan(*, batch_size: int = 4, length: int = 1024, width: int = 512, states: int = 8):
    """A state space whose steps depend on the input, summed in logarithms as cumulative sums."""
    embed = nn.Embedding(8000, width)
    into, out = nn.Linear(width, 2 * width), nn.Linear(width, width)
    line = nn.Conv1d(width, width, 4, padding=3, groups=width)
    step, both = nn.Linear(width, width), nn.Linear(width, 2 * states)
    decay = nn.Parameter(torch.log(torch.arange(1, states + 1.0)).repeat(width, 1))
    every = nn.ModuleList([embed, into, out, line, step, both, nn.ParameterList([decay])]).cuda()
    rate = every[-1][0]
    tokens = torch.randint(0, 8000, (batch_size, length + 1), device="cuda")

    def block(x: torch.Tensor) -> torch.Tensor:
        x, gate = into(x).chunk(2, -1)
        x = F.silu(line(x.mT)[..., :length].mT)
        ahead, (b, c) = F.softplus(step(x)), both(x).chunk(2, -1)
        log_a = -ahead[..., None] * rate.exp()
        put = (ahead * x)[..., None] * b[:, :, None]
        total = log_a.cumsum(1)
        sign = torch.logcumsumexp((put.abs() + 1e-6).log() - total, 1)
        state = (total + sign).exp() * put.sign()
        return out((state * c[:, :, None]).sum(-1) * F.silu(gate))

    def loss() -> torch.Tensor:
        x = embed(tokens[:, :-1])
        for _ in range(2):
            x = x + block(F.rms_norm(x, (width,)))
        return F.cross_entropy((x @ embed.weight.mT).flatten(0, 1), tokens[:, 1:].flatten())

    return training_step(loss, every.parameters())


def linear_attention(
    *, batch_size: int = 8, length: int = 2048, width: int = 512, heads: int = 8, chunk: int = 128
) -> Step:
    """A running state between chunks, exact attention inside them."""
    embed = nn.Embedding(16_000, width).cuda()
    layers = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(4)).cuda()
    tokens = torch.randint(0, 16_000, (batch_size, length + 1), device="cuda")
    below = torch.ones(chunk, chunk, device="cuda", dtype=torch.bool).tril()

    def attend(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
        shape = (batch_size, length // chunk, chunk, heads, width // heads)
        q, k, v, gate = (t.reshape(shape).transpose(2, 3) for t in layer(x).chunk(4, -1))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = (k.mT @ v).cumsum(1).roll(1, 1).index_fill(1, q.new_zeros(1, dtype=torch.long), 0)
        near = (q @ k.mT).masked_fill(~below, 0) @ v
        made = (q @ state + near) * F.silu(gate)
        return made.transpose(2, 3).reshape(x.shape)

    def loss() -> torch.Tensor:
        x = embed(tokens[:, :-1])
        for layer in layers:
            x = x + attend(F.layer_norm(x, (width,)), layer)
        logits = x @ embed.weight.mT
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    weights = [*embed.parameters(), *layers.parameters()]
    return training_step(loss, weights, autocast="bf16", optimizer="adamw-fused")


def perceiver(*, batch_size: int = 8, pixels: int = 16_384, latents: int = 256, width: int = 512):
    """A few latents attend to every pixel again and again; the weights are shared."""
    start = nn.Parameter(torch.randn(latents, width, device="cuda"))
    look = nn.MultiheadAttention(width, 1, kdim=67, vdim=67, batch_first=True).cuda()
    layer = nn.TransformerEncoderLayer(width, 8, 1024, 0.0, F.gelu, batch_first=True)
    think = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
    head = nn.Linear(width, 1000).cuda()
    images = torch.randn(batch_size, pixels, 67, device="cuda")
    labels = torch.randint(0, 1000, (batch_size,), device="cuda")

    def loss() -> torch.Tensor:
        x = start.expand(batch_size, -1, -1)
        for _ in range(3):
            x = think(x + look(x, images, images, need_weights=False)[0])
        return F.cross_entropy(head(x.mean(1)), labels)

    every = nn.ModuleList([look, think, head])
    return training_step(loss, [start, *every.parameters()], autocast="fp16", scale_loss=True)


def experts(*, tokens: int = 8192, width: int = 1024, count: int = 8, capacity: float = 1.25):
    """Each expert takes the first tokens that chose it, as many as it has room for."""
    gate = nn.Linear(width, count, bias=False).cuda()
    up, down = (
        nn.Parameter(0.02 * torch.randn(count, i, o, device="cuda"))
        for i, o in ((width, 4 * width), (4 * width, width))
    )
    x = torch.randn(tokens, width, device="cuda")
    room = int(capacity * 2 * tokens / count)

    def loss() -> torch.Tensor:
        odds = gate(x).softmax(-1)
        share, chosen = odds.topk(2, -1)
        share = share / share.sum(-1, keepdim=True)
        hot = F.one_hot(chosen, count).transpose(0, 1).reshape(-1, count)
        place = ((hot.cumsum(0) - 1) * hot).sum(-1).view(2, tokens).mT
        fits = place < room
        which, slot = torch.nonzero(fits, as_tuple=True)
        seat = chosen[fits] * room + place[fits]
        seats = x.new_zeros(count * room, width).index_copy(0, seat, x.index_select(0, which))
        made = F.gelu(seats.view(count, room, width).bmm(up)).bmm(down).flatten(0, 1)
        back = torch.zeros_like(x).index_add(0, which, made[seat] * share[which, slot, None])
        load = hot.float().mean(0) * odds.mean(0)
        return (x + back).square().mean() + count * load.sum()

    return training_step(loss, [*gate.parameters(), up, down])


def transducer(*, batch_size: int = 4, frames: int = 120, length: int = 30, words: int = 512):
    """RNN-T: the loss goes over all ways to mix frames and letters, a diagonal at a time."""
    listen = nn.LSTM(80, 320, 2, bidirectional=True, batch_first=True).cuda()
    read, embed = nn.GRU(256, 640, batch_first=True).cuda(), nn.Embedding(words, 256).cuda()
    join = nn.Linear(640, words).cuda()
    sound = torch.randn(batch_size, frames, 80, device="cuda")
    letters = torch.randint(1, words, (batch_size, length), device="cuda")

    def loss() -> torch.Tensor:
        text = read(embed(F.pad(letters, (1, 0))))[0]
        odds = join(torch.tanh(listen(sound)[0][:, :, None] + text[:, None])).log_softmax(-1)
        blank = odds[..., 0]
        where = letters[:, None, :, None].expand(-1, frames, -1, -1)
        emit = odds[:, :, :-1].gather(-1, where).squeeze(-1)
        row = [blank.new_zeros(batch_size)]
        for u in range(length):
            row.append(row[-1] + emit[:, 0, u])
        alpha = torch.stack(row, 1)
        for t in range(1, frames):
            stay = alpha + blank[:, t - 1]
            jump = F.pad(emit[:, t].cumsum(1), (1, 0))
            alpha = jump + torch.logcumsumexp(stay - jump, 1)
        return -(alpha[:, -1] + blank[:, -1, -1]).mean()

    every = nn.ModuleList([listen, read, embed, join])
    return training_step(loss, every.parameters())


def tagger(*, batch_size: int = 64, length: int = 80, tags: int = 24) -> Step:
    """A recurrent network with a projection under a chain of tags; the best chain is found too."""
    embed = nn.Embedding(30_000, 300, padding_idx=0).cuda()
    cells = nn.LSTM(300, 512, 2, batch_first=True, bidirectional=True, proj_size=128).cuda()
    head, step = nn.Linear(256, tags).cuda(), nn.Parameter(torch.zeros(tags, tags, device="cuda"))
    lengths = torch.linspace(length, length // 4, batch_size).long()
    words = torch.randint(1, 30_000, (batch_size, length), device="cuda")
    truth = torch.randint(0, tags, (batch_size, length), device="cuda")
    real = (torch.arange(length) < lengths[:, None]).cuda()

    def best(scores: torch.Tensor) -> torch.Tensor:
        value, back = scores[:, 0], []
        for t in range(1, length):
            value, came = (value[:, :, None] + step).max(1)
            value = value + scores[:, t]
            back.append(came)
        path = [value.argmax(1)]
        for came in reversed(back):
            path.append(came.gather(1, path[-1][:, None]).squeeze(1))
        return torch.stack(path[::-1], 1)

    def loss() -> torch.Tensor:
        packed = pack_padded_sequence(embed(words), lengths, batch_first=True)
        scores = head(pad_packed_sequence(cells(packed)[0], batch_first=True)[0])
        total = scores[:, 0]
        for t in range(1, length):
            new = torch.logsumexp(total[:, :, None] + step, 1) + scores[:, t]
            total = torch.where(real[:, t, None], new, total)
        here = scores.gather(2, truth[..., None]).squeeze(2)
        moves = step[truth[:, :-1], truth[:, 1:]]
        gold = (here * real).sum(1) + (moves * real[:, 1:]).sum(1)
        with torch.no_grad():
            wrong = (best(scores) != truth)[real].float().mean()
        return (total.logsumexp(1) - gold).mean() + wrong

    every = nn.ModuleList([embed, cells, head])
    return training_step(loss, [*every.parameters(), step], optimizer="sgd", clip=5.0)


def searched_sentences(*, batch_size: int = 8, beams: int = 4, length: int = 24) -> Step:
    """Minimum risk: sentences are found by beam search with a growing cache, then scored."""
    embed, cells = nn.Embedding(8000, 512).cuda(), nn.GRUCell(512, 512).cuda()
    look = nn.MultiheadAttention(512, 8, batch_first=True).cuda()
    picture = torch.randn(batch_size, 49, 512, device="cuda")

    def scores(words: torch.Tensor, memory: torch.Tensor, seen: torch.Tensor) -> tuple:
        memory = cells(embed(words), memory)
        made, _ = look(memory[:, None], seen, seen, need_weights=False)
        return (made[:, 0] @ embed.weight.mT).log_softmax(-1), memory

    @torch.no_grad()
    def search(seen: torch.Tensor) -> torch.Tensor:
        words = torch.zeros(batch_size * beams, 1, dtype=torch.long, device="cuda")
        memory, total = seen.mean(1), torch.zeros(batch_size, beams, device="cuda")
        first = torch.arange(batch_size, device="cuda")[:, None] * beams
        for _ in range(length):
            odds, memory = scores(words[:, -1], memory, seen)
            every = (total[..., None] + odds.view(batch_size, beams, -1)).flatten(1)
            total, best = every.topk(beams, 1)
            from_beam = (first + best // 8000).flatten()
            memory = memory[from_beam]
            words = torch.cat([words[from_beam], (best % 8000).view(-1, 1)], 1)
        return words

    def loss() -> torch.Tensor:
        seen = picture.repeat_interleave(beams, 0)
        words, memory = search(seen), seen.mean(1)
        total = torch.zeros(batch_size * beams, device="cuda")
        for t in range(length):
            odds, memory = scores(words[:, t], memory, seen)
            total = total + odds.gather(1, words[:, t + 1, None]).squeeze(1)
        risk = torch.rand(batch_size, beams, device="cuda")
        return (total.view(batch_size, beams).softmax(1) * risk).sum(1).mean()

    every = nn.ModuleList([embed, cells, look])
    return training_step(loss, every.parameters())


def warped_time(*, batch_size: int = 64, length: int = 60) -> Step:
    """Soft-DTW: the cheapest way through a table of distances, cell by cell in diagonals."""
    net = nn.Sequential(
        nn.Conv1d(4, 128, 5, padding=2), nn.GELU(), nn.Conv1d(128, 16, 5, padding=2)
    )
    net.cuda()
    here, there = (torch.randn(batch_size, 4, length, device="cuda") for _ in range(2))

    def loss() -> torch.Tensor:
        far = torch.cdist(net(here).mT, net(there).mT).square()
        rows = F.pad(far, (0, length)).flatten(1)[:, : length * (2 * length - 1)]
        slanted = rows.view(batch_size, length, 2 * length - 1)
        before = far.new_full((batch_size, length + 1), 1e8)
        last = F.pad(before[:, 1:], (1, 0), value=0.0)
        for d in range(2 * length - 1):
            ways = torch.stack([last[:, :-1], last[:, 1:], before[:, :-1]])
            cost = slanted[:, :, d] - torch.logsumexp(-ways, 0)
            before, last = last, F.pad(cost, (1, 0), value=1e8)
        return last[:, -1].mean()

    return training_step(loss, net.parameters())


def categories(*, batch_size: int = 256, groups: int = 32, kinds: int = 64) -> Step:
    """A discrete autoencoder: straight-through Gumbel softmax, and words drawn by multinomial."""
    encode = nn.Sequential(nn.Linear(3072, 1024), nn.ReLU(), nn.Linear(1024, groups * kinds)).cuda()
    decode = nn.Sequential(nn.Linear(groups * kinds, 1024), nn.ReLU(), nn.Linear(1024, 3072)).cuda()
    prior = nn.GRU(kinds, 256, batch_first=True).cuda()
    guess = nn.Linear(256, kinds).cuda()
    x = torch.rand(batch_size, 3072, device="cuda")

    def loss() -> torch.Tensor:
        logits = encode(x).view(batch_size, groups, kinds)
        hard = F.gumbel_softmax(logits, tau=0.7, hard=True)
        again = F.binary_cross_entropy_with_logits(decode(hard.flatten(1)), x)
        spread = torch.distributions.Categorical(logits=logits)
        even = torch.distributions.Categorical(logits=torch.zeros_like(logits))
        drawn = torch.multinomial(spread.probs.detach().flatten(0, 1), 1).view(batch_size, groups)
        memory = prior(F.one_hot(drawn, kinds).float()[:, :-1])[0]
        likely = F.cross_entropy(guess(memory).flatten(0, 1), drawn[:, 1:].flatten())
        return again + 1e-3 * torch.distributions.kl_divergence(spread, even).mean() + likely

    every = nn.ModuleList([encode, decode, prior, guess])
    return training_step(loss, every.parameters())
