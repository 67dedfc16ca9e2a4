"""Steps of popular models with batches that keep the GPU busy, like those of unseen.py: predicted
and committed, then measured. A set has its predictions in SET.jsonl, and SET.md compares.

    python benchmarks/step_time/simulated.py OUT.jsonl .../popular.py:step name=NAME
    python benchmarks/step_time/recording/record.py --out OUT --step .../popular.py:step name=NAME
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from models import (
    BASE,
    FUSED,
    LARGE,
    LAST,
    PLAIN,
    START,
    decoder,
    images_of,
    of_transformers,
    vision,
)
from popular_others import (
    columns,
    compiled_gpt,
    compiled_resnet,
    conformer,
    diffusion,
    encoder,
    gates,
    generator,
    levels,
    masked_images,
    pairs,
    scaled,
    spectrograms,
    super_resolution,
    videomae,
    wav2vec_long,
    waves,
    whisper_small,
)
from unseen import Step

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
