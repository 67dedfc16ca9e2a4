"""Classifiers of images of timm and torchvision, with random weights."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vramcast_zoo.known.adapters import with_lora
from vramcast_zoo.known.catalogue import close_names
from vramcast_zoo.known.options import Batch, Options, Trained
from vramcast_zoo.refusal import Refused, need

NUM_CLASSES = 1000


class Classifier(Trained):
    def loss(self, images: Tensor, labels: Tensor) -> Tensor:  # type: ignore[override]
        found = self.model(images)
        # Inception and GoogLeNet also answer from their middle
        main = found[0] if isinstance(found, tuple) else found
        return F.cross_entropy(main, labels)


def timm_image_size(name: str) -> int:
    """Of the images that its weights were made for. Refuses a name that timm does not have."""
    timm = need("timm", f"timm:{name}")
    if not timm.is_model(name):
        raise _unknown("timm", name, timm.list_models())
    found = timm.get_pretrained_cfg(name)
    return int(found.input_size[-1]) if found and found.input_size else 224


def torchvision_image_size(name: str) -> int:
    vision = need("torchvision", f"torchvision:{name}")
    names = vision.models.list_models(module=vision.models)
    if name not in names:
        raise _unknown("torchvision", name, names)
    return 299 if name == "inception_v3" else 224


def _unknown(source: str, name: str, names: list[str]) -> Refused:
    close = [f"{source}:{one}" for one in close_names(name, names)]
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    return Refused(
        f"{source} has no classifier of images named {name!r}.",
        f"{hint}`vramcast zoo {source}` lists all.",
    )


def build_timm(name: str, options: Options) -> Trained:
    timm = need("timm", f"timm:{name}")
    size = options.sizes["image_size"]
    sized = {} if size == timm_image_size(name) else {"img_size": size}
    try:
        model = timm.create_model(name, num_classes=NUM_CLASSES, **sized)
    except TypeError:  # a network of convolutions takes images of any size
        model = timm.create_model(name, num_classes=NUM_CLASSES)
    if options.checkpointing:
        model.set_grad_checkpointing(True)
    return _trained(model, options)


def build_torchvision(name: str, options: Options) -> Trained:
    vision = need("torchvision", f"torchvision:{name}")
    if options.checkpointing:
        raise Refused("torchvision's models have no checkpointing.", "Leave checkpointing out.")
    maker = vision.models.get_model_builder(name)
    takes = inspect.signature(maker).parameters
    # without it they look for a file of random numbers for a slow initialization
    quick = {"init_weights": False} if "init_weights" in takes else {}
    known: dict[str, Any] = {"num_classes": NUM_CLASSES, **quick}
    if "image_size" in takes or name.startswith("vit_"):
        known["image_size"] = options.sizes["image_size"]
    return _trained(maker(weights=None, **known), options)


def _trained(model: nn.Module, options: Options) -> Trained:
    model = model.to(options.device, options.weights).train()
    if options.lora:
        model = with_lora(model, options.lora, options.lora_targets, options.lora_in_fp32)
    return Classifier(model, lambda: _batch(options))


def _batch(options: Options) -> Batch:
    batch_size, side = options.sizes["batch_size"], options.sizes["image_size"]
    with torch.device(options.device):
        images = torch.randn(batch_size, 3, side, side, dtype=options.inputs)
        return {"images": images, "labels": torch.randint(0, NUM_CLASSES, (batch_size,))}
