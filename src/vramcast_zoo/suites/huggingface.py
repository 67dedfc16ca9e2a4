"""Hugging Face models of the accuracy suite, built from a configuration with random weights."""

from __future__ import annotations

from collections.abc import Callable

import torch

from vramcast_zoo.suites.training import DTYPES, training_step

LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
}
SIZES: dict[str, tuple[str, str, dict[str, object]]] = {
    "llama-300m": ("LlamaForCausalLM", "LlamaConfig", LLAMA),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {}),
    "bert": ("BertForMaskedLM", "BertConfig", {}),
    "vit-b16": ("ViTForImageClassification", "ViTConfig", {}),
    "qwen3-0.6b": (
        "Qwen3ForCausalLM",
        "Qwen3Config",
        {
            "vocab_size": 151936,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "tie_word_embeddings": True,
        },
    ),
    "mixtral-tiny": (
        "MixtralForCausalLM",
        "MixtralConfig",
        {
            "vocab_size": 32000,
            "hidden_size": 512,
            "intermediate_size": 1024,
            "num_hidden_layers": 8,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "num_local_experts": 8,
        },
    ),
    "t5-small": ("T5ForConditionalGeneration", "T5Config", {"decoder_start_token_id": 0}),
    "mamba": (
        "MambaForCausalLM",
        "MambaConfig",
        {"vocab_size": 32000, "hidden_size": 512, "num_hidden_layers": 4},
    ),
    "mamba2": (
        "Mamba2ForCausalLM",
        "Mamba2Config",
        {
            "vocab_size": 32000,
            "hidden_size": 512,
            "num_hidden_layers": 4,
            "num_heads": 16,
            "n_groups": 1,
            "chunk_size": 64,
        },
    ),
    "opt-125m": ("OPTForCausalLM", "OPTConfig", {}),
    "pythia-160m": (
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        {
            "vocab_size": 50304,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
        },
    ),
    "gemma2-tiny": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        {
            "vocab_size": 64000,
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 8,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 96,
        },
    ),
    "olmo2-tiny": (
        "Olmo2ForCausalLM",
        "Olmo2Config",
        {
            "vocab_size": 50304,
            "hidden_size": 640,
            "intermediate_size": 2560,
            "num_hidden_layers": 10,
            "num_attention_heads": 10,
        },
    ),
    "phi-tiny": (
        "PhiForCausalLM",
        "PhiConfig",
        {
            "vocab_size": 51200,
            "hidden_size": 512,
            "intermediate_size": 2048,
            "num_hidden_layers": 8,
            "num_attention_heads": 8,
        },
    ),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", {"max_position_embeddings": 514}),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", {}),
    "mistral-tiny": (
        "MistralForCausalLM",
        "MistralConfig",
        {
            "vocab_size": 32000,
            "hidden_size": 768,
            "intermediate_size": 2048,
            "num_hidden_layers": 8,
            "num_attention_heads": 12,
            "num_key_value_heads": 4,
            "sliding_window": 256,
        },
    ),
    "bloom-tiny": (
        "BloomForCausalLM",
        "BloomConfig",
        {"vocab_size": 50304, "hidden_size": 768, "n_layer": 8, "n_head": 12},
    ),
    "falcon-tiny": (
        "FalconForCausalLM",
        "FalconConfig",
        {
            "vocab_size": 50304,
            "hidden_size": 768,
            "num_hidden_layers": 8,
            "num_attention_heads": 12,
        },
    ),
    "gptneo-125m": (
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        {
            "hidden_size": 768,
            "num_layers": 12,
            "num_heads": 12,
            "attention_types": [[["global", "local"], 6]],
        },
    ),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertConfig", {}),
    "deberta-v2": (
        "DebertaV2ForMaskedLM",
        "DebertaV2Config",
        {
            "vocab_size": 32000,
            "hidden_size": 512,
            "num_hidden_layers": 6,
            "num_attention_heads": 8,
            "intermediate_size": 2048,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 128,
        },
    ),
    "bart-base": (
        "BartForConditionalGeneration",
        "BartConfig",
        {
            "d_model": 768,
            "encoder_layers": 6,
            "decoder_layers": 6,
            "encoder_attention_heads": 12,
            "decoder_attention_heads": 12,
            "encoder_ffn_dim": 3072,
            "decoder_ffn_dim": 3072,
        },
    ),
    "phi3-tiny": (
        "Phi3ForCausalLM",
        "Phi3Config",
        {
            "vocab_size": 32064,
            "hidden_size": 768,
            "intermediate_size": 2048,
            "num_hidden_layers": 8,
            "num_attention_heads": 12,
            "pad_token_id": 0,
        },
    ),
    "stablelm-tiny": (
        "StableLmForCausalLM",
        "StableLmConfig",
        {
            "vocab_size": 50304,
            "hidden_size": 768,
            "intermediate_size": 2048,
            "num_hidden_layers": 8,
            "num_attention_heads": 12,
            "num_key_value_heads": 12,
        },
    ),
    "starcoder2-tiny": (
        "Starcoder2ForCausalLM",
        "Starcoder2Config",
        {
            "vocab_size": 49152,
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 8,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
        },
    ),
    "qwen3-moe-tiny": (
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        {
            "vocab_size": 32000,
            "hidden_size": 512,
            "intermediate_size": 1024,
            "moe_intermediate_size": 384,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "head_dim": 64,
        },
    ),
    "granite-tiny": (
        "GraniteForCausalLM",
        "GraniteConfig",
        {
            "vocab_size": 49152,
            "hidden_size": 768,
            "intermediate_size": 2048,
            "num_hidden_layers": 8,
            "num_attention_heads": 12,
            "num_key_value_heads": 4,
        },
    ),
    "xglm-tiny": (
        "XGLMForCausalLM",
        "XGLMConfig",
        {
            "vocab_size": 32000,
            "d_model": 512,
            "ffn_dim": 2048,
            "num_layers": 6,
            "attention_heads": 8,
        },
    ),
    "deit-small": (
        "DeiTForImageClassification",
        "DeiTConfig",
        {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536},
    ),
}


def huggingface(
    *,
    size: str,
    batch_size: int = 8,
    seq_len: int = 1024,
    precision: str = "fp32",
    attention: str = "sdpa",
    checkpointing: bool = False,
    autocast: str = "",
    optimizer: str = "adamw",
) -> Callable[[], torch.Tensor]:
    import transformers

    model_name, config_name, settings = SIZES[size]
    config = getattr(transformers, config_name)(**settings)
    config._attn_implementation = attention
    torch.set_default_dtype(DTYPES[precision])
    with torch.device("cuda"):
        model = getattr(transformers, model_name)(config)
    torch.set_default_dtype(torch.float32)
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def loss() -> torch.Tensor:
        if size.startswith(("vit", "deit")):
            images = torch.randn(batch_size, 3, 224, 224, device="cuda", dtype=DTYPES[precision])
            return model(
                pixel_values=images, labels=torch.zeros(batch_size, dtype=torch.long, device="cuda")
            ).loss
        tokens = torch.randint(0, config.vocab_size, (batch_size, seq_len), device="cuda")
        return model(input_ids=tokens, labels=tokens).loss

    return training_step(loss, model.parameters(), optimizer=optimizer, autocast=autocast)
