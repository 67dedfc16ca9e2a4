"""A ninth set of steps like those of eighth.py, of models and settings that no set had: predicted
and committed, then measured.

python benchmarks/step_time/simulated.py OUT.jsonl .../ninth.py:step name=NAME
python benchmarks/step_time/recording/one_by_one.py OUT SECONDS LIST
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from models import BASE, FUSED, LAST, PLAIN, decoder, of_timm, of_transformers
from ninth_fields import (
    robot_moves,
    several_tasks,
    soft_experts,
    told_by_units,
    weather_in_blocks,
)
from ninth_others import (
    implicit_quantiles,
    inverted_series,
    judged_sound,
    masked_flow,
    meshes,
    pyramid_of_sound,
    quantiles_of_sales,
    related_nodes,
)
from ninth_pictures import (
    aura_flow,
    deep_compression,
    enlarged_by_windows,
    future_of_films,
    judged_with_norms,
    large_filters_of_volumes,
    scenes_by_levels,
    video_of_words,
    without_negatives,
)
from unseen import BF16, Step, training

from vramcast_zoo.suites.training import training_step


def text(name: str, sizes: dict[str, Any], batch: int, length: int, **how: Any) -> Step:
    """A model of language under an optimizer and a precision of training_step's."""
    import transformers

    config = getattr(transformers, name.rpartition("For")[0] + "Config")(**sizes)
    config.use_cache = False
    model = getattr(transformers, name)(config).cuda()
    if how.pop("checkpointed", False):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if "autocast" not in how:
        model = model.to(BF16)
    x = torch.randint(5, config.vocab_size, (batch, length), device="cuda")
    return training_step(lambda: model(input_ids=x, labels=x).loss, model.parameters(), **how)


def tf32(step: Callable[[], Step]) -> Step:
    torch.set_float32_matmul_precision("high")
    return step()


def adapted_in_parts(batch: int, length: int) -> Step:
    """LoRA in every product of a Ministral that sees a window; gradients of two batches."""
    from peft import LoraConfig, get_peft_model
    from transformers import MinistralConfig, MinistralForCausalLM

    sizes = decoder(2048, 7168, 4, 16, 4, 64_000, head_dim=128, sliding_window=512)
    model = MinistralForCausalLM(MinistralConfig(**sizes, use_cache=False)).to("cuda", BF16)
    adapted = get_peft_model(model, LoraConfig(r=64, lora_alpha=16, target_modules="all-linear"))
    x = torch.randint(0, 64_000, (batch, length), device="cuda")
    return training_step(
        lambda: adapted(input_ids=x, labels=x).loss, adapted.parameters(), accumulate=2
    )


def translated(batch: int, length: int) -> Step:
    """Marian with smoothed labels; the table is the last layer too."""
    from transformers import MarianConfig, MarianMTModel

    sizes: dict[str, Any] = {"d_model": 512, "vocab_size": 58_101, "pad_token_id": 58_100}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 6, f"{side}_attention_heads": 8, f"{side}_ffn_dim": 2048}
    config = MarianConfig(**sizes, decoder_start_token_id=58_100, activation_function="swish")
    model = MarianMTModel(config).cuda()
    x = torch.randint(5, 58_000, (batch, length), device="cuda")

    def loss() -> torch.Tensor:
        found = model(input_ids=x, decoder_input_ids=x, use_cache=False).logits
        return F.cross_entropy(found.flatten(0, 1).float(), x.flatten(), label_smoothing=0.1)

    return training(model, loss)


def gated_both_ways(batch: int, length: int, told: int) -> Step:
    """T5Gemma in bf16: an encoder and a decoder of Gemma's layers."""
    from transformers import T5GemmaConfig, T5GemmaForConditionalGeneration

    part = decoder(1024, 4096, 6, 8, 4, 64_000, head_dim=128)
    config = T5GemmaConfig(encoder=part, decoder=part, vocab_size=64_000)
    config._attn_implementation = "sdpa"
    model = T5GemmaForConditionalGeneration(config).to("cuda", BF16)
    x = torch.randint(5, 64_000, (batch, length), device="cuda")
    labels = torch.randint(5, 64_000, (batch, told), device="cuda")
    return training(
        model, lambda: model(input_ids=x, labels=labels).loss, autocast=False, fused=True
    )


def fast_conformer(batch: int, frames: int) -> Step:
    """Parakeet: Mel spectra, eight times fewer frames, conformers, CTC."""
    from transformers import ParakeetCTCConfig, ParakeetForCTC

    part = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8}
    part |= {"num_attention_heads": 8, "num_mel_bins": 80, "layerdrop": 0.0}
    model = ParakeetForCTC(ParakeetCTCConfig(encoder_config=part, vocab_size=1025)).cuda()
    x = torch.randn(batch, frames, 80, device="cuda")
    labels = torch.randint(1, 1000, (batch, 60), device="cuda")
    heard = torch.ones(batch, frames, device="cuda", dtype=torch.long)
    return training(
        model, lambda: model(input_features=x, attention_mask=heard, labels=labels).loss
    )


def waves_to_words(batch: int, seconds: int, told: int) -> Step:
    """Moonshine in bf16: waves by three convolutions, then an encoder and a decoder."""
    from transformers import MoonshineConfig, MoonshineForConditionalGeneration

    sizes: dict[str, Any] = {"hidden_size": 416, "intermediate_size": 1664}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_num_hidden_layers": 8, f"{side}_num_attention_heads": 8}
    model = MoonshineForConditionalGeneration(MoonshineConfig(**sizes, pad_token_id=2)).to(
        "cuda", BF16
    )
    x = torch.randn(batch, 16_000 * seconds, device="cuda", dtype=BF16)
    labels = torch.randint(5, 32_000, (batch, told), device="cuda")
    return training(
        model, lambda: model(input_values=x, labels=labels).loss, autocast=False, fused=True
    )


def descript_codec(batch: int, length: int) -> Step:
    """DAC: waves to residual codes and back, with snakes for activations."""
    from transformers import DacConfig, DacModel

    model = DacModel(DacConfig(encoder_hidden_size=48, decoder_hidden_size=768)).cuda()
    x = torch.randn(batch, 1, length, device="cuda")

    def loss() -> torch.Tensor:
        found = model(x)
        y = found.audio_values.reshape(batch, -1)
        return F.l1_loss(y, x[:, 0, : y.shape[1]]) + found.loss.mean()

    return training(model, loss, autocast=False)


def told_of_pictures(batch: int, length: int) -> Step:
    """GIT: the pieces of a picture, then words, in one decoder."""
    from transformers import GitConfig, GitForCausalLM

    model = GitForCausalLM(GitConfig(vision_config={"num_hidden_layers": 12})).cuda()
    x = torch.randint(5, 30_000, (batch, length), device="cuda")
    pictures = torch.randn(batch, 3, 224, 224, device="cuda")
    return training(
        model,
        lambda: model(input_ids=x, pixel_values=pictures, labels=x, use_cache=False).loss,
    )


STEPS: dict[str, Callable[[], Step]] = {
    "arcee": lambda: of_transformers(
        "ArceeForCausalLM", decoder(1536, 6144, 10, 16, 8, 48_000, head_dim=96), 12, 1024, FUSED
    ),
    "apertus": lambda: of_transformers(
        "ApertusForCausalLM", decoder(1536, 6144, 8, 12, 4, 64_000), 12, 1024
    ),
    "olmo3": lambda: text(
        "Olmo3ForCausalLM",
        decoder(2048, 5632, 6, 16, 16, 50_304, sliding_window=1024),
        *(4, 3072),
        autocast="bf16",
        checkpointed=True,
    ),
    "minicpm3": lambda: of_transformers("MiniCPM3ForCausalLM", MINI, 20, 1024, FUSED),
    "lfm2": lambda: of_transformers("Lfm2ForCausalLM", LFM, 16, 1024, {"foreach": True}),
    "codegen": lambda: text("CodeGenForCausalLM", CODE, 12, 1024, autocast="fp16", scale_loss=True),
    "persimmon": lambda: tf32(
        lambda: of_transformers("PersimmonForCausalLM", PERSIMMON, 16, 1024, None)
    ),
    "mpt": lambda: of_transformers("MptForCausalLM", MPT, 16, 1024),
    "shared_expert": lambda: of_transformers("Qwen2MoeForCausalLM", QWEN_MOE, 16, 1024, FUSED),
    "accumulated": lambda: text(
        "HunYuanDenseV1ForCausalLM",
        decoder(1536, 4096, 4, 12, 4, 64_000, head_dim=128),
        *(14, 1024),
        autocast="bf16",
        accumulate=3,
        optimizer="adafactor",
    ),
    "adapted_in_parts": lambda: adapted_in_parts(12, 1024),
    "eurobert": lambda: of_transformers(
        "EuroBertForMaskedLM", decoder(768, 3072, 12, 12, 4, 64_000, pad_token_id=0), 48, 512
    ),
    "fnet_fp32": lambda: text("FNetForMaskedLM", BASE, 32, 512, autocast="", clip=0.5),
    "roformer": lambda: text(
        "RoFormerForMaskedLM",
        BASE,
        *(96, 384),
        autocast="fp16",
        scale_loss=True,
        optimizer="adamw-fused",
    ),
    "nomic": lambda: of_transformers("NomicBertForMaskedLM", BASE, 8, 2048),
    "translated": lambda: translated(352, 128),
    "gated_both_ways": lambda: gated_both_ways(64, 768, 256),
    "fast_conformer": lambda: fast_conformer(144, 1600),
    "waves_to_words": lambda: waves_to_words(128, 12, 96),
    "descript_codec": lambda: descript_codec(80, 16_384),
    "told_of_pictures": lambda: told_of_pictures(96, 40),
    "pit": lambda: of_timm("pit_s_224", 256),
    "fasternet_last": lambda: of_timm("fasternet_t2", 384, **LAST),
    "nextvit": lambda: of_timm("nextvit_small", 160),
    "mixnet_last": lambda: of_timm("mixnet_l", 192, **LAST),
    "xception_fp32": lambda: of_timm("xception41", 64, **PLAIN),
    "halonet": lambda: of_timm("halonet50ts", 128, 256),
    "starnet_last": lambda: of_timm("starnet_s3", 640, **LAST),
    "aura_flow": lambda: aura_flow(24, 64, 128),
    "deep_compression": lambda: deep_compression(16, 256),
    "enlarged_by_windows": lambda: enlarged_by_windows(56, 64),
    "future_of_films": lambda: future_of_films(64, 16, 224),
    "judged_with_norms": lambda: judged_with_norms(128, 128),
    "large_filters_of_volumes": lambda: large_filters_of_volumes(1, 112),
    "scenes_by_levels": lambda: scenes_by_levels(16, 512),
    "video_of_words": lambda: video_of_words(4, 9, 40, 64),
    "without_negatives": lambda: without_negatives(192),
    "implicit_quantiles": lambda: implicit_quantiles(1536, 64),
    "inverted_series": lambda: inverted_series(256, 720, 96),
    "judged_sound": lambda: judged_sound(32, 16_384),
    "masked_flow": lambda: masked_flow(131_072, 64),
    "meshes": lambda: meshes(60_000, 300_000),
    "pyramid_of_sound": lambda: pyramid_of_sound(512, 1200, 80),
    "quantiles_of_sales": lambda: quantiles_of_sales(2048, 168, 24),
    "related_nodes": lambda: related_nodes(80_000, 1_200_000, 40),
    "robot_moves": lambda: robot_moves(896, 16),
    "several_tasks": lambda: several_tasks(65_536),
    "soft_experts": lambda: soft_experts(192),
    "told_by_units": lambda: told_by_units(128, 512),
    "weather_in_blocks": lambda: weather_in_blocks(28, 128, 256),
}
MINI = {
    **decoder(1280, 3328, 12, 20, 20, 73_448),
    "q_lora_rank": 512,
    "kv_lora_rank": 256,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
}
LFM = {
    **decoder(1536, 6144, 12, 24, 8, 65_536),
    "layer_types": (["conv", "conv", "full_attention"] * 4),
    "block_auto_adjust_ff_dim": False,
}
CODE = {"n_embd": 1024, "n_layer": 12, "n_head": 16, "rotary_dim": 32, "vocab_size": 51_200}
PERSIMMON = decoder(1024, 4096, 8, 16, 16, 64_000)
MPT = {"d_model": 1024, "n_heads": 16, "n_layers": 12, "max_seq_len": 1024, "vocab_size": 50_368}
QWEN_MOE = {
    **decoder(1024, 2816, 8, 16, 16, 64_000),
    "moe_intermediate_size": 704,
    "shared_expert_intermediate_size": 2816,
    "num_experts": 16,
    "num_experts_per_tok": 4,
}


def step(*, name: str) -> Step:
    return STEPS[name]()
