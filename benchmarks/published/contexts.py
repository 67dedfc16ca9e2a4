"""The longest contexts that unsloth's README gives for Hugging Face's own code, predicted.

PYTHONPATH=src python benchmarks/published/contexts.py ["24 GB"...]

Needs transformers, peft and bitsandbytes. QLoRA of Llama 3.1 8B: 4 bits, rank 32 on all linear
layers, batch size 1. Appends to contexts.jsonl.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).with_name("contexts.jsonl")
SOURCE = "unsloth's README (Hugging Face with flash attention 2, December 2024)"
# label of the GPU's memory -> a GPU of that size, the longest context; 0: out of memory
PUBLISHED = {
    "8 GB": ("rtx-4070-ti", 0),
    "12 GB": ("rtx-4070-ti", 932),
    "16 GB": ("rtx-4080", 2551),
    "24 GB": ("rtx-4090", 5789),
    "40 GB": ("a100-40gb", 12264),
    "48 GB": ("a6000", 15502),
    "80 GB": ("a100-80gb", 28454),
}
# No GPU of 8 GB is known by name: what is left of one beside the CUDA context.
BUDGETS = {"8 GB": "7.25GiB"}
# torch's own, and the one that unsloth sets when it is imported
ALLOCATORS = ("", "expandable_segments:True")


def loss_of_2024(
    logits: Any, labels: Any, vocab_size: int, num_items_in_batch: Any = None, **_: Any
) -> Any:
    """As transformers 4.46 computed it: a copy of all logits but the last, in fp32."""
    import torch.nn.functional as F

    logits = logits.float()
    shifted = logits[..., :-1, :].contiguous()
    targets = labels[..., 1:].contiguous()
    return F.cross_entropy(shifted.view(-1, vocab_size), targets.view(-1))


def qlora(*, batch_size: int = 1024) -> Callable[[], Any]:
    """`batch_size` is the number of tokens of the only sequence: max-batch finds the longest."""
    from transformers.loss import loss_utils

    from vramcast_zoo.known.workloads import workload

    loss_utils.LOSS_MAPPING["ForCausalLM"] = loss_of_2024
    return workload("hf:meta-llama/Llama-3.1-8B")(
        batch_size=1,
        seq_len=batch_size,
        lora=32,
        quantize="nf4",
        prepare_kbit=True,
        precision="amp-bf16",
        checkpointing=True,
        optimizer="adamw-8bit",
    )


def main() -> None:
    import vramcast

    labels = sys.argv[1:] or list(PUBLISHED)
    for label, allocator in [(label, one) for one in ALLOCATORS for label in labels]:
        gpu, published = PUBLISHED[label]
        found = vramcast.max_batch(
            f"{__file__}:qlora",
            gpu=gpu,
            memory=BUDGETS.get(label),
            allocator=allocator,
            maximum=65536,
            confirm=False,
        )
        record = {
            "label": label,
            "gpu": gpu,
            "memory": BUDGETS.get(label),
            "allocator": allocator,
            "published_tokens": published,
            "predicted_tokens": found.largest_batch or 0,
            "torch": version("torch"),
            "transformers": version("transformers"),
            "source": "predicted",
        }
        with RECORDS.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(record, flush=True)


if __name__ == "__main__":
    main()
