"""Records what cuDNN allocates, and how long it takes, for the convolutions of popular networks.

    PYTHONPATH=src python benchmarks/convolutions/record.py --out FILE.jsonl --seconds 480

The shapes come from the networks themselves: their convolutions are called on the meta device, and
each call is noted. Every shape is then run on the GPU in a random precision, layout and batch size,
until the time is spent. One line a convolution:

    forward, data_gradient, weight_gradient, backward
                the allocator's events of the first and of the second call, in order: a positive
                size is taken, a negative one given back
    seconds     the least of five later calls
    benchmark   the events of the first and the second call with cudnn.benchmark, and the reserved
                memory at the peak of the first, in which cuDNN tries its algorithms; a 0 is a
                segment that was given back, as emptying the cache does
    deterministic   the events of a call with cudnn.deterministic

A line with `error` is a convolution that did not run. Networks of packages that are not installed
are left out, and the first line of the file says which.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# torch keeps a plan for each convolution, with cudnn.benchmark or without. It must have forgotten
# those of the plain calls when the algorithms are to be tried: of the three passes it keeps two.
os.environ["TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT"] = "2"

import torch  # noqa: E402
from torch import nn  # noqa: E402

from vramcast.hardware.calibration.measure import allocator_actions  # noqa: E402

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
BATCH_SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)
MOST_BYTES = 12 << 30  # of the input and the result together
TORCHVISION = (
    *("resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121", "vgg16_bn"),
    *("mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "efficientnet_b4"),
    *("efficientnet_v2_s", "convnext_tiny", "convnext_base", "regnet_y_800mf", "regnet_x_8gf"),
    *("shufflenet_v2_x1_0", "squeezenet1_1", "mnasnet1_0", "googlenet", "inception_v3"),
    *("vit_b_16", "vit_l_16", "swin_t", "alexnet"),
)
SEGMENTATION = ("deeplabv3_resnet50", "fcn_resnet50", "lraspp_mobilenet_v3_large")
VIDEO = ("r3d_18", "mc3_18", "r2plus1d_18", "s3d", "mvit_v2_s", "swin3d_t")
TIMM = (
    *("resnet26d", "resnetv2_50", "seresnet50", "convnextv2_nano", "edgenext_small"),
    *("efficientnet_lite0", "mixnet_s", "hrnet_w18_small", "darknet53", "cspresnet50"),
    *("nf_resnet50", "repvgg_b0", "mobilevit_s", "maxvit_tiny_tf_224", "coatnet_0_rw_224"),
    *("levit_128s", "pvt_v2_b0", "poolformer_s12", "fastvit_t8", "ghostnet_100", "tf_mixnet_l"),
)


class Collector:
    """Notes the shape of every convolution that networks call."""

    def __init__(self) -> None:
        self.shapes: dict[str, dict[str, Any]] = {}
        self.left_out: dict[str, str] = {}

    def network(self, name: str, make: Callable[[], nn.Module], *inputs: Any) -> None:
        """`inputs` are shapes with a batch of 2, or dictionaries of tensors."""
        try:
            with torch.device("meta"):
                model = make().train()
                tensors = [torch.randn(shape) for shape in inputs]
            self._watch(model, name)
            with torch.no_grad():
                model(*tensors)
        except Exception as problem:
            self.left_out[name] = f"{type(problem).__name__}: {problem}"[:200]

    def layer(self, name: str, module: nn.Module, shape: tuple[int, ...]) -> None:
        self._add(module, torch.empty(shape, device="meta"), name)

    def _watch(self, model: nn.Module, name: str) -> None:
        for module in model.modules():
            if isinstance(module, nn.modules.conv._ConvNd):
                module.register_forward_pre_hook(
                    lambda module, args: self._add(module, args[0], name)
                )

    def _add(self, module: Any, x: torch.Tensor, name: str) -> None:
        shape = {
            "x": list(x.shape[1:]),
            "weight": list(module.weight.shape),
            "stride": list(module.stride),
            "padding": _padding(module),
            "dilation": list(module.dilation),
            "transposed": bool(module.transposed),
            "output_padding": list(module.output_padding),
            "groups": module.groups,
        }
        self.shapes.setdefault(json.dumps(shape), {**shape, "network": name})


def _padding(module: Any) -> list[int]:
    if isinstance(module.padding, str):
        sizes = zip(module.dilation, module.kernel_size, strict=True)
        return [d * (k - 1) // 2 if module.padding == "same" else 0 for d, k in sizes]
    return list(module.padding)


def collect() -> Collector:
    found = Collector()
    _vision(found)
    _audio(found)
    _diffusion(found)
    _by_hand(found)
    return found


def _vision(found: Collector) -> None:
    for package, names, size in (
        ("torchvision.models", TORCHVISION, (2, 3, 224, 224)),
        ("torchvision.models.segmentation", SEGMENTATION, (2, 3, 520, 520)),
        ("torchvision.models.video", VIDEO, (2, 3, 16, 224, 224)),
    ):
        for name in names:
            found.network(name, _maker(package, name), size)
    found.network("resnet18 at 32", _maker("torchvision.models", "resnet18"), (2, 3, 32, 32))
    found.network("densenet121 at 96", _maker("torchvision.models", "densenet121"), (2, 3, 96, 96))
    for name in TIMM:
        found.network(f"timm {name}", _timm(name), (2, 3, 224, 224))


def _maker(package: str, name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        model: nn.Module = getattr(importlib.import_module(package), name)(weights=None)
        return model

    return make


def _timm(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        model: nn.Module = importlib.import_module("timm").create_model(name)
        return model

    return make


def _audio(found: Collector) -> None:
    def of_torchaudio(name: str, **options: Any) -> Callable[[], nn.Module]:
        return lambda: getattr(importlib.import_module("torchaudio.models"), name)(**options)

    def wav2vec2() -> nn.Module:
        transformers = importlib.import_module("transformers")
        model: nn.Module = transformers.Wav2Vec2Model(transformers.Wav2Vec2Config())
        return model

    found.network("conv-tasnet", of_torchaudio("ConvTasNet"), (2, 1, 32000))
    found.network("hdemucs", of_torchaudio("HDemucs", sources=["a", "b"]), (2, 2, 88200))
    found.network("wav2letter", of_torchaudio("Wav2Letter", num_features=80), (2, 80, 800))
    found.network("wav2vec2", wav2vec2, (2, 80000))
    for channels, length in ((80, 3000), (128, 3000), (80, 1500)):
        found.layer("whisper", nn.Conv1d(channels, 512, 3, padding=1), (2, channels, length))
        found.layer("whisper", nn.Conv1d(512, 512, 3, stride=2, padding=1), (2, 512, length))


def _diffusion(found: Collector) -> None:
    for channels, size in ((320, 64), (320, 32), (640, 32), (640, 16), (1280, 16), (1280, 8)):
        for factor in (1, 2, 3):
            layer = nn.Conv2d(factor * channels, channels, 3, padding=1)
            found.layer("stable diffusion", layer, (2, factor * channels, size, size))
            point = nn.Conv2d(factor * channels, channels, 1)
            found.layer("stable diffusion", point, (2, factor * channels, size, size))
        down = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        found.layer("stable diffusion", down, (2, channels, size, size))
    for channels, size in ((128, 512), (128, 256), (256, 256), (256, 128), (512, 128), (512, 64)):
        layer = nn.Conv2d(channels, channels, 3, padding=1)
        found.layer("autoencoder", layer, (2, channels, size, size))
    found.layer("autoencoder", nn.Conv2d(3, 128, 3, padding=1), (2, 3, 512, 512))
    found.layer("stable diffusion", nn.Conv2d(4, 320, 3, padding=1), (2, 4, 64, 64))
    for patch, width in ((2, 384), (2, 1152), (4, 768)):
        found.layer("dit", nn.Conv2d(4, width, patch, stride=patch), (2, 4, 32, 32))


def _by_hand(found: Collector) -> None:
    """Kinds that the networks above have few of: transposed, 3-d, 1-d, depthwise, dilated."""
    for size, channels in ((1, (100, 512)), (4, (512, 256)), (8, (256, 128)), (16, (128, 64))):
        stride, padding = (1, 0) if size == 1 else (2, 1)
        up = nn.ConvTranspose2d(*channels, 4, stride, padding, bias=False)
        found.layer("dcgan", up, (2, channels[0], size, size))
    found.layer("dcgan", nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), (2, 64, 32, 32))
    for size in (28, 32, 56, 64, 128):
        for channels in (64, 128, 256, 512):
            up = nn.ConvTranspose2d(2 * channels, channels, 2, stride=2)
            found.layer("u-net", up, (2, 2 * channels, size // 2, size // 2))
            found.layer(
                "u-net", nn.Conv2d(channels, channels, 3, padding=1), (2, channels, size, size)
            )
    for size in (16, 32, 64, 96, 128):
        for channels in (16, 32, 64, 128):
            layer = nn.Conv3d(channels, 2 * channels, 3, padding=1)
            found.layer("3-d u-net", layer, (2, channels, size, size, size))
            down = nn.Conv3d(channels, channels, 3, stride=2, padding=1)
            found.layer("3-d u-net", down, (2, channels, size, size, size))
            up = nn.ConvTranspose3d(2 * channels, channels, 2, stride=2)
            found.layer("3-d u-net", up, (2, 2 * channels, size // 2, size // 2, size // 2))
    for length in (256, 512, 1024, 4096, 16384):
        for channels in (64, 256, 512, 1024):
            for kernel in (3, 4, 7, 15, 31):
                depthwise = nn.Conv1d(
                    channels, channels, kernel, padding=kernel - 1, groups=channels
                )
                found.layer("1-d depthwise", depthwise, (2, channels, length))
            for dilation in (1, 4, 16):
                dilated = nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation)
                found.layer("1-d dilated", dilated, (2, channels, length))
            vocoder = nn.ConvTranspose1d(channels, channels // 2, 16, 8, 4)
            found.layer("vocoder", vocoder, (2, channels, length // 8))
    for size in (28, 64):
        for dilation in (2, 4, 12):
            atrous = nn.Conv2d(256, 256, 3, padding=dilation, dilation=dilation)
            found.layer("atrous", atrous, (2, 256, size, size))
    for size, patch, width in ((224, 14, 1024), (336, 14, 1024), (518, 14, 768), (384, 16, 768)):
        found.layer("patches", nn.Conv2d(3, width, patch, stride=patch), (2, 3, size, size))


def cases(shapes: list[dict[str, Any]], seed: int) -> Iterator[dict[str, Any]]:
    """Every shape in a random form, again and again, so that any end leaves an even sample."""
    chance = random.Random(seed)
    while True:
        chance.shuffle(shapes)
        for shape in shapes:
            dtype = chance.choice(("fp32", "bf16", "bf16", "fp16"))
            yield {
                **shape,
                "batch": chance.choice(BATCH_SIZES),
                "dtype": dtype,
                "tf32": dtype == "fp32" and chance.random() < 0.7,
                "channels_last": len(shape["x"]) == 3 and chance.random() < 0.5,
                "try_benchmark": chance.random() < 0.3,
            }


def events_of(call: Callable[[], Any]) -> list[int]:
    """The allocator's events of a call; zero where it gives memory back to the driver."""
    if not torch.cuda.is_available():
        call()
        return []
    signs = {"alloc": 1, "free_completed": -1, "segment_free": 0}
    known = [(name, size) for name, size in allocator_actions(call) if size and name in signs]
    return [signs[name] * size for name, size in known]


def least_seconds(call: Callable[[], Any]) -> float | None:
    if not torch.cuda.is_available():
        return None
    times = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000)
    return min(times)


def measure(case: dict[str, Any], device: str) -> dict[str, Any]:
    torch.backends.cudnn.allow_tf32 = case["tf32"]
    torch.backends.cudnn.benchmark = False
    layout = torch.channels_last if case["channels_last"] else torch.contiguous_format
    options: dict[str, Any] = {"device": device, "dtype": DTYPES[case["dtype"]]}
    x = torch.randn([case["batch"], *case["x"]], **options).contiguous(memory_format=layout)
    weight = torch.randn(case["weight"], **options).contiguous(memory_format=layout)
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    geometry = [case[name] for name in names]

    def forward() -> Any:
        return torch.ops.aten.convolution(x, weight, None, *geometry)

    grad = torch.randn_like(forward())

    def backward(*wanted: bool) -> Callable[[], Any]:
        return lambda: torch.ops.aten.convolution_backward(grad, x, weight, None, *geometry, wanted)

    calls = {
        "forward": forward,
        "data_gradient": backward(True, False, False),
        "weight_gradient": backward(False, True, False),
        "backward": backward(True, True, False),
    }
    found: dict[str, Any] = {"y": list(grad.shape)}
    for name, call in calls.items():
        found[name] = [events_of(call), events_of(call)]
    found["seconds"] = {name: least_seconds(call) for name, call in calls.items()}
    if case["try_benchmark"]:
        found["benchmark"] = {name: _benchmarked(calls[name]) for name in ("forward", "backward")}
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
        found["deterministic"] = {name: events_of(calls[name]) for name in ("forward", "backward")}
        torch.backends.cudnn.deterministic = False
    return found


def _benchmarked(call: Callable[[], Any]) -> dict[str, Any]:
    torch.backends.cudnn.benchmark = True
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_reserved()
    first = events_of(call)
    peak = torch.cuda.max_memory_reserved()
    return {
        "reserved_before_bytes": before,
        "reserved_peak_bytes": peak,
        "reserved_after_bytes": torch.cuda.memory_reserved(),
        "first": first,
        "second": events_of(call),
    }


def size_of(case: dict[str, Any]) -> int:
    """A bound on the bytes of input and result; a transposed convolution enlarges."""
    positions = 1
    for number in case["x"][1:]:
        positions *= number
    grows = 1
    for number in case["stride"] if case["transposed"] else ():
        grows *= number
    per_sample = positions * (case["x"][0] + max(case["weight"][:2]) * grows)
    return int(case["batch"] * per_sample * DTYPES[case["dtype"]].itemsize)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    deadline = time.monotonic() + options.seconds
    found = collect()
    shapes = list(found.shapes.values())
    print(
        f"{len(shapes)} shapes; left out: {json.dumps(found.left_out)}", file=sys.stderr, flush=True
    )
    head = {
        "torch_version": torch.__version__,
        "cuda_version": torch.version.cuda,
        "cudnn_version": torch.backends.cudnn.version(),
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "num_shapes": len(shapes),
        "left_out": found.left_out,
    }
    count = 0
    with open(options.out, "w") as file:
        print(json.dumps(head), file=file)
        for case in cases(shapes, options.seed):
            if time.monotonic() > deadline:
                break
            if size_of(case) > MOST_BYTES or (device == "cpu" and size_of(case) > 1 << 20):
                continue
            try:
                result = measure(case, device)
            except Exception as problem:
                result = {"error": f"{type(problem).__name__}: {problem}"[:200]}
            print(json.dumps({**case, **result}), file=file, flush=True)
            count += 1
            if count % 50 == 0 and device == "cuda":
                torch.cuda.empty_cache()
    print(f"{count} convolutions recorded", file=sys.stderr)


if __name__ == "__main__":
    main()
