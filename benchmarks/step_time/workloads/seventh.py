"""A seventh set of steps like those of mixed.py, of fields and settings that no set had: predicted
and committed, then measured.

python benchmarks/step_time/simulated.py OUT.jsonl .../seventh.py:step name=NAME
python benchmarks/step_time/recording/one_by_one.py OUT SECONDS LIST
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from models import FUSED, LAST, PLAIN, decoder, of_timm, of_transformers
from seventh_pictures import (
    crops,
    deformable,
    nnunet,
    paired_pictures,
    prototypes,
    psp,
    registration,
    scaled,
    shifted_views,
    slow_and_fast,
    yolo,
)
from torch import nn
from unseen import BF16, Step, training


def lora(batch: int, length: int) -> Step:
    """Low-rank additions to all products of a model in bf16, every layer computed twice."""
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(**decoder(1536, 8960, 10, 12, 2, 151_936), use_cache=False)
    model = Qwen2ForCausalLM(config).to("cuda", BF16)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
    model.train()
    chosen = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(chosen, lr=2e-4)
    x = torch.randint(0, 151_936, (batch, length), device="cuda")

    def step() -> torch.Tensor:
        loss = model(input_ids=x, labels=x).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def groups_of_answers(batch: int, length: int, asked: int) -> Step:
    """GRPO: chances of answers under the model and under the one that it began as."""
    from transformers import SmolLM3Config, SmolLM3ForCausalLM

    config = SmolLM3Config(
        **decoder(1024, 2816, 10, 16, 4, 49_152), use_cache=False, pad_token_id=0
    )
    model, old = (SmolLM3ForCausalLM(config).to("cuda", BF16) for _ in range(2))
    x = torch.randint(0, 49_152, (batch, length), device="cuda")
    better = torch.randn(batch, 1, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)

    def chances(of: nn.Module) -> torch.Tensor:
        scores = of(input_ids=x).logits[:, asked - 1 : -1].float()
        return scores.log_softmax(-1).gather(2, x[:, asked:, None]).squeeze(2)

    def step() -> torch.Tensor:
        with torch.no_grad():
            before = chances(old)
        now = chances(model)
        ratio = (now - now.detach()).exp()
        far = (before - now).exp() - (before - now) - 1
        loss = -(torch.min(ratio * better, ratio.clamp(0.8, 1.2) * better) - 0.04 * far).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Switch(nn.Module):
    """Each word goes to its best expert, sorted by expert, as far as that has room."""

    def __init__(self, width: int, inner: int, number: int) -> None:
        super().__init__()
        self.route, self.number = nn.Linear(width, number, bias=False), number
        self.up = nn.Parameter(0.02 * torch.randn(number, width, inner))
        self.down = nn.Parameter(0.02 * torch.randn(number, inner, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        words, width = x.shape
        room = 5 * words // (4 * self.number)
        share, chosen = self.route(x.float()).softmax(-1).max(-1)
        chosen, order = chosen.sort()
        start = torch.searchsorted(chosen, torch.arange(self.number, device=x.device))
        place = torch.arange(words, device=x.device) - start[chosen]
        slot = torch.where(place < room, chosen * room + place, self.number * room)
        given = x.new_zeros(self.number * room + 1, width).index_copy(0, slot, x[order])
        y = given[:-1].view(self.number, room, width)
        y = torch.bmm(F.gelu(torch.bmm(y, self.up.to(x.dtype))), self.down.to(x.dtype))
        y = F.pad(y.flatten(0, 1), (0, 0, 0, 1))[slot] * share[order, None].to(y.dtype)
        return y.new_zeros(words, width).index_add(0, order, y)


def switch(batch: int, length: int, *, width: int = 768, layers: int = 8) -> Step:
    attention = [
        nn.TransformerEncoderLayer(width, 12, 2048, 0.0, batch_first=True, norm_first=True)
        for _ in range(layers)
    ]
    parts = {
        "table": nn.Embedding(32_128, width),
        "attention": nn.ModuleList(attention),
        "experts": nn.ModuleList(Switch(width, 3072, 32) for _ in range(layers // 2)),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randint(0, 32_128, (batch, length), device="cuda")

    def loss() -> torch.Tensor:
        y = model["table"](x)
        for i, layer in enumerate(model["attention"]):
            y = layer(y)
            if i % 2:
                y = y + model["experts"][i // 2](y.flatten(0, 1)).view_as(y)
        y = F.linear(y, model["table"].weight)
        return F.cross_entropy(y.flatten(0, 1).float(), x.flatten())

    return training(model, loss)


class Retention(nn.Module):
    """RetNet's: scores that decay with distance, without a softmax, a norm of each head."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.four, self.out = nn.Linear(width, 4 * width, bias=False), nn.Linear(width, width)
        self.of_heads = nn.GroupNorm(heads, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        rates = 1 - 2.0 ** (-5 - torch.arange(heads))
        away = torch.arange(length)[:, None] - torch.arange(length)
        decay = torch.where(away >= 0, rates[:, None, None] ** away.clamp(min=0), 0.0)
        self.register_buffer("decay", decay)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v, gate = self.four(self.norms[0](x)).chunk(4, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        y = (q @ k.transpose(2, 3) * k.shape[-1] ** -0.5 * self.decay) @ v
        y = self.of_heads(y.transpose(1, 2).flatten(2).flatten(0, 1)).view_as(x)
        x = x + self.out(F.silu(gate) * y)
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


def retention(batch: int, length: int, *, width: int = 1024, layers: int = 6) -> Step:
    body = nn.Sequential(*(Retention(width, 8, length) for _ in range(layers)))
    parts = {"table": nn.Embedding(50_000, width), "body": body, "out": nn.Linear(width, 50_000)}
    model = nn.ModuleDict(parts).cuda()
    x = torch.randint(0, 50_000, (batch, length), device="cuda")

    def loss() -> torch.Tensor:
        y = model["out"](model["body"](model["table"](x)))
        return F.cross_entropy(y[:, :-1].flatten(0, 1).float(), x[:, 1:].flatten())

    return training(model, loss)


class Equivariant(nn.Module):
    """EGNN's: messages of pairs and their distance; places move too."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message = nn.Sequential(
            nn.Linear(2 * width + 1, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.place = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
        self.node = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(
        self, x: torch.Tensor, at: torch.Tensor, start: torch.Tensor, end: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        away = at[start] - at[end]
        far = away.square().sum(-1, keepdim=True)
        sent = F.silu(self.message(torch.cat((x[start], x[end], far), -1)))
        moved = away * self.place(sent)
        at = at + torch.zeros_like(at).index_add(0, end, moved) / 16
        total = x.new_zeros(len(x), sent.shape[1]).index_add(0, end, sent)
        return x + self.node(torch.cat((x, total), -1)), at


def equivariant(nodes: int, edges: int, *, width: int = 128, layers: int = 4) -> Step:
    parts = [Equivariant(width) for _ in range(layers)]
    model = nn.ModuleList([nn.Linear(16, width), *parts, nn.Linear(width, 1)]).cuda()
    x, at = torch.randn(nodes, 16, device="cuda"), torch.randn(nodes, 3, device="cuda")
    start, end = (torch.randint(0, nodes, (edges,), device="cuda") for _ in range(2))
    wanted = torch.randn(nodes, 1, device="cuda")

    def loss() -> torch.Tensor:
        y, place = model[0](x), at
        for layer in model[1:-1]:
            y, place = layer(y, place, start, end)
        return F.mse_loss(model[-1](y), wanted) + 0.01 * (place - at).square().mean()

    return training(model, loss, autocast=False)


def many_sums(nodes: int, edges: int, *, width: int = 64, layers: int = 4) -> Step:
    """PNA: mean, largest, smallest and spread of what edges bring, each scaled by degrees."""
    lists = {
        "before": [nn.Linear(2 * width, width) for _ in range(layers)],
        "after": [nn.Linear(13 * width, width) for _ in range(layers)],
        "norms": [nn.BatchNorm1d(width) for _ in range(layers)],
        "ends": [nn.Linear(100, width), nn.Linear(width, 47)],
    }
    model = nn.ModuleDict({name: nn.ModuleList(each) for name, each in lists.items()}).cuda()
    x = torch.randn(nodes, 100, device="cuda")
    start, end = (torch.randint(0, nodes, (edges,), device="cuda") for _ in range(2))
    labels = torch.randint(0, 47, (nodes,), device="cuda")
    wide = end[:, None].expand(edges, width)
    degree = torch.zeros(nodes, 1, device="cuda").index_add_(
        0, end, torch.ones(edges, 1, device="cuda")
    )
    scale = (degree + 1).log() / 2.5

    def loss() -> torch.Tensor:
        y = model["ends"][0](x)
        for before, after, norm in zip(model["before"], model["after"], model["norms"]):
            sent = before(torch.cat((y[start], y[end]), 1))
            none = sent.new_zeros(nodes, width)
            mean = none.scatter_reduce(0, wide, sent, "mean", include_self=False)
            square = none.scatter_reduce(0, wide, sent.square(), "mean", include_self=False)
            most = none.scatter_reduce(0, wide, sent, "amax", include_self=False)
            least = none.scatter_reduce(0, wide, sent, "amin", include_self=False)
            spread = (square - mean.square()).clamp(min=1e-5).sqrt()
            found = torch.cat((mean, most, least, spread), 1)
            y = y + norm(after(torch.cat((y, found, found * scale, found / scale), 1))).relu()
        return F.cross_entropy(model["ends"][1](y), labels)

    return training(model, loss, autocast=False)


class Crossed(nn.Module):
    """DCN-v2: tables, layers that multiply by what came in, and a deep network."""

    def __init__(self, tables: int, rows: int, width: int, numbers: int) -> None:
        super().__init__()
        wide = tables * width + numbers
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.cross = nn.ModuleList(nn.Linear(wide, wide) for _ in range(3))
        sizes = (wide, 1024, 1024, 512)
        deep = [m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.ReLU())]
        self.deep, self.out = nn.Sequential(*deep), nn.Linear(wide + 512, 1)

    def forward(self, kinds: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        each = [table(kinds[:, i]) for i, table in enumerate(self.tables)]
        first = y = torch.cat((*each, numbers), 1)
        for layer in self.cross:
            y = first * layer(y) + y
        return self.out(torch.cat((y, self.deep(first)), 1))


def crossed(batch: int, *, rows: int = 100_000) -> Step:
    model = Crossed(26, rows, 32, 13).cuda()
    kinds = torch.randint(0, rows, (batch, 26), device="cuda")
    numbers = torch.randn(batch, 13, device="cuda")
    labels = torch.randint(0, 2, (batch, 1), device="cuda").float()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)

    def step() -> torch.Tensor:
        loss = F.binary_cross_entropy_with_logits(model(kinds, numbers), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class Modes(nn.Module):
    """Of a Fourier operator in three dimensions."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.modes, self.beside = modes, nn.Conv3d(width, width, 1)
        sizes = (4, width, width, modes, modes, modes)
        self.weight = nn.Parameter(torch.randn(*sizes, dtype=torch.cfloat) / width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, z = self.modes, torch.fft.rfftn(x, dim=(2, 3, 4))
        y = torch.zeros_like(z)
        corners = [(a, b) for a in (slice(n), slice(-n, None)) for b in (slice(n), slice(-n, None))]
        for weight, (a, b) in zip(self.weight, corners):
            y[:, :, a, b, :n] = torch.einsum("bixyz,ioxyz->boxyz", z[:, :, a, b, :n], weight)
        return F.gelu(torch.fft.irfftn(y, x.shape[2:]) + self.beside(x))


def flows(batch: int, size: int, *, width: int = 20, modes: int = 8) -> Step:
    model = nn.Sequential(
        *(nn.Conv3d(13, width, 1), *(Modes(width, modes) for _ in range(4))),
        *(nn.Conv3d(width, 128, 1), nn.GELU(), nn.Conv3d(128, 1, 1)),
    ).cuda()
    x = torch.randn(batch, 13, size, size, 40, device="cuda")
    wanted = torch.randn(batch, 1, size, size, 40, device="cuda")

    def loss() -> torch.Tensor:
        far = (model(x) - wanted).flatten(1).norm(dim=1)
        return (far / wanted.flatten(1).norm(dim=1)).mean()

    return training(model, loss, autocast=False)


class Separated(nn.Module):
    """Conv-TasNet's: dilated, a filter for each channel, norms over all of a sound."""

    def __init__(self, width: int, inner: int, dilation: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv1d(width, inner, 1), nn.PReLU(), nn.GroupNorm(1, inner, 1e-8)),
            nn.Conv1d(inner, inner, 3, padding=dilation, dilation=dilation, groups=inner),
            *(nn.PReLU(), nn.GroupNorm(1, inner, 1e-8)),
        )
        self.more, self.kept = nn.Conv1d(inner, width, 1), nn.Conv1d(inner, width, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.layers(x)
        return x + self.more(y), self.kept(y)


def speakers_apart(batch: int, seconds: int) -> Step:
    parts: dict[str, nn.Module] = {
        "into": nn.Conv1d(1, 512, 16, 8, bias=False),
        "norm": nn.GroupNorm(1, 512, 1e-8),
        "narrow": nn.Conv1d(512, 128, 1),
        "body": nn.ModuleList(Separated(128, 512, 2**i) for _ in range(2) for i in range(8)),
        "masks": nn.Sequential(nn.PReLU(), nn.Conv1d(128, 2 * 512, 1), nn.Sigmoid()),
        "back": nn.ConvTranspose1d(512, 1, 16, 8, bias=False),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randn(batch, 1, 8000 * seconds, device="cuda")
    wanted = torch.randn(batch, 2, 8000 * seconds, device="cuda")

    def loss() -> torch.Tensor:
        seen = model["into"](x)
        y, total = model["narrow"](model["norm"](seen)), 0
        for layer in model["body"]:
            y, kept = layer(y)
            total = total + kept
        masks = model["masks"](total).unflatten(1, (2, 512))
        found = model["back"]((masks * seen[:, None]).flatten(0, 1)).view_as(wanted)
        along = (
            (found * wanted).sum(-1, keepdim=True) / wanted.square().sum(-1, keepdim=True) * wanted
        )
        ratio = along.square().sum(-1) / ((found - along).square().sum(-1) + 1e-8)
        return -10 * (ratio + 1e-8).log10().mean()

    return training(model, loss, autocast=False)


def read_lines(batch: int, width: int) -> Step:
    """CRNN: letters of lines of text by convolutions, an LSTM both ways and CTC."""
    layers: list[nn.Module] = []
    sizes = (
        (1, 64, 2),
        (64, 128, 2),
        (128, 256, 0),
        (256, 256, (2, 1)),
        (256, 512, 0),
        (512, 512, (2, 1)),
    )
    for a, b, pool in sizes:
        layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(pool)] if pool else []
    parts = {
        "eye": nn.Sequential(*layers, nn.Conv2d(512, 512, 2)),
        "lstm": nn.LSTM(512, 256, 2, bidirectional=True),
        "out": nn.Linear(512, 96),
    }
    model = nn.ModuleDict(parts).cuda()
    x = torch.randn(batch, 1, 32, width, device="cuda")
    moments = width // 4 - 1
    labels = torch.randint(1, 96, (batch, 24), device="cuda")
    lengths = [torch.full((batch,), n, dtype=torch.long) for n in (moments, 24)]

    def loss() -> torch.Tensor:
        y = model["eye"](x).squeeze(2).permute(2, 0, 1)
        y = model["out"](model["lstm"](y)[0]).log_softmax(-1)
        return F.ctc_loss(y, labels, *lengths)

    return training(model, loss, autocast=False)


def noise_of_pictures(batch: int, size: int) -> Step:
    """DDPM with diffusers' network of pictures, an average of the weights."""
    from diffusers import UNet2DModel

    sizes = {"sample_size": size, "layers_per_block": 2, "block_out_channels": (128, 256, 256, 512)}
    kinds = ("DownBlock2D", "DownBlock2D", "AttnDownBlock2D", "DownBlock2D")
    turned = tuple(kind.replace("Down", "Up") for kind in reversed(kinds))
    model = UNet2DModel(**sizes, down_block_types=kinds, up_block_types=turned).cuda()
    slow = [p.detach().clone() for p in model.parameters()]
    x = torch.randn(batch, 3, size, size, device="cuda")
    times = torch.randint(0, 1000, (batch,), device="cuda")
    kept = torch.rand(batch, 1, 1, 1, device="cuda")

    def loss() -> torch.Tensor:
        noise = torch.randn_like(x)
        torch._foreach_lerp_(slow, [p.detach() for p in model.parameters()], 1e-3)
        found = model(kept.sqrt() * x + (1 - kept).sqrt() * noise, times).sample
        return F.mse_loss(found.float(), noise)

    return training(model, loss)


def joint_words(batch: int, size: int, words: int) -> Step:
    """Stable Diffusion 3's transformer in bf16, trained as a flow."""
    from diffusers import SD3Transformer2DModel

    model = SD3Transformer2DModel(*(size, 2, 16, 8, 64, 16, 1024, 1024, 512, 16, size // 2)).to(
        "cuda", BF16
    )
    x, noise = (torch.randn(batch, 16, size, size, device="cuda", dtype=BF16) for _ in range(2))
    told = torch.randn(batch, words, 1024, device="cuda", dtype=BF16)
    pooled = torch.randn(batch, 512, device="cuda", dtype=BF16)
    times = torch.rand(batch, device="cuda", dtype=BF16)

    def loss() -> torch.Tensor:
        at = times[:, None, None, None]
        found = model((1 - at) * x + at * noise, told, pooled, 1000 * times).sample
        return F.mse_loss(found.float(), (noise - x).float())

    return training(model, loss, autocast=False, fused=True)


def fp16_masked(batch: int, length: int) -> Step:
    """Megatron's BERT in fp16 with scaled gradients."""
    from transformers import MegatronBertConfig, MegatronBertForMaskedLM

    sizes = {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16}
    config = MegatronBertConfig(vocab_size=29_056, intermediate_size=4096, **sizes)
    model = MegatronBertForMaskedLM(config).cuda()
    x = torch.randint(5, 29_056, (batch, length), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return scaled(model, lambda: model(input_ids=x, labels=x).loss, optimizer)


def summaries(batch: int, length: int, told: int) -> Step:
    """Pegasus: an encoder and a decoder, Adafactor."""
    from transformers import PegasusConfig, PegasusForConditionalGeneration

    sizes: dict[str, Any] = {"d_model": 768, "vocab_size": 96_103}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 6, f"{side}_attention_heads": 12, f"{side}_ffn_dim": 3072}
    model = PegasusForConditionalGeneration(PegasusConfig(**sizes)).cuda()
    x = torch.randint(5, 96_103, (batch, length), device="cuda")
    labels = torch.randint(5, 96_103, (batch, told), device="cuda")
    optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-3)

    def step() -> torch.Tensor:
        with torch.autocast("cuda", BF16):
            loss = model(input_ids=x, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def heard_letters(batch: int, seconds: int) -> Step:
    """A Conformer of wav2vec 2.0 with relative places, trained by CTC."""
    from transformers import Wav2Vec2ConformerConfig, Wav2Vec2ConformerForCTC

    config = Wav2Vec2ConformerConfig(
        hidden_size=512,
        num_hidden_layers=8,
        num_attention_heads=8,
        intermediate_size=2048,
        layerdrop=0.0,
        mask_time_prob=0.0,
        position_embeddings_type="relative",
        vocab_size=32,
    )
    model = Wav2Vec2ConformerForCTC(config).cuda()
    x = torch.randn(batch, 16_000 * seconds, device="cuda")
    labels = torch.randint(1, 32, (batch, 60), device="cuda")
    return training(model, lambda: model(x, labels=labels).loss)


def words_in_turn(batch: int, length: int) -> Step:
    """An LSTM of words in fp32, weights of the table shared with the last layer."""
    table, lstm = nn.Embedding(33_278, 400), nn.LSTM(400, 1150, 3, dropout=0.3)
    model = nn.ModuleDict({"table": table, "lstm": lstm, "narrow": nn.Linear(1150, 400)}).cuda()
    x = torch.randint(0, 33_278, (length + 1, batch), device="cuda")

    def loss() -> torch.Tensor:
        y = model["narrow"](model["lstm"](F.dropout(model["table"](x[:-1]), 0.4))[0])
        y = F.linear(F.dropout(y, 0.4), model["table"].weight)
        return F.cross_entropy(y.flatten(0, 1), x[1:].flatten())

    return training(model, loss, autocast=False)


def taught(batch: int) -> Step:
    """A small vision transformer that learns from a larger network's answers too."""
    import timm

    model = timm.create_model("deit_tiny_distilled_patch16_224").cuda()
    teacher = timm.create_model("regnety_016").cuda().eval().requires_grad_(False)
    model.set_distilled_training(True)
    x = torch.randn(batch, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (batch,), device="cuda")

    def loss() -> torch.Tensor:
        found, near = model(x)
        with torch.no_grad():
            told = teacher(x).argmax(-1)
        return 0.5 * F.cross_entropy(found, labels) + 0.5 * F.cross_entropy(near, told)

    return training(model, loss)


def long_text(batch: int, length: int) -> Step:
    sizes = decoder(2048, 5632, 4, 16, 16, 32_064)
    return of_transformers("Phi3ForCausalLM", {**sizes, "pad_token_id": 0}, batch, length, FUSED)


STEPS: dict[str, Callable[[], Step]] = {
    "exaone": lambda: of_transformers(
        "Exaone4ForCausalLM", decoder(1536, 4096, 8, 16, 4, 64_000), 16, 1024, FUSED
    ),
    "gpt_neo": lambda: of_transformers("GPTNeoForCausalLM", GPT_NEO, 12, 1024),
    "ernie": lambda: of_transformers(
        "Ernie4_5ForCausalLM", decoder(1024, 3072, 12, 16, 2, 103_424), 16, 1024
    ),
    "long_text": lambda: long_text(1, 8192),
    "lora": lambda: lora(12, 1024),
    "groups_of_answers": lambda: groups_of_answers(40, 512, 128),
    "switch": lambda: switch(16, 512),
    "retention": lambda: retention(8, 1024),
    "xlnet": lambda: of_transformers("XLNetLMHead", XLNET, 16, 384),
    "fp16_masked": lambda: fp16_masked(72, 384),
    "summaries": lambda: summaries(56, 512, 128),
    "words_in_turn": lambda: words_in_turn(96, 128),
    "heard_letters": lambda: heard_letters(12, 12),
    "speakers_apart": lambda: speakers_apart(8, 4),
    "read_lines": lambda: read_lines(768, 320),
    "equivariant": lambda: equivariant(60_000, 600_000),
    "many_sums": lambda: many_sums(100_000, 1_000_000),
    "crossed": lambda: crossed(32_768),
    "flows": lambda: flows(8, 64),
    "nnunet": lambda: nnunet(4, 128),
    "registration": lambda: registration(2, 128),
    "slow_and_fast": lambda: slow_and_fast(8, 224),
    "yolo": lambda: yolo(112, 640),
    "deformable": lambda: deformable(16, 512),
    "psp": lambda: psp(16, 473),
    "paired_pictures": lambda: paired_pictures(64, 256),
    "crops": lambda: crops(160),
    "prototypes": lambda: prototypes(20, 5, 15),
    "shifted_views": lambda: shifted_views(1024),
    "noise_of_pictures": lambda: noise_of_pictures(32, 64),
    "joint_words": lambda: joint_words(16, 64, 154),
    "taught": lambda: taught(256),
    "poolformer": lambda: of_timm("poolformer_s24", 128),
    "ghostnet_last": lambda: of_timm("ghostnetv2_100", 640, **LAST),
    "gcvit": lambda: of_timm("gcvit_xxtiny", 256),
    "cait": lambda: of_timm("cait_xxs24_224", 320),
    "levit": lambda: of_timm("levit_256", 512),
    "resnetv2_fp32": lambda: of_timm("resnetv2_50", 64, **PLAIN),
    "rexnet_last": lambda: of_timm("rexnet_150", 192, **LAST),
    "mambaout_last": lambda: of_timm("mambaout_tiny", 128, **LAST),
    "fastvit": lambda: of_timm("fastvit_sa12", 128, 256),
    "hrnet_fp32": lambda: of_timm("hrnet_w18", 192, **PLAIN),
    "coat": lambda: of_timm("coat_lite_small", 256),
    "nest": lambda: of_timm("nest_tiny", 128),
}
GPT_NEO = {
    "hidden_size": 768,
    "num_layers": 12,
    "num_heads": 12,
    "attention_types": [[["global", "local"], 6]],
    "vocab_size": 50_257,
    "max_position_embeddings": 2048,
}
XLNET = {"d_model": 768, "n_layer": 8, "n_head": 12, "d_inner": 3072, "vocab_size": 32_000}


def step(*, name: str) -> Step:
    return STEPS[name]()
