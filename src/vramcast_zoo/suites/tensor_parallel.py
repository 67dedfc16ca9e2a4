"""Tensor and sequence parallel of a Llama of the zoo."""

from __future__ import annotations

from typing import Any

from torch import nn


def split(model: nn.Module, mesh: Any, ways: int) -> None:
    """Tensor and sequence parallel of a Llama, as torchtitan does it, with a parallel loss."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    sequence = Shard(1)
    parallelize_module(
        model,
        mesh,
        {
            "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=sequence),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(
                input_layouts=sequence, output_layouts=Shard(-1), use_local_output=False
            ),
        },
    )
    for block in model.blocks:  # type: ignore[union-attr]
        block.mixer.heads //= ways
        block.mixer.kv_heads //= ways
        parallelize_module(
            block,
            mesh,
            {
                "norm_1": SequenceParallel(),
                "norm_2": SequenceParallel(),
                "mixer": PrepareModuleInput(
                    input_layouts=(sequence, None, None),
                    desired_input_layouts=(Replicate(), None, None),
                ),
                "mixer.query": ColwiseParallel(),
                "mixer.key_value": ColwiseParallel(),
                "mixer.out": RowwiseParallel(output_layouts=sequence),
                "feed_forward": PrepareModuleInput(
                    input_layouts=(sequence,), desired_input_layouts=(Replicate(),)
                ),
                "feed_forward.gate": ColwiseParallel(),
                "feed_forward.up": ColwiseParallel(),
                "feed_forward.down": RowwiseParallel(output_layouts=sequence),
            },
        )
