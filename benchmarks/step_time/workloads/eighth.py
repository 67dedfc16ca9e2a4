"""An eighth set of steps like those of mixed.py, of models and settings that no set had: predicted
and committed, then measured.

python benchmarks/step_time/simulated.py OUT.jsonl .../eighth.py:step name=NAME
python benchmarks/step_time/recording/one_by_one.py OUT SECONDS LIST
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from eighth_others import (
    answered_by_memory,
    balanced_experts,
    believed_prices,
    betas,
    critics,
    depth_of_two,
    hashed_rays,
    knowledge,
    masked_spectrograms,
    molecules,
    momentum_pairs,
    quantised_sound,
    smooth_critic,
    told_in_turn,
    waves_of_air,
)
from models import BASE, FUSED, LAST, PLAIN, decoder, of_timm, of_transformers, vision
from unseen import BF16, Step, training


def contrasted(batch: int) -> Step:
    """CLIP: pictures and words, each the other's label."""
    from transformers import CLIPConfig, CLIPModel

    model = CLIPModel(CLIPConfig()).cuda()
    words = torch.randint(5, 49_000, (batch, 77), device="cuda")
    pictures = torch.randn(batch, 3, 224, 224, device="cuda")
    return training(
        model, lambda: model(input_ids=words, pixel_values=pictures, return_loss=True).loss
    )


def found_objects(batch: int, size: int) -> Step:
    """DETR's transformer over a ResNet, its losses with matching on the host left out."""
    from torchvision.models import resnet50

    body = torch.nn.Sequential(*list(resnet50(weights=None).children())[:-2])
    parts = {
        "body": body,
        "narrow": torch.nn.Conv2d(2048, 256, 1),
        "turn": torch.nn.Transformer(256, 8, 6, 6, 2048, 0.1, batch_first=True),
        "asked": torch.nn.Embedding(100, 256),
        "kind": torch.nn.Linear(256, 92),
        "box": torch.nn.Linear(256, 4),
    }
    model = torch.nn.ModuleDict(parts).cuda()
    x = torch.randn(batch, 3, size, size, device="cuda")
    kinds = torch.randint(0, 92, (batch, 100), device="cuda")
    boxes = torch.rand(batch, 100, 4, device="cuda")

    def loss() -> torch.Tensor:
        y = model["narrow"](model["body"](x)).flatten(2).transpose(1, 2)
        asked = model["asked"].weight.expand(batch, -1, -1)
        y = model["turn"](y, asked)
        named = F.cross_entropy(model["kind"](y).flatten(0, 1).float(), kinds.flatten())
        return named + 5 * F.l1_loss(model["box"](y).sigmoid().float(), boxes)

    return training(model, loss, autocast=False)


def heard(batch: int, seconds: int) -> Step:
    """Whisper's small model."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sizes: dict[str, Any] = {"d_model": 768, "vocab_size": 51_865}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 6, f"{side}_attention_heads": 12, f"{side}_ffn_dim": 3072}
    config = WhisperConfig(**sizes, max_source_positions=50 * seconds)
    model = WhisperForConditionalGeneration(config).to("cuda", BF16)
    x = torch.randn(batch, 80, 100 * seconds, device="cuda", dtype=BF16)
    labels = torch.randint(5, 50_000, (batch, 120), device="cuda")
    return training(
        model,
        lambda: model(input_features=x, labels=labels).loss,
        autocast=False,
        foreach=True,
    )


def noised_patches(batch: int) -> Step:
    """PixArt's transformer in bf16: text beside 64 x 64 latents."""
    from diffusers import PixArtTransformer2DModel

    model = PixArtTransformer2DModel(
        num_attention_heads=12,
        attention_head_dim=64,
        num_layers=12,
        cross_attention_dim=768,
        caption_channels=1024,
        sample_size=64,
    ).to("cuda", BF16)
    x = torch.randn(batch, 4, 64, 64, device="cuda", dtype=BF16)
    text = torch.randn(batch, 120, 1024, device="cuda", dtype=BF16)
    when = torch.randint(0, 1000, (batch,), device="cuda")
    more = {"resolution": None, "aspect_ratio": None}

    def loss() -> torch.Tensor:
        y = model(x, text, when, added_cond_kwargs=more).sample[:, :4]
        return F.mse_loss(y.float(), x.float())

    return training(model, loss, autocast=False, fused=True)


def edged_pictures(batch: int) -> Step:
    """A ControlNet beside a U-Net that is not trained, fp16 weights of the latter."""
    from diffusers import ControlNetModel, UNet2DConditionModel

    sizes: dict[str, Any] = {
        "block_out_channels": (192, 384, 768),
        "layers_per_block": 2,
        "attention_head_dim": 8,
        "cross_attention_dim": 512,
    }
    down = ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D")
    up = ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D")
    whole = UNet2DConditionModel(down_block_types=down, up_block_types=up, **sizes)
    beside = ControlNetModel.from_unet(whole).cuda()
    whole = whole.to("cuda", BF16).requires_grad_(False)
    x = torch.randn(batch, 4, 32, 32, device="cuda", dtype=BF16)
    text = torch.randn(batch, 77, 512, device="cuda", dtype=BF16)
    edges = torch.rand(batch, 3, 256, 256, device="cuda")
    when = torch.randint(0, 1000, (batch,), device="cuda")

    def loss() -> torch.Tensor:
        downs, middle = beside(x, when, text, controlnet_cond=edges, return_dict=False)
        y = whole(
            x,
            when,
            text,
            down_block_additional_residuals=downs,
            mid_block_additional_residual=middle,
        ).sample
        return F.mse_loss(y.float(), x.float())

    return training(beside, loss)


def adapted(batch: int, length: int) -> Step:
    """A decoder in bf16 of which only the norms, biases and last layer are trained."""
    from transformers import StableLmConfig, StableLmForCausalLM

    config = StableLmConfig(**decoder(2048, 5632, 8, 32, 4, 100_352), use_qkv_bias=True)
    config.use_cache = False
    model = StableLmForCausalLM(config).to("cuda", BF16)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("norm" in name or "bias" in name or "lm_head" in name)
    x = torch.randint(5, 100_352, (batch, length), device="cuda")
    return training(model, lambda: model(input_ids=x, labels=x).loss, autocast=False, fused=True)


STEPS: dict[str, Callable[[], Step]] = {
    "cohere": lambda: of_transformers(
        "CohereForCausalLM", decoder(1536, 5376, 8, 12, 4, 128_000), 12, 1024, FUSED
    ),
    "olmo2": lambda: of_transformers(
        "Olmo2ForCausalLM", decoder(1536, 6144, 8, 12, 12, 100_278), 16, 1024
    ),
    "opt": lambda: of_transformers("OPTForCausalLM", OPT, 16, 1024, FUSED),
    "falcon": lambda: of_transformers("FalconForCausalLM", FALCON, 20, 1024, FUSED),
    "granite": lambda: of_transformers(
        "GraniteForCausalLM", decoder(1024, 4096, 12, 16, 8, 49_152), 24, 1024
    ),
    "electra": lambda: of_transformers(
        "ElectraForMaskedLM", {**BASE, "embedding_size": 256, "intermediate_size": 3072}, 96, 256
    ),
    "albert": lambda: of_transformers("AlbertForMaskedLM", ALBERT, 64, 256),
    "mbart": lambda: of_transformers("MBartForConditionalGeneration", MBART, 64, 384),
    "adapted": lambda: adapted(8, 1024),
    "contrasted": lambda: contrasted(384),
    "heard": lambda: heard(64, 20),
    "noised_patches": lambda: noised_patches(24),
    "edged_pictures": lambda: edged_pictures(64),
    "found_objects": lambda: found_objects(16, 640),
    "deeplab": lambda: vision("deeplabv3_resnet50", 16, size=512),
    "r2plus1d": lambda: vision("r2plus1d_18", 12, size=112),
    "swin3d": lambda: vision("swin3d_t", 16),
    "vgg16_bn_fp32": lambda: vision("vgg16_bn", 96, autocast=False),
    "alexnet": lambda: vision("alexnet", 2048),
    "shufflenet_last": lambda: vision("shufflenet_v2_x1_5", 512, last=True),
    "resnet101_last": lambda: of_timm("resnet101", 384, **LAST),
    "convnext_small_last": lambda: of_timm("convnext_small", 192, **LAST),
    "wide_resnet_fp32": lambda: of_timm("wide_resnet50_2", 96, **PLAIN),
    "efficientnet_b3": lambda: of_timm("tf_efficientnet_b3", 96, 300),
    "mobilenet_last": lambda: of_timm("mobilenetv3_large_100", 768, **LAST),
    "regnetx": lambda: of_timm("regnetx_032", 256),
    "swin_small": lambda: of_timm("swin_small_patch4_window7_224", 192),
    "deit3": lambda: of_timm("deit3_small_patch16_224", 256),
    "gmlp": lambda: of_timm("gmlp_s16_224", 192),
    "densenet_last": lambda: of_timm("densenet169", 256, **LAST),
    "inception_last": lambda: of_timm("inception_v4", 256, 299, **LAST),
    "tiny_vit": lambda: of_timm("tiny_vit_11m_224", 192),
    "repvit": lambda: of_timm("repvit_m1_1", 256),
    "crossvit": lambda: of_timm("crossvit_15_240", 256, 240),
    "mvit": lambda: of_timm("mvitv2_tiny", 96),
    "visformer_fp32": lambda: of_timm("visformer_small", 96, **PLAIN),
    "answered_by_memory": lambda: answered_by_memory(128, 256),
    "balanced_experts": lambda: balanced_experts(48, 512),
    "believed_prices": lambda: believed_prices(4096, 336),
    "betas": lambda: betas(2048, 64),
    "critics": lambda: critics(4096),
    "depth_of_two": lambda: depth_of_two(8, 192, 640),
    "hashed_rays": lambda: hashed_rays(16_384, 64),
    "knowledge": lambda: knowledge(8192, 64),
    "masked_spectrograms": lambda: masked_spectrograms(160, 1024),
    "molecules": lambda: molecules(8192, 24),
    "momentum_pairs": lambda: momentum_pairs(128, 224),
    "quantised_sound": lambda: quantised_sound(64, 24_000),
    "smooth_critic": lambda: smooth_critic(64, 64),
    "told_in_turn": lambda: told_in_turn(512, 64),
    "waves_of_air": lambda: waves_of_air(40, 128, 256),
}
OPT = {
    "hidden_size": 1024,
    "ffn_dim": 4096,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "vocab_size": 50_272,
    "word_embed_proj_dim": 1024,
}
FALCON = {
    "hidden_size": 1536,
    "num_hidden_layers": 10,
    "num_attention_heads": 24,
    "vocab_size": 65_024,
    "multi_query": True,
    "parallel_attn": True,
}
ALBERT = {**BASE, "embedding_size": 128, "intermediate_size": 3072, "vocab_size": 30_000}
MBART = {
    "d_model": 768,
    "vocab_size": 64_000,
    **{f"{side}_layers": 6 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 12 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 3072 for side in ("encoder", "decoder")},
}


def step(*, name: str) -> Step:
    return STEPS[name]()
