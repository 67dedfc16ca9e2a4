"""Every row of the accuracy table: its name, the function that builds it, the knobs."""

from __future__ import annotations

from typing import Any

Row = tuple[str, dict[str, Any]]
GPT, ELMAN, HF = "models.py:gpt", "models.py:elman", "huggingface.py:huggingface"

# The rows measured first, on which the simulator was developed.
DEVELOPMENT: dict[str, Row] = {
    "gpt124m-fp32-B8": (GPT, {}),
    "gpt124m-amp-B8": (GPT, {"autocast": "bf16"}),
    "gpt124m-amp-B32": (GPT, {"autocast": "bf16", "batch_size": 32}),
    "gpt124m-bf16-B16": (GPT, {"precision": "bf16", "batch_size": 16}),
    "gpt124m-fp16scaler-B8": (GPT, {"autocast": "fp16", "scale_loss": True}),
    "gpt124m-amp-ckpt-B32": (GPT, {"autocast": "bf16", "batch_size": 32, "checkpointing": "non-reentrant"}),
    "gpt124m-amp-drop-B8": (GPT, {"autocast": "bf16", "dropout": 0.1}),
    "gpt124m-amp-fused-B8": (GPT, {"autocast": "bf16", "optimizer": "adamw-fused"}),
    "gpt124m-amp-loop-B8": (GPT, {"autocast": "bf16", "optimizer": "adamw-loop"}),
    "gpt124m-amp-sgd-B8": (GPT, {"autocast": "bf16", "optimizer": "sgd"}),
    "gpt124m-amp-accum4-B4": (GPT, {"autocast": "bf16", "batch_size": 4, "accumulate": 4}),
    "gpt355m-amp-B8": (GPT, {"autocast": "bf16", "width": 1024, "depth": 24, "heads": 16}),
    "gpt774m-bf16-B4": (GPT, {"precision": "bf16", "width": 1280, "depth": 36, "heads": 20, "batch_size": 4}),
    "gpt50m-byte-T512-B256": (
        GPT,
        {"autocast": "bf16", "vocabulary": 256, "width": 640, "depth": 10, "heads": 10, "seq_len": 512, "batch_size": 256},
    ),
    "elman27m-bf16-B64": (ELMAN, {"precision": "bf16"}),
    "elman27m-fp32-B64": (ELMAN, {}),
    "elman27m-amp-B64": (ELMAN, {"autocast": "bf16"}),
    "llama300m-bf16-B8-T1024": (HF, {"size": "llama-300m", "precision": "bf16"}),
    "llama300m-amp-B8-T1024": (HF, {"size": "llama-300m", "autocast": "bf16"}),
    "llama300m-amp-ckpt-B8-T2048": (HF, {"size": "llama-300m", "autocast": "bf16", "checkpointing": True, "seq_len": 2048}),
    "llama300m-eager-bf16-B4-T1024": (HF, {"size": "llama-300m", "precision": "bf16", "attention": "eager", "batch_size": 4}),
    "gpt2hf-fp32-B4-T1024": (HF, {"size": "gpt2", "batch_size": 4}),
    "gpt2hf-amp-B8-T512": (HF, {"size": "gpt2", "autocast": "bf16", "seq_len": 512}),
    "bertmlm-amp-B16-T512": (HF, {"size": "bert", "autocast": "bf16", "batch_size": 16, "seq_len": 512}),
    "vitb16-amp-B64": (HF, {"size": "vit-b16", "autocast": "bf16", "batch_size": 64}),
    "qwen3-0.6b-bf16-B2-T1024": (HF, {"size": "qwen3-0.6b", "precision": "bf16", "batch_size": 2}),
    "mixtral-tiny-bf16-B4-T512": (HF, {"size": "mixtral-tiny", "precision": "bf16", "batch_size": 4, "seq_len": 512}),
}

# Rows added afterwards, to see how it does on what it was not developed on.
HOLDOUT: dict[str, Row] = {
    "gpt124m-amp-ckpt-reentrant-B16": (GPT, {"autocast": "bf16", "batch_size": 16, "checkpointing": "reentrant"}),
    "gpt124m-amp-schedulefree-B8": (GPT, {"autocast": "bf16", "optimizer": "schedulefree"}),
    "gpt124m-bf16-adafactor-B8": (GPT, {"precision": "bf16", "optimizer": "adafactor"}),
    "gpt124m-fp16-drop-fused-B6-T777": (
        GPT,
        {"autocast": "fp16", "scale_loss": True, "dropout": 0.1, "optimizer": "adamw-fused", "batch_size": 6, "seq_len": 777},
    ),
    "gpt-headdim80-bf16-B12-T640": (GPT, {"precision": "bf16", "width": 960, "heads": 12, "depth": 8, "batch_size": 12, "seq_len": 640}),
    "gpt-tiny-fp32-B2-T128": (GPT, {"vocabulary": 1000, "width": 128, "heads": 4, "depth": 3, "batch_size": 2, "seq_len": 128}),
    "elman-small-fp32-B16-T100": (ELMAN, {"width": 256, "depth": 2, "batch_size": 16, "seq_len": 100}),
    "lstm-fp32-B32-T256": ("models.py:rnn", {}),
    "gru-amp-B64-T128": ("models.py:rnn", {"kind": "GRU", "autocast": "bf16", "batch_size": 64, "seq_len": 128}),
    "moe-amp-B8-T512": ("models.py:moe", {"autocast": "bf16"}),
    "moe-fp32-B4-T256": ("models.py:moe", {"batch_size": 4, "seq_len": 256}),
    "resnet18-fp32-B64": ("models.py:resnet", {}),
    "resnet18-amp-channels_last-B128": ("models.py:resnet", {"autocast": "bf16", "channels_last": True, "batch_size": 128}),
    "encoder-fp32-B16-T256": ("models.py:encoder", {}),
    "encoder-amp-B32-T200": ("models.py:encoder", {"autocast": "bf16", "batch_size": 32, "seq_len": 200}),
    "t5small-fp32-B16-T512": (HF, {"size": "t5-small", "batch_size": 16, "seq_len": 512}),
    "mamba-eager-bf16-B4-T128": (HF, {"size": "mamba", "precision": "bf16", "attention": "eager", "batch_size": 4, "seq_len": 128}),
    "opt125m-amp-B8-T512": (HF, {"size": "opt-125m", "autocast": "bf16", "seq_len": 512}),
    "pythia160m-bf16-B8-T1024": (HF, {"size": "pythia-160m", "precision": "bf16"}),
    "gemma2-bf16-B4-T1024": (HF, {"size": "gemma2-tiny", "precision": "bf16", "attention": "eager", "batch_size": 4}),
}

# Rows predicted before they were measured, and not looked at until then.
BLIND: dict[str, Row] = {
    "example-gpt-amp-B16": ("../../examples/gpt.py:build", {"batch_size": 16}),
    "example-gpt-bf16-ckpt-fused-B24-T512": (
        "../../examples/gpt.py:build",
        {"batch_size": 24, "seq_len": 512, "precision": "bf16", "checkpointing": True, "optimizer": "adamw-fused"},
    ),
    "example-huggingface-B4-T512": ("../../examples/huggingface.py:build", {"batch_size": 4, "seq_len": 512}),
    "example-recurrent-B48": ("../../examples/recurrent.py:build", {"batch_size": 48}),
    "olmo2-bf16-B6-T768": (HF, {"size": "olmo2-tiny", "precision": "bf16", "batch_size": 6, "seq_len": 768}),
    "phi-amp-sgd-B8-T512": (HF, {"size": "phi-tiny", "autocast": "bf16", "optimizer": "sgd", "seq_len": 512}),
    "roberta-fp32-B8-T256": (HF, {"size": "roberta", "batch_size": 8, "seq_len": 256}),
    "electra-amp-fused-B32-T128": (HF, {"size": "electra", "autocast": "fp16", "optimizer": "adamw-fused", "batch_size": 32, "seq_len": 128}),
    "gpt-wide-amp-loop-B3-T2048": (GPT, {"autocast": "bf16", "width": 1600, "heads": 25, "depth": 6, "batch_size": 3, "seq_len": 2048, "optimizer": "adamw-loop"}),
    "elman-amp-schedulefree-B24-T300": (ELMAN, {"autocast": "bf16", "width": 768, "depth": 3, "batch_size": 24, "seq_len": 300, "optimizer": "schedulefree"}),
}
