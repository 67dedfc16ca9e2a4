"""Every row of every accuracy suite: its name, the workload, the knobs. No torch.

open       the workloads behind the first published measurements, on which the simulator was developed
varied     other architectures: convolutions, recurrences, experts, encoders, odd sizes
settings   one model through precision x checkpointing x attention x optimizer x allocator setting
hf         Hugging Face architectures, built from their configurations
zoo        the models of the seed documents
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

from vramcast.errors import UsageError

GPT, ELMAN = "vramcast.suites.workloads.models:gpt", "vramcast.suites.workloads.models:elman"
MODELS, HF = (
    "vramcast.suites.workloads.models:",
    "vramcast.suites.workloads.huggingface:huggingface",
)


@dataclass(frozen=True)
class Row:
    name: str
    workload: str
    knobs: dict[str, Any] = field(default_factory=dict)
    allocator: str | None = None


def _named(rows: dict[str, tuple[str, dict[str, Any]]]) -> list[Row]:
    return [Row(name, workload, knobs) for name, (workload, knobs) in rows.items()]


OPEN = _named(
    {
        "gpt124m-fp32-B8": (GPT, {}),
        "gpt124m-amp-B8": (GPT, {"autocast": "bf16"}),
        "gpt124m-amp-B32": (GPT, {"autocast": "bf16", "batch_size": 32}),
        "gpt124m-bf16-B16": (GPT, {"precision": "bf16", "batch_size": 16}),
        "gpt124m-fp16scaler-B8": (GPT, {"autocast": "fp16", "scale_loss": True}),
        "gpt124m-amp-ckpt-B32": (
            GPT,
            {"autocast": "bf16", "batch_size": 32, "checkpointing": "non-reentrant"},
        ),
        "gpt124m-amp-drop-B8": (GPT, {"autocast": "bf16", "dropout": 0.1}),
        "gpt124m-amp-fused-B8": (GPT, {"autocast": "bf16", "optimizer": "adamw-fused"}),
        "gpt124m-amp-loop-B8": (GPT, {"autocast": "bf16", "optimizer": "adamw-loop"}),
        "gpt124m-amp-sgd-B8": (GPT, {"autocast": "bf16", "optimizer": "sgd"}),
        "gpt124m-amp-accum4-B4": (GPT, {"autocast": "bf16", "batch_size": 4, "accumulate": 4}),
        "gpt355m-amp-B8": (GPT, {"autocast": "bf16", "width": 1024, "depth": 24, "heads": 16}),
        "gpt774m-bf16-B4": (
            GPT,
            {"precision": "bf16", "width": 1280, "depth": 36, "heads": 20, "batch_size": 4},
        ),
        "gpt50m-byte-T512-B256": (
            GPT,
            {
                "autocast": "bf16",
                "vocabulary": 256,
                "width": 640,
                "depth": 10,
                "heads": 10,
                "seq_len": 512,
                "batch_size": 256,
            },
        ),
        "elman27m-bf16-B64": (ELMAN, {"precision": "bf16"}),
        "elman27m-fp32-B64": (ELMAN, {}),
        "elman27m-amp-B64": (ELMAN, {"autocast": "bf16"}),
        "llama300m-bf16-B8-T1024": (HF, {"size": "llama-300m", "precision": "bf16"}),
        "llama300m-amp-B8-T1024": (HF, {"size": "llama-300m", "autocast": "bf16"}),
        "llama300m-amp-ckpt-B8-T2048": (
            HF,
            {"size": "llama-300m", "autocast": "bf16", "checkpointing": True, "seq_len": 2048},
        ),
        "llama300m-eager-bf16-B4-T1024": (
            HF,
            {"size": "llama-300m", "precision": "bf16", "attention": "eager", "batch_size": 4},
        ),
        "gpt2hf-fp32-B4-T1024": (HF, {"size": "gpt2", "batch_size": 4}),
        "gpt2hf-amp-B8-T512": (HF, {"size": "gpt2", "autocast": "bf16", "seq_len": 512}),
        "bertmlm-amp-B16-T512": (
            HF,
            {"size": "bert", "autocast": "bf16", "batch_size": 16, "seq_len": 512},
        ),
        "vitb16-amp-B64": (HF, {"size": "vit-b16", "autocast": "bf16", "batch_size": 64}),
        "qwen3-0.6b-bf16-B2-T1024": (
            HF,
            {"size": "qwen3-0.6b", "precision": "bf16", "batch_size": 2},
        ),
        "mixtral-tiny-bf16-B4-T512": (
            HF,
            {"size": "mixtral-tiny", "precision": "bf16", "batch_size": 4, "seq_len": 512},
        ),
    }
)

VARIED = _named(
    {
        "gpt124m-amp-ckpt-reentrant-B16": (
            GPT,
            {"autocast": "bf16", "batch_size": 16, "checkpointing": "reentrant"},
        ),
        "gpt124m-amp-schedulefree-B8": (GPT, {"autocast": "bf16", "optimizer": "schedulefree"}),
        "gpt124m-bf16-adafactor-B8": (GPT, {"precision": "bf16", "optimizer": "adafactor"}),
        "gpt124m-fp16-drop-fused-B6-T777": (
            GPT,
            {
                "autocast": "fp16",
                "scale_loss": True,
                "dropout": 0.1,
                "optimizer": "adamw-fused",
                "batch_size": 6,
                "seq_len": 777,
            },
        ),
        "gpt-headdim80-bf16-B12-T640": (
            GPT,
            {
                "precision": "bf16",
                "width": 960,
                "heads": 12,
                "depth": 8,
                "batch_size": 12,
                "seq_len": 640,
            },
        ),
        "gpt-tiny-fp32-B2-T128": (
            GPT,
            {
                "vocabulary": 1000,
                "width": 128,
                "heads": 4,
                "depth": 3,
                "batch_size": 2,
                "seq_len": 128,
            },
        ),
        "elman-small-fp32-B16-T100": (
            ELMAN,
            {"width": 256, "depth": 2, "batch_size": 16, "seq_len": 100},
        ),
        "lstm-fp32-B32-T256": (MODELS + "rnn", {}),
        "gru-amp-B64-T128": (
            MODELS + "rnn",
            {"kind": "GRU", "autocast": "bf16", "batch_size": 64, "seq_len": 128},
        ),
        "moe-amp-B8-T512": (MODELS + "moe", {"autocast": "bf16"}),
        "moe-fp32-B4-T256": (MODELS + "moe", {"batch_size": 4, "seq_len": 256}),
        "resnet18-fp32-B64": (MODELS + "resnet", {}),
        "resnet18-amp-channels_last-B128": (
            MODELS + "resnet",
            {"autocast": "bf16", "channels_last": True, "batch_size": 128},
        ),
        "encoder-fp32-B16-T256": (MODELS + "encoder", {}),
        "encoder-amp-B32-T200": (
            MODELS + "encoder",
            {"autocast": "bf16", "batch_size": 32, "seq_len": 200},
        ),
        "gpt-wide-amp-loop-B3-T2048": (
            GPT,
            {
                "autocast": "bf16",
                "width": 1600,
                "heads": 25,
                "depth": 6,
                "batch_size": 3,
                "seq_len": 2048,
                "optimizer": "adamw-loop",
            },
        ),
        "elman-amp-schedulefree-B24-T300": (
            ELMAN,
            {
                "autocast": "bf16",
                "width": 768,
                "depth": 3,
                "batch_size": 24,
                "seq_len": 300,
                "optimizer": "schedulefree",
            },
        ),
    }
)

HUGGING_FACE = _named(
    {
        "t5small-fp32-B16-T512": (HF, {"size": "t5-small", "batch_size": 16, "seq_len": 512}),
        "mamba-eager-bf16-B4-T128": (
            HF,
            {
                "size": "mamba",
                "precision": "bf16",
                "attention": "eager",
                "batch_size": 4,
                "seq_len": 128,
            },
        ),
        "opt125m-amp-B8-T512": (HF, {"size": "opt-125m", "autocast": "bf16", "seq_len": 512}),
        "pythia160m-bf16-B8-T1024": (HF, {"size": "pythia-160m", "precision": "bf16"}),
        "gemma2-bf16-B4-T1024": (
            HF,
            {"size": "gemma2-tiny", "precision": "bf16", "attention": "eager", "batch_size": 4},
        ),
        "olmo2-bf16-B6-T768": (
            HF,
            {"size": "olmo2-tiny", "precision": "bf16", "batch_size": 6, "seq_len": 768},
        ),
        "phi-amp-sgd-B8-T512": (
            HF,
            {"size": "phi-tiny", "autocast": "bf16", "optimizer": "sgd", "seq_len": 512},
        ),
        "roberta-fp32-B8-T256": (HF, {"size": "roberta", "batch_size": 8, "seq_len": 256}),
        "electra-amp-fused-B32-T128": (
            HF,
            {
                "size": "electra",
                "autocast": "fp16",
                "optimizer": "adamw-fused",
                "batch_size": 32,
                "seq_len": 128,
            },
        ),
        "mistral-bf16-B8-T512": (HF, {"size": "mistral-tiny", "precision": "bf16", "seq_len": 512}),
        "bloom-amp-B4-T512": (
            HF,
            {
                "size": "bloom-tiny",
                "autocast": "bf16",
                "attention": "eager",
                "batch_size": 4,
                "seq_len": 512,
            },
        ),
        "falcon-bf16-fused-B8-T512": (
            HF,
            {
                "size": "falcon-tiny",
                "precision": "bf16",
                "optimizer": "adamw-fused",
                "seq_len": 512,
            },
        ),
        "gptneo-amp-B4-T512": (
            HF,
            {
                "size": "gptneo-125m",
                "autocast": "bf16",
                "attention": "eager",
                "batch_size": 4,
                "seq_len": 512,
            },
        ),
        "distilbert-fp32-B16-T256": (HF, {"size": "distilbert", "batch_size": 16, "seq_len": 256}),
        "deberta-amp-B8-T256": (
            HF,
            {"size": "deberta-v2", "autocast": "bf16", "attention": "eager", "seq_len": 256},
        ),
        "bart-fp32-B8-T256": (HF, {"size": "bart-base", "seq_len": 256}),
        "phi3-bf16-ckpt-B8-T1024": (
            HF,
            {"size": "phi3-tiny", "precision": "bf16", "checkpointing": True},
        ),
        "stablelm-amp-sgd-B8-T512": (
            HF,
            {"size": "stablelm-tiny", "autocast": "bf16", "optimizer": "sgd", "seq_len": 512},
        ),
        "starcoder2-amp-B6-T768": (
            HF,
            {"size": "starcoder2-tiny", "autocast": "fp16", "batch_size": 6, "seq_len": 768},
        ),
        "qwen3moe-bf16-B4-T256": (
            HF,
            {"size": "qwen3-moe-tiny", "precision": "bf16", "batch_size": 4, "seq_len": 256},
        ),
        "granite-bf16-B5-T640": (
            HF,
            {"size": "granite-tiny", "precision": "bf16", "batch_size": 5, "seq_len": 640},
        ),
        "xglm-fp32-B8-T256": (HF, {"size": "xglm-tiny", "attention": "eager", "seq_len": 256}),
        "deit-amp-B96": (HF, {"size": "deit-small", "autocast": "bf16", "batch_size": 96}),
    }
)

# One model through five settings; all values of any two of them meet in some row.
_PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "amp": {"autocast": "bf16"},
    "bf16": {"precision": "bf16"},
    "fp16": {"autocast": "fp16", "scale_loss": True},
}
_SETTINGS: tuple[tuple[str, ...], ...] = (
    tuple(_PRECISIONS),
    ("keep", "non-reentrant", "reentrant"),
    ("sdpa", "eager", "efficient", "math"),
    ("adamw", "adamw-fused", "adamw-loop", "sgd", "adafactor"),
    ("default", "expandable_segments:True", "max_split_size_mb:256", "roundup_power2_divisions:4"),
)


def covering(settings: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Few combinations in which every two values of different settings occur together: always the one that adds most pairs."""

    def pairs(values: Sequence[str]) -> set[tuple[tuple[int, str], ...]]:
        return set(combinations(enumerate(values), 2))

    everything = list(product(*settings))
    missing = set().union(*(pairs(values) for values in everything))
    chosen: list[tuple[str, ...]] = []
    while missing:
        chosen.append(max(everything, key=lambda values: len(pairs(values) & missing)))
        missing -= pairs(chosen[-1])
    return chosen


def _settings() -> list[Row]:
    rows = []
    for precision, checkpointing, attention, optimizer, allocator in covering(_SETTINGS):
        name = "-".join(
            (precision, attention, checkpointing, optimizer, allocator.partition(":")[0])
        )
        knobs = {
            **_PRECISIONS[precision],
            "attention": attention,
            "checkpointing": "" if checkpointing == "keep" else checkpointing,
            "optimizer": optimizer,
            "depth": 6,
            "batch_size": 6,
        }
        rows.append(Row(f"set-{name}", GPT, knobs, None if allocator == "default" else allocator))
    return rows


ZOO = _named(
    {
        "zoo-gpt2-124m-B8": ("gpt2-124m", {"batch_size": 8, "seq_len": 512}),
        "zoo-llama-300m-B4": ("llama-300m", {"batch_size": 4, "seq_len": 512}),
        "zoo-yxanul-197m-B2-T512": ("yxanul-197m", {"batch_size": 2, "seq_len": 512}),
        "zoo-mamba2-50m-B8-T256": ("mamba2-50m", {"batch_size": 8, "seq_len": 256}),
        "zoo-e1-d1024-B16-T64": (
            "e1-d1024",
            {"batch_size": 16, "seq_len": 64, "recurrence": "plain"},
        ),
        "zoo-e5-d768-r539-B16-T32": (
            "e5-d768-r539",
            {"batch_size": 16, "seq_len": 32, "recurrence": "plain"},
        ),
        "zoo-e10-50m-B32-T64": (
            "e10-50m",
            {"batch_size": 32, "seq_len": 64, "recurrence": "plain"},
        ),
        "zoo-elleci-1.36b-B1-T128": ("elleci-1.36b", {"batch_size": 1, "seq_len": 128}),
        "zoo-od1-small-dense-B4": ("od1-small", {"batch_size": 4, "ring": "dense"}),
        "zoo-od1-real-dense-B1": ("od1-real", {"batch_size": 1, "ring": "dense"}),
    }
)

SUITES: dict[str, list[Row]] = {
    "open": OPEN,
    "varied": VARIED,
    "settings": _settings(),
    "hf": HUGGING_FACE,
    "zoo": ZOO,
}


def rows_of(names: Iterable[str]) -> list[Row]:
    """The rows of these suites; all of them where none is named."""
    wanted = list(names) or list(SUITES)
    unknown = [name for name in wanted if name not in SUITES]
    if unknown:
        raise UsageError(f"There is no suite {unknown[0]!r}.", f"Suites: {', '.join(SUITES)}.")
    return [row for name in wanted for row in SUITES[name]]
