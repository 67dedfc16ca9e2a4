"""The convolutions a calibration measures when none are asked for: layers of common networks, in every precision and layout."""

from __future__ import annotations

from collections.abc import Iterator

from vramcast.hardware.calibration.table import convolution_key

# (channels in, height and width, channels out, kernel, stride, padding)
LAYERS = (
    # ResNet 18 to 50
    *(
        (3, 224, 64, 7, 2, 3),
        (64, 56, 64, 3, 1, 1),
        (64, 56, 128, 3, 2, 1),
        (64, 56, 128, 1, 2, 0),
        (128, 28, 128, 3, 1, 1),
    ),
    *(
        (128, 28, 256, 3, 2, 1),
        (128, 28, 256, 1, 2, 0),
        (256, 14, 256, 3, 1, 1),
        (256, 14, 512, 3, 2, 1),
        (256, 14, 512, 1, 2, 0),
    ),
    *(
        (512, 7, 512, 3, 1, 1),
        (64, 56, 64, 1, 1, 0),
        (64, 56, 256, 1, 1, 0),
        (256, 56, 64, 1, 1, 0),
        (256, 56, 128, 1, 1, 0),
    ),
    *(
        (128, 56, 128, 3, 2, 1),
        (256, 56, 512, 1, 2, 0),
        (512, 28, 128, 1, 1, 0),
        (128, 28, 512, 1, 1, 0),
        (512, 28, 256, 1, 1, 0),
    ),
    *(
        (256, 28, 256, 3, 2, 1),
        (512, 28, 1024, 1, 2, 0),
        (1024, 14, 256, 1, 1, 0),
        (256, 14, 1024, 1, 1, 0),
    ),
    *(
        (1024, 14, 512, 1, 1, 0),
        (512, 14, 512, 3, 2, 1),
        (1024, 14, 2048, 1, 2, 0),
        (2048, 7, 512, 1, 1, 0),
        (512, 7, 2048, 1, 1, 0),
    ),
    # patches: ViT and ConvNeXt
    *(
        (3, 224, 768, 16, 16, 0),
        (3, 224, 384, 16, 16, 0),
        (3, 224, 1024, 16, 16, 0),
        (3, 224, 768, 32, 32, 0),
    ),
    *(
        (3, 224, 96, 4, 4, 0),
        (96, 56, 192, 2, 2, 0),
        (192, 28, 384, 2, 2, 0),
        (384, 14, 768, 2, 2, 0),
    ),
    # small images, and a diffusion U-Net
    *((3, 32, 64, 3, 1, 1), (64, 32, 64, 3, 1, 1), (64, 32, 128, 3, 2, 1), (32, 64, 64, 3, 1, 1)),
    *((320, 32, 320, 3, 1, 1), (4, 64, 320, 3, 1, 1)),
)
BATCH_SIZES = (8, 16, 32, 64, 128, 256)
FORMS = (
    ("fp32", False),
    ("fp32", True),
    ("bf16", False),
    ("bf16", True),
    ("fp16", False),
    ("fp16", True),
)


def convolutions() -> Iterator[str]:
    for batch in BATCH_SIZES:
        for dtype, channels_last in FORMS:
            for channels_in, size, channels_out, kernel, stride, padding in LAYERS:
                yield convolution_key(
                    dtype=dtype,
                    channels_last=channels_last,
                    x=(batch, channels_in, size, size),
                    weight=(channels_out, channels_in, kernel, kernel),
                    stride=(stride, stride),
                    padding=(padding, padding),
                    dilation=(1, 1),
                    groups=1,
                )
