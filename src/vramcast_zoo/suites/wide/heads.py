"""Heads of transformers that other rows leave alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def token_ids(*shape: int, words: int = 8000) -> torch.Tensor:
    return torch.randint(5, words, shape, device="cuda")


def padded(batch_size: int, length: int, left: bool = False) -> torch.Tensor:
    """A mask of sentences that are shorter and shorter."""
    lengths = torch.linspace(length // 3, length, batch_size, device="cuda").long()
    mask = (torch.arange(length, device="cuda") < lengths[:, None]).long()
    return mask.flip(-1) if left else mask


def small(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": 8000, "hidden_size": 384, "num_hidden_layers": 4, "num_attention_heads": 6,
        "intermediate_size": 1024, "pad_token_id": 0, **more,
    }  # fmt: skip


def _token_classes(batch_size: int) -> tuple:
    from transformers import RobertaConfig, RobertaForTokenClassification

    shape = RobertaConfig(**small(num_labels=17), attn_implementation="eager")
    model = RobertaForTokenClassification(shape).cuda()
    ids, mask = token_ids(batch_size, 200), padded(batch_size, 200)
    labels = torch.randint(0, 17, ids.shape, device="cuda").masked_fill(mask == 0, -100)
    return model, lambda: model(input_ids=ids, attention_mask=mask, labels=labels).loss


def _choices(batch_size: int) -> tuple:
    from transformers import ElectraConfig, ElectraForMultipleChoice

    model = ElectraForMultipleChoice(ElectraConfig(**small(embedding_size=128))).cuda()
    ids, labels = token_ids(batch_size, 4, 96), torch.randint(0, 4, (batch_size,), device="cuda")
    return model, lambda: model(input_ids=ids, labels=labels).loss


def _spans(batch_size: int) -> tuple:
    from transformers import MPNetConfig, MPNetForQuestionAnswering

    model = MPNetForQuestionAnswering(MPNetConfig(**small(pad_token_id=1))).cuda()
    ids, mask = token_ids(batch_size, 384), padded(batch_size, 384)
    ends = torch.randint(0, 384, (2, batch_size), device="cuda")
    given = {"start_positions": ends[0], "end_positions": ends[1]}
    return model, lambda: model(input_ids=ids, attention_mask=mask, **given).loss


def _judge(batch_size: int) -> tuple:
    from transformers import Qwen2Config, Qwen2ForSequenceClassification

    shape = Qwen2Config(**small(num_key_value_heads=2, num_labels=1, use_cache=False))
    model = Qwen2ForSequenceClassification(shape).cuda().to(torch.bfloat16)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    model.enable_input_require_grads()
    ids, mask = token_ids(2 * batch_size, 300), padded(2 * batch_size, 300, left=True)

    def loss() -> torch.Tensor:
        good, bad = model(input_ids=ids, attention_mask=mask).logits.float().chunk(2)
        return -F.logsigmoid(good - bad - 0.1).mean()

    return model, loss


def _seen_and_said(batch_size: int) -> tuple:
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    seen = {
        "model_type": "clip_vision_model", "hidden_size": 256, "num_hidden_layers": 4,
        "num_attention_heads": 4, "intermediate_size": 512, "image_size": 112, "patch_size": 14,
    }  # fmt: skip
    shape = LlavaConfig(
        vision_config=seen, text_config={"model_type": "llama", **small(num_key_value_heads=2)},
        image_token_index=4, image_seq_length=64,
    )  # fmt: skip
    model = LlavaForConditionalGeneration(shape).cuda()
    model.model.vision_tower.requires_grad_(False)
    ids = token_ids(batch_size, 160)
    ids[:, 8:72] = 4
    images = torch.randn(batch_size, 3, 112, 112, device="cuda")
    labels = ids.masked_fill(ids == 4, -100)
    return model, lambda: model(input_ids=ids, pixel_values=images, labels=labels).loss


def _captions(batch_size: int) -> tuple:
    from transformers import (
        GPT2Config,
        VisionEncoderDecoderConfig,
        VisionEncoderDecoderModel,
        ViTConfig,
    )

    seen = ViTConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=768
    )
    said = GPT2Config(
        vocab_size=8000, n_embd=256, n_layer=3, n_head=4, add_cross_attention=True, is_decoder=True
    )
    shape = VisionEncoderDecoderConfig.from_encoder_decoder_configs(seen, said)
    shape.decoder_start_token_id, shape.pad_token_id = 1, 0
    model = VisionEncoderDecoderModel(shape).cuda()
    images, labels = torch.randn(batch_size, 3, 224, 224, device="cuda"), token_ids(batch_size, 48)
    return model, lambda: model(pixel_values=images, labels=labels).loss


def _contrasted_sound(batch_size: int) -> tuple:
    from transformers import Wav2Vec2Config, Wav2Vec2ForPreTraining
    from transformers.models.wav2vec2.modeling_wav2vec2 import (
        _compute_mask_indices,
        _sample_negative_indices,
    )

    shape = Wav2Vec2Config(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=768,
        conv_dim=(256,) * 7, codevector_dim=128, proj_codevector_dim=128, num_negatives=50,
    )  # fmt: skip
    model = Wav2Vec2ForPreTraining(shape).cuda()
    sound = torch.randn(batch_size, 24_000, device="cuda")
    frames = int(model._get_feat_extract_output_lengths(24_000))
    hidden = _compute_mask_indices((batch_size, frames), 0.3, 6)
    others = _sample_negative_indices((batch_size, frames), 50, mask_time_indices=hidden)
    mask, negatives = torch.tensor(hidden).cuda(), torch.tensor(others).cuda()
    return (
        model,
        lambda: model(sound, mask_time_indices=mask, sampled_negative_indices=negatives).loss,
    )


def _codes_of_sound(batch_size: int) -> tuple:
    from transformers import EncodecConfig, EncodecModel

    shape = EncodecConfig(num_filters=16, hidden_size=64, codebook_size=256, num_lstm_layers=1,
                          target_bandwidths=[6.0], upsampling_ratios=[8, 5, 4])  # fmt: skip
    model = EncodecModel(shape).cuda()
    sound = torch.randn(batch_size, 1, 24_000, device="cuda")
    return model, lambda: F.l1_loss(model(sound, bandwidth=6.0).audio_values, sound)


def _tables_of_time(batch_size: int) -> tuple:
    from transformers import AutoformerConfig, AutoformerForPrediction

    shape = AutoformerConfig(
        prediction_length=24, context_length=96, d_model=128, encoder_layers=2, decoder_layers=2,
        num_time_features=2, lags_sequence=[1, 2, 3, 7], moving_average=25,
    )  # fmt: skip
    model = AutoformerForPrediction(shape).cuda()
    past = 96 + 7
    given = {
        "past_values": torch.rand(batch_size, past, device="cuda"),
        "past_time_features": torch.rand(batch_size, past, 2, device="cuda"),
        "past_observed_mask": torch.ones(batch_size, past, device="cuda"),
        "future_values": torch.rand(batch_size, 24, device="cuda"),
        "future_time_features": torch.rand(batch_size, 24, 2, device="cuda"),
    }
    return model, lambda: model(**given).loss


def _any_mask(batch_size: int) -> tuple:
    from transformers import SamConfig, SamModel

    shape = SamConfig(
        vision_config={
            "hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 4, "mlp_dim": 512,
            "image_size": 256, "global_attn_indexes": [1, 3], "window_size": 7,
            "output_channels": 256,
        },
        prompt_encoder_config={"image_size": 256, "image_embedding_size": 16},
    )  # fmt: skip
    model = SamModel(shape).cuda()
    model.vision_encoder.requires_grad_(False)
    images = torch.randn(batch_size, 3, 256, 256, device="cuda")
    boxes = torch.tensor([[[20.0, 20.0, 200.0, 180.0]]], device="cuda").repeat(batch_size, 1, 1)
    masks = torch.rand(batch_size, 64, 64, device="cuda").round()

    def loss() -> torch.Tensor:
        made = model(pixel_values=images, input_boxes=boxes, multimask_output=False).pred_masks
        return F.binary_cross_entropy_with_logits(made[:, 0, 0], masks)

    return model, loss


def _masks_of_queries(batch_size: int) -> tuple:
    from transformers import Mask2FormerConfig, Mask2FormerForUniversalSegmentation, SwinConfig

    body = SwinConfig(embed_dim=48, depths=[2, 2, 2, 2], num_heads=[2, 4, 8, 16], window_size=7,
                      image_size=224, out_features=[f"stage{i}" for i in range(1, 5)])  # fmt: skip
    shape = Mask2FormerConfig(
        backbone_config=body, num_queries=30, hidden_dim=128, feature_size=128,
        mask_feature_size=128, encoder_layers=2, decoder_layers=3, num_attention_heads=4,
        num_labels=10, train_num_points=2048, encoder_feedforward_dim=256, dim_feedforward=512,
    )  # fmt: skip
    model = Mask2FormerForUniversalSegmentation(shape).cuda()
    images = torch.randn(batch_size, 3, 224, 224, device="cuda")
    masks = [torch.rand(6, 224, 224, device="cuda").round() for _ in range(batch_size)]
    labels = [torch.randint(0, 10, (6,), device="cuda") for _ in range(batch_size)]
    return model, lambda: model(pixel_values=images, mask_labels=masks, class_labels=labels).loss


def _sparse_experts(batch_size: int) -> tuple:
    from transformers import MixtralConfig, MixtralForCausalLM

    shape = MixtralConfig(**small(
        num_key_value_heads=2, num_local_experts=4, output_router_logits=True, sliding_window=128
    ))  # fmt: skip
    model, ids = MixtralForCausalLM(shape).cuda(), token_ids(batch_size, 256)
    return model, lambda: model(input_ids=ids, labels=ids).loss


def _pages(batch_size: int) -> tuple:
    from transformers import LayoutLMv3Config, LayoutLMv3ForTokenClassification

    shape = LayoutLMv3Config(**small(hidden_size=192, num_labels=9), coordinate_size=32,
                             shape_size=32, input_size=112)  # fmt: skip
    model = LayoutLMv3ForTokenClassification(shape).cuda()
    ids, boxes = (
        token_ids(batch_size, 128),
        torch.randint(0, 500, (batch_size, 128, 4), device="cuda"),
    )
    boxes[..., 2:] += boxes[..., :2]
    images = torch.randn(batch_size, 3, 112, 112, device="cuda")
    labels = torch.randint(0, 9, (batch_size, 128), device="cuda")
    return model, lambda: model(input_ids=ids, bbox=boxes, pixel_values=images, labels=labels).loss


def _moves(batch_size: int) -> tuple:
    from transformers import DeformableDetrConfig, DeformableDetrForObjectDetection, ResNetConfig

    body = ResNetConfig(embedding_size=32, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2],
                        layer_type="basic", out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    shape = DeformableDetrConfig(
        backbone_config=body, use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
        d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, num_queries=50, encoder_ffn_dim=256, decoder_ffn_dim=256,
        num_labels=20,
    )  # fmt: skip
    model = DeformableDetrForObjectDetection(shape).cuda()
    images = torch.randn(batch_size, 3, 256, 256, device="cuda")
    labels = [
        {
            "class_labels": torch.randint(0, 20, (5,), device="cuda"),
            "boxes": torch.rand(5, 4, device="cuda") * 0.4 + 0.3,
        }
        for _ in range(batch_size)
    ]
    return model, lambda: model(pixel_values=images, labels=labels).loss


HEADS = {
    "token_classes": _token_classes, "choices": _choices, "spans": _spans, "judge": _judge,
    "llava": _seen_and_said, "captions": _captions, "wav2vec2_pretraining": _contrasted_sound,
    "encodec": _codes_of_sound, "autoformer": _tables_of_time, "sam": _any_mask,
    "mask2former": _masks_of_queries, "mixtral": _sparse_experts, "layoutlm": _pages,
    "deformable_detr": _moves,
}  # fmt: skip


def head(
    *, name: str, batch_size: int = 8, autocast: str = "", scale_loss: bool = False,
    optimizer: str = "adamw",
) -> Step:  # fmt: skip
    """A model of transformers with another head, trained on what that head is for."""
    model, loss = HEADS[name](batch_size)
    model.train()
    return training_step(
        loss, model.parameters(), autocast=autocast, scale_loss=scale_loss, optimizer=optimizer
    )


def groups_of_answers(*, questions: int = 2, group: int = 6, new_tokens: int = 24) -> Step:
    """GRPO: several answers to a question are sampled; the better ones of a group count."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = LlamaConfig(**small(num_key_value_heads=2, eos_token_id=None))
    policy, before = LlamaForCausalLM(shape).cuda(), LlamaForCausalLM(shape).cuda().eval()
    update = torch.optim.AdamW(policy.parameters(), lr=1e-5)
    asked = token_ids(questions, 40).repeat_interleave(group, 0)

    def odds(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=ids, use_cache=False).logits[:, 39:-1].float()
        return logits.log_softmax(-1).gather(-1, ids[:, 40:, None]).squeeze(-1)

    def step() -> torch.Tensor:
        policy.eval()
        ids = policy.generate(asked, do_sample=True, max_new_tokens=new_tokens, pad_token_id=0)
        policy.train()
        reward = (ids[:, 40:] % 7 == 0).float().mean(-1).view(questions, group)
        better = ((reward - reward.mean(1, True)) / (reward.std(1, keepdim=True) + 1e-4)).flatten()
        with torch.no_grad():
            old, given = odds(policy, ids), odds(before, ids)
        for _ in range(2):
            new = odds(policy, ids)
            ratio = (new - old).exp()
            gain = torch.min(ratio * better[:, None], ratio.clamp(0.8, 1.2) * better[:, None])
            apart = (given - new).exp() - (given - new) - 1
            loss = -(gain - 0.04 * apart).mean()
            update.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            update.step()
        return loss.detach()

    return step
