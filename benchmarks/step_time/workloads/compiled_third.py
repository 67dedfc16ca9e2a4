"""A third set of compiled steps, of networks and settings that compiled_steps.py and the suites
have none of: predicted and committed, then measured.

python benchmarks/step_time/simulated.py OUT.jsonl .../compiled_third.py:step name=NAME
python benchmarks/step_time/recording/one_by_one.py OUT SECONDS LIST
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from compiled_parts import (
    ChunksOfGates,
    DenseExperts,
    Messages,
    Turned,
    Volumes,
    WaveLayer,
    layers_of,
    tf32,
)
from torch import nn
from torch.utils.checkpoint import checkpoint
from unseen import BF16, Step, training

from vramcast_zoo.suites.compiled import compile_update
from vramcast_zoo.suites.compiled_too import Block, Text, causal, tokens
from vramcast_zoo.suites.training import training_step


def of_transformers(name: str, sizes: dict[str, Any], batch: int, length: int, **how: Any) -> Step:
    """A compiled model of language in bf16, or one whose blocks are compiled and computed twice."""
    import transformers

    config = getattr(transformers, name.rpartition("For")[0] + "Config")(**sizes)
    config.use_cache = False
    model = getattr(transformers, name)(config).to("cuda", BF16)
    if how.pop("blocks", False):
        model.gradient_checkpointing_enable({"use_reentrant": False})
        for block in model.model.layers:
            block.compile(**how)
        compiled = model
    else:
        compiled = torch.compile(model, **how)
    x = tokens(config.vocab_size, batch, length)
    return training(model, lambda: compiled(input_ids=x, labels=x).loss, autocast=False, fused=True)


def sizes_of(width: int, inner: int, layers: int, heads: int, keys: int, words: int) -> Any:
    return {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "head_dim": width // heads,
        "vocab_size": words,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def text(words: int, width: int, batch: int, length: int, blocks: list[nn.Module]) -> Step:
    """Words, the blocks, and the loss of each word, all compiled."""
    model = Text(words, width, blocks).cuda()
    compiled = torch.compile(model)
    x = tokens(words, batch, length)
    return training(model, lambda: compiled(x, x))


def every_expert(batch: int, length: int, *, width: int = 768, layers: int = 4) -> Step:
    """Eight experts that all see every word, weighed by a gate of which two stay."""
    blocks: list[nn.Module] = []
    for _ in range(layers):
        block = Block(width, 12, 4 * width, causal, length=length)
        block.gated = DenseExperts(width, 1024, 8)
        blocks.append(block)
    return text(32_000, width, batch, length, blocks)


def updated_in_tf32(batch: int, length: int, *, width: int = 1024, layers: int = 4) -> Step:
    """An encoder in TF32 with layer norms and biases; the update with amsgrad compiled too."""
    tf32()
    layer = nn.TransformerEncoderLayer(width, 16, 4096, 0.1, "gelu", batch_first=True)
    body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(30_000, width), body, nn.Linear(width, 30_000)).cuda()
    compiled = torch.compile(model)
    update = torch.optim.AdamW(model.parameters(), lr=1e-4, amsgrad=True)
    compile_update(update)
    x = tokens(30_000, batch, length)

    def step() -> torch.Tensor:
        loss = F.cross_entropy(compiled(x).flatten(0, 1), x.flatten())
        loss.backward()
        update.step()
        update.zero_grad()
        return loss.detach()

    return step


def columns_in_graphs(batch: int, columns: int, *, width: int = 2048) -> Step:
    """A network of a table with batch norm and dropout, its losses compiled too, in CUDA graphs."""
    layers: list[nn.Module] = [nn.Linear(columns, width)]
    for _ in range(8):
        layers += [nn.BatchNorm1d(width), nn.SELU(), nn.Dropout(0.1), nn.Linear(width, width)]
    model = nn.Sequential(*layers, nn.Linear(width, 40)).cuda()
    x, labels = torch.randn(batch, columns, device="cuda"), tokens(40, 1, batch)[0]

    @partial(torch.compile, mode="reduce-overhead")
    def loss(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        chances = model(x).float().log_softmax(-1)
        chosen = chances.gather(1, labels[:, None])[:, 0]
        return -((1 - chosen.exp()).square() * chosen).mean()

    return training(model, lambda: loss(x, labels))


def capped_scores(batch: int, length: int, *, width: int = 1536, layers: int = 3) -> Step:
    """FlexAttention: scores kept small by tanh, a window of 700 words, in bf16."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def near(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q - k <= 700)

    def capped(score: Any, batch: Any, head: Any, q: Any, k: Any) -> Any:
        return 30 * torch.tanh(score / 30)

    mask = create_block_mask(near, None, None, length, length, device="cuda")
    attend = partial(flex_attention, score_mod=capped, block_mask=mask)
    blocks: list[nn.Module] = [Block(width, 12, 4096, attend, length=length) for _ in range(layers)]
    model = Text(48_000, width, blocks).to("cuda", BF16)
    compiled = torch.compile(model)
    x = tokens(48_000, batch, length)
    return training_step(lambda: compiled(x, x), model.parameters(), optimizer="adamw-fused")


def near_in_pictures(batch: int, side: int, *, width: int = 512, layers: int = 4) -> Step:
    """FlexAttention: each piece of a picture sees those at most six away."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def near(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return ((q // side - k // side).abs() <= 6) & ((q % side - k % side).abs() <= 6)

    number = side * side
    mask = create_block_mask(near, None, None, number, number, device="cuda")
    attend = partial(flex_attention, block_mask=mask)
    how = {"norm": nn.LayerNorm, "act": F.gelu, "length": number}
    body = nn.Sequential(*(Block(width, 8, 2 * width, attend, **how) for _ in range(layers)))
    parts = {"into": nn.Conv2d(3, width, 8, 8), "body": body, "out": nn.Linear(width, 1000)}
    model = nn.ModuleDict(parts).cuda()
    x, labels = torch.randn(batch, 3, 8 * side, 8 * side, device="cuda"), tokens(1000, 1, batch)[0]

    @torch.compile
    def loss(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        y = model["body"](model["into"](x).flatten(2).mT)
        return F.cross_entropy(model["out"](y.mean(1)).float(), labels)

    return training(model, lambda: loss(x, labels))


def gated_chunks(batch: int, length: int, *, width: int = 1024, layers: int = 3) -> Step:
    """Linear attention with gates, chunk by chunk, each handed what came before."""
    blocks: list[nn.Module] = [ChunksOfGates(width, 8, 128) for _ in range(layers)]
    return text(32_000, width, batch, length, blocks)


def words_in_chunks(batch: int, length: int, *, width: int = 1024, layers: int = 3) -> Step:
    """256,000 words: the last layer and its loss by chunks, each computed again on the way back."""
    body = nn.Sequential(*(Block(width, 8, 4096, causal, length=length) for _ in range(layers)))
    table, out = nn.Embedding(256_000, width), nn.Linear(width, 256_000, bias=False)
    model = nn.ModuleDict({"table": table, "body": body, "out": out}).to("cuda", BF16)
    x = tokens(256_000, batch, length)

    def of_chunk(y: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model["out"](y).float(), labels, reduction="sum")

    @torch.compile
    def loss(x: torch.Tensor) -> torch.Tensor:
        y = model["body"](model["table"](x)).flatten(0, 1)
        total = torch.zeros((), device="cuda")
        for part, labels in zip(y.chunk(8), x.flatten().chunk(8)):
            total = total + checkpoint(of_chunk, part, labels, use_reentrant=False)
        return total / x.numel()

    return training(model, lambda: loss(x), autocast=False, fused=True)


def sizes_of_scores(batch: int, length: int, *, width: int = 1280, layers: int = 4) -> Step:
    """128,000 words, smoothed labels, and the squares of the scores' logarithmic sums."""
    body = nn.Sequential(*(Block(width, 10, 3456, causal, length=length) for _ in range(layers)))
    table, out = nn.Embedding(128_000, width), nn.Linear(width, 128_000, bias=False)
    model = nn.ModuleDict({"table": table, "body": body, "norm": nn.RMSNorm(width), "out": out})
    model = model.cuda()
    x = tokens(128_000, batch, length)

    @torch.compile
    def loss(x: torch.Tensor) -> torch.Tensor:
        scores = model["out"](model["norm"](model["body"](model["table"](x)))).float()
        whole = scores.logsumexp(-1)
        wrong = F.cross_entropy(scores.flatten(0, 1), x.flatten(), label_smoothing=0.05)
        return wrong + 1e-4 * whole.square().mean()

    return training(model, lambda: loss(x))


def vision(name: str, batch: int, *, last: bool = False) -> Step:
    """In bf16 where channels are last, else in TF32."""
    from torchvision.models import get_model

    tf32()
    layout = torch.channels_last if last else torch.contiguous_format
    model = get_model(name, weights=None).cuda().to(memory_format=layout)
    compiled = torch.compile(model)
    x = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=layout)
    labels = tokens(1000, 1, batch)[0]
    return training(model, lambda: F.cross_entropy(compiled(x).float(), labels), autocast=last)


def volumes(batch: int, size: int) -> Step:
    """A U-Net of volumes: instance norm, leaky slopes, transposed convolutions, dice."""
    model = Volumes(24, 3, 8).cuda()
    compiled = torch.compile(model)
    x = torch.randn(batch, 2, *[size] * 3, device="cuda")
    wanted = torch.randint(0, 2, (batch, 8, *[size] * 3), device="cuda").float()

    def loss() -> torch.Tensor:
        shares = compiled(x).float().sigmoid()
        both = (shares * wanted).sum((2, 3, 4))
        return 1 - (2 * both / (shares.sum((2, 3, 4)) + wanted.sum((2, 3, 4)))).mean()

    return training(model, loss)


def tables_of_each_layer(batch: int, length: int, told: int) -> Step:
    """UMT5: every layer has a table of distances of its own."""
    from transformers import UMT5Config, UMT5ForConditionalGeneration

    sizes = {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_heads": 12, "vocab_size": 64_000}
    config = UMT5Config(**sizes, num_layers=2, num_decoder_layers=2, dropout_rate=0.0)
    config.use_cache, config.decoder_start_token_id = False, 0
    model = UMT5ForConditionalGeneration(config).cuda()
    compiled = torch.compile(model)
    x, labels = tokens(64_000, batch, length), tokens(64_000, batch, told)
    return training(model, lambda: compiled(input_ids=x, labels=labels).loss)


def heard(batch: int, told: int) -> Step:
    """Whisper in fp32, its products in TF32."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    tf32()
    sizes: dict[str, Any] = {"d_model": 512}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 2, f"{side}_attention_heads": 8, f"{side}_ffn_dim": 2048}
    model = WhisperForConditionalGeneration(WhisperConfig(**sizes, use_cache=False)).cuda()
    compiled = torch.compile(model)
    x, labels = torch.randn(batch, 80, 3000, device="cuda"), tokens(50_000, batch, told)
    loss = lambda: compiled(input_features=x, labels=labels).loss  # noqa: E731
    return training(model, loss, autocast=False)


def pictures_and_words(batch: int, *, width: int = 512, layers: int = 4) -> Step:
    """Two encoders, and a sigmoid for each pair of a picture and a text."""
    sides = [
        nn.Sequential(
            into,
            *(
                Block(width, 8, 1408, F.scaled_dot_product_attention, length=256)
                for _ in range(layers)
            ),
        )
        for into in (
            nn.Sequential(nn.Conv2d(3, width, 14, 14), nn.Flatten(2)),
            nn.Embedding(32_000, width),
        )
    ]
    model = nn.ModuleDict({"pictures": sides[0], "words": sides[1]}).cuda()
    scale = nn.Parameter(torch.zeros(2, device="cuda"))
    model.register_parameter("scale", scale)
    x, told = torch.randn(batch, 3, 224, 224, device="cuda"), tokens(32_000, batch, 64)

    @torch.compile
    def loss(x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        pieces = model["pictures"][0](x).mT
        one = F.normalize(model["pictures"][1:](pieces).mean(1), dim=-1)
        other = F.normalize(model["words"](told).mean(1), dim=-1)
        pairs = (one @ other.T).float() * scale[0].exp() + scale[1]
        signs = 2 * torch.eye(len(x), device=x.device) - 1
        return -F.logsigmoid(signs * pairs).sum() / len(x)

    return training(model, lambda: loss(x, told))


def learnt_from_larger(batch: int, length: int) -> Step:
    """A small decoder that learns from the chances of a larger one, both compiled, in bf16."""

    def decoder(width: int, layers: int) -> Text:
        blocks = [
            Block(width, width // 64, 4 * width, causal, length=length) for _ in range(layers)
        ]
        return Text(32_000, width, blocks).to("cuda", BF16)

    model, larger = decoder(768, 3), decoder(1536, 3).requires_grad_(False)
    x = tokens(32_000, batch, length)

    def scores(net: Text) -> torch.Tensor:
        y = net.table(x)
        for block in net.blocks:
            y = block(y)
        return net.out(net.norm(y)).float() / 2

    @torch.compile
    def loss() -> torch.Tensor:
        with torch.no_grad():
            wanted = scores(larger).log_softmax(-1)
        found = scores(model).log_softmax(-1)
        apart = F.kl_div(found, wanted, log_target=True, reduction="none")
        return apart.sum(-1).mean()

    return training(model, loss, autocast=False, foreach=True)


def messages(nodes: int, edges: int, *, width: int = 192, layers: int = 4) -> Step:
    """Edges between nodes, their messages added by node, in fp32; dynamic=True."""
    tf32()
    model = Messages(width, layers).cuda()
    compiled = torch.compile(model, dynamic=True)
    x = torch.randn(nodes, width, device="cuda")
    one, other = torch.randint(0, nodes, (2, edges), device="cuda")
    loss = lambda: compiled(x, one, other).square().mean()  # noqa: E731
    return training(model, loss, autocast=False)


def turned_pieces(batch: int, *, width: int = 768, layers: int = 4) -> Step:
    """A vision transformer in fp16 with scaled gradients: gates, norms of queries and keys."""
    model = Turned(width, 12, layers, 14).cuda()
    compiled = torch.compile(model, fullgraph=True)
    x, labels = torch.randn(batch, 3, 224, 224, device="cuda"), tokens(1000, 1, batch)[0]
    loss = lambda: F.cross_entropy(compiled(x).float(), labels)  # noqa: E731
    how = {"autocast": "fp16", "scale_loss": True, "optimizer": "adamw-fused"}
    return training_step(loss, model.parameters(), **how)


def dilated_sound(batch: int, length: int, *, width: int = 128) -> Step:
    """Gated convolutions of sound, ever farther apart, with a mixture of logistics at the end."""
    layers = nn.ModuleList(WaveLayer(width, 2 ** (i % 8)) for i in range(8))
    parts = {"into": nn.Conv1d(1, width, 1), "layers": layers, "out": layers_of(width, width, 30)}
    model = nn.ModuleDict(parts).cuda()
    x = torch.rand(batch, 1, length, device="cuda")

    @torch.compile
    def loss(x: torch.Tensor) -> torch.Tensor:
        y, total = model["into"](x), torch.zeros((), device="cuda")
        for layer in model["layers"]:
            y, skipped = layer(y)
            total = total + skipped
        mix, mean, scale = model["out"](F.relu(total).mT).float()[:, :-1].chunk(3, -1)
        z = (x[:, 0, 1:, None] - mean) * torch.exp(-scale.clamp(min=-7))
        chances = -z - scale - 2 * F.softplus(-z)
        return -(chances + mix.log_softmax(-1)).logsumexp(-1).mean()

    return training(model, lambda: loss(x))


STEPS: dict[str, Callable[[], Step]] = {
    "helium_dynamic": lambda: of_transformers(
        "HeliumForCausalLM", sizes_of(1536, 4096, 3, 12, 4, 48_000), 16, 1024, dynamic=True
    ),
    "seed_blocks_again": lambda: of_transformers(
        "SeedOssForCausalLM", sizes_of(2048, 5632, 6, 16, 4, 64_000), 6, 1024, blocks=True
    ),
    "every_expert": lambda: every_expert(24, 1024),
    "updated_in_tf32": lambda: updated_in_tf32(24, 512),
    "columns_in_graphs": lambda: columns_in_graphs(65_536, 200),
    "capped_scores": lambda: capped_scores(6, 4096),
    "near_in_pictures": lambda: near_in_pictures(64, 48),
    "gated_chunks": lambda: gated_chunks(48, 1024),
    "words_in_chunks": lambda: words_in_chunks(8, 1024),
    "sizes_of_scores": lambda: sizes_of_scores(8, 1024),
    "vgg_last": lambda: vision("vgg11_bn", 256, last=True),
    "regnet_tf32": lambda: vision("regnet_x_1_6gf", 128),
    "volumes": lambda: volumes(4, 96),
    "tables_of_each_layer": lambda: tables_of_each_layer(96, 512, 128),
    "heard": lambda: heard(16, 200),
    "pictures_and_words": lambda: pictures_and_words(384),
    "learnt_from_larger": lambda: learnt_from_larger(24, 1024),
    "messages": lambda: messages(150_000, 1_500_000),
    "turned_pieces": lambda: turned_pieces(320),
    "dilated_sound": lambda: dilated_sound(40, 16_000),
}


def step(*, name: str) -> Step:
    return STEPS[name]()
