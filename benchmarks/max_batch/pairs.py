"""The workloads and memory caps of the comparison. Torch is not imported here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from vramcast.units import GiB

GPT = "vramcast_zoo.suites.models:gpt"
MODELS = "vramcast_zoo.suites.models:"
HF = "vramcast_zoo.suites.huggingface:huggingface"


@dataclass(frozen=True)
class Pair:
    """One workload under one cap of the allocator; `batch_size` is what is looked for."""

    name: str
    workload: str
    memory_gib: int
    knobs: dict[str, Any] = field(default_factory=dict)

    @property
    def memory_bytes(self) -> int:
        return self.memory_gib * GiB

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "memory_bytes": self.memory_bytes}


# the first is the one that issue 4 measured before: its true answer is 23
PAIRS = [
    Pair("gpt124m-amp", GPT, 24, {"autocast": "bf16"}),
    Pair("gpt124m-fp32", GPT, 32),
    Pair(
        "gpt124m-amp-checkpointed", GPT, 24, {"autocast": "bf16", "checkpointing": "non-reentrant"}
    ),
    Pair("gpt355m-amp", GPT, 40, {"autocast": "bf16", "width": 1024, "depth": 24, "heads": 16}),
    Pair("gpt124m-bf16-adafactor", GPT, 20, {"precision": "bf16", "optimizer": "adafactor"}),
    Pair("gpt124m-fp16-scaler", GPT, 20, {"autocast": "fp16", "scale_loss": True}),
    Pair("llama300m-bf16", HF, 32, {"size": "llama-300m", "precision": "bf16"}),
    Pair("bert-amp-T512", HF, 24, {"size": "bert", "autocast": "bf16", "seq_len": 512}),
    Pair("lstm-fp32", MODELS + "rnn", 8),
    Pair(
        "resnet18-amp-channels-last",
        MODELS + "resnet",
        4,
        {"autocast": "bf16", "channels_last": True},
    ),
]
