"""More steps of popular models that keep the GPU busy, like those of larger.py, predicted after the
rates had met those: further.jsonl and further.md have what came of them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from larger import of_transformers, vision
from unseen import BF16, Step, classified, training


def resnet152() -> Step:
    return vision("resnet152", 64)


def wide_resnet_fp32() -> Step:
    return vision("wide_resnet50_2", 64, autocast=False)


def resnext101_last() -> Step:
    return vision("resnext101_32x8d", 48, last=True)


def efficientnet_v2() -> Step:
    return vision("efficientnet_v2_s", 64, size=300)


def convnext_base() -> Step:
    return vision("convnext_base", 64)


def mobilenet_v3() -> Step:
    return vision("mobilenet_v3_large", 384, last=True)


def inception_fp32() -> Step:
    return vision("inception_v3", 96, size=299, autocast=False)


def vgg19() -> Step:
    return vision("vgg19", 64)


def densenet_fp32() -> Step:
    return vision("densenet161", 64, autocast=False)


def shufflenet() -> Step:
    return vision("shufflenet_v2_x2_0", 384, autocast=False)


def fcn() -> Step:
    import torchvision

    model = torchvision.models.segmentation.fcn_resnet50(
        weights=None, weights_backbone=None, num_classes=21
    ).cuda()
    x = torch.randn(16, 3, 384, 384, device="cuda")
    labels = torch.randint(0, 21, (16, 384, 384), device="cuda")
    return training(model, lambda: F.cross_entropy(model(x)["out"].float(), labels))


def video_mc3() -> Step:
    import torchvision

    model = torchvision.models.video.mc3_18(weights=None).cuda()
    x = torch.randn(16, 3, 16, 112, 112, device="cuda")
    labels = torch.randint(0, 400, (16,), device="cuda")
    return training(model, lambda: F.cross_entropy(model(x).float(), labels))


def images_of(name: str, batch: int, size: int = 224, **more: Any) -> Step:
    """A classifier of transformers."""
    import transformers

    config = getattr(transformers, f"{name}Config")(num_labels=1000, image_size=size, **more)
    model = getattr(transformers, f"{name}ForImageClassification")(config)
    return classified(model, batch, size)


def vit_base() -> Step:
    return images_of("ViT", 160)


def dinov2() -> Step:
    return images_of("Dinov2", 48, 392)


def opt() -> Step:
    from transformers import OPTConfig

    config = OPTConfig(hidden_size=1024, num_hidden_layers=16, num_attention_heads=16, ffn_dim=4096)
    config.use_cache = False
    return of_transformers("OPTForCausalLM", config, 12, 1024)


def roberta_large() -> Step:
    from transformers import RobertaConfig

    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    config = RobertaConfig(**sizes, intermediate_size=4096, max_position_embeddings=514)
    return of_transformers("RobertaForMaskedLM", config, 48, 256)


def neox() -> Step:
    from transformers import GPTNeoXConfig

    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    config = GPTNeoXConfig(**sizes, intermediate_size=4096, use_cache=False)
    return of_transformers("GPTNeoXForCausalLM", config, 8, 2048, autocast=False, fused=True)


def qwen3() -> Step:
    from transformers import Qwen3Config

    config = Qwen3Config(
        vocab_size=60_000,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        use_cache=False,
    )
    return of_transformers("Qwen3ForCausalLM", config, 8, 2048, autocast=False, fused=True)


def distilbert() -> Step:
    from transformers import DistilBertConfig

    return of_transformers("DistilBertForMaskedLM", DistilBertConfig(), 128, 256)


def videomae() -> Step:
    from transformers import VideoMAEConfig, VideoMAEForVideoClassification

    model = VideoMAEForVideoClassification(VideoMAEConfig(num_labels=400)).cuda()
    x = torch.randn(12, 16, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 400, (12,), device="cuda")
    return training(model, lambda: F.cross_entropy(model(x).logits.float(), labels))


def gemma() -> Step:
    from transformers import GemmaConfig, GemmaForCausalLM

    config = GemmaConfig(
        vocab_size=64_000,
        hidden_size=1536,
        intermediate_size=6144,
        num_hidden_layers=12,
        num_attention_heads=8,
        num_key_value_heads=1,
        head_dim=192,
        use_cache=False,
    )
    model = GemmaForCausalLM(config).to("cuda", BF16)
    x = torch.randint(0, 64_000, (6, 2048), device="cuda")
    loss = lambda: model(input_ids=x, labels=x).loss  # noqa: E731
    return training(model, loss, autocast=False, fused=True)
