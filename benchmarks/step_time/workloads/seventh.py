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
from seventh_others import (
    crossed,
    equivariant,
    flows,
    heard_letters,
    joint_words,
    many_sums,
    noise_of_pictures,
    read_lines,
    speakers_apart,
    taught,
)
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
    "xlnet": lambda: of_transformers("XLNetLMHead", XLNET, 56, 384),
    "fp16_masked": lambda: fp16_masked(72, 384),
    "summaries": lambda: summaries(56, 512, 128),
    "words_in_turn": lambda: words_in_turn(96, 128),
    "heard_letters": lambda: heard_letters(40, 12),
    "speakers_apart": lambda: speakers_apart(8, 4),
    "read_lines": lambda: read_lines(768, 320),
    "equivariant": lambda: equivariant(60_000, 600_000),
    "many_sums": lambda: many_sums(100_000, 1_000_000),
    "crossed": lambda: crossed(32_768),
    "flows": lambda: flows(16, 64),
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
    "noise_of_pictures": lambda: noise_of_pictures(144, 64),
    "joint_words": lambda: joint_words(40, 64, 154),
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
