"""Steps that train a model of torchvision, timm or transformers. Used by the sets here."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
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


def of_timm(name: str, batch: int, size: int = 224, **more: Any) -> Step:
    import timm

    return classified(timm.create_model(name), batch, size, **more)


def speech_to_letters(batch: int, seconds: int, letters: int) -> Step:
    """Convolutions of sound, then a transformer."""
    from transformers import HubertConfig, HubertForCTC

    config = HubertConfig(layerdrop=0.0, mask_time_prob=0.0, vocab_size=letters)
    model = HubertForCTC(config).cuda()
    x = torch.randn(batch, 16_000 * seconds, device="cuda")
    labels = torch.randint(1, letters, (batch, 80), device="cuda")
    return training(model, lambda: model(x, labels=labels).loss)
