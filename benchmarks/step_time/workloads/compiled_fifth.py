"""A fifth set of compiled steps, of networks and settings that the sets and suites before have
none of: predicted and committed, then measured.

python benchmarks/step_time/simulated.py OUT.jsonl .../compiled_fifth.py:step name=NAME
python benchmarks/step_time/recording/one_by_one.py OUT SECONDS LIST
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from compiled_fifth_parts import (
    Apart,
    Bags,
    Bends,
    ChoosingExperts,
    Codes,
    Graph,
    MixedSeries,
    PlanesInTurn,
    Pyramid,
    Selective,
    Side,
    with_low_ranks,
)
from compiled_parts import layers_of, tf32
from compiled_third import of_transformers, sizes_of
from torch import nn
from torch.utils.checkpoint import checkpoint
from unseen import BF16, Step, training

from vramcast_zoo.suites.compiled import compile_update
from vramcast_zoo.suites.compiled_too import Block, Text, causal, tokens
from vramcast_zoo.suites.training import training_step


def sides_by_block(batch: int, length: int, *, width: int = 1280, layers: int = 6) -> Step:
    """A GPT whose attention and products are side by side; every block is compiled by itself."""
    table, places = nn.Embedding(50_304, width), nn.Embedding(length, width)
    body = nn.Sequential(*(Side(width, 20, 0.1) for _ in range(layers)))
    parts = {"table": table, "places": places, "body": body, "norm": nn.LayerNorm(width)}
    model = nn.ModuleDict(parts).cuda()
    for block in model["body"]:
        block.compile()
    x = tokens(50_304, batch, length)

    def loss() -> torch.Tensor:
        y = model["norm"](model["body"](model["table"](x) + model["places"].weight))
        scores = F.linear(y, model["table"].weight)
        return F.cross_entropy(scores[:, :-1].flatten(0, 1), x[:, 1:].flatten())

    return training(model, loss, fused=True)


def experts_choose(batch: int, length: int, *, width: int = 1024, layers: int = 4) -> Step:
    """Sixteen experts, of which each takes an eighth of every text, as one whole graph."""
    blocks: list[nn.Module] = []
    for _ in range(layers):
        block = Block(width, 16, width, causal, length=length)
        block.gated = ChoosingExperts(width, 3072, 16, 0.125)
        blocks.append(block)
    model = Text(40_000, width, blocks).cuda()
    compiled = torch.compile(model, fullgraph=True)
    x = tokens(40_000, batch, length)
    return training(model, lambda: compiled(x, x), fused=True)


def pages_fp16(batch: int, length: int, layers: int) -> Step:
    """LayoutLM, words and where they stand on a page, in fp16 with scaled gradients."""
    from transformers import LayoutLMConfig, LayoutLMForMaskedLM

    model = LayoutLMForMaskedLM(LayoutLMConfig(num_hidden_layers=layers)).cuda()
    compiled = torch.compile(model)
    x, corner = tokens(30_000, batch, length), torch.randint(0, 800, (batch, length, 2))
    boxes = torch.cat((corner, corner + torch.randint(0, 200, (batch, length, 2))), -1).cuda()
    loss = lambda: compiled(input_ids=x, bbox=boxes, labels=x).loss  # noqa: E731
    how: dict[str, Any] = {"autocast": "fp16", "scale_loss": True, "optimizer": "adamw-fused"}
    return training_step(loss, model.parameters(), **how)


def turned_registers(batch: int, size: int, layers: int) -> Step:
    """DINOv3's small vision transformer with gates, all of it in bf16."""
    import timm

    model = timm.create_model("vit_small_plus_patch16_dinov3", depth=layers, num_classes=1000)
    model = model.to("cuda", BF16)
    compiled = torch.compile(model)
    x = torch.randn(batch, 3, size, size, device="cuda", dtype=BF16)
    labels = tokens(1000, 1, batch)[0]
    loss = lambda: F.cross_entropy(compiled(x).float(), labels)  # noqa: E731
    return training(model, loss, autocast=False, foreach=True)


def smoothed_tf32(batch: int, size: int) -> Step:
    """torchvision's ResNet-50 in TF32 by the old flags, smoothed labels, momentum."""
    from torchvision.models import resnet50

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    model = resnet50().cuda()
    compiled = torch.compile(model)
    x, labels = torch.randn(batch, 3, size, size, device="cuda"), tokens(1000, 1, batch)[0]
    loss = lambda: F.cross_entropy(compiled(x), labels, label_smoothing=0.1)  # noqa: E731
    return training_step(loss, model.parameters(), optimizer="sgd", clip=0.0)


def told_noise_in_graphs(batch: int, size: int) -> Step:
    """Stable Diffusion's U-Net with words to look at below its first level, in CUDA graphs."""
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=size,
        block_out_channels=(160, 320),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=512,
        attention_head_dim=5,
    ).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    x, noise = torch.randn(2, batch, 4, size, size, device="cuda")
    words, times = torch.randn(batch, 77, 512, device="cuda"), tokens(1000, 1, batch)[0]
    loss = lambda: F.mse_loss(compiled(x, times, words).sample.float(), noise)  # noqa: E731
    return training(model, loss, fused=True)


def states_by_doubling(batch: int, length: int, *, width: int = 768, layers: int = 3) -> Step:
    """Mamba's selective states in plain torch."""
    blocks: list[nn.Module] = [Selective(width, 8) for _ in range(layers)]
    model = Text(32_000, width, blocks).cuda()
    compiled = torch.compile(model)
    x = tokens(32_000, batch, length)
    return training(model, lambda: compiled(x, x))


def gated_summaries_again(batch: int, length: int, told: int) -> Step:
    """T5 1.1 with dropout, whose blocks are all computed again, which breaks the graph."""
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 1024, "d_kv": 64, "d_ff": 2816, "num_heads": 16, "vocab_size": 32_128}
    config = T5Config(**sizes, num_layers=3, feed_forward_proj="gated-gelu")
    config.use_cache, config.decoder_start_token_id = False, 0
    model = T5ForConditionalGeneration(config).cuda()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    compiled = torch.compile(model)
    x, labels = tokens(32_000, batch, length), tokens(32_000, batch, told)
    return training(model, lambda: compiled(input_ids=x, labels=labels).loss)


def noise_of_films(batch: int, frames: int, size: int, words: int) -> Step:
    """Wan's transformer of films in bf16: what leads from noise to a film's latents."""
    from diffusers import WanTransformer3DModel

    sizes = {"num_attention_heads": 10, "ffn_dim": 5120, "num_layers": 4}
    model = WanTransformer3DModel(**sizes, text_dim=1024).to("cuda", BF16)
    compiled = torch.compile(model)
    x, noise = (
        torch.randn(batch, 16, frames, size, size, device="cuda", dtype=BF16) for _ in range(2)
    )
    told = torch.randn(batch, words, 1024, device="cuda", dtype=BF16)

    def loss() -> torch.Tensor:
        share = torch.rand(batch, device="cuda")
        mixed = torch.lerp(x, noise, share.to(BF16)[:, None, None, None, None])
        found = compiled(mixed, 1000 * share, told, return_dict=False)[0]
        return F.mse_loss(found.float(), (noise - x).float())

    return training(model, loss, autocast=False, fused=True)


def ranks_by_hand(batch: int, length: int, *, width: int = 2048, layers: int = 6) -> Step:
    """LoRA by hand beside what stays in bf16, blocks computed again inside of what is compiled."""
    blocks: list[nn.Module] = [Block(width, 16, 5504, causal, length=length) for _ in range(layers)]
    model = Text(32_000, width, blocks).to(BF16)
    model.requires_grad_(False)
    for block in blocks:
        with_low_ranks(block, 16)
    for weight in model.parameters():
        weight.data = weight.data.float() if weight.requires_grad else weight.data
    model = model.cuda()
    model.around = partial(checkpoint, use_reentrant=False)
    compiled = torch.compile(model)
    x = tokens(32_000, batch, length)
    how: dict[str, Any] = {"autocast": "bf16", "optimizer": "adamw-fused"}
    return training_step(lambda: compiled(x, x), model.parameters(), **how)


def heads_see_apart(batch: int, length: int, *, width: int = 1024, layers: int = 4) -> Step:
    """FlexAttention: every fourth head sees all that was said, the others ever more of it."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def seen(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (q >= k) & ((head % 4 == 3) | (q - k < 256 * (head % 4 + 1)) | (k < 4))

    mask = create_block_mask(seen, None, 16, length, length, device="cuda")
    attend = partial(flex_attention, block_mask=mask)
    blocks: list[nn.Module] = [Block(width, 16, 2816, attend, length=length) for _ in range(layers)]
    model = Text(32_000, width, blocks).to("cuda", BF16)
    compiled = torch.compile(model)
    x = tokens(32_000, batch, length)
    return training(model, lambda: compiled(x, x), autocast=False, fused=True)


# ------------------------------------------------------------------------ less usual
def edges_attend(nodes: int, edges: int, *, width: int = 128, layers: int = 4) -> Step:
    """Attention along the edges of a graph, with a softmax for each node, in TF32."""
    tf32()
    model = Graph(width, layers).cuda()
    compiled = torch.compile(model)
    x, wanted = torch.randn(2, nodes, width, device="cuda")
    one, other = torch.randint(0, nodes, (2, edges), device="cuda")
    return training(model, lambda: F.mse_loss(compiled(x, one, other), wanted), autocast=False)


def planes_in_turn(batch: int, size: int, *, width: int = 48) -> Step:
    """Volumes are classified by filters of planes and of lines in turn."""
    steps = [(1, width, 2), (width, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 1)]
    steps += [(2 * width, 4 * width, 2), (4 * width, 4 * width, 1)]
    body = nn.Sequential(*(PlanesInTurn(*step) for step in steps))
    out = nn.Sequential(nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4 * width, 20))
    model = nn.Sequential(body, out).cuda()
    compiled = torch.compile(model)
    x, labels = torch.randn(batch, 1, *[size] * 3, device="cuda"), tokens(20, 1, batch)[0]
    return training(model, lambda: F.cross_entropy(compiled(x).float(), labels))


def letters_of_sound(batch: int, frames: int, *, width: int = 384) -> Step:
    """QuartzNet with the CTC loss, which is not compiled."""
    into = nn.Conv1d(64, width, 33, 2, 16, bias=False)
    body = [Apart(width, long, 3) for long in (33, 39, 51)]
    model = nn.Sequential(into, *body, nn.Conv1d(width, 29, 1)).cuda()
    compiled = torch.compile(model)
    x, labels = torch.randn(batch, 64, frames, device="cuda"), 1 + tokens(28, batch, 80)
    heard, told = torch.full((batch,), frames // 2), torch.full((batch,), 80)

    def loss() -> torch.Tensor:
        chances = compiled(x).float().log_softmax(1).permute(2, 0, 1)
        return F.ctc_loss(chances, labels, heard, told)

    return training(model, loss)


def bags_of_names(batch: int, bags: int, long: int) -> Step:
    """DCN over embedding bags; Adagrad updates the tables and all else."""
    model = Bags(bags, 300_000, 64).cuda()
    compiled = torch.compile(model)
    names = torch.randint(0, 300_000, (bags, batch, long), device="cuda")
    clicks = tokens(2, 1, batch)[0].float()
    update = torch.optim.Adagrad(model.parameters(), 1e-2)

    def step() -> torch.Tensor:
        with torch.autocast("cuda", BF16):
            found = compiled(names)
        loss = F.binary_cross_entropy_with_logits(found.float(), clicks)
        loss.backward()
        update.step()
        update.zero_grad()
        return loss.detach()

    return step


def bent_columns(batch: int, columns: int, *, width: int = 512, layers: int = 6) -> Step:
    """A flow of splines between halves of the columns, its loss compiled too, in TF32."""
    tf32()
    flows = nn.ModuleList(Bends(columns, width, 8) for _ in range(layers)).cuda()
    x = torch.rand(batch, columns, device="cuda")

    @torch.compile
    def loss(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(len(x), device=x.device)
        for flow in flows:
            x, stretched = flow(x)
            total = total + stretched
        return -total.mean()

    return training(flows, lambda: loss(x), autocast=False)


def nearest_codes(batch: int, size: int) -> Step:
    """A VQ-VAE with its losses in one graph."""
    model = Codes(192, 4096).cuda()
    compiled = torch.compile(model, fullgraph=True)
    x = torch.rand(batch, 3, size, size, device="cuda")
    return training(model, lambda: compiled(x))


def views_among_many(pairs: int, *, width: int = 96) -> Step:
    """Each picture's other view among all of the others', as SimCLR, the loss compiled too."""
    parts: list[nn.Module] = []
    for inside, outside in ((3, width), (width, 2 * width), (2 * width, 4 * width)):
        layer = nn.Conv2d(inside, outside, 3, 2, 1, bias=False)
        parts += [layer, nn.BatchNorm2d(outside), nn.ReLU()]
    model = nn.Sequential(*parts, nn.Flatten(), layers_of(64 * width, 1024, 128)).cuda()
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(2 * pairs, 3, 32, 32, device="cuda")
    x = x.to(memory_format=torch.channels_last)

    @torch.compile
    def loss(x: torch.Tensor) -> torch.Tensor:
        y = F.normalize(model(x).float(), dim=-1)
        scores = (y @ y.T).float() / 0.2
        place = torch.arange(len(y), device=y.device)
        scores = scores.masked_fill(place[:, None] == place, -torch.inf)
        return F.cross_entropy(scores, place.roll(pairs))

    return training(model, lambda: loss(x))


def mixed_series(batch: int, length: int, series: int, *, layers: int = 6) -> Step:
    """TSMixer forecasts many series at once, dynamic=True."""
    body = nn.Sequential(*(MixedSeries(length, series, 4 * series) for _ in range(layers)))
    model = nn.ModuleDict({"body": body, "out": nn.Linear(length, 96)}).cuda()
    x = torch.randn(batch, length, series, device="cuda")
    wanted = torch.randn(batch, series, 96, device="cuda")

    @partial(torch.compile, dynamic=True)
    def loss(x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        mean, spread = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
        found = model["out"](model["body"]((x - mean) / spread).mT)
        return F.huber_loss(found * spread.mT + mean.mT, wanted)

    return training(model, lambda: loss(x, wanted))


def pixels_of_pyramid(batch: int, size: int) -> Step:
    """A feature pyramid over a ResNet-34, made larger by lines, channels last."""
    import timm

    backbone = timm.create_model("resnet34", features_only=True)
    model = Pyramid(backbone, (64, 128, 256, 512), 128, 19).cuda()
    model = model.to(memory_format=torch.channels_last)
    compiled = torch.compile(model)
    x = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 19, (batch, size, size), device="cuda")
    return training(model, lambda: F.cross_entropy(compiled(x).float(), labels))


def efficient_and_update(batch: int, size: int) -> Step:
    """EfficientNetV2-B0 channels last; RMSprop's update is compiled too."""
    import timm

    model = timm.create_model("tf_efficientnetv2_b0").cuda().to(memory_format=torch.channels_last)
    compiled = torch.compile(model)
    update = torch.optim.RMSprop(model.parameters(), 1e-3, 0.9, momentum=0.9, capturable=True)
    compile_update(update)
    x = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=torch.channels_last)
    labels = tokens(1000, 1, batch)[0]

    def step() -> torch.Tensor:
        with torch.autocast("cuda", BF16):
            loss = F.cross_entropy(compiled(x).float(), labels)
        loss.backward()
        update.step()
        update.zero_grad()
        return loss.detach()

    return step


STEPS: dict[str, Callable[[], Step]] = {
    "sides_by_block": lambda: sides_by_block(24, 1024),
    "bitnet_dynamic": lambda: of_transformers(
        "BitNetForCausalLM", sizes_of(2048, 5632, 4, 16, 4, 32_000), 16, 1024, dynamic=True
    ),
    "experts_choose": lambda: experts_choose(24, 1024),
    "pages_fp16": lambda: pages_fp16(80, 512, 5),
    "turned_registers": lambda: turned_registers(576, 256, 6),
    "smoothed_tf32": lambda: smoothed_tf32(256, 176),
    "told_noise_in_graphs": lambda: told_noise_in_graphs(48, 64),
    "states_by_doubling": lambda: states_by_doubling(8, 1024),
    "gated_summaries_again": lambda: gated_summaries_again(64, 512, 128),
    "noise_of_films": lambda: noise_of_films(24, 5, 32, 128),
    "ranks_by_hand": lambda: ranks_by_hand(10, 1024),
    "heads_see_apart": lambda: heads_see_apart(10, 4096),
    "edges_attend": lambda: edges_attend(300_000, 4_000_000),
    "planes_in_turn": lambda: planes_in_turn(24, 128),
    "letters_of_sound": lambda: letters_of_sound(144, 1600),
    "bags_of_names": lambda: bags_of_names(327_680, 12, 16),
    "bent_columns": lambda: bent_columns(262_144, 32),
    "nearest_codes": lambda: nearest_codes(480, 128),
    "views_among_many": lambda: views_among_many(20_480),
    "mixed_series": lambda: mixed_series(3072, 512, 64),
    "pixels_of_pyramid": lambda: pixels_of_pyramid(48, 512),
    "efficient_and_update": lambda: efficient_and_update(800, 192),
}


def step(*, name: str) -> Step:
    return STEPS[name]()
