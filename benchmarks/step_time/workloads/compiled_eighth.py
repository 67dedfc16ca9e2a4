"""An eighth set of compiled steps: many with dropout before norms, and many that pool pictures,
with sizes and networks that the sets and suites before have none of.

python benchmarks/step_time/simulated.py OUT.jsonl .../compiled_eighth.py:step name=NAME
python benchmarks/step_time/recording/one_by_one.py OUT SECONDS LIST
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from compiled_parts import tf32
from compiled_seventh import FUSED, MIXED, kinds_of_texts, language, of_timm, padding, pictures, t5
from compiled_third import sizes_of
from unseen import BF16, Step

from vramcast_zoo.suites.compiled_too import tokens
from vramcast_zoo.suites.training import training_step

SGD: dict[str, Any] = {"optimizer": "sgd", "clip": 0.0}


# ------------------------------------------------------------------------ words
def hidden_words(name: str, batch: int, length: int, **sizes: Any) -> Step:
    """An encoder of transformers guesses every seventh word, under autocast."""
    import transformers

    config = getattr(transformers, f"{name}Config")(**sizes)
    model = getattr(transformers, f"{name}ForMaskedLM")(config).cuda()
    compiled = torch.compile(model)
    x, place = 1000 + tokens(28_000, batch, length), torch.arange(length, device="cuda")
    labels = torch.where(place % 7 == 3, x, -100)
    given = {"input_ids": x, "attention_mask": padding(batch, length), "labels": labels}
    return training_step(lambda: compiled(**given).loss, model.parameters(), **MIXED)


def summaries(batch: int, length: int, told: int, layers: int) -> Step:
    """Pegasus of 1,024 wide layers with dropout, under autocast."""
    from transformers import PegasusConfig, PegasusForConditionalGeneration

    sizes: dict[str, Any] = {"d_model": 1024, "use_cache": False, "vocab_size": 64_000}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": layers, f"{side}_attention_heads": 16, f"{side}_ffn_dim": 4096}
    model = PegasusForConditionalGeneration(PegasusConfig(**sizes)).cuda()
    compiled = torch.compile(model)
    x, labels = 4 + tokens(60_000, batch, length), 4 + tokens(60_000, batch, told)
    loss = lambda: compiled(input_ids=x, labels=labels).loss  # noqa: E731
    return training_step(loss, model.parameters(), **MIXED)


# ------------------------------------------------------------------------ pictures and series
def of_torchvision(name: str, batch: int, size: int, **how: Any) -> Step:
    from torchvision import models

    return pictures(getattr(models, name)(), batch, size, **how)


def in_tf32(name: str, batch: int, size: int) -> Step:
    """In single precision whose products are TF32, channels first."""
    tf32()
    from torchvision import models

    model = torch.compile(getattr(models, name)().cuda())
    x, labels = torch.randn(batch, 3, size, size, device="cuda"), tokens(1000, 1, batch)[0]
    return training_step(lambda: F.cross_entropy(model(x), labels), model.parameters(), **SGD)


def plain_noise(batch: int, size: int) -> Step:
    """A U-Net of diffusers without words, in bf16."""
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=size,
        block_out_channels=(128, 256, 384),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
    ).to("cuda", BF16)
    compiled = torch.compile(model)
    x = torch.randn(batch, 3, size, size, device="cuda", dtype=BF16)

    def loss() -> torch.Tensor:
        noise, times = torch.randn_like(x), tokens(1000, 1, batch)[0]
        share = (times / 1000).to(BF16)[:, None, None, None]
        found = compiled(torch.lerp(x, noise, share), times).sample
        return F.mse_loss(found.float(), noise.float())

    return training_step(loss, model.parameters(), **FUSED)


def series_in_patches(batch: int, length: int) -> Step:
    """PatchTST of seven series with dropout, under autocast."""
    from transformers import PatchTSTConfig, PatchTSTForPrediction

    config = PatchTSTConfig(
        num_input_channels=7,
        context_length=length,
        patch_length=16,
        patch_stride=8,
        prediction_length=96,
        d_model=512,
        num_attention_heads=8,
        ffn_dim=2048,
        num_hidden_layers=3,
        attention_dropout=0.1,
        ff_dropout=0.1,
        path_dropout=0.1,
    )
    model = PatchTSTForPrediction(config).cuda()
    compiled = torch.compile(model)
    past, future = (torch.randn(batch, n, 7, device="cuda") for n in (length, 96))
    loss = lambda: compiled(past_values=past, future_values=future).loss  # noqa: E731
    return training_step(loss, model.parameters(), **MIXED)


LARGE = {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}
SMALL = {"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048}
BIG_CODE: dict[str, Any] = {"n_embd": 1024, "n_head": 16, "n_layer": 4}
OPT = {"hidden_size": 1024, "ffn_dim": 4096, "num_hidden_layers": 4, "num_attention_heads": 16}
OPT |= {"word_embed_proj_dim": 1024}
OLMO = sizes_of(2048, 8192, 4, 16, 16, 100_352)
STARCODER = sizes_of(1536, 6144, 4, 12, 2, 49_152)
STARCODER |= {"residual_dropout": 0.1, "embedding_dropout": 0.1, "attention_dropout": 0.1}
T5 = {"d_model": 512, "d_kv": 64, "d_ff": 1024, "num_heads": 6, "num_layers": 4}
T5 |= {"feed_forward_proj": "gated-gelu"}
VIT = {"depth": 6, "drop_rate": 0.1, "proj_drop_rate": 0.1, "attn_drop_rate": 0.0}
CHANNELS_LAST: dict[str, Any] = {"last": True, "autocast": "bf16", **SGD}
STEPS: dict[str, Callable[[], Step]] = {
    "large_bert": lambda: hidden_words("Bert", 288, 160, num_hidden_layers=4, **LARGE),
    "small_bert": lambda: hidden_words("Bert", 512, 192, num_hidden_layers=6, **SMALL),
    "roberta": lambda: kinds_of_texts("Roberta", 448, 192, 4, **MIXED),
    "albert": lambda: kinds_of_texts(
        "Albert", 512, 128, 4, sizes=LARGE | {"hidden_dropout_prob": 0.1}, **MIXED
    ),
    "mpnet": lambda: hidden_words("MPNet", 384, 128, num_hidden_layers=4),
    "big_code": lambda: language("GPTBigCode", BIG_CODE, 32, 1024, **MIXED),
    "opt": lambda: language("OPT", OPT, 28, 1024, **MIXED),
    "olmo2": lambda: language("Olmo2", OLMO, 6, 2048, **FUSED),
    "starcoder2": lambda: language("Starcoder2", STARCODER, 20, 1024, **FUSED),
    "narrow_t5": lambda: t5(T5, 160, 384, 96, **MIXED),
    "summaries": lambda: summaries(48, 512, 128, 2),
    "dropped_vit": lambda: of_timm("vit_small_patch16_224", 512, 224, sizes=VIT, **MIXED),
    "vgg": lambda: of_torchvision("vgg11_bn", 160, 224, **CHANNELS_LAST),
    "squeezed": lambda: of_torchvision("squeezenet1_1", 1024, 224, **CHANNELS_LAST),
    "resnet18": lambda: of_torchvision("resnet18", 640, 224, **CHANNELS_LAST),
    "resnet18_tf32": lambda: in_tf32("resnet18", 256, 224),
    "plain_noise": lambda: plain_noise(256, 32),
    "series_in_patches": lambda: series_in_patches(512, 512),
}


def step(*, name: str) -> Step:
    return STEPS[name]()
