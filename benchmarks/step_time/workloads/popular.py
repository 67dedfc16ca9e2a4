"""Steps of popular models with batches that keep the GPU busy, like those of unseen.py: predicted
and committed, then measured. A set has its predictions in SET.jsonl, and SET.md compares.

    python benchmarks/step_time/simulated.py OUT.jsonl .../popular.py:step name=NAME
    python benchmarks/step_time/recording/record.py --out OUT --step .../popular.py:step name=NAME
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from unseen import BF16, Step, classified, training

PLAIN, LAST = {"autocast": False}, {"last": True}
BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
FUSED = {"fused": True}
START = {"decoder_start_token_id": 0}


def decoder(
    width: int, inner: int, layers: int, heads: int, keys: int, words: int, **more: int
) -> dict[str, int]:
    return {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "vocab_size": words,
        **more,
    }


# Of torchvision: the model, its batch, more of vision().
IMAGES: dict[str, dict[str, tuple[Any, ...]]] = {
    "larger": {
        "resnet50_last": ("resnet50", 192, LAST),
        "resnet101_fp32": ("resnet101", 64, PLAIN),
        "densenet169": ("densenet169", 96, {}),
        "efficientnet_b2": ("efficientnet_b2", 128, {"size": 260}),
        "mobilenet_v2_fp32": ("mobilenet_v2", 192, PLAIN),
        "regnet_last": ("regnet_y_3_2gf", 128, LAST),
        "googlenet_fp32": ("googlenet", 192, PLAIN),
        "mnasnet_last": ("mnasnet1_0", 256, LAST),
        "squeezenet": ("squeezenet1_0", 256, {}),
        "vgg13_fp32": ("vgg13_bn", 48, PLAIN),
        "swin_v2": ("swin_v2_t", 96, {"size": 256}),
        "vit_l": ("vit_l_16", 64, {}),
        "deeplab": ("deeplabv3_resnet50", 12, {"size": 480}),
        "video_r2plus1d": ("r2plus1d_18", 12, {"size": 112}),
    },
    "further": {
        "resnet152": ("resnet152", 64, {}),
        "wide_resnet_fp32": ("wide_resnet50_2", 64, PLAIN),
        "resnext101_last": ("resnext101_32x8d", 48, LAST),
        "efficientnet_v2": ("efficientnet_v2_s", 64, {"size": 300}),
        "convnext_base": ("convnext_base", 64, {}),
        "mobilenet_v3": ("mobilenet_v3_large", 384, LAST),
        "inception_fp32": ("inception_v3", 96, {"size": 299, **PLAIN}),
        "vgg19": ("vgg19", 64, {}),
        "densenet_fp32": ("densenet161", 64, PLAIN),
        "shufflenet": ("shufflenet_v2_x2_0", 384, PLAIN),
        "fcn": ("fcn_resnet50", 16, {"size": 384}),
        "video_mc3": ("mc3_18", 16, {"size": 112}),
    },
    "later": {
        "maxvit": ("maxvit_t", 128, {}),
        "video_mvit": ("mvit_v2_s", 16, {}),
        "video_s3d_fp32": ("s3d", 24, PLAIN),
        "lraspp": ("lraspp_mobilenet_v3_large", 48, {"size": 512}),
    },
    "newest": {
        "resnet34_fp32": ("resnet34", 256, PLAIN),
        "regnet_x_fp32": ("regnet_x_8gf", 64, PLAIN),
        "efficientnet_b4_last": ("efficientnet_b4", 48, {"size": 380, **LAST}),
        "inception_last": ("inception_v3", 256, {"size": 299, **LAST}),
        "swin_b": ("swin_b", 96, {}),
        "video_r3d_fp32": ("r3d_18", 24, {"size": 112, **PLAIN}),
        "deeplab_mobile_fp32": ("deeplabv3_mobilenet_v3_large", 48, {"size": 384, **PLAIN}),
    },
    "fresh": {
        "vgg16_last": ("vgg16_bn", 96, LAST),
        "shufflenet_last": ("shufflenet_v2_x1_0", 512, LAST),
        "swin_v2_b": ("swin_v2_b", 48, {"size": 256}),
        "regnet_y_last": ("regnet_y_16gf", 64, LAST),
        "mobilenet_small_fp32": ("mobilenet_v3_small", 768, PLAIN),
        "fcn_fp32": ("fcn_resnet50", 8, {"size": 512, **PLAIN}),
        "deeplab_101": ("deeplabv3_resnet101", 10, {"size": 448}),
        "video_swin": ("swin3d_t", 8, {}),
        "video_mvit_v1": ("mvit_v1_b", 12, {}),
    },
    "recent": {
        "fcn_101": ("fcn_resnet101", 12, {"size": 400}),
        "deeplab_mobile": ("deeplabv3_mobilenet_v3_large", 24, {"size": 480}),
        "regnet_x_last": ("regnet_x_3_2gf", 128, LAST),
        "regnet_y_400_fp32": ("regnet_y_400mf", 256, {**LAST, **PLAIN}),
        "resnext50_fp32": ("resnext50_32x4d", 96, {**LAST, **PLAIN}),
    },
}
# Of transformers: the model, its configuration, batch, length, more of training().
TEXTS: dict[str, dict[str, tuple[Any, ...]]] = {
    "larger": {
        "gpt2_medium": ("GPT2LMHead", {"n_embd": 1024, "n_layer": 24, "n_head": 16}, 12, 1024),
        "bert_base": ("BertForMaskedLM", {}, 64, 384),
        "llama_1b": (
            "LlamaForCausalLM",
            decoder(2048, 5632, 22, 32, 4, 32_000),
            *(6, 2048, FUSED),
        ),
        "t5_base": (
            "T5ForConditionalGeneration",
            {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12} | START,
            *(32, 384),
        ),
        "modernbert": ("ModernBertForMaskedLM", {"attn_implementation": "sdpa"}, 32, 1024),
        "mixtral": (
            "MixtralForCausalLM",
            decoder(1024, 2816, 8, 16, 4, 32_000, num_local_experts=8),
            *(8, 2048, FUSED),
        ),
    },
    "further": {
        "opt": (
            "OPTForCausalLM",
            {**LARGE, "num_hidden_layers": 16, "ffn_dim": 4096},
            *(12, 1024),
        ),
        "roberta_large": (
            "RobertaForMaskedLM",
            {**LARGE, "intermediate_size": 4096, "max_position_embeddings": 514},
            *(48, 256),
        ),
        "neox": (
            "GPTNeoXForCausalLM",
            {**LARGE, "intermediate_size": 4096},
            *(8, 2048, FUSED),
        ),
        "qwen3": (
            "Qwen3ForCausalLM",
            decoder(1024, 3072, 28, 16, 8, 60_000),
            *(8, 2048, FUSED),
        ),
        "distilbert": ("DistilBertForMaskedLM", {}, 128, 256),
        "gemma": (
            "GemmaForCausalLM",
            decoder(1536, 6144, 12, 8, 1, 64_000, head_dim=192),
            *(6, 2048, FUSED),
        ),
    },
    "later": {
        "albert": ("AlbertForMaskedLM", {**BASE, "intermediate_size": 3072}, 96, 384),
        "falcon": (
            "FalconForCausalLM",
            {**LARGE, "num_hidden_layers": 20, "vocab_size": 50_000},
            *(8, 2048, FUSED),
        ),
        "olmo2": (
            "Olmo2ForCausalLM",
            decoder(1536, 5120, 14, 16, 16, 50_000),
            *(6, 2048, FUSED),
        ),
        "phi": (
            "PhiForCausalLM",
            {**LARGE, "num_hidden_layers": 18, "intermediate_size": 4096},
            *(16, 1024),
        ),
        "mbart": (
            "MBartForConditionalGeneration",
            {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "vocab_size": 50_000},
            *(128, 256),
        ),
    },
    "newest": {
        "electra": ("ElectraForMaskedLM", {**BASE, "intermediate_size": 3072}, 48, 512),
        "mistral_long": (
            "MistralForCausalLM",
            decoder(1536, 4608, 12, 12, 4, 32_000, sliding_window=None),
            *(3, 4096, FUSED),
        ),
        "bart": (
            "BartForConditionalGeneration",
            {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6},
            *(48, 512),
        ),
        "bloom": (
            "BloomForCausalLM",
            {"hidden_size": 1024, "n_layer": 12, "n_head": 16, "vocab_size": 50_000},
            *(12, 1024),
        ),
        "deberta": (
            "DebertaV2ForMaskedLM",
            {**BASE, "intermediate_size": 3072, "vocab_size": 50_000},
            *(48, 256),
        ),
    },
    "fresh": {
        "gptj": (
            "GPTJForCausalLM",
            {"n_embd": 1024, "n_layer": 14, "n_head": 16, "rotary_dim": 64, "vocab_size": 50_400},
            *(12, 1024, FUSED),
        ),
        "mpnet": ("MPNetForMaskedLM", {**BASE, "intermediate_size": 3072}, 64, 384),
        "stablelm": (
            "StableLmForCausalLM",
            decoder(1024, 2816, 16, 16, 16, 50_000),
            *(8, 2048, FUSED),
        ),
        "mt5": (
            "MT5ForConditionalGeneration",
            {"d_model": 512, "d_ff": 1024, "num_layers": 8, "num_heads": 6} | START,
            *(24, 384),
        ),
    },
    "recent": {
        "mpnet_short": ("MPNetForMaskedLM", {**BASE, "intermediate_size": 3072}, 128, 256),
        "stablelm_wide": (
            "StableLmForCausalLM",
            decoder(2048, 5632, 8, 16, 8, 50_000),
            *(6, 2048, FUSED),
        ),
    },
}


def vision(
    name: str, batch: int, *, size: int = 224, last: bool = False, autocast: bool = True
) -> Step:
    """A classifier of torchvision, of images or of videos, or what says of each pixel."""
    from torchvision import models

    is_of_pixels = name in models.list_models(models.segmentation)
    is_video = name in models.list_models(models.video)
    if is_of_pixels or is_video:
        more = {"weights_backbone": None, "num_classes": 21} if is_of_pixels else {}
        model = models.get_model(name, weights=None, **more).cuda()
        x = torch.randn(batch, 3, *([16] if is_video else []), size, size, device="cuda")
        shape = (batch, size, size) if is_of_pixels else (batch,)
        labels = torch.randint(0, 21 if is_of_pixels else 400, shape, device="cuda")
        found = (lambda: model(x)["out"]) if is_of_pixels else (lambda: model(x))
        return training(model, lambda: F.cross_entropy(found().float(), labels), autocast=autocast)
    model = models.get_model(name, weights=None, num_classes=1000)
    return classified(model, batch, size, last=last, autocast=autocast)


def of_transformers(
    name: str, sizes: dict[str, Any], batch: int, length: int, more: dict[str, Any] | None = None
) -> Step:
    """A model of language, whose labels are its tokens; in bf16 where the update is fused."""
    import transformers

    kind = name.partition("For")[0].removesuffix("LMHead")
    config = getattr(transformers, f"{kind}Config")(**sizes)
    config.use_cache = False
    model = getattr(transformers, name if "For" in name else f"{name}Model")(config)
    model = model.to("cuda", BF16) if more else model.cuda()
    x = torch.randint(5, config.vocab_size, (batch, length), device="cuda")
    return training(
        model, lambda: model(input_ids=x, labels=x).loss, autocast=not more, **(more or {})
    )


def images_of(name: str, batch: int, size: int = 224, **more: Any) -> Step:
    """A classifier of transformers."""
    import transformers

    config = getattr(transformers, f"{name}Config")(num_labels=1000, image_size=size, **more)
    model = getattr(transformers, f"{name}ForImageClassification")(config)
    return classified(model, batch, size)


def whisper_small() -> Step:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sizes = {f"{part}_{what}": n for part in ("encoder", "decoder") for what, n in _OF_WHISPER}
    model = WhisperForConditionalGeneration(WhisperConfig(d_model=768, use_cache=False, **sizes))
    model = model.cuda()
    x = torch.randn(16, 80, 3000, device="cuda")
    labels = torch.randint(0, 50_000, (16, 128), device="cuda")
    return training(model, lambda: model(input_features=x, labels=labels).loss)


_OF_WHISPER = (("layers", 12), ("attention_heads", 12), ("ffn_dim", 3072))


def pairs(kind: str, batch: int, length: int) -> Step:
    """Images and their texts: CLIP, and what came after it."""
    import transformers

    config = getattr(transformers, f"{kind}Config")()
    model = getattr(transformers, f"{kind}Model")(config).cuda()
    x = torch.randn(batch, 3, 224, 224, device="cuda")
    words = torch.randint(0, 30_000, (batch, length), device="cuda")
    return training(model, lambda: model(input_ids=words, pixel_values=x, return_loss=True).loss)


def wav2vec_long() -> Step:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(layerdrop=0.0, mask_time_prob=0.0)
    model = Wav2Vec2Model(config).cuda()
    x = torch.randn(8, 16_000 * 15, device="cuda")
    return training(model, lambda: model(x).last_hidden_state.float().square().mean())


def videomae() -> Step:
    from transformers import VideoMAEConfig, VideoMAEForVideoClassification

    model = VideoMAEForVideoClassification(VideoMAEConfig(num_labels=400)).cuda()
    x = torch.randn(12, 16, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 400, (12,), device="cuda")
    return training(model, lambda: F.cross_entropy(model(x).logits.float(), labels))


def spectrograms() -> Step:
    from transformers import ASTConfig, ASTForAudioClassification

    model = ASTForAudioClassification(ASTConfig(num_labels=527)).cuda()
    x = torch.randn(24, 1024, 128, device="cuda")
    labels = torch.randint(0, 527, (24,), device="cuda")
    return training(model, lambda: F.cross_entropy(model(x).logits.float(), labels))


def masked_images() -> Step:
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    model = ViTMAEForPreTraining(ViTMAEConfig()).cuda()
    x = torch.randn(320, 3, 224, 224, device="cuda")
    return training(model, lambda: model(x).loss)


def super_resolution(*, batch: int = 16, width: int = 128, blocks: int = 16) -> Step:
    """Plain convolutions at one size, then twice as large."""
    body = [
        nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1))
        for _ in range(blocks)
    ]
    first, last = nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 12, 3, 1, 1)
    model = nn.ModuleList([first, *body, last]).cuda()
    x, y = (torch.randn(batch, 3, n, n, device="cuda") for n in (96, 192))

    def loss() -> torch.Tensor:
        found = model[0](x)
        for part in list(model)[1:-1]:
            found = found + part(found)
        return F.l1_loss(F.pixel_shuffle(model[-1](found), 2).float(), y)

    return training(model, loss)


def waves(*, batch: int = 8, length: int = 32_000, width: int = 128) -> Step:
    """Dilated convolutions of sound with gates."""
    layers = nn.ModuleList(
        nn.Conv1d(width, 2 * width, 3, 1, 2**n, 2**n) for n in (*range(8), *range(8))
    )
    model = nn.ModuleDict({"in": nn.Conv1d(1, width, 1), "layers": layers})
    model["out"] = nn.Conv1d(width, 256, 1)
    model = model.cuda()
    x = torch.randn(batch, 1, length, device="cuda")
    labels = torch.randint(0, 256, (batch, length), device="cuda")

    def loss() -> torch.Tensor:
        y = model["in"](x)
        for layer in model["layers"]:
            inner, gate = layer(y).chunk(2, 1)
            y = y + inner.tanh() * gate.sigmoid()
        return F.cross_entropy(model["out"](y), labels)

    return training(model, loss, autocast=False)


def columns(*, batch: int = 16_384, width: int = 2048) -> Step:
    """Tables: wide layers with batch norm and dropout."""
    sizes = (256, *[width] * 6)
    layers = [
        nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o), nn.SiLU(), nn.Dropout(0.1))
        for i, o in zip(sizes, sizes[1:])
    ]
    model = nn.Sequential(*layers, nn.Linear(width, 10)).cuda()
    x = torch.randn(batch, 256, device="cuda")
    labels = torch.randint(0, 10, (batch,), device="cuda")
    return training(model, lambda: F.cross_entropy(model(x).float(), labels))


def gates(*, batch: int = 192, length: int = 300, width: int = 768) -> Step:
    """Speech: recurrent layers in both directions, then CTC."""
    model = nn.ModuleList(
        [nn.GRU(160, width, 3, batch_first=True, bidirectional=True), nn.Linear(2 * width, 128)]
    ).cuda()
    x = torch.randn(batch, length, 160, device="cuda")
    labels = torch.randint(0, 128, (batch, length), device="cuda")

    def loss() -> torch.Tensor:
        return F.cross_entropy(model[1](model[0](x)[0]).transpose(1, 2), labels)

    return training(model, loss, autocast=False)


def levels(*, dims: int, batch: int, size: int, width: int, autocast: bool) -> Step:
    """A U-Net of sound or of volumes with group norm, whose way up is transposed convolutions."""
    conv, back = ((nn.Conv1d, nn.ConvTranspose1d), (nn.Conv3d, nn.ConvTranspose3d))[dims == 3]

    def block(inside: int, outside: int) -> nn.Module:
        parts = [conv(inside, outside, 3, 1, 1), nn.GroupNorm(8, outside), nn.SiLU()]
        return nn.Sequential(*parts, conv(outside, outside, 3, 1, 1), nn.GroupNorm(8, outside))

    widths = [width << n for n in range(4)]
    down = [block(i, o) for i, o in zip((2, *widths), widths)]
    up = [block(2 * w, w) for w in widths[:-1]]
    ups = [back(2 * w, w, 2, 2) for w in widths[:-1]]
    parts = map(nn.ModuleList, (down, up, ups))
    model = nn.ModuleDict(zip(("down", "up", "ups"), parts))
    model["out"] = conv(width, 2, 1)
    model = model.cuda()
    pool = (F.max_pool1d, F.max_pool3d)[dims == 3]
    x = torch.randn(batch, 2, *[size] * dims, device="cuda")

    def loss() -> torch.Tensor:
        y, kept = x, []
        for level, part in enumerate(model["down"]):
            y = F.silu(part(y if level == 0 else pool(y, 2)))
            kept.append(y)
        for level in (2, 1, 0):
            y = torch.cat((model["ups"][level](y), kept[level]), 1)
            y = F.silu(model["up"][level](y))
        return F.mse_loss(model["out"](y).float(), x)

    return training(model, loss, autocast=autocast)


def encoder(*, batch: int, length: int, layers: int = 8, is_compiled: bool = False) -> Step:
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, 0.0, "gelu", batch_first=True)
    model = nn.TransformerEncoder(layer, layers).cuda()
    called = torch.compile(model) if is_compiled else model
    x = torch.randn(batch, length, 1024, device="cuda")
    return training(model, lambda: called(x).float().square().mean(), fused=True)


def generator(*, batch: int = 256) -> Step:
    """Of pictures out of noise: transposed convolutions with batch norm, and a critic."""
    widths = (1024, 512, 256, 128)
    makes = [nn.ConvTranspose2d(128, widths[0], 4), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    judges: list[nn.Module] = [nn.Conv2d(3, 128, 4, 2, 1), nn.LeakyReLU(0.2)]
    for inside, outside in zip(widths, widths[1:]):
        makes += [nn.ConvTranspose2d(inside, outside, 4, 2, 1), nn.BatchNorm2d(outside), nn.ReLU()]
    for outside, inside in reversed(list(zip(widths, widths[1:]))):
        judges += [nn.Conv2d(inside, outside, 4, 2, 1), nn.BatchNorm2d(outside), nn.LeakyReLU(0.2)]
    makes.append(nn.ConvTranspose2d(128, 3, 4, 2, 1))
    model = nn.Sequential(*makes, *judges, nn.Conv2d(1024, 1, 4)).cuda()
    x = torch.randn(batch, 128, 1, 1, device="cuda")
    return training(model, lambda: F.softplus(-model(x)).mean(), autocast=False)


def compiled_gpt() -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(use_cache=False, vocab_size=50_304)).cuda()
    compiled = torch.compile(model)
    x = torch.randint(0, 50_304, (24, 1024), device="cuda")
    return training(model, lambda: compiled(input_ids=x, labels=x).loss)


def compiled_resnet() -> Step:
    from torchvision.models import resnet50

    model = resnet50()
    model.forward = torch.compile(model.forward)
    return classified(model, 128, 224, last=True)


def scaled(*, batch: int = 192) -> Step:
    """fp16 with a GradScaler, norms of gradients and SGD."""
    from torchvision.models import resnet50

    model = resnet50().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    x = torch.randn(batch, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (batch,), device="cuda")

    def step() -> torch.Tensor:
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(model(x), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    return step


def diffusion(*, batch: int = 48) -> Step:
    from diffusers import UNet2DModel

    model = UNet2DModel(64, 3, 3, block_out_channels=(128, 256, 384, 512)).cuda()
    x, noise = (torch.randn(batch, 3, 64, 64, device="cuda") for _ in range(2))
    times = torch.randint(0, 1000, (batch,), device="cuda")
    return training(model, lambda: F.mse_loss(model(x, times).sample.float(), noise))


def conformer(*, batch: int = 8) -> Step:
    from transformers import Wav2Vec2ConformerConfig, Wav2Vec2ConformerModel

    config = Wav2Vec2ConformerConfig(layerdrop=0.0, mask_time_prob=0.0)
    model = Wav2Vec2ConformerModel(config).cuda()
    x = torch.randn(batch, 16_000 * 15, device="cuda")
    return training(model, lambda: model(x).last_hidden_state.float().square().mean())


# What needs lines of its own.
OTHERS: dict[str, dict[str, Callable[[], Step]]] = {
    "larger": {
        "whisper_small": whisper_small,
        "clip": lambda: pairs("CLIP", 256, 77),
        "wav2vec_long": wav2vec_long,
    },
    "further": {
        "vit_base": lambda: images_of("ViT", 160),
        "dinov2": lambda: images_of("Dinov2", 48, 392),
        "videomae": videomae,
    },
    "later": {
        "beit": lambda: images_of("Beit", 192),
        "siglip": lambda: pairs("Siglip", 288, 64),
        "spectrograms": spectrograms,
        "masked_images": masked_images,
        "super_resolution": super_resolution,
        "waves": waves,
        "columns": columns,
    },
    "newest": {
        "gates": gates,
        "levels_of_sound": lambda: levels(dims=1, batch=48, size=32_768, width=64, autocast=True),
        "levels_of_volumes": lambda: levels(dims=3, batch=4, size=96, width=32, autocast=False),
        "encoder_long": lambda: encoder(batch=4, length=8192),
        "encoder_compiled": lambda: encoder(batch=48, length=512, is_compiled=True),
        "generator": generator,
    },
    "fresh": {
        "compiled_gpt": compiled_gpt,
        "compiled_resnet": compiled_resnet,
        "scaled": scaled,
        "diffusion": diffusion,
        "conformer": conformer,
    },
    "recent": {},
}


def step(*, name: str) -> Step:
    for images, texts, others in zip(IMAGES.values(), TEXTS.values(), OTHERS.values()):
        if name in images:
            model, batch, more = images[name]
            return vision(model, batch, **more)
        if name in texts:
            return of_transformers(*texts[name])
        if name in others:
            return others[name]()
    raise ValueError(f"no step is called {name!r}")
