"""Architectures of transformers in other fields, made small, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

VOCABULARY = 32000
TEXT = {"vocab_size": VOCABULARY, "hidden_size": 512, "num_hidden_layers": 6}
HEADS = {**TEXT, "num_attention_heads": 8, "intermediate_size": 1536}
GROUPED = {**HEADS, "num_key_value_heads": 4, "max_position_embeddings": 2048, "pad_token_id": 0}
EXPERTS = {**GROUPED, "moe_intermediate_size": 512, "num_experts_per_tok": 2}
VISION = {
    "hidden_size": 384,
    "num_hidden_layers": 8,
    "num_attention_heads": 6,
    "intermediate_size": 1536,
}
PAIRS = {
    "vocab_size": VOCABULARY,
    "d_model": 512,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "pad_token_id": 0,
    "decoder_start_token_id": 2,
}
HEARD = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "intermediate_size": 1536,
    "vocab_size": 32,
    "ctc_zero_infinity": True,
}

# by name: the model, its configuration, what it is fed with
FAMILIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "gemma3": ("Gemma3ForCausalLM", {**GROUPED, "head_dim": 64}, "next_token"),
    "glm4": ("Glm4ForCausalLM", {**GROUPED, "head_dim": 64}, "next_token"),
    "cohere2": ("Cohere2ForCausalLM", GROUPED, "next_token"),
    "smollm3": ("SmolLM3ForCausalLM", GROUPED, "next_token"),
    "nemotron": ("NemotronForCausalLM", GROUPED, "next_token"),
    "olmoe": (
        "OlmoeForCausalLM",
        {**GROUPED, "num_experts": 16, "num_experts_per_tok": 4, "intermediate_size": 512},
        "next_token",
    ),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        {
            **EXPERTS,
            "num_key_value_heads": 8,
            "n_routed_experts": 8,
            "n_group": 2,
            "topk_group": 1,
            "q_lora_rank": 256,
            "kv_lora_rank": 128,
            "qk_rope_head_dim": 32,
            "qk_nope_head_dim": 64,
            "v_head_dim": 64,
            "first_k_dense_replace": 1,
        },
        "next_token",
    ),
    "gpt_oss": (
        "GptOssForCausalLM",
        {**EXPERTS, "num_local_experts": 8, "head_dim": 64, "intermediate_size": 512},
        "next_token",
    ),
    "mamba2": (
        "Mamba2ForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 512,
            "num_hidden_layers": 4,
            "num_heads": 16,
            "head_dim": 64,
            "n_groups": 1,
            "state_size": 64,
        },
        "next_token",
    ),
    "recurrent_gemma": (
        "RecurrentGemmaForCausalLM",
        {**HEADS, "lru_width": 512, "attention_window_size": 256, "num_key_value_heads": 1},
        "next_token",
    ),
    "rwkv": (
        "RwkvForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 512,
            "num_hidden_layers": 6,
            "attention_hidden_size": 512,
        },
        "next_token",
    ),
    "modernbert": ("ModernBertForMaskedLM", {**HEADS, "pad_token_id": 0}, "next_token"),
    "longformer": (
        "LongformerForMaskedLM",
        {**HEADS, "attention_window": 128, "max_position_embeddings": 1026},
        "next_token",
    ),
    "bigbird": ("BigBirdForMaskedLM", {**HEADS, "max_position_embeddings": 1024}, "next_token"),
    "albert": ("AlbertForMaskedLM", HEADS, "next_token"),
    "xlnet": (
        "XLNetLMHeadModel",
        {"vocab_size": VOCABULARY, "d_model": 512, "n_layer": 6, "n_head": 8, "d_inner": 1536},
        "next_token",
    ),
    "deberta": (
        "DebertaForMaskedLM",
        {**HEADS, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
        "next_token",
    ),
    "funnel": (
        "FunnelForMaskedLM",
        {
            "vocab_size": VOCABULARY,
            "d_model": 512,
            "block_sizes": [2, 2, 2],
            "n_head": 8,
            "d_inner": 1536,
        },
        "next_token",
    ),
    "pegasus": ("PegasusForConditionalGeneration", PAIRS, "pairs"),
    "m2m100": ("M2M100ForConditionalGeneration", PAIRS, "pairs"),
    "led": (
        "LEDForConditionalGeneration",
        {**PAIRS, "attention_window": 64, "max_encoder_position_embeddings": 1024},
        "pairs",
    ),
    "switch": (
        "SwitchTransformersForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": 512,
            "d_ff": 1024,
            "num_layers": 4,
            "num_decoder_layers": 4,
            "num_experts": 8,
            "decoder_start_token_id": 0,
        },
        "pairs",
    ),
    "swin": ("SwinForImageClassification", {"num_labels": 100}, "picture"),
    "swinv2": (
        "Swinv2ForImageClassification",
        {"num_labels": 100, "image_size": 256, "window_size": 8},
        "picture",
    ),
    "convnextv2": ("ConvNextV2ForImageClassification", {"num_labels": 100}, "picture"),
    "dinov2": (
        "Dinov2ForImageClassification",
        {**VISION, "num_labels": 100, "image_size": 224},
        "picture",
    ),
    "efficientformer": ("PoolFormerForImageClassification", {"num_labels": 100}, "picture"),
    "regnet": ("RegNetForImageClassification", {"num_labels": 100}, "picture"),
    "levit": ("LevitForImageClassification", {"num_labels": 100}, "picture"),
    "pvt": ("PvtForImageClassification", {"num_labels": 100}, "picture"),
    "cvt": ("CvtForImageClassification", {"num_labels": 100}, "picture"),
    "focalnet": ("FocalNetForImageClassification", {"num_labels": 100}, "picture"),
    "vit_mae": ("ViTMAEForPreTraining", {**VISION, "image_size": 224}, "unlabelled"),
    "segformer": ("SegformerForSemanticSegmentation", {"num_labels": 21}, "mask"),
    "dpt": (
        "DPTForSemanticSegmentation",
        {
            **VISION,
            "num_labels": 21,
            "image_size": 224,
            "backbone_out_indices": [1, 3, 5, 7],
            "neck_hidden_sizes": [48, 96, 192, 384],
        },
        "mask",
    ),
    "detr": (
        "YolosForObjectDetection",
        {**VISION, "image_size": [224, 224], "num_labels": 20},
        "boxes",
    ),
    "videomae": (
        "VideoMAEForVideoClassification",
        {**VISION, "num_frames": 8, "num_labels": 40},
        "clip",
    ),
    "timesformer": (
        "TimesformerForVideoClassification",
        {**VISION, "num_frames": 8, "num_labels": 40},
        "clip",
    ),
    "clip": (
        "CLIPModel",
        {
            "text_config": {"vocab_size": VOCABULARY, "num_hidden_layers": 4},
            "vision_config": {**VISION, "patch_size": 16},
        },
        "captions",
    ),
    "siglip": (
        "SiglipModel",
        {"text_config": {**VISION, "vocab_size": VOCABULARY}, "vision_config": VISION},
        "captions",
    ),
    "blip": (
        "BlipForConditionalGeneration",
        {
            "text_config": {"vocab_size": VOCABULARY, "num_hidden_layers": 4},
            "vision_config": {**VISION, "image_size": 224},
        },
        "described",
    ),
    "hubert": ("HubertForCTC", HEARD, "speech"),
    "wavlm": ("WavLMForCTC", HEARD, "speech"),
    "data2vec_audio": ("Data2VecAudioForCTC", HEARD, "speech"),
    "ast": (
        "ASTForAudioClassification",
        {**VISION, "num_labels": 50, "max_length": 512},
        "spectrum",
    ),
    "patchtst": (
        "PatchTSTForPrediction",
        {
            "num_input_channels": 7,
            "context_length": 512,
            "patch_length": 16,
            "patch_stride": 8,
            "prediction_length": 96,
            "d_model": 128,
        },
        "series",
    ),
    "patchtsmixer": (
        "PatchTSMixerForPrediction",
        {"num_input_channels": 7, "context_length": 512, "prediction_length": 96},
        "series",
    ),
    "decision": (
        "DecisionTransformerModel",
        {"state_dim": 17, "act_dim": 6, "hidden_size": 256, "n_layer": 4, "n_head": 4},
        "decisions",
    ),
}


def _tokens(batch_size: int, length: int) -> Tensor:
    return torch.randint(3, VOCABULARY, (batch_size, length), device="cuda")


def _classes(batch_size: int, num_classes: int) -> Tensor:
    return torch.randint(num_classes, (batch_size,), device="cuda")


def _pictures(config: Any, batch_size: int) -> Tensor:
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", 224)
    size = size[0] if isinstance(size, list | tuple) else size
    return torch.randn(batch_size, 3, size, size, device="cuda")


def _inputs(kind: str, config: Any, batch_size: int, length: int) -> dict[str, Any]:
    if kind == "next_token":
        tokens = _tokens(batch_size, length)
        return {"input_ids": tokens, "labels": tokens}
    if kind == "pairs":
        return {
            "input_ids": _tokens(batch_size, length),
            "labels": _tokens(batch_size, length // 2),
        }
    if kind == "captions":
        length = config.text_config.max_position_embeddings
        return {
            "input_ids": _tokens(batch_size, length),
            "pixel_values": _pictures(config, batch_size),
            "return_loss": True,
        }
    if kind == "described":
        tokens = _tokens(batch_size, 32)
        return {
            "input_ids": tokens,
            "labels": tokens,
            "pixel_values": _pictures(config, batch_size),
        }
    if kind == "picture":
        return {"pixel_values": _pictures(config, batch_size), "labels": _classes(batch_size, 100)}
    if kind == "unlabelled":
        return {"pixel_values": _pictures(config, batch_size)}
    if kind == "mask":
        pictures = _pictures(config, batch_size)
        return {
            "pixel_values": pictures,
            "labels": torch.randint(21, (batch_size, *pictures.shape[2:]), device="cuda"),
        }
    if kind == "clip":
        return {
            "pixel_values": torch.randn(batch_size, 8, 3, 224, 224, device="cuda"),
            "labels": _classes(batch_size, 40),
        }
    if kind == "speech":
        return {
            "input_values": torch.randn(batch_size, 32000, device="cuda"),
            "labels": torch.randint(1, 32, (batch_size, 20), device="cuda"),
        }
    if kind == "spectrum":
        return {
            "input_values": torch.randn(batch_size, 512, 128, device="cuda"),
            "labels": _classes(batch_size, 50),
        }
    if kind == "series":
        return {
            "past_values": torch.randn(batch_size, 512, 7, device="cuda"),
            "future_values": torch.randn(batch_size, 96, 7, device="cuda"),
        }
    if kind == "waves":
        return {"input_values": torch.randn(batch_size, 1, 24000, device="cuda")}
    if kind == "boxes":
        labels = [
            {
                "class_labels": torch.tensor([1, 2], device="cuda"),
                "boxes": torch.rand(2, 4, device="cuda") / 2,
            }
            for _ in range(batch_size)
        ]
        return {"pixel_values": _pictures(config, batch_size), "labels": labels}
    if kind == "decisions":
        n = 20
        r = lambda *s: torch.randn(batch_size, n, *s, device="cuda")
        return {
            "states": r(17),
            "actions": r(6),
            "rewards": r(1),
            "returns_to_go": r(1),
            "timesteps": torch.arange(n, device="cuda").repeat(batch_size, 1),
            "attention_mask": torch.ones(batch_size, n, device="cuda"),
        }
    raise ValueError(f"kind={kind!r}")


def build(
    *,
    family: str = "gemma3",
    batch_size: int = 8,
    seq_len: int = 512,
    autocast: str = "",
    attention: str = "",
    checkpointing: bool = False,
) -> Callable[[], Tensor]:
    import transformers

    name, values, kind = FAMILIES[family]
    model_class = getattr(transformers, name)
    config = model_class.config_class(**values)
    if attention:
        config._attn_implementation = attention
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = model_class(config)
    model.cuda().train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    inputs = _inputs(kind, config, batch_size, seq_len)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(autocast)

    def step() -> Tensor:
        with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
            output = model(**inputs)
            loss = getattr(output, "loss", None)
            if loss is None:
                loss = output[0].float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step
