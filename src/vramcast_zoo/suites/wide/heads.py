"""Heads of transformers that others leave alone, and how people train what libraries give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def _ids(*shape: int, words: int = 8000) -> torch.Tensor:
    return torch.randint(5, words, shape, device="cuda")


def _padded(batch_size: int, length: int, left: bool = False) -> torch.Tensor:
    """A mask of sentences that are shorter and shorter."""
    lengths = torch.linspace(length // 3, length, batch_size, device="cuda").long()
    mask = (torch.arange(length, device="cuda") < lengths[:, None]).long()
    return mask.flip(-1) if left else mask


def _small(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": 8000, "hidden_size": 384, "num_hidden_layers": 4, "num_attention_heads": 6,
        "intermediate_size": 1024, "pad_token_id": 0, **more,
    }  # fmt: skip


def _token_classes(batch_size: int) -> tuple:
    from transformers import RobertaConfig, RobertaForTokenClassification

    shape = RobertaConfig(**_small(num_labels=17), attn_implementation="eager")
    model = RobertaForTokenClassification(shape).cuda()
    ids, mask = _ids(batch_size, 200), _padded(batch_size, 200)
    labels = torch.randint(0, 17, ids.shape, device="cuda").masked_fill(mask == 0, -100)
    return model, lambda: model(input_ids=ids, attention_mask=mask, labels=labels).loss


def _choices(batch_size: int) -> tuple:
    from transformers import ElectraConfig, ElectraForMultipleChoice

    model = ElectraForMultipleChoice(ElectraConfig(**_small(embedding_size=128))).cuda()
    ids, labels = _ids(batch_size, 4, 96), torch.randint(0, 4, (batch_size,), device="cuda")
    return model, lambda: model(input_ids=ids, labels=labels).loss


def _spans(batch_size: int) -> tuple:
    from transformers import MPNetConfig, MPNetForQuestionAnswering

    model = MPNetForQuestionAnswering(MPNetConfig(**_small(pad_token_id=1))).cuda()
    ids, mask = _ids(batch_size, 384), _padded(batch_size, 384)
    ends = torch.randint(0, 384, (2, batch_size), device="cuda")
    given = {"start_positions": ends[0], "end_positions": ends[1]}
    return model, lambda: model(input_ids=ids, attention_mask=mask, **given).loss


def _judge(batch_size: int) -> tuple:
    from transformers import Qwen2Config, Qwen2ForSequenceClassification

    shape = Qwen2Config(**_small(num_key_value_heads=2, num_labels=1, use_cache=False))
    model = Qwen2ForSequenceClassification(shape).cuda().to(torch.bfloat16)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    model.enable_input_require_grads()
    ids, mask = _ids(2 * batch_size, 300), _padded(2 * batch_size, 300, left=True)

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
        vision_config=seen, text_config={"model_type": "llama", **_small(num_key_value_heads=2)},
        image_token_index=4, image_seq_length=64,
    )  # fmt: skip
    model = LlavaForConditionalGeneration(shape).cuda()
    model.model.vision_tower.requires_grad_(False)
    ids = _ids(batch_size, 160)
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
    images, labels = torch.randn(batch_size, 3, 224, 224, device="cuda"), _ids(batch_size, 48)
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

    shape = MixtralConfig(**_small(
        num_key_value_heads=2, num_local_experts=4, output_router_logits=True, sliding_window=128
    ))  # fmt: skip
    model, ids = MixtralForCausalLM(shape).cuda(), _ids(batch_size, 256)
    return model, lambda: model(input_ids=ids, labels=ids).loss


def _pages(batch_size: int) -> tuple:
    from transformers import LayoutLMv3Config, LayoutLMv3ForTokenClassification

    shape = LayoutLMv3Config(**_small(hidden_size=192, num_labels=9), coordinate_size=32,
                             shape_size=32, input_size=112)  # fmt: skip
    model = LayoutLMv3ForTokenClassification(shape).cuda()
    ids, boxes = _ids(batch_size, 128), torch.randint(0, 500, (batch_size, 128, 4), device="cuda")
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

    shape = LlamaConfig(**_small(num_key_value_heads=2, eos_token_id=None))
    policy, before = LlamaForCausalLM(shape).cuda(), LlamaForCausalLM(shape).cuda().eval()
    update = torch.optim.AdamW(policy.parameters(), lr=1e-5)
    asked = _ids(questions, 40).repeat_interleave(group, 0)

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


def accelerated(*, batch_size: int = 8, parts: int = 2, length: int = 192) -> Step:
    """Accelerate's loop: a loader with a short last batch, accumulation, bf16, a schedule."""
    from accelerate import Accelerator
    from torch.utils.data import DataLoader, TensorDataset
    from transformers import BertConfig, BertForSequenceClassification, get_scheduler

    helper = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=parts)
    model = BertForSequenceClassification(BertConfig(**_small(num_labels=3)))
    update = torch.optim.AdamW(model.parameters(), lr=2e-5)
    total = batch_size * 3 + batch_size // 2
    data = TensorDataset(torch.randint(5, 8000, (total, length)), torch.randint(0, 3, (total,)))
    loader = DataLoader(data, batch_size, shuffle=True)
    plan = get_scheduler("cosine", update, 10, 1000)
    model, update, loader, plan = helper.prepare(model, update, loader, plan)

    def step() -> torch.Tensor:
        total_loss = torch.zeros((), device="cuda")
        for ids, labels in loader:
            with helper.accumulate(model):
                loss = model(input_ids=ids, labels=labels).loss
                total_loss += loss.detach().float()
                helper.backward(loss)
                if helper.sync_gradients:
                    helper.clip_grad_norm_(model.parameters(), 1.0)
                update.step()
                plan.step()
                update.zero_grad()
        return total_loss

    return step


def adapted_picture_maker(*, batch_size: int = 2, size: int = 32, rank: int = 8) -> Step:
    """LoRA on a text-to-image network, as in diffusers' examples: fp16 weights, few learn."""
    from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
    from diffusers.training_utils import cast_training_params, compute_snr
    from peft import LoraConfig
    from transformers import CLIPTextConfig, CLIPTextModel

    unet = UNet2DConditionModel(
        block_out_channels=(64, 128, 256), cross_attention_dim=256, layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    ).requires_grad_(False)  # fmt: skip
    eyes = AutoencoderKL(
        block_out_channels=(32, 64, 64, 64), latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
    ).requires_grad_(False)  # fmt: skip
    reads = CLIPTextModel(CLIPTextConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4
    )).requires_grad_(False)  # fmt: skip
    for frozen in (unet, eyes, reads):
        frozen.to("cuda", torch.float16)
    where = ["to_k", "to_q", "to_v", "to_out.0"]
    unet.add_adapter(LoraConfig(r=rank, lora_alpha=rank, target_modules=where))
    cast_training_params(unet, dtype=torch.float32)
    plan = DDPMScheduler()
    images = torch.randn(batch_size, 3, 8 * size, 8 * size, device="cuda", dtype=torch.float16)
    ids = torch.randint(0, 40_000, (batch_size, 77), device="cuda")

    def loss() -> torch.Tensor:
        latents = eyes.encode(images).latent_dist.sample() * eyes.config.scaling_factor
        noise = torch.randn_like(latents)
        t = torch.randint(0, 1000, (batch_size,), device="cuda")
        words = reads(ids, return_dict=False)[0]
        made = unet(plan.add_noise(latents, noise, t), t, words, return_dict=False)[0]
        weight = compute_snr(plan, t).clamp(max=5.0)
        each = F.mse_loss(made.float(), noise.float(), reduction="none").mean((1, 2, 3))
        return (each * weight).mean()

    return training_step(loss, unet.parameters(), autocast="fp16", scale_loss=True)


def picture_transformer(*, kind: str = "pixart", batch_size: int = 4, size: int = 32) -> Step:
    """More transformers of diffusers: for pictures, and for latents of clips."""
    import diffusers

    words = torch.randn(batch_size, 60, 256, device="cuda")
    t = torch.randint(0, 1000, (batch_size,), device="cuda")
    if kind == "pixart":
        model: nn.Module = diffusers.PixArtTransformer2DModel(
            num_attention_heads=6, attention_head_dim=48, in_channels=4, out_channels=4,
            num_layers=4, cross_attention_dim=288, sample_size=size, caption_channels=256,
            use_additional_conditions=False,
        ).cuda()  # fmt: skip
        x = torch.randn(batch_size, 4, size, size, device="cuda")
        given: dict[str, Any] = {
            "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
            "encoder_attention_mask": _padded(batch_size, 60).float(),
        }
    elif kind == "sana":
        model = diffusers.SanaTransformer2DModel(
            in_channels=8, out_channels=8, num_attention_heads=6, attention_head_dim=32,
            num_layers=3, num_cross_attention_heads=6, cross_attention_head_dim=32,
            cross_attention_dim=192, caption_channels=256, sample_size=size,
        ).cuda()  # fmt: skip
        x, given = torch.randn(batch_size, 8, size, size, device="cuda"), {}
    else:
        model = diffusers.WanTransformer3DModel(
            num_attention_heads=4, attention_head_dim=64, in_channels=8, out_channels=8,
            text_dim=256, freq_dim=64, ffn_dim=512, num_layers=3,
        ).cuda()  # fmt: skip
        model.enable_gradient_checkpointing()
        x, given = torch.randn(batch_size, 8, 5, size, size, device="cuda"), {}

    def loss() -> torch.Tensor:
        made = model(x, encoder_hidden_states=words, timestep=t, return_dict=False, **given)[0]
        return F.mse_loss(made, x)

    return training_step(loss, model.parameters(), autocast="bf16")


def consistent(*, batch_size: int = 16, size: int = 32) -> Step:
    """Consistency training of a network of diffusers, whose teacher is a moving average."""
    import copy

    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=size, block_out_channels=(64, 128, 128), layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    ).cuda()  # fmt: skip
    slow = copy.deepcopy(model).requires_grad_(False)
    images = torch.randn(batch_size, 3, size, size, device="cuda")
    update = torch.optim.RAdam(model.parameters(), lr=1e-4)
    sigmas = torch.linspace(0.02, 80, 40, device="cuda")

    def step() -> torch.Tensor:
        noise = torch.randn_like(images)
        at = torch.randint(0, 39, (batch_size,), device="cuda")
        near, far = (sigmas[i][:, None, None, None] for i in (at, at + 1))
        made = model(images + far * noise, far.flatten()).sample
        with torch.no_grad():
            goal = slow(images + near * noise, near.flatten()).sample
        apart = ((made - goal).square() + 0.03**2).sqrt() - 0.03
        loss = (apart.mean((1, 2, 3)) / (far - near).flatten()).mean()
        update.zero_grad()
        loss.backward()
        update.step()
        with torch.no_grad():
            for old, new in zip(slow.parameters(), model.parameters()):
                old.lerp_(new, 0.05)
        return loss.detach()

    return step


def recipe_of_timm(
    *, name: str = "repvgg_a0", batch_size: int = 32, image_size: int = 160, dtype: str = "bf16",
    channels_last: bool = False, benchmark: bool = False, optimizer: str = "lamb",
) -> Step:  # fmt: skip
    """timm's own recipe: mixup, erasing, soft labels, its optimizers, EMA, adaptive clipping."""
    import random

    import numpy as np
    import timm
    from timm.data import Mixup
    from timm.data.random_erasing import RandomErasing
    from timm.loss import BinaryCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.utils import ModelEmaV3, NativeScaler

    torch.backends.cudnn.benchmark = benchmark
    model = timm.create_model(name, num_classes=100, drop_rate=0.1).cuda().train()
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = model.to(memory_format=layout)
    mix = Mixup(0.8, 1.0, label_smoothing=0.1, num_classes=100)
    erase = RandomErasing(0.25, mode="pixel", device="cuda")
    judge, scaler = BinaryCrossEntropy(smoothing=0.0), NativeScaler()
    update = create_optimizer_v2(model, optimizer, lr=1e-3, weight_decay=0.02)
    slow = ModelEmaV3(model, decay=0.999, use_warmup=True)
    bytes_of = torch.randint(0, 255, (batch_size, 3, image_size, image_size), dtype=torch.uint8)
    labels = torch.randint(0, 100, (batch_size,)).cuda()
    mean = torch.tensor([123.7, 116.3, 103.5], device="cuda").view(1, 3, 1, 1)

    def step() -> torch.Tensor:
        random.seed(1)
        np.random.seed(1)
        images = bytes_of.cuda(non_blocking=True).float().sub_(mean).div_(58.0)
        images, soft = mix(erase(images), labels)
        images = images.contiguous(memory_format=layout)
        amp = torch.float16 if dtype == "fp16" else torch.bfloat16
        with torch.autocast("cuda", dtype=amp, enabled=bool(dtype)):
            loss = judge(model(images), soft)
        update.zero_grad()
        scaler(loss, update, clip_grad=0.02, clip_mode="agc", parameters=model.parameters())
        slow.update(model)
        return loss.detach()

    return step


def scored(*, batch_size: int = 32, size: int = 96) -> Step:
    """Metrics of torchmetrics are kept while a network of torchvision with two heads trains."""
    import torchmetrics
    import torchvision

    model = torchvision.models.googlenet(
        weights=None, init_weights=False, aux_logits=True, num_classes=20
    ).cuda()
    kinds = {"task": "multiclass", "num_classes": 20}
    metrics = torchmetrics.MetricCollection([
        torchmetrics.Accuracy(**kinds), torchmetrics.F1Score(**kinds, average="macro"),
        torchmetrics.AUROC(**kinds, thresholds=100), torchmetrics.ConfusionMatrix(**kinds),
        torchmetrics.CalibrationError(**kinds),
    ]).cuda()  # fmt: skip
    sharp = torchmetrics.image.StructuralSimilarityIndexMeasure(data_range=1.0).cuda()
    images = torch.rand(batch_size, 3, size, size, device="cuda")
    labels = torch.randint(0, 20, (batch_size,), device="cuda")

    def loss() -> torch.Tensor:
        made = model(images)
        metrics.update(made.logits.detach().softmax(-1), labels)
        with torch.no_grad():
            sharp(images, F.avg_pool2d(images, 3, 1, 1))
        aux = F.cross_entropy(made.aux_logits1, labels) + F.cross_entropy(made.aux_logits2, labels)
        return F.cross_entropy(made.logits, labels) + 0.3 * aux

    inner = training_step(loss, model.parameters(), optimizer="sgd")

    def step() -> torch.Tensor:
        made = inner()
        metrics.compute()
        metrics.reset()
        sharp.reset()
        return made

    return step


def bonds(*, kind: str = "gine", batch_size: int = 96, nodes: int = 24, width: int = 128) -> Step:
    """Molecules with features on bonds, or users and items (torch_geometric)."""
    import torch_geometric.nn as pyg

    total = batch_size * nodes
    links = torch.randint(0, nodes, (2, 3 * total), device="cuda")
    links = links + torch.arange(batch_size, device="cuda").repeat_interleave(3 * nodes) * nodes
    x, e = torch.randn(total, width, device="cuda"), torch.randn(3 * total, 16, device="cuda")
    batch = torch.arange(batch_size, device="cuda").repeat_interleave(nodes)
    wanted = torch.randn(batch_size, 1, device="cuda")
    if kind == "attentive":
        model = pyg.AttentiveFP(width, width, 1, 16, num_layers=3, num_timesteps=2).cuda()
        return training_step(
            lambda: F.mse_loss(model(x, links, e, batch), wanted), model.parameters()
        )
    if kind == "lightgcn":
        model = pyg.LightGCN(total, 64, 3).cuda()
        pairs = torch.randint(0, total, (2, 4096), device="cuda")
        other = torch.stack([pairs[0], pairs[1].flip(0)])

        def ranked() -> torch.Tensor:
            good = model(links, pairs)
            return model.recommendation_loss(good, model(links, other), pairs.unique())

        return training_step(ranked, model.parameters())

    def layer() -> nn.Module:
        inner = nn.Sequential(nn.Linear(width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU(),
                              nn.Linear(2 * width, width))  # fmt: skip
        return pyg.GINEConv(inner, train_eps=True, edge_dim=16)

    layers = nn.ModuleList(layer() for _ in range(4)).cuda()
    jump, pool = pyg.JumpingKnowledge("lstm", width, 4).cuda(), pyg.SAGPooling(width, 0.6).cuda()
    last = pyg.GATv2Conv(width, 32, heads=4, edge_dim=None).cuda()
    leave = nn.Linear(128, 1).cuda()

    def loss() -> torch.Tensor:
        h, seen = x, []
        for each in layers:
            h = each(h, links, e).relu()
            seen.append(h)
        h, kept, _, part, _, _ = pool(jump(seen), links, None, batch)
        return F.mse_loss(leave(pyg.global_add_pool(last(h, kept), part, batch_size)), wanted)

    every = nn.ModuleList([layers, jump, pool, last, leave])
    return training_step(loss, every.parameters())


def volumes_in_windows(*, kind: str = "windows", size: int = 64, batch_size: int = 2) -> Step:
    """monai: training on crops and an evaluation by sliding windows, or diffusion of volumes."""
    from monai.inferers import sliding_window_inference
    from monai.losses import GeneralizedDiceFocalLoss
    from monai.networks import nets

    if kind == "diffusion":
        unet = nets.DiffusionModelUNet(
            3, 1, 1, num_res_blocks=(1, 1, 1), channels=(32, 64, 64), norm_num_groups=16,
            attention_levels=(False, False, True), num_head_channels=32,
        ).cuda()  # fmt: skip
        volume = torch.randn(batch_size, 1, size // 2, size // 2, size // 2, device="cuda")
        t = torch.randint(0, 1000, (batch_size,), device="cuda")
        return training_step(
            lambda: F.mse_loss(unet(volume, t), volume), unet.parameters(), autocast="bf16"
        )
    model = nets.BasicUNetPlusPlus(3, 1, 3, features=(16, 16, 32, 64, 64, 16)).cuda()
    judge = GeneralizedDiceFocalLoss(softmax=True, to_onehot_y=True)
    crops = torch.randn(batch_size, 1, size, size, size, device="cuda")
    labels = torch.randint(0, 3, (batch_size, 1, size, size, size), device="cuda")
    whole = torch.randn(1, 1, size + 40, size + 40, size, device="cuda")
    inner = training_step(
        lambda: judge(model(crops)[0], labels), model.parameters(), autocast="bf16"
    )

    def step() -> torch.Tensor:
        model.train()
        made = inner()
        model.eval()
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
            sliding_window_inference(
                whole, (size,) * 3, 4, lambda x: model(x)[0], overlap=0.5, mode="gaussian"
            ).argmax(1)
        return made

    return step


def adaptive_ranks(*, batch_size: int = 4, length: int = 256) -> Step:
    """AdaLoRA on T5: ranks are given and taken by what singular values matter (peft)."""
    import peft
    from transformers import T5Config, T5ForConditionalGeneration

    shape = T5Config(vocab_size=8000, d_model=384, d_kv=64, d_ff=1024, num_layers=4, num_heads=6,
                     decoder_start_token_id=0)  # fmt: skip
    config = peft.AdaLoraConfig(
        task_type="SEQ_2_SEQ_LM", init_r=12, target_r=6, total_step=500, tinit=1, tfinal=100,
        deltaT=1, target_modules=["q", "v"],
    )  # fmt: skip
    model = peft.get_peft_model(T5ForConditionalGeneration(shape), config).cuda()
    ids, labels = _ids(batch_size, length), _ids(batch_size, length // 2)
    inner = training_step(
        lambda: model(input_ids=ids, labels=labels).loss,
        [p for p in model.parameters() if p.requires_grad], clip=0,
    )  # fmt: skip
    return inner
