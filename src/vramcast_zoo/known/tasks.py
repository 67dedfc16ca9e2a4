"""What a model may be trained for, and which sizes its batches have. No torch is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

TaskName = Literal[
    "causal",
    "masked",
    "classification",
    "tokens",
    "seq2seq",
    "image",
    "speech",
    "ctc",
    "contrastive",
    "diffusion",
]


@dataclass(frozen=True)
class Task:
    """`maker` is the class of transformers that makes a model for it."""

    maker: str
    sizes: Mapping[str, int]  # knobs of its batches, with their defaults


TASKS = {
    "causal": Task("AutoModelForCausalLM", {"batch_size": 1, "seq_len": 2048}),
    "masked": Task("AutoModelForMaskedLM", {"batch_size": 16, "seq_len": 512}),
    "classification": Task(
        "AutoModelForSequenceClassification", {"batch_size": 16, "seq_len": 512}
    ),
    "tokens": Task("AutoModelForTokenClassification", {"batch_size": 16, "seq_len": 512}),
    "seq2seq": Task("AutoModelForSeq2SeqLM", {"batch_size": 8, "seq_len": 512, "target_len": 128}),
    "image": Task("AutoModelForImageClassification", {"batch_size": 32, "image_size": 224}),
    "speech": Task("AutoModelForSpeechSeq2Seq", {"batch_size": 8, "target_len": 128}),
    "ctc": Task("AutoModelForCTC", {"batch_size": 8, "num_seconds": 10, "target_len": 64}),
    "contrastive": Task("AutoModel", {"batch_size": 32, "seq_len": 77, "image_size": 224}),
    "diffusion": Task("", {"batch_size": 4, "image_size": 512}),
}

# The usual task by the model's type; for all others it is causal.
USUAL = {
    "masked": (
        "albert bert camembert deberta deberta-v2 distilbert electra mpnet modernbert roberta "
        "xlm-roberta"
    ),
    "seq2seq": "bart led longt5 marian mbart mt5 pegasus t5 umt5",
    "image": (
        "beit convnext convnextv2 data2vec-vision deit dinov2 dinov2_with_registers levit "
        "mobilenet_v2 mobilevit pvt regnet resnet segformer swin swinv2 vit vit_msn"
    ),
    "speech": "whisper moonshine speech_to_text",
    "ctc": "hubert wav2vec2 wavlm wav2vec2-conformer",
    "contrastive": "clip siglip siglip2 altclip chinese_clip",
}
BY_TYPE = {kind: task for task, kinds in USUAL.items() for kind in kinds.split()}
# How names of classes in config.json end.
BY_ENDING = {
    "ForCausalLM": "causal",
    "LMHeadModel": "causal",
    "ForMaskedLM": "masked",
    "ForSequenceClassification": "classification",
    "ForTokenClassification": "tokens",
    "ForImageClassification": "image",
    "ForCTC": "ctc",
}


def usual_task(settings: Mapping[str, Any]) -> str:
    """Of a configuration: what its weights were made for, or what its type is mostly used for."""
    if "_class_name" in settings:  # diffusers writes it
        return "diffusion"
    if found := BY_TYPE.get(str(settings.get("model_type"))):
        return found
    for name in settings.get("architectures") or ():
        for ending, task in BY_ENDING.items():
            if str(name).endswith(ending):
                return task
    return "causal"


def sizes_of(settings: Mapping[str, Any], task: str) -> dict[str, int]:
    """The sizes of a model's batches for a task: its own where its configuration has them."""
    sizes = dict(TASKS[task].sizes)
    own = settings.get("image_size") or settings.get("vision_config", {}).get("image_size")
    if "image_size" in sizes and isinstance(own, int):
        sizes["image_size"] = own
    if task == "contrastive":
        text = settings.get("text_config", {})
        sizes["seq_len"] = text.get("max_position_embeddings", sizes["seq_len"])
    if task == "diffusion":
        sizes["image_size"] = 8 * settings.get("sample_size", 64)
    positions = settings.get("n_positions") or settings.get("max_position_embeddings")
    if "seq_len" in sizes and task != "contrastive" and isinstance(positions, int):
        sizes["seq_len"] = min(sizes["seq_len"], 1 << (positions.bit_length() - 1))
    return sizes
