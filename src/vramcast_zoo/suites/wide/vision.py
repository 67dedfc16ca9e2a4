"""Images and video: timm, torchvision, segmentation_models_pytorch, kornia, lightly."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def _classify(model: torch.nn.Module, images: torch.Tensor, classes: int, **options) -> Step:
    labels = torch.randint(0, classes, (len(images),), device="cuda")
    return training_step(
        lambda: F.cross_entropy(model(images), labels), model.parameters(), **options
    )


def _as_layout(model: torch.nn.Module, images: torch.Tensor, channels_last: bool) -> tuple:
    if not channels_last:
        return model, images
    last = torch.channels_last
    return model.to(memory_format=last), images.to(memory_format=last)


def timm_classifier(
    *,
    name: str = "resnet50",
    batch_size: int = 32,
    image_size: int = 224,
    channels_last: bool = False,
    autocast: str = "",
    optimizer: str = "sgd",
    benchmark: bool = False,
) -> Step:
    import timm

    torch.backends.cudnn.benchmark = benchmark
    model = timm.create_model(name, num_classes=1000).cuda().train()
    images = torch.randn(batch_size, 3, image_size, image_size, device="cuda")
    model, images = _as_layout(model, images, channels_last)
    return _classify(model, images, 1000, autocast=autocast, optimizer=optimizer)


def torchvision_classifier(
    *,
    name: str = "mobilenet_v3_large",
    batch_size: int = 64,
    image_size: int = 224,
    channels_last: bool = False,
    autocast: str = "",
    benchmark: bool = False,
) -> Step:
    import torchvision

    torch.backends.cudnn.benchmark = benchmark
    model = torchvision.models.get_model(name, weights=None).cuda().train()
    images = torch.randn(batch_size, 3, image_size, image_size, device="cuda")
    model, images = _as_layout(model, images, channels_last)
    return _classify(model, images, 1000, autocast=autocast, optimizer="sgd")


def video(
    *,
    name: str = "r3d_18",
    batch_size: int = 4,
    frames: int = 16,
    image_size: int = 112,
    autocast: str = "",
) -> Step:
    import torchvision

    model = torchvision.models.get_model(name, weights=None, num_classes=400).cuda().train()
    clips = torch.randn(batch_size, 3, frames, image_size, image_size, device="cuda")
    return _classify(model, clips, 400, autocast=autocast, optimizer="sgd")


def detection(
    *,
    name: str = "fasterrcnn_resnet50_fpn",
    batch_size: int = 2,
    image_size: int = 512,
    autocast: str = "",
) -> Step:
    """How many boxes a network proposes depends on its weights."""
    import torchvision

    sizes = {} if "ssd" in name else {"min_size": image_size, "max_size": image_size}
    model = torchvision.models.get_model(name, weights=None, weights_backbone=None, **sizes)
    model.cuda().train()
    images = [torch.rand(3, image_size, image_size, device="cuda") for _ in range(batch_size)]
    corner = torch.tensor([[20.0, 30.0, 200.0, 260.0], [100.0, 80.0, 400.0, 380.0]], device="cuda")
    marks = {"boxes": corner, "labels": torch.tensor([1, 1], device="cuda")}
    if "mask" in name:
        masks = torch.randint(0, 2, (2, image_size, image_size), device="cuda")
        marks["masks"] = masks.to(torch.uint8)
    if "keypoint" in name:
        marks["keypoints"] = 100 * torch.rand(2, 17, 3, device="cuda") + 1
    targets = [dict(marks) for _ in range(batch_size)]
    return training_step(
        lambda: sum(model(images, targets).values()),
        model.parameters(),
        optimizer="sgd",
        autocast=autocast,
    )


def every_pixel(
    *,
    name: str = "deeplabv3_resnet50",
    batch_size: int = 8,
    image_size: int = 256,
    autocast: str = "",
    scale_loss: bool = False,
    channels_last: bool = False,
) -> Step:
    """torchvision's networks that give every pixel a class, with what they guess half way."""
    import torchvision

    model = torchvision.models.get_model(
        name, weights=None, weights_backbone=None, num_classes=21, aux_loss=True
    )
    model = model.cuda().train()
    images = torch.randn(batch_size, 3, image_size, image_size, device="cuda")
    model, images = _as_layout(model, images, channels_last)
    labels = torch.randint(0, 21, (batch_size, image_size, image_size), device="cuda")

    def loss() -> torch.Tensor:
        made = model(images)
        return F.cross_entropy(made["out"], labels) + 0.5 * F.cross_entropy(made["aux"], labels)

    return training_step(
        loss, model.parameters(), optimizer="sgd", autocast=autocast, scale_loss=scale_loss
    )


def segmentation(
    *,
    architecture: str = "unet",
    encoder: str = "resnet34",
    batch_size: int = 8,
    image_size: int = 256,
    autocast: str = "",
) -> Step:
    import segmentation_models_pytorch as smp

    model = smp.create_model(architecture, encoder, encoder_weights=None, classes=21)
    model.cuda().train()
    images = torch.randn(batch_size, 3, image_size, image_size, device="cuda")
    labels = torch.randint(0, 21, (batch_size, image_size, image_size), device="cuda")
    loss = smp.losses.DiceLoss("multiclass")
    return training_step(
        lambda: loss(model(images), labels) + F.cross_entropy(model(images), labels),
        model.parameters(),
        autocast=autocast,
    )


def compact_transformer(*, batch_size: int = 32, image_size: int = 224) -> Step:
    """Convolutions make the tokens of a transformer."""
    from vit_pytorch.cct import CCT

    model = CCT(
        img_size=(image_size, image_size),
        embedding_dim=384,
        n_conv_layers=2,
        kernel_size=7,
        stride=2,
        padding=3,
        num_layers=8,
        num_heads=6,
        mlp_ratio=3.0,
        num_classes=1000,
        positional_embedding="learnable",
    ).cuda()
    images = torch.randn(batch_size, 3, image_size, image_size, device="cuda")
    return _classify(model, images, 1000, autocast="bf16", optimizer="adamw")


def augmented(*, batch_size: int = 64, image_size: int = 160) -> Step:
    """Augmentation on the GPU before a small network."""
    import kornia.augmentation as K
    import timm

    augment = K.AugmentationSequential(
        K.RandomHorizontalFlip(p=1.0),
        K.RandomAffine(15.0, p=1.0),
        K.ColorJitter(0.2, 0.2, 0.2, 0.1, p=1.0),
        K.RandomGaussianBlur((5, 5), (0.1, 2.0), p=1.0),
    )
    model = timm.create_model("resnet18", num_classes=100).cuda().train()
    images = torch.rand(batch_size, 3, image_size, image_size, device="cuda")
    labels = torch.randint(0, 100, (batch_size,), device="cuda")
    return training_step(
        lambda: F.cross_entropy(model(augment(images)), labels),
        model.parameters(),
        optimizer="sgd",
    )


def contrastive(*, batch_size: int = 128, image_size: int = 96) -> Step:
    import timm
    from lightly.loss import NTXentLoss
    from lightly.models.modules import SimCLRProjectionHead

    backbone = timm.create_model("resnet18", num_classes=0).cuda().train()
    head = SimCLRProjectionHead(512, 512, 128).cuda()
    loss = NTXentLoss()
    views = [torch.randn(batch_size, 3, image_size, image_size, device="cuda") for _ in range(2)]
    return training_step(
        lambda: loss(*(head(backbone(view)) for view in views)),
        [*backbone.parameters(), *head.parameters()],
        autocast="fp16",
        scale_loss=True,
        optimizer="sgd",
    )


def metric_learning(*, batch_size: int = 128) -> Step:
    import timm
    from pytorch_metric_learning.losses import ArcFaceLoss

    model = timm.create_model("mobilenetv2_100", num_classes=256).cuda().train()
    loss = ArcFaceLoss(num_classes=5000, embedding_size=256).cuda()
    images = torch.randn(batch_size, 3, 112, 112, device="cuda")
    labels = torch.randint(0, 5000, (batch_size,), device="cuda")
    return training_step(
        lambda: loss(model(images), labels), [*model.parameters(), *loss.parameters()]
    )
