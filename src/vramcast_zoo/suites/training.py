"""The training step that the accuracy workloads share, with its knobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def make_optimizer(name: str, parameters: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
    """A family and its implementation: `adamw`, `adamw-fused`, `adamw-loop`, `sgd`, ..."""
    family, _, implementation = name.partition("-")
    options: dict[str, Any] = {
        "": {},
        "foreach": {"foreach": True},
        "fused": {"fused": True},
        "loop": {"foreach": False},
    }[implementation]
    if family == "sgd":
        return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, **options)
    if family == "adafactor":
        return torch.optim.Adafactor(parameters, lr=1e-3, **options)
    if family == "schedulefree":
        import schedulefree

        optimizer: torch.optim.Optimizer = schedulefree.AdamWScheduleFree(
            parameters, lr=3e-4, **options
        )
        optimizer.train()  # type: ignore[attr-defined]
        return optimizer
    return torch.optim.AdamW(parameters, lr=1e-4, **options)


def training_step(
    loss_of_batch: Callable[[], torch.Tensor],
    parameters: Iterable[torch.nn.Parameter],
    *,
    optimizer: str = "adamw",
    autocast: str = "",
    clip: float = 1.0,
    accumulate: int = 1,
    scale_loss: bool = False,
    prepare: Callable[[torch.optim.Optimizer], None] | None = None,
) -> Callable[[], torch.Tensor]:
    trained = [p for p in parameters if p.requires_grad]
    update = make_optimizer(optimizer, trained)
    if prepare:
        prepare(update)
    scaler = torch.amp.GradScaler("cuda") if scale_loss else None

    def step() -> torch.Tensor:
        update.zero_grad(set_to_none=True)
        for _ in range(accumulate):
            with torch.autocast("cuda", dtype=DTYPES[autocast]) if autocast else nullcontext():
                loss = loss_of_batch() / accumulate
            (scaler.scale(loss) if scaler else loss).backward()
        if scaler:
            scaler.unscale_(update)
        if clip:
            torch.nn.utils.clip_grad_norm_(trained, clip)
        if scaler:
            scaler.step(update)
            scaler.update()
        else:
            update.step()
        return loss.detach()

    return step
