"""Cases: convolution, pooling, recurrence, optimizers and copies between host and GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from kernel_cases.base import (
    Case,
    add,
    bf16,
    f16,
    f32,
    lazily,
    module,
    rand,
)

# --------------------------------------------------------------- convolution, pooling, recurrence
for tag, (make, shape) in {
    "conv1d": (lambda: nn.Conv1d(64, 128, 5, padding=2), (16, 64, 1000)),
    "conv1d-depthwise": (lambda: nn.Conv1d(512, 512, 4, groups=512, padding=3), (4, 512, 128)),
    "conv2d-3x3": (lambda: nn.Conv2d(64, 128, 3, padding=1), (32, 64, 56, 56)),
    "conv2d-1x1": (lambda: nn.Conv2d(256, 64, 1, bias=False), (32, 256, 56, 56)),
    "conv2d-7x7": (lambda: nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), (32, 3, 224, 224)),
    "conv2d-patch16": (lambda: nn.Conv2d(3, 768, 16, stride=16), (64, 3, 224, 224)),
    "conv2d-depthwise": (lambda: nn.Conv2d(96, 96, 7, padding=3, groups=96), (32, 96, 56, 56)),
    "conv3d": (lambda: nn.Conv3d(3, 32, 3, padding=1), (2, 3, 8, 64, 64)),
    "convtranspose2d": (lambda: nn.ConvTranspose2d(64, 32, 2, stride=2), (8, 64, 32, 32)),
}.items():
    for dtype, name in ((f32, "f32"), (bf16, "bf16")):
        module(
            f"{tag}-{name}",
            lambda make=make, dtype=dtype: make().to(dtype),
            lazily(*shape, dtype=dtype, grad=True),
        )
    module(f"{tag}-amp", make, lazily(*shape, grad=True), amp=bf16)
module(
    "conv2d-channels_last",
    lambda: nn.Conv2d(64, 128, 3, padding=1).to(memory_format=torch.channels_last),
    lambda: rand(32, 64, 56, 56).contiguous(memory_format=torch.channels_last).requires_grad_(),
)
for tag, (make, shape) in {
    "rnn-wide-input": (lambda: nn.RNN(512, 256), (40, 24, 512)),
    "gru-wide-input": (lambda: nn.GRU(768, 384, num_layers=2), (64, 16, 768)),
    "lstm-wide-input": (lambda: nn.LSTM(1024, 512, bidirectional=True), (64, 16, 1024)),
    "lstm-h192": (lambda: nn.LSTM(192, 192), (50, 20, 192)),
    "gru-h160": (lambda: nn.GRU(160, 160, num_layers=2), (50, 20, 160)),
    "rnn-h320": (lambda: nn.RNN(320, 320), (110, 48, 320)),
    "lstm-dropout3": (lambda: nn.LSTM(256, 256, num_layers=3, dropout=0.2), (64, 40, 256)),
    "gru-dropout-bi": (
        lambda: nn.GRU(256, 256, num_layers=2, dropout=0.2, bidirectional=True),
        (64, 40, 256),
    ),
}.items():
    for dtype, name in ((f32, "f32"), (bf16, "bf16"), (f16, "f16")):
        module(
            f"{tag}-{name}",
            lambda make=make, dtype=dtype: make().to(dtype),
            lazily(*shape, dtype=dtype, grad=True),
        )
for tag, make in {
    "gru_cell": lambda: nn.GRUCell(256, 512),
    "lstm_cell": lambda: nn.LSTMCell(256, 512),
    "rnn_cell": lambda: nn.RNNCell(256, 512),
}.items():
    module(f"{tag}-f32", make, lazily(32, 256, grad=True))
    module(
        f"{tag}-bf16", lambda make=make: make().bfloat16(), lazily(32, 256, dtype=bf16, grad=True)
    )
    module(f"{tag}-amp", make, lazily(32, 256, grad=True), amp=bf16)
for tag, make_rnn in {
    "lstm": lambda: nn.LSTM(256, 512, batch_first=True),
    "lstm-2": lambda: nn.LSTM(256, 512, num_layers=2, dropout=0.1),
    "lstm-bi": lambda: nn.LSTM(256, 512, bidirectional=True),
    "gru": lambda: nn.GRU(256, 512, batch_first=True),
    "rnn": lambda: nn.RNN(256, 512),
}.items():
    module(f"{tag}-f32", make_rnn, lazily(64, 100, 256, grad=True))
    module(
        f"{tag}-bf16",
        lambda make_rnn=make_rnn: make_rnn().bfloat16(),
        lazily(64, 100, 256, dtype=bf16, grad=True),
    )
    module(f"{tag}-amp", make_rnn, lazily(64, 100, 256, grad=True), amp=bf16)
    module(f"{tag}-small", make_rnn, lazily(8, 32, 256, grad=True))
module("max_pool2d", lambda: nn.MaxPool2d(3, 2, 1), lazily(32, 64, 112, 112, grad=True))
module("avg_pool2d", lambda: nn.AvgPool2d(2), lazily(32, 64, 56, 56, grad=True))
module("adaptive_avg_pool2d", lambda: nn.AdaptiveAvgPool2d(1), lazily(32, 512, 7, 7, grad=True))
module("upsample", lambda: nn.Upsample(scale_factor=2), lazily(8, 64, 32, 32, grad=True))
module(
    "upsample-bilinear",
    lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    lazily(8, 64, 32, 32, grad=True),
)
module(
    "transformer-layer",
    lambda: nn.TransformerEncoderLayer(256, 8, batch_first=True),
    lazily(16, 128, 256, grad=True),
)
module(
    "multihead-attention",
    lambda: nn.MultiheadAttention(256, 8, batch_first=True),
    *(lazily(16, 128, 256, grad=True) for _ in range(3)),
)


# ------------------------------------------------------------------------------------- optimizers
def optimizer_case(
    make: Callable[[list[torch.Tensor]], torch.optim.Optimizer], dtype: torch.dtype = f32
) -> Case:
    def case() -> Callable[[], Any]:
        parameters = [
            rand(*shape, dtype=dtype, grad=True)
            for shape in [(1000, 512), (512,), (512, 512), (3, 3, 64, 64), ()] * 6
        ]
        for p in parameters:
            p.grad = torch.randn_like(p)
        optimizer = make(parameters)

        def run() -> None:
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()

        return run

    return case


for dtype, tag in ((f32, "f32"), (bf16, "bf16")):
    for implementation in ("foreach", "fused", "loop"):
        options = {
            "foreach": {"foreach": True},
            "fused": {"fused": True},
            "loop": {"foreach": False},
        }[implementation]
        for kind in (
            "SGD",
            "Adam",
            "AdamW",
            "Adagrad",
            "NAdam",
            "RAdam",
            "RMSprop",
            "Adamax",
            "Adadelta",
            "ASGD",
        ):
            if implementation == "fused" and kind not in ("SGD", "Adam", "AdamW", "Adagrad"):
                continue
            extra = {"momentum": 0.9} if kind == "SGD" else {}
            add(
                f"{kind.lower()}-{implementation}-{tag}",
                optimizer_case(
                    lambda ps, kind=kind, o={**options, **extra}: getattr(torch.optim, kind)(
                        ps, lr=1e-3, **o
                    ),
                    dtype,
                ),
            )
    add(f"adafactor-{tag}", optimizer_case(lambda ps: torch.optim.Adafactor(ps), dtype))
    add(f"adam-amsgrad-{tag}", optimizer_case(lambda ps: torch.optim.Adam(ps, amsgrad=True), dtype))
    add(
        f"adamw-capturable-{tag}",
        optimizer_case(lambda ps: torch.optim.AdamW(ps, capturable=True), dtype),
    )
    add(
        f"adamw-maximize-{tag}",
        optimizer_case(lambda ps: torch.optim.AdamW(ps, maximize=True), dtype),
    )
    add(
        f"sgd-nesterov-{tag}",
        optimizer_case(
            lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
            dtype,
        ),
    )


def muon() -> Callable[[], Any]:
    parameters = [rand(512, 256, grad=True) for _ in range(4)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.Muon(parameters)
    return optimizer.step


if hasattr(torch.optim, "Muon"):
    add("muon", muon)


def host_copies() -> Callable[[], Any]:
    host, gpu = torch.randn(256, 256), rand(256, 256)

    def run() -> None:
        _ = (
            host.cuda(),
            host.to("cuda", bf16),
            host.t().cuda(),
            gpu.cpu(),
            gpu.to("cpu", bf16),
            gpu.t().cpu(),
        )
        gpu.copy_(host.t())
        gpu.t().copy_(host.double())
        _ = (
            torch.tensor([1.0, 2.0], device="cuda"),
            torch.tensor(3, device="cuda"),
            torch.arange(100).cuda(non_blocking=True),
        )

    return run


add("host-copies", host_copies)
