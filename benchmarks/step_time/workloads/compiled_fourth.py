"""A fourth set of compiled steps, of networks and settings that the sets and suites before have
none of: predicted and committed, then measured.

python benchmarks/step_time/simulated.py OUT.jsonl .../compiled_fourth.py:step name=NAME
python benchmarks/step_time/recording/one_by_one.py OUT SECONDS LIST
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from compiled_fourth_parts import FewKeys, Fields, Films, Largest, Sources
from compiled_parts import layers_of, tf32
from compiled_third import of_transformers, sizes_of
from torch import nn
from unseen import BF16, Step, training

from vramcast_zoo.suites.compiled import compile_update
from vramcast_zoo.suites.compiled_too import Block, Text, causal, tokens
from vramcast_zoo.suites.training import training_step


def decoder_in_graphs(batch: int, length: int) -> Step:
    """ModernBERT's decoder under autocast, in CUDA graphs."""
    from transformers import ModernBertDecoderConfig, ModernBertDecoderForCausalLM

    config = ModernBertDecoderConfig(num_hidden_layers=3, use_cache=False)
    model = ModernBertDecoderForCausalLM(config).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    x = tokens(50_000, batch, length)
    return training(model, lambda: compiled(input_ids=x, labels=x).loss)


def registers_and_update(batch: int) -> Step:
    """A vision transformer with registers; NAdam's update is compiled too."""
    import timm

    model = timm.create_model("vit_medium_patch16_reg4_gap_256", depth=4).cuda()
    compiled = torch.compile(model)
    update = torch.optim.NAdam(model.parameters(), lr=1e-4, capturable=True)
    compile_update(update)
    x, labels = torch.randn(batch, 3, 256, 256, device="cuda"), tokens(1000, 1, batch)[0]

    def step() -> torch.Tensor:
        with torch.autocast("cuda", BF16):
            loss = F.cross_entropy(compiled(x).float(), labels)
        loss.backward()
        update.step()
        update.zero_grad()
        return loss.detach()

    return step


def half_is_kept(batch: int, length: int, *, width: int = 1536, layers: int = 4) -> Step:
    """What is computed again is chosen by the partitioner, which may keep half."""
    import torch._functorch.config as settings

    settings.activation_memory_budget = 0.5
    how = {"norm": nn.LayerNorm, "act": F.gelu, "length": length}
    blocks: list[nn.Module] = [Block(width, 12, 3072, causal, **how) for _ in range(layers)]
    model = Text(32_000, width, blocks).cuda()
    compiled = torch.compile(model)
    x = tokens(32_000, batch, length)
    return training_step(
        lambda: compiled(x, x), model.parameters(), autocast="bf16", optimizer="adamw-fused"
    )


def first_words_are_known(batch: int, length: int, *, width: int = 2048, layers: int = 3) -> Step:
    """FlexAttention: a quarter of the words is seen by all, four heads for keys, in bf16."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    known = length // 4

    def seen(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (q >= k) | (k < known)

    mask = create_block_mask(seen, None, None, length, length, device="cuda")
    attend = partial(flex_attention, block_mask=mask, enable_gqa=True)
    blocks: list[nn.Module] = [FewKeys(width, 16, 4, attend) for _ in range(layers)]
    model = Text(64_000, width, blocks).to("cuda", BF16)
    compiled = torch.compile(model)
    x = tokens(64_000, batch, length)
    return training(model, lambda: compiled(x, x), autocast=False, fused=True)


def learnt_distances(batch: int, length: int, *, width: int = 768, layers: int = 4) -> Step:
    """FlexAttention: scores get a learnt number for each head and distance, no mask."""
    from torch.nn.attention.flex_attention import flex_attention

    far = nn.Parameter(torch.zeros(12, 2 * length, device="cuda"))

    def moved(score: Any, batch: Any, head: Any, q: Any, k: Any) -> Any:
        return score + far[head, q - k + length]

    attend = partial(flex_attention, score_mod=moved)
    how = {"norm": nn.LayerNorm, "act": F.gelu, "length": length}
    blocks: list[nn.Module] = [Block(width, 12, 2048, attend, **how) for _ in range(layers)]
    model = Text(32_000, width, blocks).to("cuda", BF16)
    model.register_parameter("far", far)
    compiled = torch.compile(model)
    x = tokens(32_000, batch, length)
    return training(model, lambda: compiled(x, x), autocast=False, fused=True)


def of_timm(name: str, batch: int, size: int, *, last: bool = False, **how: Any) -> Step:
    """In bf16 where channels are last, else in TF32."""
    import timm

    tf32()
    layout = torch.channels_last if last else torch.contiguous_format
    model = timm.create_model(name).cuda().to(memory_format=layout)
    compiled = torch.compile(model, **how)
    x = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=layout)
    labels = tokens(1000, 1, batch)[0]
    return training(model, lambda: F.cross_entropy(compiled(x).float(), labels), autocast=last)


def repeated_blocks(batch: int, side: int, words: int) -> Step:
    """Chroma's transformer in bf16: its two kinds of blocks are compiled once each."""
    from diffusers import ChromaTransformer2DModel

    model = ChromaTransformer2DModel(
        num_layers=4,
        num_single_layers=8,
        num_attention_heads=12,
        joint_attention_dim=1024,
        approximator_hidden_dim=1536,
    ).to("cuda", BF16)
    model.compile_repeated_blocks(fullgraph=True)
    x, noise = (torch.randn(batch, side * side, 64, device="cuda", dtype=BF16) for _ in range(2))
    told = torch.randn(batch, words, 1024, device="cuda", dtype=BF16)
    places = torch.zeros(side * side, 3, device="cuda", dtype=BF16)
    ids = {"img_ids": places, "txt_ids": torch.zeros(words, 3, device="cuda", dtype=BF16)}

    def loss() -> torch.Tensor:
        share = torch.rand(batch, device="cuda", dtype=BF16)
        mixed = torch.lerp(x, noise, share[:, None, None])
        found = model(mixed, told, share, **ids).sample
        return F.mse_loss(found.float(), (noise - x).float())

    return training(model, loss, autocast=False, fused=True)


def taken_apart(batch: int, length: int) -> Step:
    """Demucs: waves of two sides to four sources, in fp32 with TF32."""
    tf32()
    model = Sources(64, 5).cuda()
    compiled = torch.compile(model)
    x = torch.randn(batch, 2, length, device="cuda")
    wanted = torch.randn(batch, 8, length, device="cuda")
    return training(model, lambda: F.l1_loss(compiled(x), wanted), autocast=False)


def films_last(batch: int, frames: int, size: int) -> Step:
    """Filters of each channel over space and time, channels last; the update is compiled."""
    last = {"memory_format": torch.channels_last_3d}
    model = Films((96, 192, 384), (2, 2, 4), 400).cuda().to(**last)
    compiled = torch.compile(model)
    x = torch.randn(batch, 3, frames, size, size, device="cuda").to(**last)
    labels = tokens(400, 1, batch)[0]
    loss = lambda: F.cross_entropy(compiled(x).float(), labels)  # noqa: E731
    how: dict[str, Any] = {"autocast": "bf16", "prepare": compile_update, "clip": 0.0}
    return training_step(loss, model.parameters(), **how)


def largest_messages(nodes: int, edges: int, *, width: int = 128, layers: int = 4) -> Step:
    """Means and the largest of what edges bring, in TF32; dynamic=True."""
    tf32()
    model = Largest(width, layers).cuda()
    compiled = torch.compile(model, dynamic=True)
    x, wanted = torch.randn(2, nodes, width, device="cuda")
    one, other = torch.randint(0, nodes, (2, edges), device="cuda")
    return training(model, lambda: F.mse_loss(compiled(x, one, other), wanted), autocast=False)


def fields_in_graphs(batch: int, fields: int) -> Step:
    """AutoInt with its loss, in CUDA graphs, fp16 with scaled gradients."""
    model = Fields(400_000, fields, 32, 3).cuda()
    names = tokens(400_000, batch, fields)
    clicks = tokens(2, 1, batch)[0].float()

    @partial(torch.compile, mode="reduce-overhead")
    def loss(names: torch.Tensor, clicks: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(model(names).float(), clicks)

    how: dict[str, Any] = {"autocast": "fp16", "scale_loss": True, "clip": 0.0}
    return training_step(lambda: loss(names, clicks), model.parameters(), **how)


def many_critics(batch: int, *, critics: int = 16, width: int = 768) -> Step:
    """Critics by vmap over their stacked weights, targets that follow slowly, in TF32."""
    from torch.func import functional_call, stack_module_state

    tf32()
    made = [layers_of(96, width, width, width, 1).cuda() for _ in range(critics)]
    weights, _ = stack_module_state(made)
    slow = {name: weight.detach().clone() for name, weight in weights.items()}
    net, update = made[0], torch.optim.Adam(weights.values(), 3e-4, fused=True)
    x, later = torch.randn(2, batch, 96, device="cuda")
    rewards = torch.randn(batch, 1, device="cuda")

    def worth(of: dict[str, torch.Tensor], what: torch.Tensor) -> torch.Tensor:
        return functional_call(net, of, (what,))

    @torch.compile
    def loss() -> torch.Tensor:
        with torch.no_grad():
            wanted = rewards + 0.99 * torch.vmap(worth, (0, None))(slow, later).amin(0)
        return (torch.vmap(worth, (0, None))(weights, x) - wanted).square().mean()

    def step() -> torch.Tensor:
        wrong = loss()
        wrong.backward()
        update.step()
        update.zero_grad()
        with torch.no_grad():
            torch._foreach_lerp_(list(slow.values()), list(weights.values()), 0.005)
        return wrong.detach()

    return step


STEPS: dict[str, Callable[[], Step]] = {
    "cwm": lambda: of_transformers(
        "CwmForCausalLM", sizes_of(2048, 7168, 3, 16, 4, 64_000), 16, 1024
    ),
    "ernie_blocks_again": lambda: of_transformers(
        "Ernie4_5ForCausalLM", sizes_of(1536, 4096, 8, 12, 2, 64_000), 10, 1024, blocks=True
    ),
    "vault_dynamic": lambda: of_transformers(
        "VaultGemmaForCausalLM", sizes_of(1536, 6144, 3, 6, 6, 128_000), 12, 1024, dynamic=True
    ),
    "decoder_in_graphs": lambda: decoder_in_graphs(64, 1024),
    "registers_and_update": lambda: registers_and_update(1024),
    "half_is_kept": lambda: half_is_kept(24, 1024),
    "first_words_are_known": lambda: first_words_are_known(4, 4096),
    "learnt_distances": lambda: learnt_distances(48, 1024),
    "mobilevit_v2_last": lambda: of_timm("mobilevitv2_100", 256, 256, last=True),
    "efficientvit_m5_tf32": lambda: of_timm("efficientvit_m5", 1536, 224),
    "repeated_blocks": lambda: repeated_blocks(20, 32, 128),
    "taken_apart": lambda: taken_apart(144, 65_536),
    "films_last": lambda: films_last(12, 16, 160),
    "largest_messages": lambda: largest_messages(200_000, 2_000_000),
    "fields_in_graphs": lambda: fields_in_graphs(131_072, 39),
    "many_critics": lambda: many_critics(65_536),
}


def step(*, name: str) -> Step:
    return STEPS[name]()
