"""Steps of popular models with batches that keep the GPU busy: predicted and committed, then
measured, like those of unseen.py, whose commands hold here too. larger.jsonl and larger.md have
what came of them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from unseen import BF16, Step, classified, training


def vision(
    name: str, batch: int, *, size: int = 224, last: bool = False, autocast: bool = True
) -> Step:
    """A classifier of torchvision."""
    import torchvision

    model = torchvision.models.get_model(name, weights=None, num_classes=1000)
    return classified(model, batch, size, last=last, autocast=autocast)


def resnet50_last() -> Step:
    return vision("resnet50", 192, last=True)


def resnet101_fp32() -> Step:
    return vision("resnet101", 64, autocast=False)


def densenet169() -> Step:
    return vision("densenet169", 96)


def efficientnet_b2() -> Step:
    return vision("efficientnet_b2", 128, size=260)


def mobilenet_v2_fp32() -> Step:
    return vision("mobilenet_v2", 192, autocast=False)


def regnet_last() -> Step:
    return vision("regnet_y_3_2gf", 128, last=True)


def googlenet_fp32() -> Step:
    return vision("googlenet", 192, autocast=False)


def mnasnet_last() -> Step:
    return vision("mnasnet1_0", 256, last=True)


def squeezenet() -> Step:
    return vision("squeezenet1_0", 256)


def vgg13_fp32() -> Step:
    return vision("vgg13_bn", 48, autocast=False)


def swin_v2() -> Step:
    return vision("swin_v2_t", 96, size=256)


def vit_l() -> Step:
    return vision("vit_l_16", 64)


def deeplab() -> Step:
    import torchvision

    model = torchvision.models.segmentation.deeplabv3_resnet50(
        weights=None, weights_backbone=None, num_classes=21
    ).cuda()
    x = torch.randn(12, 3, 480, 480, device="cuda")
    labels = torch.randint(0, 21, (12, 480, 480), device="cuda")
    return training(model, lambda: F.cross_entropy(model(x)["out"].float(), labels))


def video_r2plus1d() -> Step:
    import torchvision

    model = torchvision.models.video.r2plus1d_18(weights=None).cuda()
    x = torch.randn(12, 3, 16, 112, 112, device="cuda")
    labels = torch.randint(0, 400, (12,), device="cuda")
    return training(model, lambda: F.cross_entropy(model(x).float(), labels))


def of_transformers(name: str, config: Any, batch: int, length: int, **more: Any) -> Step:
    """A model of language, whose labels are its tokens."""
    import transformers

    model = getattr(transformers, name)(config)
    model = model.to("cuda", BF16) if more.get("autocast") is False else model.cuda()
    x = torch.randint(5, config.vocab_size, (batch, length), device="cuda")
    return training(model, lambda: model(input_ids=x, labels=x).loss, **more)


def gpt2_medium() -> Step:
    from transformers import GPT2Config

    config = GPT2Config(n_embd=1024, n_layer=24, n_head=16, use_cache=False)
    return of_transformers("GPT2LMHeadModel", config, 12, 1024)


def bert_base() -> Step:
    from transformers import BertConfig

    return of_transformers("BertForMaskedLM", BertConfig(), 64, 384)


def llama_1b() -> Step:
    from transformers import LlamaConfig

    config = LlamaConfig(
        vocab_size=32_000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
        use_cache=False,
    )
    return of_transformers("LlamaForCausalLM", config, 6, 2048, autocast=False, fused=True)


def t5_base() -> Step:
    from transformers import T5Config

    sizes = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
    config = T5Config(**sizes, use_cache=False, decoder_start_token_id=0)
    return of_transformers("T5ForConditionalGeneration", config, 32, 384)


def modernbert() -> Step:
    from transformers import ModernBertConfig

    config = ModernBertConfig(attn_implementation="sdpa", reference_compile=False)
    return of_transformers("ModernBertForMaskedLM", config, 32, 1024)


def whisper_small() -> Step:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        d_model=768,
        encoder_layers=12,
        decoder_layers=12,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
        use_cache=False,
    )
    model = WhisperForConditionalGeneration(config).cuda()
    x = torch.randn(16, 80, 3000, device="cuda")
    labels = torch.randint(0, 50_000, (16, 128), device="cuda")
    return training(model, lambda: model(input_features=x, labels=labels).loss)


def clip() -> Step:
    from transformers import CLIPConfig, CLIPModel

    model = CLIPModel(CLIPConfig()).cuda()
    x = torch.randn(256, 3, 224, 224, device="cuda")
    words = torch.randint(0, 49_000, (256, 77), device="cuda")
    loss = lambda: model(input_ids=words, pixel_values=x, return_loss=True).loss  # noqa: E731
    return training(model, loss)


def mixtral() -> Step:
    from transformers import MixtralConfig

    config = MixtralConfig(
        vocab_size=32_000,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=4,
        num_local_experts=8,
        use_cache=False,
    )
    return of_transformers("MixtralForCausalLM", config, 8, 2048, autocast=False, fused=True)


def wav2vec_long() -> Step:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(layerdrop=0.0, mask_time_prob=0.0)
    model = Wav2Vec2Model(config).cuda()
    x = torch.randn(8, 16_000 * 15, device="cuda")
    return training(model, lambda: model(x).last_hidden_state.float().square().mean())
