"""A tenth set of steps like those of ninth.py, of models and settings that no set had: predicted
and committed, then measured.

python benchmarks/step_time/simulated.py OUT.jsonl .../tenth.py:step name=NAME
python benchmarks/step_time/recording/one_by_one.py OUT SECONDS LIST
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from models import FUSED, LAST, PLAIN, decoder, of_timm, of_transformers
from ninth import text, tf32
from tenth_fields import (
    boards,
    dreamt_world,
    interests,
    rows_that_see_rows,
    several_moves,
    what_is_left,
)
from tenth_made import (
    adapted_pictures,
    attended_volumes,
    cascade,
    codes_judged_by_features,
    films_of_words,
    masked_codes,
    shifted_frames,
)
from tenth_others import (
    forces_of_vectors,
    music_of_words,
    paths_of_bonds,
    points_around,
    speech_to_text_fp16,
    stereo_latents,
    who_speaks,
)
from tenth_pictures import asked_under_conditions, centres, masks_of_words
from torch import nn
from unseen import BF16, Step, training

from vramcast_zoo.suites.training import training_step


def made_orthogonal(batch: int, length: int) -> Step:
    """NanoChat: Muon for the matrices of its layers, AdamW for its tables."""
    from transformers import NanoChatConfig, NanoChatForCausalLM

    config = NanoChatConfig(**decoder(1024, 4096, 12, 8, 8, 50_304), use_cache=False)
    model = NanoChatForCausalLM(config).cuda()
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    chosen = set(map(id, matrices))
    others = [p for p in model.parameters() if id(p) not in chosen]
    optimizers = torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(others, 3e-4, fused=True)
    x = torch.randint(0, 50_304, (batch, length), device="cuda")

    def step() -> torch.Tensor:
        with torch.autocast("cuda", BF16):
            loss = model(input_ids=x, labels=x).loss
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step


def told_by_codes(batch: int, length: int) -> Step:
    """CTRL in fp16 with scaled gradients: attention by plain products."""
    from transformers import CTRLConfig, CTRLLMHeadModel

    sizes = {"n_embd": 1280, "dff": 5120, "n_layer": 8, "n_head": 16, "vocab_size": 50_000}
    model = CTRLLMHeadModel(CTRLConfig(**sizes, n_positions=length, use_cache=False)).cuda()
    x = torch.randint(0, 50_000, (batch, length), device="cuda")
    return training_step(
        lambda: model(input_ids=x, labels=x).loss,
        model.parameters(),
        autocast="fp16",
        scale_loss=True,
    )


def long_summaries(batch: int, length: int, told: int) -> Step:
    """PEGASUS-X in bf16: words see their block, every second layer another one, and 32 more."""
    from transformers import PegasusXConfig, PegasusXForConditionalGeneration

    sizes: dict[str, Any] = {"d_model": 768, "encoder_layers": 8, "decoder_layers": 6}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_attention_heads": 12, f"{side}_ffn_dim": 3072}
    config = PegasusXConfig(**sizes, use_cache=False)
    model = PegasusXForConditionalGeneration(config).to("cuda", BF16)
    x = torch.randint(5, 96_000, (batch, length), device="cuda")
    labels = torch.randint(5, 96_000, (batch, told), device="cuda")
    return training(
        model, lambda: model(input_ids=x, labels=labels).loss, autocast=False, fused=True
    )


def adapted_by_rank(batch: int, length: int) -> Step:
    """rsLoRA with dropout in a Ministral 3 in bf16, whose layers are computed twice."""
    from peft import LoraConfig, get_peft_model
    from transformers import Ministral3Config, Ministral3ForCausalLM

    sizes = decoder(2560, 9216, 8, 32, 8, 131_072, head_dim=128)
    model = Ministral3ForCausalLM(Ministral3Config(**sizes, use_cache=False)).to("cuda", BF16)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.enable_input_require_grads()
    targets = ["q_proj", "v_proj", "gate_proj", "down_proj"]
    how = LoraConfig(r=32, lora_dropout=0.05, use_rslora=True, target_modules=targets)
    adapted = get_peft_model(model, how)
    x = torch.randint(20, 131_072, (batch, length), device="cuda")
    return training_step(lambda: adapted(input_ids=x, labels=x).loss, adapted.parameters())


def better_of_two(pairs: int, length: int) -> Step:
    """A model of rewards from GLM in bf16: of two answers the chosen one is to have more."""
    from transformers import GlmConfig, GlmForSequenceClassification

    sizes = decoder(2048, 6144, 8, 16, 2, 64_000, head_dim=128, pad_token_id=0)
    config = GlmConfig(**sizes, num_labels=1, use_cache=False, eos_token_id=1)
    model = GlmForSequenceClassification(config).to("cuda", BF16)
    x = torch.randint(5, 64_000, (2 * pairs, length), device="cuda")

    def loss() -> torch.Tensor:
        good, bad = model(input_ids=x).logits.float().chunk(2)
        return -F.logsigmoid(good - bad).mean()

    return training(model, loss, autocast=False, fused=True)


def answers_about_pictures(batch: int, length: int) -> Step:
    """PaliGemma in bf16: 256 pieces of a picture, then words; what sees is not trained."""
    from transformers import PaliGemmaConfig, PaliGemmaForConditionalGeneration

    words = decoder(1536, 6144, 8, 12, 1, 64_000, head_dim=128)
    seen = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12}
    seen |= {"num_attention_heads": 12, "image_size": 224, "patch_size": 14}
    config = PaliGemmaConfig(
        text_config={"model_type": "gemma", **words},
        vision_config={"model_type": "siglip_vision_model", **seen},
        image_token_index=63_999,
        projection_dim=1536,
    )
    model = PaliGemmaForConditionalGeneration(config).to("cuda", BF16)
    model.model.vision_tower.requires_grad_(False)
    x = torch.randint(5, 63_000, (batch, 256 + length), device="cuda")
    x[:, :256] = 63_999
    labels = x.masked_fill(torch.arange(256 + length, device="cuda") < 256 + length // 2, -100)
    kinds = (labels >= 0).long()
    pictures = torch.randn(batch, 3, 224, 224, device="cuda", dtype=BF16)
    given = {"input_ids": x, "pixel_values": pictures, "token_type_ids": kinds}
    return training(
        model,
        lambda: model(**given, labels=labels, use_cache=False).loss,
        autocast=False,
        fused=True,
    )


def scaled_last(model: nn.Module, batch: int, size: int) -> Step:
    """In fp16 with scaled gradients, channels last, SGD."""
    model = model.cuda().to(memory_format=torch.channels_last)
    x = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device="cuda")
    how: dict[str, Any] = {"autocast": "fp16", "scale_loss": True, "optimizer": "sgd", "clip": 0.0}
    return training_step(lambda: F.cross_entropy(model(x), labels), model.parameters(), **how)


def chosen_filters(batch: int) -> Step:
    """SKNet: each layer weighs two lengths of filters."""
    import timm

    return scaled_last(timm.create_model("skresnet34"), batch, 224)


STEPS: dict[str, Callable[[], Step]] = {
    "differences_schedule_free": lambda: text(
        "DiffLlamaForCausalLM",
        decoder(1280, 5120, 8, 10, 10, 48_000),
        *(16, 1024),
        autocast="bf16",
        optimizer="schedulefree",
    ),
    "made_orthogonal": lambda: made_orthogonal(16, 1024),
    "experts_of_ernie": lambda: of_transformers("Ernie4_5_MoeForCausalLM", ERNIE, 20, 1024, FUSED),
    "told_by_codes_fp16": lambda: told_by_codes(48, 512),
    "rembert_tf32": lambda: tf32(
        lambda: text("RemBertForMaskedLM", REMBERT, 24, 256, autocast="", clip=0.0)
    ),
    "squeezebert": lambda: of_transformers("SqueezeBertForMaskedLM", {}, 96, 256),
    "long_summaries": lambda: long_summaries(12, 4096, 256),
    "adapted_by_rank": lambda: adapted_by_rank(6, 1024),
    "answers_about_pictures": lambda: answers_about_pictures(48, 128),
    "better_of_two": lambda: better_of_two(10, 1024),
    "convit": lambda: of_timm("convit_small", 128),
    "selecsls_last": lambda: of_timm("selecsls60", 384, **LAST),
    "inception_resnet_fp32": lambda: of_timm("inception_resnet_v2", 104, 299, **PLAIN),
    "rdnet_last": lambda: of_timm("rdnet_tiny", 256, **LAST),
    "sequencer": lambda: of_timm("sequencer2d_s", 320),
    "chosen_filters": lambda: chosen_filters(512),
    "resmlp_fp32": lambda: of_timm("resmlp_24_224", 96, **PLAIN),
    "asked_under_conditions": lambda: asked_under_conditions(56, 640),
    "masks_of_words": lambda: masks_of_words(16, 512),
    "centres": lambda: centres(128, 512),
    "adapted_pictures": lambda: adapted_pictures(24, 32, 128),
    "cascade": lambda: cascade(40, 24),
    "masked_codes": lambda: masked_codes(96, 16),
    "codes_judged_by_features": lambda: codes_judged_by_features(48, 128),
    "films_of_words": lambda: films_of_words(4, 9, 16, 24),
    "attended_volumes": lambda: attended_volumes(8, 96),
    "shifted_frames": lambda: shifted_frames(24, 8),
    "stereo_latents": lambda: stereo_latents(36, 32_768),
    "speech_to_text_fp16": lambda: speech_to_text_fp16(160, 1200, 64),
    "music_of_words": lambda: music_of_words(24, 750),
    "who_speaks": lambda: who_speaks(256, 300),
    "paths_of_bonds": lambda: paths_of_bonds(768, 40),
    "forces_of_vectors": lambda: forces_of_vectors(8192, 150_000),
    "points_around": lambda: points_around(48, 1024),
    "interests": lambda: interests(65_536, 100),
    "rows_that_see_rows": lambda: rows_that_see_rows(16_384, 24),
    "what_is_left": lambda: what_is_left(32_768, 168, 24),
    "boards": lambda: boards(1024, 19),
    "dreamt_world": lambda: dreamt_world(768, 16),
    "several_moves": lambda: several_moves(128, 100),
}
ERNIE = {
    **decoder(1280, 3584, 8, 10, 2, 64_000),
    "moe_intermediate_size": 896,
    "moe_k": 4,
    "moe_num_experts": 24,
    "moe_num_shared_experts": 1,
}
REMBERT = {"num_hidden_layers": 8, "vocab_size": 120_000}


def step(*, name: str) -> Step:
    return STEPS[name]()
